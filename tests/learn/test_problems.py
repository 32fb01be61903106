"""Gradients against finite differences and against torch's autograd; sums of them over any partition."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.learn import MLP, LeastSquares, LogisticRegression, digits, linear_data, two_clouds

N = 24


def make(name, dtype=np.float64, n=N):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 5)).astype(dtype)
    if name == "least squares":
        return LeastSquares(X, rng.standard_normal(n))
    if name == "logistic":
        return LogisticRegression(X, rng.integers(2, size=n))
    return MLP(X, rng.integers(3, size=n), hidden=4, classes=3, activation=name)


NAMES = ["least squares", "logistic", "tanh", "relu"]
every = pytest.mark.parametrize("name", NAMES)


def somewhere(problem, seed=0):
    return np.random.default_rng(seed).standard_normal(problem.d).astype(problem.dtype)


@every
@pytest.mark.parametrize("idx", [None, [3], [5, 5, 2, 0]])
def test_the_gradient_is_the_slope_of_the_loss(name, idx):
    problem = make(name)
    w = somewhere(problem)
    h = 1e-6
    slope = [
        (problem.loss(w + h * e, idx) - problem.loss(w - h * e, idx)) / (2 * h) for e in np.eye(problem.d)
    ]
    np.testing.assert_allclose(problem.grad(w, idx), slope, rtol=1e-6, atol=1e-8)


def torch_loss(name, problem, w, idx):
    """The same loss by torch's own functions."""
    torch = pytest.importorskip("torch")
    X, y = torch.from_numpy(problem.X[idx]), torch.from_numpy(problem.y[idx])
    F = torch.nn.functional
    if name == "least squares":
        return F.mse_loss(X @ w, y)
    if name == "logistic":
        return F.binary_cross_entropy_with_logits(X @ w, y)
    W1, b1, W2, b2 = (w[at].reshape(shape) for at, shape in zip(problem.layers, problem.shapes, strict=True))
    return F.cross_entropy(F.linear(getattr(torch, name)(F.linear(X, W1, b1)), W2, b2), y)


@every
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_loss_and_gradient_equal_torch(name, dtype, rtol):
    torch = pytest.importorskip("torch")
    problem = make(name, dtype)
    idx = np.array([4, 4, 7, 23, 0])
    w = somewhere(problem)
    at = torch.tensor(w, requires_grad=True)
    loss = torch_loss(name, problem, at, idx)
    loss.backward()
    assert problem.loss(w, idx) == pytest.approx(loss.item(), rel=rtol)
    np.testing.assert_allclose(problem.grad(w, idx), at.grad.numpy(), rtol=rtol, atol=rtol)
    assert problem.grad(w, idx).dtype == problem.grad_sum(w, idx).dtype == dtype


@every
@settings(max_examples=25, deadline=None)
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
def test_an_example_that_stands_twice_counts_twice_and_none_sum_to_zero(name):
    problem = make(name)
    w = somewhere(problem)
    np.testing.assert_allclose(problem.grad_sum(w, [6, 6]), 2 * problem.grad_sum(w, [6]), rtol=1e-12)
    np.testing.assert_array_equal(problem.grad_sum(w, []), np.zeros(problem.d))
    for mean in (problem.loss, problem.grad):
        with pytest.raises(ValueError, match="idx must hold at least one example"):
            mean(w, [])


@every
def test_bad_weights_and_bad_example_numbers_are_refused(name):
    problem = make(name)
    w = somewhere(problem)
    with pytest.raises(ValueError, match=rf"w must have shape \({problem.d},\)"):
        problem.grad(np.zeros(problem.d + 1))
    with pytest.raises(ValueError, match="idx must be from 0 to 23, got 0 to 24"):
        problem.grad(w, [0, 24])
    with pytest.raises(ValueError, match="idx must be from 0"):
        problem.grad(w, [-1])
    with pytest.raises(ValueError, match="list of example numbers"):
        problem.grad(w, np.ones(N, dtype=bool))  # a mask would be miscounted
    with pytest.raises(ValueError, match="list of example numbers"):
        problem.grad(w, [[0, 1]])


def test_bad_examples_and_labels_are_refused():
    X = np.ones((3, 2))
    with pytest.raises(ValueError, match=r"y must have shape \(3,\)"):
        LeastSquares(X, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"X must have shape \(N, p\)"):
        LeastSquares(np.ones(3), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="N, p >= 1"):
        LeastSquares(np.ones((0, 2)), [])
    with pytest.raises(ValueError, match="real numbers"):
        LeastSquares(X, ["a", "b", "c"])
    for problem in (LeastSquares, LogisticRegression, lambda X, y: MLP(X, y, 2, 2)):
        with pytest.raises(ValueError, match="must be finite"):
            problem(X, [0, 1, np.nan])
        with pytest.raises(ValueError, match="must be finite"):
            problem(X * np.inf, [0, 1, 1])
    with pytest.raises(ValueError, match="only the labels 0 and 1"):
        LogisticRegression(X, [-1, 1, 1])
    for bad in ([0, 1, 2], [0, -1, 1], [0, 0.5, 1]):
        with pytest.raises(ValueError, match="labels from 0 to 1"):
            MLP(X, bad, hidden=2, classes=2)
    with pytest.raises(ValueError, match="hidden must"):
        MLP(X, [0, 1, 1], hidden=0, classes=2)
    with pytest.raises(ValueError, match="classes must"):
        MLP(X, [0, 0, 0], hidden=2, classes=1)
    with pytest.raises(ValueError, match="activation must be one of tanh, relu"):
        MLP(X, [0, 1, 1], hidden=2, classes=2, activation="sigmoid")


# -- constants ----------------------------------------------------------------------------------------------


def test_least_squares_knows_its_hessian_and_its_optimum():
    X, y, _ = linear_data(60, 4, np.random.default_rng(0))
    problem = LeastSquares(X, y)
    eigenvalues = np.linalg.eigvalsh(2 * X.T @ X / 60)
    assert eigenvalues[-1] == pytest.approx(problem.L)
    assert eigenvalues[0] == pytest.approx(problem.mu)
    np.testing.assert_allclose(problem.grad(problem.optimum()), np.zeros(4), atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dependent_columns_are_not_strongly_convex(dtype):
    X = np.random.default_rng(0).standard_normal((30, 3)).astype(dtype)
    twice = LeastSquares(np.hstack([X, X]), np.ones(30))
    assert twice.mu == 0.0
    np.testing.assert_allclose(twice.grad(twice.optimum()), np.zeros(6), atol=1e-5)
    assert LeastSquares(X[:2], np.ones(2)).mu == 0.0  # fewer examples than parameters
    assert LeastSquares(X, np.ones(30)).mu > 0


def test_the_logistic_constant_bounds_the_curvature_everywhere():
    problem = make("logistic")
    for seed in range(5):
        s = 1 / (1 + np.exp(-problem.X @ somewhere(problem, seed)))
        hessian = (problem.X.T * (s * (1 - s))) @ problem.X / N
        assert np.linalg.eigvalsh(hessian)[-1] <= problem.L


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["logistic", "tanh", "relu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_scores_do_not_overflow(name, dtype):
    problem = make(name, dtype)
    w = 1e4 * somewhere(problem)
    assert np.isfinite(problem.loss(w))
    assert np.isfinite(problem.grad(w)).all()


# -- data ---------------------------------------------------------------------------------------------------


def test_linear_data_draws_in_the_reference_order():
    X, y, w_true = linear_data(64, 3, np.random.default_rng(7))
    rng = np.random.default_rng(7)
    np.testing.assert_array_equal(X, rng.standard_normal((64, 3)))
    np.testing.assert_array_equal(w_true, rng.standard_normal(3))
    np.testing.assert_array_equal(y, X @ w_true + 0.1 * rng.standard_normal(64))


def test_two_clouds_are_as_far_apart_as_asked():
    X, y = two_clouds(20_001, 4, np.random.default_rng(0), distance=3.0)
    assert y.sum() == 10_000
    between = X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)
    assert np.linalg.norm(between) == pytest.approx(3.0, rel=0.02)
    assert np.mean((X @ between > 0) == y) == pytest.approx(0.9332, abs=0.01)  # Phi(1.5)


def test_digits_are_split_without_overlap_the_same_way_for_the_same_seed():
    a, b = digits(np.random.default_rng(5)), digits(np.random.default_rng(5))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)
    assert a.X.shape == (1348, 64)
    assert a.X_test.shape == (449, 64)
    assert a.X.min() == 0.0
    assert a.X.max() == 1.0
    assert len(np.unique(np.vstack([a.X, a.X_test]), axis=0)) == 1797  # each picture once
    assert not np.array_equal(a.y, digits(np.random.default_rng(6)).y)


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits(np.random.default_rng(0))


def test_data_refuses_what_makes_no_sense():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="N must"):
        linear_data(0, 2, rng)
    with pytest.raises(ValueError, match="noise must"):
        linear_data(2, 2, rng, noise=np.nan)
    with pytest.raises(ValueError, match="d must"):
        two_clouds(4, 0, rng)
    with pytest.raises(ValueError, match="test must"):
        digits(rng, test=1.0)
