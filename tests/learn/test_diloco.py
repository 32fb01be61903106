"""DiLoCo: special settings are synchronous SGD, local SGD and the inner optimiser alone; the rest follows torch."""

import os
from functools import partial

import numpy as np
import pytest

from labkit.collectives import naive_allreduce, ring_allreduce
from labkit.comm import RankDied, RankError, launch
from labkit.cost import local_bytes
from labkit.learn import (
    MLP,
    AdamW,
    Diverged,
    LeastSquares,
    Momentum,
    diloco,
    linear_data,
    local_sgd,
    sgd,
    split,
    sync_sgd,
)

PLAIN = {"inner": Momentum(), "outer": Momentum(), "outer_eta": 1.0}


def least_squares(dtype=np.float64):
    X, y, _ = linear_data(96, 5, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


def mlp():
    rng = np.random.default_rng(13)
    return MLP(rng.standard_normal((96, 3)), rng.integers(3, size=96), hidden=4, classes=3)


def equal_shards(T, K, b=6, seed=0):
    rng = np.random.default_rng(seed)
    return [split(rng.integers(96, size=K * b), K) for _ in range(T)]


@pytest.mark.parametrize("make", [least_squares, mlp])
@pytest.mark.parametrize("K", [1, 2, 3, 5])
def test_one_plain_inner_step_and_an_outer_step_of_one_is_synchronous_sgd(make, K):
    problem, shards = make(), equal_shards(9, K)
    w0 = np.random.default_rng(0).standard_normal(problem.d)
    together = launch(sync_sgd, K, problem, w0, 0.1, shards, ring_allreduce).results[0]
    for w in launch(diloco, K, problem, w0, 0.1, shards, 1, ring_allreduce, **PLAIN).results:
        np.testing.assert_allclose(w, together, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("K,H", [(2, 3), (3, 4), (4, 50)])
def test_plain_inner_steps_and_an_outer_step_of_one_are_local_sgd(K, H):
    job = (K, least_squares(), np.ones(5), 0.05, equal_shards(11, K), H, naive_allreduce)
    ours, theirs = launch(diloco, *job, **PLAIN), launch(local_sgd, *job, "equal")
    for w, v in zip(ours.results, theirs.results, strict=True):
        np.testing.assert_allclose(w, v, rtol=1e-12, atol=1e-14)
    assert np.abs(ours.results[0][2] - ours.results[1][2]).max() > 1e-3


@pytest.mark.parametrize("H", [1, 3, 20])
def test_one_worker_with_an_outer_step_of_one_is_the_inner_optimiser_alone(H):
    problem, shards, rule = least_squares(), equal_shards(10, 1), AdamW(beta2=0.9)
    settings = {**PLAIN, "inner": rule}
    run = launch(diloco, 1, problem, np.ones(5), 0.1, shards, H, ring_allreduce, **settings)
    w, memory, alone = np.ones(5), rule.start(np.ones(5)), [np.ones(5)]
    for (mine,) in shards:
        w, memory = rule.step(w, problem.grad(w, mine), 0.1, memory)
        alone.append(w)
    # anchor - (anchor - w) is w up to a rounding, so not bit by bit
    np.testing.assert_allclose(run.results[0], alone, rtol=1e-12, atol=1e-14)
    assert run.bytes_sent.sum() == 0


def test_k_workers_by_hand_in_torch():
    """Algorithm 1 of the paper with torch's optimisers, worker after worker."""
    torch = pytest.importorskip("torch")
    K, H, T, problem = 3, 4, 14, least_squares()
    shards, X, y = equal_shards(T, K, seed=3), torch.from_numpy(problem.X), torch.from_numpy(problem.y)
    start = np.random.default_rng(1).standard_normal(5)
    shared = torch.tensor(start)
    outer = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    replicas = [torch.tensor(start, requires_grad=True) for _ in range(K)]
    inner = [torch.optim.AdamW([w], lr=0.05) for w in replicas]
    path = [[start.copy()] for _ in range(K)]
    for t in range(T):
        for k, w in enumerate(replicas):
            rows = torch.from_numpy(shards[t][k])
            inner[k].zero_grad()
            ((X[rows] @ w - y[rows]) ** 2).mean().backward()
            inner[k].step()
        if (t + 1) % H == 0 or t + 1 == T:
            shared.grad = torch.stack([shared - w.detach() for w in replicas]).mean(0)
            outer.step()
            for w in replicas:
                w.data.copy_(shared)
        for k, w in enumerate(replicas):
            path[k].append(w.detach().numpy().copy())
    run = launch(diloco, K, problem, start, 0.05, shards, H, ring_allreduce)
    np.testing.assert_allclose(run.results, path, rtol=1e-11, atol=1e-13)
    without = {"outer": Momentum(0.9)}  # heavy ball instead of Nesterov is another path
    heavy = launch(diloco, K, problem, start, 0.05, shards, H, ring_allreduce, **without)
    assert np.abs(heavy.results[0][-1] - path[0][-1]).max() > 1e-3


@pytest.mark.parametrize("K,H,T", [(1, 3, 7), (3, 4, 12), (4, 5, 12), (5, 50, 12)])
def test_bytes_are_one_all_reduce_per_outer_step(K, H, T):
    job = (K, least_squares(np.float32), np.zeros(5, np.float32), 0.01, equal_shards(T, K), H)
    run = launch(diloco, *job, ring_allreduce)
    np.testing.assert_array_equal(run.bytes_sent, local_bytes(K, 5, 4, T, H))
    assert all(w.dtype == np.float32 for w in run.results)
    for t in [*range(H, T, H), T]:
        assert all(w[t].tobytes() == run.results[0][t].tobytes() for w in run.results)


def test_a_worker_without_examples_takes_part_and_one_round_without_any_is_a_step_of_momentum_only():
    shards = [[np.arange(4), []], [[], []], [[5], [6]]]
    run = launch(diloco, 2, least_squares(), np.ones(5), 0.1, shards, 1, ring_allreduce)
    a, b = run.results
    np.testing.assert_array_equal(a, b)
    moved = np.abs(np.diff(a, axis=0)).max(axis=1)
    assert (moved > 1e-4).all()
    np.testing.assert_allclose(a[2] - a[1], (a[1] - a[0]) * 0.81 / 1.9, rtol=1e-9)  # v, then momentum twice


def test_no_steps_leave_the_start():
    run = launch(diloco, 2, least_squares(), np.ones(5), 0.1, [], 3, ring_allreduce)
    np.testing.assert_array_equal(run.results, np.ones((2, 1, 5)))


def test_divergence_is_everyone_s_at_the_same_outer_step():
    shards = [[np.arange(48), np.arange(48, 96)]] * 600
    job = (2, least_squares(), np.ones(5), lambda t: 10.0, shards, 300, ring_allreduce)
    with pytest.raises(RankError, match="w is not finite after step 299") as caught:
        launch(diloco, *job, **PLAIN)
    assert isinstance(caught.value.__cause__, Diverged)


@pytest.mark.processes
def test_real_processes_walk_the_simulated_path_bit_by_bit_and_a_killed_worker_ends_them_all():
    from labkit.comm import Processes

    K, T, H = 3, 12, 5
    job = (K, mlp(), np.full(mlp().d, 0.1), 0.05, equal_shards(T, K), H, ring_allreduce)
    simulated = launch(diloco, *job)

    def doomed(comm, shards):
        def dying(t, rank):
            if t == 6 and rank == 1:
                os._exit(3)
            return shards[t][rank]

        return diloco(comm, *job[1:4], dying, H, ring_allreduce, T=T)

    with Processes().ready(K) as pool:
        real = launch(diloco, *job, world=Processes(pool=pool))
        for mine, its in zip(real.results, simulated.results, strict=True):
            assert mine.tobytes() == its.tobytes()
        np.testing.assert_array_equal(real.bytes_sent, local_bytes(K, mlp().d, 8, T, H))
        with pytest.raises(RankDied, match="rank 1") as caught:
            launch(doomed, K, job[4], world=Processes(pool=pool))
        assert tuple(caught.value.ranks) == (1,)


@pytest.mark.parametrize(
    "change,says",
    [
        ({"H": 0}, "H must be a whole number of local steps >= 1, got 0"),
        ({"H": 2.5}, "H must be a whole number"),
        ({"outer_eta": 0.0}, "outer_eta must be finite and > 0, got 0.0"),
        ({"outer_eta": float("nan")}, "outer_eta must be finite"),
        ({"eta": -1.0}, "eta must be finite and >= 0"),
        ({"w0": np.ones(4)}, "w0 must be 5 finite numbers"),
        ({"shards": lambda t, k: [0]}, "T must be given"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, says):
    given = {"w0": np.ones(5), "eta": 0.1, "shards": equal_shards(2, 2), "H": 1, **change}
    with pytest.raises(RankError, match=says):
        launch(partial(diloco, problem=least_squares(), allreduce=ring_allreduce, **given), 2)


def test_one_worker_with_plain_steps_is_sgd():
    problem, shards = least_squares(), equal_shards(8, 1)
    alone = sgd(problem, np.ones(5), 0.05, [s[0] for s in shards])
    run = launch(diloco, 1, problem, np.ones(5), 0.05, shards, 3, ring_allreduce, **PLAIN)
    np.testing.assert_allclose(run.results[0], alone, rtol=1e-13)
