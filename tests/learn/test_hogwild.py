"""Hogwild!: one worker is plain SGD, a lock loses nothing, and what is lost without one is counted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from labkit.comm import Processes, RankError, launch
from labkit.learn.hogwild import LINE, FileLock, Ones, counters_for, hogwild_inplace
from labkit.learn.sgd import sgd
from labkit.learn.sparse import sparse_data

torch = pytest.importorskip("torch")
problem, _ = sparse_data(400, 60, 4, np.random.default_rng(1))
ORDER = np.random.default_rng(2).integers(problem.N, size=900)


def zeros(d):
    return torch.zeros(d, dtype=torch.float64).share_memory_()


@pytest.fixture(scope="module")
def world():
    with Processes(device="cpu").ready(2) as pool:
        yield Processes(device="cpu", pool=pool)


def test_one_worker_takes_the_steps_of_sgd_with_batches_of_one():
    w = zeros(problem.d)
    launch(hogwild_inplace, 1, problem, w, 0.2, [ORDER])
    expected = sgd(problem, np.zeros(problem.d), 0.2, ORDER[:, None])[-1]
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-10, atol=1e-13)


def test_the_simulated_world_lets_one_work_at_a_time_and_loses_nothing():
    c, counters = np.zeros(problem.d), counters_for(3)
    job = (hogwild_inplace, 3, Ones(problem.cols, problem.d), c, 1.0, np.array_split(ORDER, 3), counters)
    ran = launch(*job).results
    assert np.array_equal(c, np.bincount(problem.cols[ORDER].ravel(), minlength=problem.d))
    assert counters[::LINE].tolist() == [300] * 3 and not any(r.tau.any() for r in ran)


@pytest.mark.processes
def test_a_lock_loses_nothing(world, tmp_path):
    path = tmp_path / "lock"
    path.touch()
    n, c = 3000, zeros(1)
    one_cell = Ones(np.zeros((1, 1)), 1)
    launch(
        hogwild_inplace, 2, one_cell, c, 1.0, [np.zeros(n, int)] * 2, None, FileLock(str(path)), world=world
    )
    assert c.item() == 2 * n


@pytest.mark.processes
def test_without_one_updates_of_one_cell_are_lost_and_the_count_says_so(world):
    """Many tries, for on an idle core a worker may be through before the other begins."""
    n, one_cell = 100_000, Ones(np.zeros((1, 1)), 1)
    for _ in range(20):
        c = zeros(1)
        launch(hogwild_inplace, 2, one_cell, c, 1.0, [np.zeros(n, int)] * 2, world=world)
        assert 0 < c.item() <= 2 * n and c.item() == int(c.item())
        if c.item() < 2 * n:
            return
    pytest.fail("two workers added to one cell 4 million times and never met")


@pytest.mark.processes
def test_workers_that_touch_different_coordinates_lose_nothing(world):
    c = zeros(20)
    cols = np.arange(20).reshape(2, 10)
    launch(
        hogwild_inplace, 2, Ones(cols, 20), c, 1.0, [np.zeros(20_000, int), np.ones(20_000, int)], world=world
    )
    assert (c == 20_000).all()


@pytest.mark.processes
def test_it_converges_on_sparse_data_and_staleness_is_counted(world):
    w, counters = zeros(problem.d), counters_for(2)
    orders = np.array_split(np.tile(ORDER, 10), 2)
    ran = launch(hogwild_inplace, 2, problem, w, 0.2, orders, counters, world=world).results
    start, floor = problem.loss(np.zeros(problem.d)), 0.03
    assert problem.loss(w.numpy()) < floor < start / 10
    assert [r.updates for r in ran] == counters[::LINE].tolist() == [4500, 4500]
    for mine, other in (ran, ran[::-1]):
        assert len(mine.tau) == 4500 and mine.tau.min() >= 0 and mine.tau.sum() <= other.updates
        assert mine.begun_s < mine.ended_s


def test_a_lock_travels_by_its_path(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    lock = FileLock(str(path))
    with lock:
        copy = pickle.loads(pickle.dumps(lock))
    with copy, pytest.raises(BlockingIOError):
        import fcntl

        with open(path, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    "w,eta,orders,words",
    [
        (np.zeros(60, np.float32), 0.1, [ORDER], "w must be a float64 tensor of shape"),
        (np.zeros(61), 0.1, [ORDER], "w must be a float64 tensor of shape"),
        ([0.0] * 60, 0.1, [ORDER], "w must be a float64 tensor of shape"),
        (np.broadcast_to(0.0, 60), 0.1, [ORDER], "w must be writeable"),
        (np.zeros(60), -1.0, [ORDER], "eta must be a finite number >= 0, got -1"),
        (np.zeros(60), 0.1, [ORDER, ORDER], "one list of examples for each of K = 1 workers, got 2"),
        (np.zeros(60), 0.1, [[400]], "example numbers from 0 to 399"),
        (np.zeros(60), 0.1, [[0.5]], "example numbers from 0 to 399"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(w, eta, orders, words):
    with pytest.raises(RankError, match=words):
        launch(hogwild_inplace, 1, problem, w, eta, orders)


def test_counters_and_a_lock_exclude_each_other_and_no_work_is_no_error():
    with pytest.raises(RankError, match="leave one of the two out"):
        launch(hogwild_inplace, 1, problem, np.zeros(60), 0.1, [[1]], counters_for(1), FileLock("/dev/null"))
    assert launch(hogwild_inplace, 2, problem, np.zeros(60), 0.1, [[], [1]]).results[0].updates == 0


@pytest.mark.processes
@pytest.mark.parametrize("copy", [np.zeros(60), torch.zeros(60, dtype=torch.float64)], ids=["numpy", "torch"])
def test_a_copy_for_each_worker_is_refused_for_every_update_would_be_lost(world, copy):
    def refused(comm):
        with pytest.raises(ValueError, match="w must be one memory for all workers, got a copy"):
            hogwild_inplace(comm, problem, copy, 0.1, [[0], [1]])
        return True

    assert launch(refused, 2, world=world).results == [True, True]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.filterwarnings("error")
def test_a_step_that_diverges_is_reported_at_the_update_that_overflows(watched):
    w, order = np.zeros(problem.d), np.arange(problem.N).repeat(400)
    with pytest.raises(RankError, match="Diverged: diverged: w is not finite after step") as e:
        launch(hogwild_inplace, 1, problem, w, 50.0, [order], counters_for(1) if watched else None)
    t = int(str(e.value).split("after step ")[1].split()[0])
    assert np.isfinite(w).all(), "it stops before"
    again = np.zeros(problem.d)
    launch(hogwild_inplace, 1, problem, again, 50.0, [order[:t]])
    assert np.array_equal(again, w)
