"""Replaying a schedule: fresh gradients make it mini-batch SGD, stale ones are taken at the version that was read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.learn import Diverged, LeastSquares, linear_data, sgd
from labkit.timing import Updates
from labkit_book.labs.stale import replay

X, y, _ = linear_data(96, 5, np.random.default_rng(11))
problem, w0 = LeastSquares(X, y), np.ones(5)


def batches(rank, step):
    """Batches of different sizes."""
    return np.random.default_rng([5, rank, step]).integers(96, size=3 + 4 * rank + step % 3)


def turns(U, tau):
    """tau + 1 workers take turns: update u has read version u - tau, or 0 while there is no older one."""
    u = np.arange(U)
    return Updates(tau + 1, u, u % (tau + 1), u // (tau + 1), np.maximum(u - tau, 0), u + 1.0, False, "turns")


def barriers(K, T):
    """Every update holds one fresh gradient of each worker: what BSP does."""
    into, rank = np.divmod(np.arange(K * T), K)
    return Updates(K, into, rank, into, into, np.arange(T) + 1.0, False, "by hand")


def anything(K, U, rng, most=6):
    """A random schedule: a few gradients in each update, each of any age, steps counted by worker."""
    sizes = rng.integers(1, K + 1, size=U)
    into = np.repeat(np.arange(U), sizes)
    rank = np.concatenate([rng.permutation(K)[:n] for n in sizes])
    step = np.array([np.sum(rank[:g] == k) for g, k in enumerate(rank)])
    read = np.maximum(into - rng.integers(0, most, size=len(into)), 0)
    return Updates(K, into, rank, step, read, np.arange(U) + 1.0, False, "by hand")


@pytest.mark.parametrize("K", [1, 2, 5])
def test_a_schedule_of_barriers_is_one_worker_with_the_joined_batches(K):
    joined = [np.concatenate([batches(k, t) for k in range(K)]) for t in range(9)]
    alone = sgd(problem, w0, lambda t: 0.1 / (t + 1), joined)
    along = replay(problem, w0, lambda u: 0.1 / (u + 1), barriers(K, 9), batches)
    np.testing.assert_allclose(along, alone, rtol=1e-12, atol=1e-14)


@settings(deadline=None, max_examples=30)
@given(K=st.integers(1, 5), U=st.integers(1, 25), seed=st.integers(0, 99))
def test_every_gradient_is_taken_at_the_version_that_its_worker_read(K, U, seed):
    """The definition, word for word, with all versions kept."""
    schedule = anything(K, U, np.random.default_rng(seed))
    w = [w0]
    for u in range(U):
        total, M = np.zeros(5), 0
        for g in np.flatnonzero(schedule.into == u):
            rows = batches(schedule.rank[g], schedule.step[g])
            total += problem.grad_sum(w[schedule.read[g]], rows)
            M += len(rows)
        w.append(w[-1] - 0.02 * total / M)
    np.testing.assert_allclose(replay(problem, w0, 0.02, schedule, batches), w, rtol=1e-11, atol=1e-13)


def test_too_large_a_step_is_divergence_at_a_step():
    with pytest.raises(Diverged, match="diverged: w is not finite after step") as caught:
        replay(problem, w0, 0.9, turns(5000, 8), lambda k, t: None)
    assert 8 < caught.value.step < 4000 and caught.value.eta == 0.9


@pytest.mark.parametrize(
    "change,says",
    [
        ({"batches": lambda k, t: []}, "idx must hold at least one example"),
        ({"eta": -0.1}, "eta must be finite and >= 0"),
        ({"w0": np.ones(4)}, "w0 must be 5 finite numbers"),
    ],
)
def test_bad_input_is_refused(change, says):
    call = {"w0": w0, "eta": 0.1, "updates": turns(10, 2), "batches": batches, **change}
    with pytest.raises(ValueError, match=says):
        replay(problem, **call)
