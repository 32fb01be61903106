"""Shared memory: the naive all-reduce's bits, in any mix of sizes, with nobody ever a use ahead of a slow reader."""

import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest

from labkit import Processes, Simulated, launch
from labkit.collectives import naive, shared
from labkit.comm import Deadlock, Mismatch, RankError, windows
from labkit.comm.windows import Windows

pytestmark = pytest.mark.processes


def share(rank: int, i: int, n: int, dtype) -> np.ndarray:
    return np.random.default_rng([3, rank, i]).standard_normal(n).astype(dtype)


@pytest.mark.parametrize("K", [2, 7, *(pytest.param(K, marks=pytest.mark.weekly) for K in (3, 4))])
def test_a_long_mix_of_sizes_gives_the_naive_ones_bits_every_time(K):
    step = max(1 << 14, min(1 << 19, (1 << 22) // K) & ~0xFFF) // 4
    sizes = [1, 0, K - 1, 100_000, step, step + 1, 3 * step + 17] * 4

    def f(comm, way):
        totals = []
        for i, n in enumerate(sizes):
            if comm.rank == i % comm.K and i % 5 == 0:
                time.sleep(0.005)  # somebody else is late each time
            totals.append(way(comm, share(comm.rank, i, n, np.float32)).tobytes())
        return totals

    real = launch(f, K, shared.allreduce, world=Processes(device="cpu")).results
    expected = launch(f, K, naive.allreduce).results[0]
    assert all(totals == expected for totals in real)
    assert launch(f, K, shared.allreduce).results == real


def test_thousands_of_tiny_ones_back_to_back_lose_nothing():
    def f(comm):
        x, wrong = np.zeros(5), 0
        for i in range(3000):
            x[:] = i + comm.rank
            shared.allreduce_inplace(comm, x)
            wrong += int((x != 3 * i + 3).any())
        return wrong

    assert launch(f, 3, world=Processes(device="cpu")).results == [0, 0, 0]


def test_torch_tensors_are_reduced_where_they_are():
    def f(comm):
        import torch

        x = torch.full((70_000,), 1.0 + comm.rank, dtype=torch.float64)
        before = x.data_ptr()
        shared.allreduce_inplace(comm, x)
        return x.data_ptr() == before, float(x.sum())

    assert launch(f, 3, world=Processes(device="cpu")).results == [(True, 6.0 * 70_000)] * 3


@pytest.mark.parametrize("n", [5, 100_000])
@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_the_rank_that_stays_away_is_to_blame(world, n):
    def f(comm):
        if comm.rank != 1:
            shared.allreduce(comm, np.ones(n))

    with pytest.raises(Deadlock, match="rank 1 returned without joining") as caught:
        launch(f, 3, world=world, timeout_s=10)
    assert caught.value.ranks == (1,)


@pytest.mark.skipif(not windows._ORDERED, reason="on this processor ranks meet at a real barrier")
def test_who_waits_says_so_soon_also_where_a_yield_takes_long(monkeypatch):
    class Told(Exception):
        pass

    def waiting(_):
        raise Told

    # as beside eight busy processes
    monkeypatch.setattr(windows.os, "sched_yield", lambda: time.sleep(0.005))
    alone = Windows(2, 0, Windows.heap(2, one_process=True), nullcontext, lambda: None, waiting)
    began = time.monotonic()
    with pytest.raises(Told):
        alone.sync()
    assert time.monotonic() - began < 5  # so many yields as on an idle machine would take ten


def test_ranks_on_several_hosts_share_nothing_and_are_told_so():
    said = "shared memory needs ranks that share a host, but these ranks live on 2 hosts"
    with pytest.raises(RankError, match=said):
        launch(lambda comm: shared.allreduce(comm, np.ones(4)), 3, world=Simulated(hosts=(0, 0, 1)))


@pytest.mark.parametrize("K", [1, 4, 7, *(pytest.param(K, marks=pytest.mark.weekly) for K in (2, 3))])
def test_in_symmetric_memory_it_is_the_naive_ones_bits_and_every_part_can_be_summed(K):
    lengths = [1, K, 2049, 200_003]

    def f(comm, way):
        totals = []
        for i, n in enumerate(lengths):
            x = comm.windows.empty((n, 2), [np.float32, np.float64][i % 2])
            x[:] = share(comm.rank, i, 2 * n, x.dtype).reshape(x.shape)
            way(comm, x)
            way(comm, x[n // 3 :])  # a part of it, which on all ranks lies as far in
            totals.append(x.tobytes())
        return totals

    ways = shared.allreduce_inplace, naive.allreduce_inplace
    real, slow = (launch(f, K, way, world=Processes(device="cpu")).results for way in ways)
    assert real == slow == launch(f, K, shared.allreduce_inplace).results


def test_symmetric_memory_and_other_memory_do_not_mix():
    def f(comm):
        x = comm.windows.empty(50)
        shared.allreduce_inplace(comm, x if comm.rank else x.copy())

    def unlike(comm):
        comm.windows.empty(50 + comm.rank)

    for world in ("simulated", "processes"):
        with pytest.raises(Mismatch, match="in symmetric memory"):
            launch(f, 2, world=world)
        with pytest.raises(Mismatch, match=r"symmetric memory for \(50,\) float32"):
            launch(unlike, 2, world=world)


@pytest.mark.skipif(sys.platform != "linux", reason="the sentence is Linux's")
def test_who_asks_for_more_than_there_is_hears_so_and_the_rest_goes_on():
    def f(comm):
        comm.windows.empty(10**13, np.float64)

    said = r"no room for [\d,]{18,} bytes of symmetric memory in /dev/shm: No space"
    with pytest.raises(RankError, match=said):
        launch(f, 2, world=Processes(device="cpu"))
    assert launch(lambda comm: comm.windows.empty(3).size, 2, world="processes").results == [3, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_symmetric_memory_has_no_name_and_ends_with_the_pool_also_when_a_worker_is_killed():
    def f(comm, die):
        comm.windows.empty(1_000_000)[:] = 1
        assert shared.allreduce(comm, np.ones(9)).tolist() == [2.0] * 9
        if die and comm.rank == 1:
            os.kill(os.getpid(), 9)
        comm.barrier()
        return len([name for name in os.listdir("/dev/shm") if name.startswith("labkit-")])

    def held() -> int:
        links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
        return sum("labkit-" in os.readlink(link) for link in links if os.path.islink(link))

    with Processes(device="cpu").ready(2) as pool:
        for _ in range(3):
            assert launch(f, 2, False, world=Processes(pool=pool)).results == [0, 0]
        assert held() == 1
    with pytest.raises(RankError, match="rank 1 was killed"):
        launch(f, 2, True, world=Processes(device="cpu"))
    assert held() == 0
