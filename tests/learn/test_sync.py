"""K workers take the step of one: at every step, for any shards, whatever all-reduce adds the sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.collectives import naive, ring, tree
from labkit.comm import RankError, Simulated, launch
from labkit.learn import MLP, Diverged, LeastSquares, linear_data, sgd, split, sync_sgd
from labkit.network import Link

X, y, _ = linear_data(96, 5, np.random.default_rng(11))
LEAST = LeastSquares(X, y)
SINGLE = LeastSquares(X.astype(np.float32), y)
NETWORK = MLP(X[:, :3], np.random.default_rng(13).integers(3, size=96), hidden=4, classes=3)


def random_shards(T, K, b, seed):
    """T steps of K shards of different sizes, some of them empty."""
    rng = np.random.default_rng(seed)
    cuts = [np.sort(rng.integers(0, b + 1, size=K - 1)) for _ in range(T)]
    return [np.split(rng.integers(96, size=b), cut) for cut in cuts]


@pytest.mark.parametrize("allreduce", [naive.allreduce, tree.allreduce, ring.allreduce])
@pytest.mark.parametrize("problem, close", [(LEAST, 1e-12), (NETWORK, 1e-12), (SINGLE, 1e-5)])
@pytest.mark.parametrize("K", [1, 3, 4])
def test_every_step_is_the_step_of_one_worker_with_all_the_examples(problem, close, K, allreduce):
    shards = random_shards(T=6, K=K, b=20, seed=K)
    w0 = np.random.default_rng(0).standard_normal(problem.d).astype(problem.dtype)
    rate = lambda t: 0.1 / (t + 1)  # noqa: E731
    alone = sgd(problem, w0, rate, [np.concatenate(step) for step in shards])
    run = launch(sync_sgd, K, problem, w0, rate, lambda t, k: shards[t][k], allreduce, T=6)
    for iterates in run.results:
        assert iterates.shape == (7, problem.d) and iterates.dtype == problem.dtype
        np.testing.assert_allclose(iterates, alone, rtol=close, atol=close / 10)
        np.testing.assert_array_equal(iterates, run.results[0])  # no rank drifts by a single bit
    if allreduce is ring.allreduce:  # the sum and the count travel
        np.testing.assert_array_equal(run.bytes_sent, 6 * ring.bytes(K, problem.d + 1, w0.itemsize))


def step_of_divergence(comm):
    try:
        sync_sgd(comm, LEAST, np.zeros(5), 3.0, [split(np.arange(96), comm.K)] * 900, ring.allreduce)
    except Diverged as end:
        return end.step


@pytest.mark.filterwarnings("error")
def test_all_ranks_diverge_at_the_step_at_which_one_worker_does():
    with pytest.raises(Diverged) as alone:
        sgd(LEAST, np.zeros(5), 3.0, [None] * 900)
    # the sum of squares overflows before the mean does, so not the very step; all ranks agree on theirs
    steps = launch(step_of_divergence, 3).results
    assert steps[0] == steps[1] == steps[2] and abs(steps[0] - alone.value.step) <= 3


def test_only_the_gradient_counts_as_computation():
    job = (sync_sgd, 2, LEAST, np.zeros(5), 0.1, [split(np.arange(96), 2)] * 4, ring.allreduce)
    run = launch(*job, world=Simulated(link=Link(alpha=1e-3, beta=1e6)))
    assert run.elapsed_s == pytest.approx(4 * 2 * (1e-3 + 24e-6), rel=0.05)  # two chunks of 3 numbers


@pytest.mark.processes
def test_real_processes_take_the_simulated_steps():
    args = (sync_sgd, 2, LEAST, np.zeros(5), 0.1, random_shards(T=5, K=2, b=30, seed=3), ring.allreduce)
    simulated, real = launch(*args), launch(*args, world="processes")
    np.testing.assert_array_equal(simulated.results, real.results)


@pytest.mark.parametrize("shards, T, w0, says", [
    ([[[0]], [[0], [1]]], None, np.zeros(5), "shards must hold K = 1 shards a step, got 2 at step 1"),
    (lambda t, rank: [0], None, np.zeros(5), "T must be given"),
    ([[[0]]], 2, np.zeros(5), "T must be at most the 1 steps"),
    ([[[0]]], None, np.zeros(4), "w0 must be 5"),
    ([[[0]], [[]]], None, np.zeros(5), "shards must hold an example at every step, got none at step 1"),
    ([[[96]]], None, np.zeros(5), "idx must be from 0 to 95"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(shards, T, w0, says):
    with pytest.raises(RankError, match=says):
        launch(sync_sgd, 1, LEAST, w0, 0.1, shards, ring.allreduce, T=T)


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
