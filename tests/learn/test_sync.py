"""K workers take the step of one: at every step, for any shards, whatever all-reduce adds the sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import naive, ring, tree
from labkit.comm import RankError, Simulated, launch
from labkit.learn import (
    MLP,
    Diverged,
    LeastSquares,
    LogisticRegression,
    linear_data,
    minibatches,
    sgd,
    split,
    sync_sgd,
    two_clouds,
)
from labkit.network import Link


def least_squares(N=96, d=5, dtype=np.float64):
    X, y, _ = linear_data(N, d, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


def logistic():
    return LogisticRegression(*two_clouds(96, 5, np.random.default_rng(12)))


def mlp():
    rng = np.random.default_rng(13)
    return MLP(rng.standard_normal((96, 3)), rng.integers(3, size=96), hidden=4, classes=3)


def random_shards(T, K, b, rng, N=96):
    """T steps of K shards of different sizes, some of them empty."""
    cuts = [np.sort(rng.integers(0, b + 1, size=K - 1)) for _ in range(T)]
    return [np.split(rng.integers(N, size=b), cut) for cut in cuts]


@pytest.mark.parametrize("allreduce", [naive.allreduce, tree.allreduce, ring.allreduce])
@pytest.mark.parametrize("make", [least_squares, logistic, mlp])
@pytest.mark.parametrize("K", [1, 3, 4])
def test_every_step_is_the_step_of_one_worker_with_all_the_examples(make, K, allreduce):
    problem = make()
    shards = random_shards(T=6, K=K, b=20, rng=np.random.default_rng(K))
    w0 = np.random.default_rng(0).standard_normal(problem.d)
    alone = sgd(problem, w0, 0.1, [np.concatenate(step) for step in shards])
    run = launch(sync_sgd, K, problem, w0, 0.1, shards, allreduce)
    for iterates in run.results:
        assert iterates.shape == (7, problem.d)
        np.testing.assert_allclose(iterates, alone, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(iterates, run.results[0])  # no rank drifts by a single bit


def test_mini_batches_split_near_equally_walk_with_one_worker_through_epochs():
    problem, K = least_squares(), 5
    batches = list(minibatches(96, 22, np.random.default_rng(1), epochs=3))  # the last has 8
    alone = sgd(problem, np.zeros(5), 0.05, batches)
    shards = [split(batch, K) for batch in batches]
    together = launch(sync_sgd, K, problem, np.zeros(5), 0.05, shards, ring.allreduce).results[0]
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-14)


def test_workers_without_examples_take_part():
    problem = least_squares()
    shards = [[[], [3, 4], []], [[0], [], []]]
    together = launch(sync_sgd, 3, problem, np.zeros(5), 0.1, shards, tree.allreduce).results[2]
    alone = sgd(problem, np.zeros(5), 0.1, [[3, 4], [0]])
    np.testing.assert_allclose(together, alone, rtol=1e-13)


def test_float32_stays_float32_on_the_wire_and_in_the_iterates():
    problem = least_squares(dtype=np.float32)
    shards = random_shards(T=8, K=3, b=20, rng=np.random.default_rng(0))
    w0 = np.zeros(5, dtype=np.float32)
    run = launch(sync_sgd, 3, problem, w0, 0.1, shards, ring.allreduce)
    alone = sgd(problem, w0, 0.1, [np.concatenate(step) for step in shards])
    assert run.results[0].dtype == np.float32
    np.testing.assert_allclose(run.results[0], alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run.bytes_sent, 8 * ring.bytes(3, 6, 4))  # the sum and the count


def test_shards_may_be_a_function_and_eta_a_schedule():
    problem = least_squares()

    def shards(t, rank):
        return np.arange(96)[rank + t :: 4]

    batches = [np.concatenate([shards(t, k) for k in range(4)]) for t in range(6)]
    alone = sgd(problem, np.zeros(5), lambda t: 0.1 / (t + 1), batches)
    run = launch(sync_sgd, 4, problem, np.zeros(5), lambda t: 0.1 / (t + 1), shards, ring.allreduce, T=6)
    np.testing.assert_allclose(run.results[3], alone, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_all_ranks_diverge_at_the_step_at_which_one_worker_does():
    problem = least_squares()
    with pytest.raises(Diverged) as alone:
        sgd(problem, np.zeros(5), 3.0, [None] * 900)
    # the sum of squares overflows before the mean does, so not the very step; all ranks agree on theirs
    steps = launch(_step_of_divergence, 3, problem, 900).results
    assert steps[0] == steps[1] == steps[2]
    assert abs(steps[0] - alone.value.step) <= 3


def _step_of_divergence(comm, problem, T):
    try:
        sync_sgd(comm, problem, np.zeros(5), 3.0, [split(np.arange(96), comm.K)] * T, ring.allreduce)
    except Diverged as end:
        return end.step
    return None


def test_only_the_gradient_counts_as_computation():
    problem = least_squares()
    shards = [split(np.arange(96), 2)] * 4
    link = Link(alpha=1e-3, beta=1e6)
    job = (sync_sgd, 2, problem, np.zeros(5), 0.1, shards, ring.allreduce)
    run = launch(*job, world=Simulated(link=link))
    assert run.elapsed_s == pytest.approx(4 * 2 * (1e-3 + 24e-6), rel=0.05)  # two chunks of 3 numbers


@pytest.mark.processes
def test_real_processes_take_the_simulated_steps():
    problem = least_squares()
    shards = random_shards(T=5, K=2, b=30, rng=np.random.default_rng(3))
    args = (sync_sgd, 2, problem, np.zeros(5), 0.1, shards, ring.allreduce)
    simulated, real = launch(*args), launch(*args, world="processes")
    np.testing.assert_array_equal(simulated.results, real.results)


# -- bad input ----------------------------------------------------------------------------------------------


class Alone:
    """The least a Comm can be: one worker, no clock."""

    rank, K = 0, 1

    def steps(self, T):
        return range(T)

    def compute(self, work):
        return work()


def keep(comm, vector):
    return vector


def test_what_does_not_fit_is_refused():
    problem, w0 = least_squares(), np.zeros(5)
    with pytest.raises(ValueError, match="shards must hold K = 1 shards a step, got 2 at step 1"):
        sync_sgd(Alone(), problem, w0, 0.1, [[[0]], [[0], [1]]], keep)
    with pytest.raises(ValueError, match="T must be given"):
        sync_sgd(Alone(), problem, w0, 0.1, lambda t, rank: [0], keep)
    with pytest.raises(ValueError, match="T must be at most the 1 steps"):
        sync_sgd(Alone(), problem, w0, 0.1, [[[0]]], keep, T=2)
    with pytest.raises(ValueError, match="w0 must be 5"):
        sync_sgd(Alone(), problem, np.zeros(4), 0.1, [[[0]]], keep)
    with pytest.raises(ValueError, match="shards must hold an example at every step, got none at step 1"):
        sync_sgd(Alone(), problem, w0, 0.1, [[[0]], [[]]], keep)
    assert sync_sgd(Alone(), problem, w0, 0.1, [[[0]], [[1]]], keep, T=1).shape == (2, 5)


def test_a_bad_example_number_is_blamed_on_the_rank_that_has_it():
    with pytest.raises(RankError) as caught:
        launch(sync_sgd, 3, least_squares(), np.zeros(5), 0.1, [[[0], [1], [96]]], ring.allreduce)
    assert list(caught.value.ranks) == [2]


# -- dealing ------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.integers(0, 500), st.integers(1, 60))
def test_splits_are_near_equal_contiguous_and_complete(n, K):
    idx = np.random.default_rng(0).permutation(n)
    shards = split(idx, K)
    sizes = [len(shard) for shard in shards]
    assert len(shards) == K and max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.concatenate(shards), idx)


def test_splits_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match="K must"):
        split([1, 2], 0)
    with pytest.raises(ValueError, match="idx must be a list"):
        split(4, 2)
