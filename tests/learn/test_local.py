"""Local SGD: H = 1 is synchronous SGD, between two meetings every worker is on its own, and all leave a meeting alike."""

import numpy as np
import pytest

from labkit.collectives import naive, ring
from labkit.comm import RankError, launch
from labkit.learn import Diverged, LeastSquares, linear_data, local_sgd, sgd, split, sync_sgd


def problem_of(N=96, d=5, dtype=np.float64):
    X, y, _ = linear_data(N, d, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


def equal_shards(T, K, b=6, seed=0):
    rng = np.random.default_rng(seed)
    return [split(rng.integers(96, size=K * b), K) for _ in range(T)]


def unequal_shards(T, K, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.integers(96, size=rng.integers(0, 9) + (k == 0)) for k in range(K)] for _ in range(T)]


@pytest.mark.parametrize("K", [1, 2, 3, 5])
@pytest.mark.parametrize("shards_of", [equal_shards, unequal_shards])
def test_one_local_step_between_meetings_is_synchronous_sgd(K, shards_of):
    shards = shards_of(7, K)
    job = (K, problem_of(), np.ones(5), 0.1, shards)
    together = launch(sync_sgd, *job, ring.allreduce).results[0]
    for mine in launch(local_sgd, *job, 1, ring.allreduce).results:
        np.testing.assert_allclose(mine, together, rtol=1e-12, atol=1e-14)


def test_between_meetings_a_worker_walks_as_if_it_were_alone_and_all_leave_a_meeting_with_the_same_bits():
    K, H, T, problem = 3, 4, 11, problem_of()
    shards = equal_shards(T, K)
    run = launch(local_sgd, K, problem, np.ones(5), 0.05, shards, H, ring.allreduce)
    for t in (4, 8, 11):  # the last round is short, and ends with a meeting too
        assert all(w[t].tobytes() == run.results[0][t].tobytes() for w in run.results)
    for rank, w in enumerate(run.results):
        for begin, end in ((0, 3), (4, 7), (8, 10)):
            alone = sgd(problem, w[begin], 0.05, [shards[t][rank] for t in range(begin, end)])
            np.testing.assert_array_equal(w[begin : end + 1], alone)
    assert np.abs(run.results[0][3] - run.results[1][3]).max() > 1e-3
    before = [
        sgd(problem, w[0], 0.05, [shards[t][k] for t in range(4)])[-1] for k, w in enumerate(run.results)
    ]
    np.testing.assert_allclose(run.results[0][4], np.mean(before, axis=0), rtol=1e-13)


@pytest.mark.parametrize("H", [1, 2, 5, 50])
def test_all_go_on_from_the_mean_weighted_by_the_examples_used_since_the_last_meeting(H):
    K, T, problem = 4, 12, problem_of()
    shards = unequal_shards(T, K, seed=3)
    run = launch(local_sgd, K, problem, np.ones(5), lambda t: 0.1 / (t + 1), shards, H, naive.allreduce)
    w = np.ones(5)
    for begin in range(0, T, H):
        steps, ends = range(begin, min(begin + H, T)), []
        for k in range(K):
            own = w
            for t in steps:
                own = own - 0.1 / (t + 1) * problem.grad(own, shards[t][k]) if len(shards[t][k]) else own
            ends.append(own)
        w = np.average(ends, axis=0, weights=[sum(len(shards[t][k]) for t in steps) for k in range(K)])
        np.testing.assert_allclose(run.results[2][steps[-1] + 1], w, rtol=1e-12, atol=1e-14)


def test_h_steps_cost_one_all_reduce():
    shards = equal_shards(12, 4)
    run = launch(local_sgd, 4, problem_of(), np.ones(5), 0.1, shards, 3, ring.allreduce)
    np.testing.assert_array_equal(run.bytes_sent, 4 * ring.bytes(4, 6, 8))


def test_float32_stays_float32_on_the_wire_and_in_the_iterates():
    run = launch(
        local_sgd,
        3,
        problem_of(dtype=np.float32),
        np.zeros(5, np.float32),
        0.1,
        equal_shards(6, 3),
        2,
        ring.allreduce,
    )
    assert run.results[0].dtype == np.float32
    np.testing.assert_array_equal(run.bytes_sent, 3 * ring.bytes(3, 6, 4))


def test_a_worker_that_diverges_alone_is_reported_by_all_at_the_next_meeting():
    X, y, _ = linear_data(96, 5, np.random.default_rng(11))
    X[48:] *= 30  # only the worker that holds these examples takes steps beyond its 2 / L
    shards = [[np.arange(48), np.arange(48, 96)]] * 400
    with pytest.raises(RankError, match=r"w is not finite after step 199 with eta = 0\.1") as caught:
        launch(local_sgd, 2, LeastSquares(X, y), np.ones(5), 0.1, shards, 200, ring.allreduce)
    assert isinstance(caught.value.__cause__, Diverged)


@pytest.mark.parametrize(
    "change,says",
    [
        ({"H": 0}, "H must be a whole number >= 1, got 0"),
        ({"H": True}, "H must be a whole number"),
        ({"H": 2.0}, "H must be a whole number"),
        ({"eta": float("nan")}, "eta must be finite"),
        ({"shards": [[[], []]]}, "shards must hold an example between two synchronisations"),
        ({"shards": lambda t, k: [0]}, "T must be given"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, says):
    given = {"eta": 0.1, "shards": equal_shards(2, 2), "H": 1, **change}
    job = (problem_of(), np.ones(5), given["eta"], given["shards"], given["H"])
    with pytest.raises(RankError, match=says):
        launch(local_sgd, 2, *job, ring.allreduce)
