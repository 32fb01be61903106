"""The reference run of 10.3: K = 8 workers of 512 examples against one with all 4096, 30 steps from zero."""

import numpy as np
import pytest

from labkit.collectives import naive, ring, tree
from labkit.comm import launch
from labkit.learn import LeastSquares, linear_data, minibatches, sgd, split, sync_sgd

N, d, K, ETA, T = 4096, 20, 8, 0.05, 30


def data():
    return linear_data(N, d, np.random.default_rng(7))


def one_by_one(X, y, w):
    """The gradient, products and examples added strictly in their order: the same bits on every machine."""
    z = np.add.reduce(X.T.copy() * w[:, None], axis=0)
    return 2 * np.add.reduce(X * (z - y)[:, None], axis=0) / len(y)


def descent(gradient):
    """All T + 1 iterates, (31, 20), of plain gradient descent from zero."""
    w = np.zeros(d)
    iterates = [w]
    for _ in range(T):
        w = w - ETA * gradient(w)
        iterates.append(w)
    return np.array(iterates)


def test_adding_examples_in_order_gives_the_printed_digits():
    rng = np.random.default_rng(7)
    X, w_true = rng.standard_normal((N, d)), rng.standard_normal(d)
    noise = rng.standard_normal(N)
    # y too with sums in order, so that no bit depends on a library's matrix product
    y = np.add.reduce(X.T.copy() * w_true[:, None], axis=0) + 0.1 * noise
    np.testing.assert_allclose(y, data()[1], rtol=1e-12, atol=1e-14)
    shards = split(np.arange(N), K)
    assert {len(shard) for shard in shards} == {512}
    alone = descent(lambda w: one_by_one(X, y, w))
    together = descent(lambda w: np.mean([one_by_one(X[s], y[s], w) for s in shards], axis=0))
    assert alone.shape == (31, 20)
    assert f"{np.abs(together - alone).max():.2e}" == "6.66e-16"
    assert f"{np.linalg.norm(together[-1] - alone[-1]):.0e}" == "3e-16"


def test_matrix_products_stay_at_rounding_too():
    X, y, w_true = data()
    problem = LeastSquares(X, y)
    shards = split(np.arange(N), K)
    alone = descent(problem.grad)
    together = descent(lambda w: np.mean([problem.grad(w, s) for s in shards], axis=0))
    gaps = np.abs(together - alone).max(axis=1)
    assert gaps[0] == 0.0
    assert 0.0 < gaps.max() < 3e-15  # which bits exactly is the processor's business
    assert gaps[-1] < 1e-15
    assert problem.loss(alone[-1]) < 0.05 < problem.loss(alone[0])
    assert np.linalg.norm(alone[-1] - w_true) < 0.2 * np.linalg.norm(w_true)


def test_the_two_trajectories_do_not_drift_apart_in_ten_times_the_steps():
    X, y, _ = data()
    problem = LeastSquares(X, y)
    shards = split(np.arange(N), K)
    w = v = np.zeros(d)
    for _ in range(10 * T):
        w = w - ETA * problem.grad(w)
        v = v - ETA * np.mean([problem.grad(v, s) for s in shards], axis=0)
    assert np.abs(w - v).max() < 3e-15  # the problem is strongly convex: errors are forgotten


@pytest.mark.parametrize("allreduce", [naive.allreduce, tree.allreduce, ring.allreduce])
@pytest.mark.parametrize("b", [N // K, 32])
def test_workers_that_talk_take_the_same_steps_with_all_data_and_with_mini_batches(allreduce, b):
    X, y, _ = data()
    problem = LeastSquares(X, y)
    batches = list(minibatches(N, K * b, np.random.default_rng(1), epochs=T * K * b // N + 1))[:T]
    alone = sgd(problem, np.zeros(d), ETA, batches)
    shards = [split(batch, K) for batch in batches]
    run = launch(sync_sgd, K, problem, np.zeros(d), ETA, shards, allreduce)
    for iterates in run.results:
        assert iterates.shape == (31, 20)
        assert np.abs(iterates - alone).max() < 3e-15
