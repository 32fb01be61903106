"""Shared memory: the naive all-reduce's bits, in any mix of sizes, with nobody ever a use ahead of a slow reader."""

from __future__ import annotations

import time

import numpy as np
import pytest

from labkit import Processes, Simulated, launch
from labkit.collectives import naive, shared
from labkit.comm import Deadlock, RankError
from labkit.comm.windows import Windows

pytestmark = pytest.mark.processes


def share(rank: int, i: int, n: int, dtype) -> np.ndarray:
    return np.random.default_rng([3, rank, i]).standard_normal(n).astype(dtype)


@pytest.mark.parametrize("K", [2, 3, 4, 7])
def test_a_long_mix_of_sizes_gives_the_naive_ones_bits_every_time(K):
    step = Windows.half_bytes(K) // 4
    sizes = [1, 0, 2048, 2049, K - 1, 100_000, step, step + 1, 3 * step + 17] * 4

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


def test_a_pool_can_go_on_using_its_windows():
    with Processes(device="cpu").ready(2) as pool:
        for i in range(3):
            run = launch(lambda comm: shared.allreduce(comm, np.ones(9)), 2, world=Processes(pool=pool))
            assert run.results[1].tolist() == [2.0] * 9, i
            assert run.bytes_sent.tolist() == [0, 0]


@pytest.mark.parametrize("n", [5, 100_000])
@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_the_rank_that_stays_away_is_to_blame(world, n):
    def f(comm):
        if comm.rank != 1:
            shared.allreduce(comm, np.ones(n))

    with pytest.raises(Deadlock, match="rank 1 returned without joining") as caught:
        launch(f, 3, world=world, timeout_s=10)
    assert caught.value.ranks == (1,)


def test_ranks_on_several_hosts_share_nothing_and_are_told_so():
    with pytest.raises(
        RankError, match="shared memory needs ranks that share a host, but these ranks live on 2 hosts"
    ):
        launch(lambda comm: shared.allreduce(comm, np.ones(4)), 3, world=Simulated(hosts=(0, 0, 1)))
