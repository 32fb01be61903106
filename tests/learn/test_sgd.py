"""Mini-batches cover what they should; SGD walks, and says so when it runs away."""

import pickle
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import Diverged, LeastSquares, Momentum, linear_data, minibatches, sgd, walk


@given(st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(0, 3))
def test_an_epoch_without_replacement_uses_every_example_once(N, b, drop_last, epochs):
    b = min(b, N)
    batches = list(minibatches(N, b, np.random.default_rng(0), epochs=epochs, drop_last=drop_last))
    per_epoch = N // b if drop_last else -(-N // b)
    assert len(batches) == epochs * per_epoch
    for e in range(epochs):
        epoch = batches[e * per_epoch : (e + 1) * per_epoch]
        assert [len(batch) for batch in epoch[:-1]] == [b] * (per_epoch - 1)
        assert len(epoch[-1]) == (b if drop_last or N % b == 0 else N % b)
        drawn = np.concatenate(epoch)
        assert len(np.unique(drawn)) == len(drawn) == (N // b * b if drop_last else N)


def test_with_replacement_batches_are_full_and_repeat_examples():
    batches = list(minibatches(10, 4, np.random.default_rng(0), replacement=True, epochs=50))
    assert [len(batch) for batch in batches] == [4] * 150
    assert any(len(np.unique(batch)) < 4 for batch in batches)
    assert set(np.concatenate(batches)) == set(range(10))
    assert len(next(minibatches(3, 8, np.random.default_rng(0), replacement=True))) == 8


def test_endless_batches_are_reshuffled_every_epoch_and_reproducible():
    first = list(islice(minibatches(8, 4, np.random.default_rng(1), epochs=None), 40))
    again = list(islice(minibatches(8, 4, np.random.default_rng(1), epochs=None), 40))
    np.testing.assert_array_equal(first, again)
    assert any(not np.array_equal(first[0], batch) for batch in first[2::2])


@pytest.mark.parametrize(
    ("args", "said"),
    [((0, 1), "N must"), ((4, 0), "b must"), ((4, 2.0), "b must"), ((4, 5), "b must be at most N = 4")],
)
def test_bad_batches_are_refused_at_the_call_not_at_the_first_batch(args, said):
    with pytest.raises(ValueError, match=said):
        minibatches(*args, np.random.default_rng(0))


# -- sgd ----------------------------------------------------------------------------------------------------


@pytest.fixture
def problem():
    X, y, _ = linear_data(64, 3, np.random.default_rng(2))
    return LeastSquares(X, y)


def test_sgd_is_the_loop_written_by_hand(problem):
    batches = list(minibatches(64, 10, np.random.default_rng(0), epochs=2))
    w, expected = np.zeros(3), [np.zeros(3)]
    for t, idx in enumerate(batches):
        w = w - 0.1 / (1 + t) * problem.grad(w, idx)
        expected.append(w)
    iterates = sgd(problem, np.zeros(3), lambda t: 0.1 / (1 + t), batches)
    np.testing.assert_array_equal(iterates, expected)
    assert iterates.shape == (15, 3)


def test_full_gradients_reach_the_optimum_at_the_rate_that_L_and_mu_promise(problem):
    iterates = sgd(problem, np.zeros(3), 1 / problem.L, [None] * 400)
    gaps = np.linalg.norm(iterates - problem.optimum(), axis=1)
    assert gaps[-1] < 1e-12
    # the error is multiplied by I - H / L, whose largest eigenvalue is 1 - mu / L
    assert (gaps[1:12] <= gaps[:11] * (1 - problem.mu / problem.L) * (1 + 1e-9)).all()


def test_T_stops_endless_batches_without_drawing_more(problem):
    rng, same = np.random.default_rng(4), np.random.default_rng(4)
    iterates = sgd(problem, np.zeros(3), 0.01, minibatches(64, 64, rng, epochs=None), T=5)
    assert iterates.shape == (6, 3)
    for _ in range(5):
        same.permutation(64)
    assert rng.random() == same.random()


def test_no_batches_leave_the_start(problem):
    np.testing.assert_array_equal(sgd(problem, [1, 2, 3], 0.1, []), [[1.0, 2.0, 3.0]])


def test_the_start_is_not_changed_and_sets_the_dtype():
    X, y, _ = linear_data(32, 2, np.random.default_rng(0))
    w0 = np.ones(2, dtype=np.float32)
    iterates = sgd(LeastSquares(X.astype(np.float32), y), w0, lambda t: np.float64(0.1), [None] * 3)
    assert iterates.dtype == np.float32
    np.testing.assert_array_equal(w0, [1, 1])
    assert sgd(LeastSquares(X, y), [1, 1], 0.1, [None]).dtype == np.float64


@pytest.mark.filterwarnings("error")
def test_divergence_names_the_step_and_the_rate(problem):
    with pytest.raises(Diverged, match=r"not finite after step \d+ with eta = 5") as caught:
        sgd(problem, np.zeros(3), 5.0, [None] * 2000)
    t = caught.value.step
    assert caught.value.eta == 5.0
    assert np.isfinite(sgd(problem, np.zeros(3), 5.0, [None] * t)).all()  # one step earlier it was
    copy = pickle.loads(pickle.dumps(caught.value))  # it travels between processes
    assert (copy.step, copy.eta, str(copy)) == (t, 5.0, str(caught.value))


@pytest.mark.parametrize("eta", [-0.1, np.nan, np.inf, lambda t: -1.0])
def test_a_rate_that_is_none_is_refused(problem, eta):
    with pytest.raises(ValueError, match=r"eta must be finite and >= 0"):
        sgd(problem, np.zeros(3), eta, [None])


@pytest.mark.parametrize("w0", [np.zeros(4), np.zeros((3, 1)), [0, np.nan, 0], ["a", "b", "c"]])
def test_a_start_that_does_not_fit_is_refused(problem, w0):
    with pytest.raises(ValueError, match="w0 must be 3 finite numbers"):
        sgd(problem, w0, 0.1, [None])


# -- other rules ----------------------------------------------------------------------------------------------


def test_without_momentum_the_walk_is_sgd(problem):
    def batches():
        return minibatches(64, 7, np.random.default_rng(2), epochs=None)

    one = sgd(problem, np.ones(3), lambda t: 0.05 / (t + 1), batches(), T=20)
    other = list(walk(problem, np.ones(3), Momentum(), lambda t: 0.05 / (t + 1), batches(), T=20))
    np.testing.assert_array_equal(one[1:], other)


@pytest.mark.parametrize("dtype,close", [(np.float64, 1e-12), (np.float32, 2e-4)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_takes_torchs_steps_and_remembers_only_what_it_is_handed(momentum, dtype, close):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    A, noise, w = (
        rng.standard_normal((6, 6)),
        rng.standard_normal((40, 6)),
        rng.standard_normal(6).astype(dtype),
    )
    v = torch.tensor(w, requires_grad=True)
    rule, optimiser = Momentum(momentum), torch.optim.SGD([v], lr=0.05, momentum=momentum)
    memory = rule.start(w)
    for n in noise:
        g, before = (A @ np.tanh(w) + n).astype(dtype), (w.copy(), memory.copy())
        after, remembered = rule.step(w, g, 0.05, memory)
        np.testing.assert_array_equal((w, memory), before)
        w, memory = after, remembered
        v.grad = torch.from_numpy((A @ np.tanh(v.detach().numpy()) + n).astype(dtype))
        optimiser.step()
        assert w.dtype == memory.dtype == dtype
        np.testing.assert_allclose(w, v.detach().numpy(), rtol=close, atol=close)


def test_the_walk_says_where_it_diverged(problem):
    with pytest.raises(Diverged) as caught:
        list(walk(problem, np.ones(3), Momentum(0.9), 1e3, [None] * 400))
    assert 0 < caught.value.step < 400 and caught.value.eta == 1e3


@pytest.mark.parametrize("momentum", [1.0, -0.1, float("nan")])
def test_a_momentum_that_never_forgets_is_refused(momentum):
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1"):
        Momentum(momentum)


def test_learn_and_cost_import_nothing_but_numpy():
    code = (
        "import sys, labkit.learn, labkit.collectives;"
        "print([m for m in ('torch', 'scipy', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
