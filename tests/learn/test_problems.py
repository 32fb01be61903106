"""Gradients against slopes and against torch's autograd; sums of them over any partition."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.learn import MLP, LeastSquares, digits, linear_data

N = 24


def make(name, dtype=np.float64):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, 5)).astype(dtype)
    if name == "least squares":
        return LeastSquares(X, rng.standard_normal(N))
    hidden = (6, 4) if name == "relu" else 4
    return MLP(X, rng.integers(3, size=N), hidden, classes=3, activation=name)


every = pytest.mark.parametrize("name", ["least squares", "tanh", "relu"])


def somewhere(problem, seed=0):
    return np.random.default_rng(seed).standard_normal(problem.d).astype(problem.dtype)


def torch_loss(name, problem, w, idx):
    """The same loss by torch's own functions."""
    import torch
    from torch.nn import functional as F

    X, y = torch.from_numpy(problem.X[idx]), torch.from_numpy(problem.y[idx])
    if name == "least squares":
        return F.mse_loss(X @ w, y)
    parts = [w[at].reshape(shape) for at, shape in zip(problem.layers, problem.shapes, strict=True)]
    for W, b in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        X = getattr(torch, name)(F.linear(X, W, b))
    return F.cross_entropy(F.linear(X, *parts[-2:]), y)


@every
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 2e-4)])
@pytest.mark.parametrize("idx", [[3], [4, 4, 7, 23, 0]])
def test_loss_and_gradient_equal_torch(name, dtype, rtol, idx):
    torch = pytest.importorskip("torch")
    problem = make(name, dtype)
    w = somewhere(problem)
    at = torch.tensor(w, requires_grad=True)
    loss = torch_loss(name, problem, at, idx)
    loss.backward()
    assert problem.loss(w, idx) == pytest.approx(loss.item(), rel=rtol)
    np.testing.assert_allclose(problem.grad(w, idx), at.grad.numpy(), rtol=rtol, atol=rtol)
    assert problem.grad(w, idx).dtype == problem.grad_sum(w, idx).dtype == dtype


@every
@settings(max_examples=25)
@given(data=st.data())
def test_gradient_sums_add_up_over_any_partition(name, data):
    problem = make(name)
    K = data.draw(st.integers(1, 6))
    owner = np.array(data.draw(st.lists(st.integers(0, K - 1), min_size=N, max_size=N)))
    w = somewhere(problem, seed=data.draw(st.integers(0, 99)))
    parts = [problem.grad_sum(w, np.flatnonzero(owner == k)) for k in range(K)]  # some may be empty
    np.testing.assert_allclose(np.sum(parts, axis=0), problem.grad_sum(w), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.sum(parts, axis=0) / N, problem.grad(w), rtol=1e-9, atol=1e-11)


@every
@pytest.mark.parametrize("idx, says", [
    ([], "idx must hold at least one example"),
    ([0, 24], "idx must be from 0 to 23, got 0 to 24"),
    ([-1], "idx must be from 0"),
    (np.ones(N, dtype=bool), "list of example numbers"),  # a mask would be miscounted
    ([[0, 1]], "list of example numbers"),
])  # fmt: skip
def test_bad_example_numbers_and_weights_are_refused(name, idx, says):
    problem = make(name)
    with pytest.raises(ValueError, match=says):
        problem.grad(somewhere(problem), idx)
    with pytest.raises(ValueError, match=rf"w must have shape \({problem.d},\)"):
        problem.grad(np.zeros(problem.d + 1))


X = np.ones((3, 2))


@pytest.mark.parametrize("call, says", [
    (lambda: LeastSquares(X, [1.0, 2.0]), r"y must have shape \(3,\)"),
    (lambda: LeastSquares(np.ones((0, 2)), []), "N, p >= 1"),
    (lambda: LeastSquares(X * np.inf, [0, 1, 1]), "must be finite"),
    (lambda: MLP(X, [0, 1, np.nan], 2, 2), "must be finite"),
    (lambda: MLP(X, [0, 0.5, 1], 2, 2), "labels from 0 to 1"),
    (lambda: MLP(X, [0, 1, 2], 2, 2), "labels from 0 to 1"),
    (lambda: MLP(X, [0, 1, 1], [3, 0], 2), "hidden must"),
    (lambda: MLP(X, [0, 0, 0], 2, 1), "classes must"),
    (lambda: MLP(X, [0, 1, 1], 2, 2, "sigmoid"), "activation must be one of tanh, relu"),
    (lambda: linear_data(0, 2, np.random.default_rng(0)), "N must"),
])  # fmt: skip
def test_what_cannot_be_learned_from_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_least_squares_knows_its_hessian_and_its_optimum(dtype):
    X, y, _ = linear_data(60, 4, np.random.default_rng(0))
    X = X.astype(dtype)
    problem, twice = LeastSquares(X, y), LeastSquares(np.hstack([X, X]), y)
    eigenvalues = np.linalg.eigvalsh(2 * X.T @ X / 60)
    assert (eigenvalues[-1], eigenvalues[0]) == pytest.approx((problem.L, problem.mu), rel=1e-5)
    for one in (problem, twice):
        np.testing.assert_allclose(one.grad(one.optimum()), np.zeros(one.d), atol=1e-5)
    assert twice.mu == LeastSquares(X[:2], y[:2]).mu == 0.0  # not strongly convex


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_huge_scores_do_not_overflow(name):
    problem = make(name, np.float32)
    w = 1e4 * somewhere(problem)
    assert np.isfinite(problem.loss(w)) and np.isfinite(problem.grad(w)).all()


def test_a_network_lays_its_parameters_out_as_documented_and_learns():
    rng = np.random.default_rng(1)
    data = digits(rng)
    net = MLP(data.X, data.y, hidden=16, classes=10)
    w = net.init(rng)
    W1, b1, W2, b2 = net.unpack(w)
    assert [part.shape for part in (W1, b1, W2, b2)] == [(16, 64), (16,), (10, 16), (10,)]
    np.testing.assert_array_equal(W1.ravel(), w[: 16 * 64])
    for _ in range(6):
        for idx in np.array_split(rng.permutation(net.N), 42):
            w = w - 0.5 * net.grad(w, idx)
    assert MLP(data.X_test, data.y_test, [16], 10).accuracy(w) > 0.85


def test_digits_are_scikit_learns_in_the_order_of_the_seed(monkeypatch):
    found, order = digits(np.random.default_rng(5)), np.random.default_rng(5).permutation(1797)
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    np.testing.assert_array_equal(np.vstack([found.X_test, found.X]) * 16, theirs.data[order])
    np.testing.assert_array_equal(np.append(found.y_test, found.y), theirs.target[order])
    assert (found.X.shape, found.X_test.shape) == ((1348, 64), (449, 64))
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr("labkit.learn.problems.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits(np.random.default_rng(0))
