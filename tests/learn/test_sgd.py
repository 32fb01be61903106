"""Mini-batches cover what they should; SGD walks, and says so when it runs away."""

import pickle
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import Diverged, LeastSquares, Momentum, linear_data, minibatches, sgd, walk

X, y, _ = linear_data(64, 3, np.random.default_rng(2))
problem = LeastSquares(X, y)


@given(st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(0, 3))
def test_an_epoch_without_replacement_uses_every_example_once(N, b, drop_last, epochs):
    b = min(b, N)
    batches = list(minibatches(N, b, np.random.default_rng(0), epochs=epochs, drop_last=drop_last))
    per_epoch = N // b if drop_last else -(-N // b)
    assert len(batches) == epochs * per_epoch
    for e in range(epochs):
        epoch = batches[e * per_epoch : (e + 1) * per_epoch]
        assert [len(batch) for batch in epoch[:-1]] == [b] * (per_epoch - 1)
        drawn = np.concatenate(epoch)
        assert len(np.unique(drawn)) == len(drawn) == (N // b * b if drop_last else N)


def test_with_replacement_batches_are_full_and_repeat_examples():
    batches = list(minibatches(10, 4, np.random.default_rng(0), replacement=True, epochs=50))
    assert [len(batch) for batch in batches] == [4] * 150
    assert any(len(np.unique(batch)) < 4 for batch in batches)
    assert len(next(minibatches(3, 8, np.random.default_rng(0), replacement=True))) == 8


def test_endless_batches_are_reshuffled_every_epoch_and_reproducible():
    one, two = (list(islice(minibatches(8, 4, np.random.default_rng(1), epochs=None), 40)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert any(not np.array_equal(one[0], batch) for batch in one[2::2])


@pytest.mark.parametrize("N, b, says", [
    (0, 1, "N must"), (4, 2.0, "b must"), (4, 5, "b must be at most N = 4"),
])  # fmt: skip
def test_bad_batches_are_refused_at_the_call_not_at_the_first_batch(N, b, says):
    with pytest.raises(ValueError, match=says):
        minibatches(N, b, np.random.default_rng(0))


def test_sgd_is_the_loop_written_by_hand_and_stops_after_T():
    rng, same = np.random.default_rng(4), np.random.default_rng(4)
    iterates = sgd(problem, [0, 0, 0], lambda t: 0.1 / (1 + t), minibatches(64, 10, rng, epochs=None), T=14)
    w, expected = np.zeros(3), [np.zeros(3)]
    for t, idx in enumerate(minibatches(64, 10, same, epochs=2)):
        w = w - 0.1 / (1 + t) * problem.grad(w, idx)
        expected.append(w)
    np.testing.assert_array_equal(iterates, expected)
    assert rng.random() == same.random()  # no batch was drawn in vain
    single = sgd(LeastSquares(X.astype(np.float32), y), np.ones(3, np.float32), 0.1, [None] * 3)
    assert (iterates.dtype, single.dtype) == (np.float64, np.float32)


def test_full_gradients_reach_the_optimum_at_the_rate_that_L_and_mu_promise():
    iterates = sgd(problem, np.zeros(3), 1 / problem.L, [None] * 400)
    gaps = np.linalg.norm(iterates - problem.optimum(), axis=1)
    assert gaps[-1] < 1e-12
    # the error is multiplied by I - H / L, whose largest eigenvalue is 1 - mu / L
    assert (gaps[1:12] <= gaps[:11] * (1 - problem.mu / problem.L) * (1 + 1e-9)).all()


@pytest.mark.filterwarnings("error")
def test_divergence_names_the_step_and_the_rate():
    with pytest.raises(Diverged, match=r"not finite after step \d+ with eta = 5") as caught:
        sgd(problem, np.zeros(3), 5.0, [None] * 2000)
    t = caught.value.step
    assert np.isfinite(sgd(problem, np.zeros(3), 5.0, [None] * t)).all()  # one step earlier it was
    copy = pickle.loads(pickle.dumps(caught.value))  # it travels between processes
    assert (copy.step, copy.eta, str(copy)) == (t, 5.0, str(caught.value))


@pytest.mark.parametrize("w0, eta, says", [
    (np.zeros(3), lambda t: -1.0, "eta must be finite and >= 0"),
    (np.zeros(3), np.nan, "eta must be finite and >= 0"),
    (np.zeros(4), 0.1, "w0 must be 3 finite numbers"),
    ([0, np.nan, 0], 0.1, "w0 must be 3 finite numbers"),
    (["a", "b", "c"], 0.1, "w0 must be 3 finite numbers"),
])  # fmt: skip
def test_a_rate_or_start_that_does_not_fit_is_refused(w0, eta, says):
    with pytest.raises(ValueError, match=says):
        sgd(problem, w0, eta, [None])


@pytest.mark.parametrize("dtype,close", [(np.float64, 1e-12), (np.float32, 2e-4)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_walks_as_torchs_does(momentum, dtype, close):
    torch = pytest.importorskip("torch")
    net = LeastSquares(X.astype(dtype), y)
    batches = list(minibatches(64, 8, np.random.default_rng(4), epochs=5))
    v = torch.ones(3, dtype=torch.from_numpy(net.X).dtype, requires_grad=True)
    optimiser = torch.optim.SGD([v], lr=0.05, momentum=momentum)
    for w, idx in zip(walk(net, np.ones(3, dtype), Momentum(momentum), 0.05, batches), batches, strict=True):
        v.grad = torch.from_numpy(net.grad(v.detach().numpy(), idx))
        optimiser.step()
        assert w.dtype == dtype
        np.testing.assert_allclose(w, v.detach().numpy(), rtol=close, atol=close)


def test_a_momentum_that_never_forgets_is_refused():
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1"):
        Momentum(1.0)
