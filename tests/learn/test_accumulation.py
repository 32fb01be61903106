"""Micro-batches added up are one batch, for one worker and for several; four loops that look alike are not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Processes, Simulated, launch
from labkit.collectives import naive_allreduce, ring_allreduce
from labkit.cost import ring_bytes, ring_messages
from labkit.learn import LeastSquares, LogisticRegression, linear_data, minibatches, sgd, split, two_clouds
from labkit.learn.accumulation import accumulate, accumulating_sgd, momentum, running_mean
from labkit.learn.optimisers import Momentum

D = 4


def make(N=90, seed=2):
    X, y, _ = linear_data(N, D, np.random.default_rng(seed))
    return LeastSquares(X, y)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 10**6))
def test_accumulated_micro_batches_are_the_batch(M, m, seed):
    rng = np.random.default_rng(seed)
    problem = LogisticRegression(*two_clouds(60, D, rng), l2=0.1)
    idx, w = rng.integers(60, size=M), rng.standard_normal(D)
    cuts = np.sort(rng.integers(0, M + 1, size=m - 1))  # uneven, some empty
    np.testing.assert_allclose(
        accumulate(problem, w, np.split(idx, cuts)), problem.grad(w, idx), rtol=1e-9, atol=1e-12
    )


def test_the_gradient_is_torchs_own_accumulation():
    torch = pytest.importorskip("torch")
    problem, w = make(), np.ones(D)
    X, y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
    v = torch.ones(D, dtype=torch.float64, requires_grad=True)
    micros = split(np.arange(90), 4)
    for idx in micros:
        (((X[idx] @ v - y[idx]) ** 2).sum() / 90).backward()  # backward adds to v.grad
    np.testing.assert_allclose(accumulate(problem, w, micros), v.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("talk", ["once", "every"])
@pytest.mark.parametrize(("K", "m"), [(1, 3), (2, 1), (3, 5), (4, 40)])
def test_workers_that_accumulate_walk_the_path_of_one_with_the_whole_batch(K, m, talk):
    problem = make()
    batches = list(minibatches(90, 40, np.random.default_rng(0), epochs=2))  # the last has 10
    shards = [split(idx, K) for idx in batches]
    run = launch(accumulating_sgd, K, problem, np.zeros(D), 0.05, shards, m, naive_allreduce, talk=talk)
    expected = sgd(problem, np.zeros(D), 0.05, batches)
    for result in run.results:
        np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-13)
        np.testing.assert_array_equal(result, run.results[0])


@pytest.mark.processes
def test_one_all_reduce_serves_m_micro_batches_in_both_worlds():
    problem, m, T = make(), 5, 3
    shards = [split(np.arange(90), 3)] * T
    job = (accumulating_sgd, 3, problem, np.zeros(D), 0.05, shards, m, ring_allreduce)
    for world in (Simulated(), Processes()):
        once, every = (launch(*job, talk=talk, world=world) for talk in ("once", "every"))
        np.testing.assert_array_equal(once.bytes_sent, T * ring_bytes(3, D + 1, 8))
        np.testing.assert_array_equal(once.messages_sent, T * ring_messages(3, D + 1))
        np.testing.assert_array_equal(every.bytes_sent, m * once.bytes_sent)
        np.testing.assert_array_equal(every.messages_sent, m * once.messages_sent)


def test_float32_stays_float32_and_close():
    X, y, _ = linear_data(60, D, np.random.default_rng(0))
    problem = LeastSquares(X.astype(np.float32), y)
    shards = [split(np.arange(60), 2)] * 4
    w0 = np.zeros(D, dtype=np.float32)
    run = launch(accumulating_sgd, 2, problem, w0, 0.1, shards, 3, ring_allreduce)
    assert run.results[0].dtype == np.float32
    np.testing.assert_allclose(run.results[0][-1], sgd(problem, w0, 0.1, [None] * 4)[-1], rtol=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_stepping_at_every_micro_batch_is_another_algorithm(rho):
    problem = make()
    batches = list(minibatches(90, 30, np.random.default_rng(1), epochs=3))
    found = momentum(problem, np.ones(D), 0.1, Momentum(rho), batches, m=3)
    assert found.broken > 1e-3 and found.repaired < 1e-13
    assert momentum(problem, np.ones(D), 0.1, Momentum(rho), batches, m=1).broken < 1e-13


def test_running_means_move_m_times_too_far():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((60, 3)) + 5
    micros = [np.arange(20), np.arange(20, 45), np.arange(45, 60)]
    layer = torch.nn.BatchNorm1d(3, momentum=0.1).double()
    for idx in micros:
        layer(torch.from_numpy(x[idx]))
    once = 0.1 * x.mean(axis=0)
    found = running_mean(x, micros)
    assert found.broken == pytest.approx(np.abs(layer.running_mean.numpy() - once).max(), rel=1e-12)
    assert found.repaired < 1e-13


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: accumulate(p, np.zeros(D), [[], []]), "micros must hold at least one example"),
        (lambda p: accumulate(p, np.zeros(D), []), "micros must hold at least one example"),
        (lambda p: accumulate(p, np.zeros(D), [[90]]), "idx must be from 0 to 89"),
    ],
)
def test_bad_micro_batches_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call(make())


@pytest.mark.parametrize(
    ("m", "talk", "shards", "said"),
    [
        (0, "once", [[[0], [1]]], "m must be a whole number of micro-batches >= 1, got 0"),
        (2, "never", [[[0], [1]]], "talk must be 'once' or 'every', got 'never'"),
        (2, "once", [[[0]]], "shards must hold K = 2 shards a step, got 1 at step 0"),
        (2, "once", [[[], []]], "micros must hold at least one example"),
    ],
)
def test_bad_jobs_are_refused(m, talk, shards, said):
    from labkit.comm import RankError

    with pytest.raises(RankError, match=said):
        launch(accumulating_sgd, 2, make(), np.zeros(D), 0.1, shards, m, ring_allreduce, talk=talk)
