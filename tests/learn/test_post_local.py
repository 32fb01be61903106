"""Post-local SGD lies between synchronous and local SGD, and pays for the meetings it holds."""

import numpy as np
import pytest

from labkit.collectives import ring_allreduce, tree_allreduce
from labkit.comm import RankError, launch
from labkit.cost import ring_bytes
from labkit.learn import Diverged, LeastSquares, linear_data, local_sgd, post_local_sgd, sync_sgd


def problem_of():
    X, y, _ = linear_data(96, 5, np.random.default_rng(11))
    return LeastSquares(X, y)


def unequal_shards(T, K, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.integers(96, size=rng.integers(0, 9) + (k == 0)) for k in range(K)] for _ in range(T)]


def run(f, K, T, *settings, allreduce=ring_allreduce, **more):
    H = more.pop("H", None)
    middle = () if H is None else (H,)
    job = (K, problem_of(), np.ones(5), 0.05, unequal_shards(T, K), *middle, allreduce)
    return launch(f, *job, *settings, **more)


@pytest.mark.parametrize("K", [1, 2, 3, 5])
def test_without_synchronous_steps_it_is_local_sgd_and_with_all_of_them_synchronous_sgd(K):
    post, local = run(post_local_sgd, K, 11, 0, H=4), run(local_sgd, K, 11, H=4)
    for mine, its in zip(post.results, local.results, strict=True):
        np.testing.assert_array_equal(mine, its)
    for switch in (11, 50):
        post, together = run(post_local_sgd, K, 11, switch, H=4), run(sync_sgd, K, 11)
        np.testing.assert_allclose(post.results[0], together.results[0], rtol=1e-12, atol=1e-14)
    assert K == 1 or np.abs(local.results[0] - together.results[0]).max() > 1e-4


def test_it_is_synchronous_up_to_the_switch_and_then_meets_h_steps_later():
    K, T, H, switch = 3, 13, 4, 3
    post = run(post_local_sgd, K, T, switch, H=H, allreduce=tree_allreduce).results
    together = run(sync_sgd, K, T, allreduce=tree_allreduce).results[0]
    np.testing.assert_allclose(post[0][: switch + 1], together[: switch + 1], rtol=1e-12, atol=1e-14)
    alike = [t for t in range(T + 1) if all(np.array_equal(w[t], post[0][t]) for w in post)]
    assert alike == [0, 1, 2, 3, 7, 11, 13]


@pytest.mark.parametrize("switch,meetings", [(0, 3), (4, 6), (5, 7), (12, 12)])
def test_bytes_are_those_of_the_meetings(switch, meetings):
    sent = run(post_local_sgd, 4, 12, switch, H=4).bytes_sent
    np.testing.assert_array_equal(sent, meetings * ring_bytes(4, 6, 8))


def test_steps_are_numbered_through_on_the_timeline():
    def worker(comm, problem, shards):
        post_local_sgd(comm, problem, np.ones(5), 0.05, shards, 2, ring_allreduce, 3)
        return comm.step

    assert launch(worker, 2, problem_of(), unequal_shards(9, 2)).results == [8, 8]


def test_divergence_is_everyone_s_at_the_same_meeting():
    shards = [[np.arange(48), np.arange(48, 96)]] * 4000
    with pytest.raises(RankError, match="w is not finite") as caught:
        launch(post_local_sgd, 2, problem_of(), np.ones(5), 40.0, shards, 100, ring_allreduce, 2)
    assert isinstance(caught.value.__cause__, Diverged)


@pytest.mark.parametrize(
    "settings,says",
    [
        ({"H": 0, "switch": 0}, "H must be a whole number of local steps >= 1, got 0"),
        ({"H": 2, "switch": -1}, "switch must be a whole number of synchronous steps >= 0, got -1"),
        ({"H": 2, "switch": 1.5}, "switch must be"),
        ({"H": 2, "switch": True}, "switch must be"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, says):
    with pytest.raises(RankError, match=says):
        run(post_local_sgd, 2, 3, settings["switch"], H=settings["H"])
