"""Reduce-scatter, all-gather and broadcast: every rank gets its part, and the parts make an all-reduce."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Link, Processes, Simulated, launch
from labkit.collectives import all_gather, broadcast, own_chunk, reduce_scatter

sizes = given(K=st.integers(1, 9), n=st.integers(0, 40), root=st.integers(0, 8))


def share(rank: int, n: int) -> np.ndarray:
    """A vector that differs from rank to rank."""
    return np.random.default_rng([12, rank]).standard_normal(n)


def scatter(comm, n, _):
    return reduce_scatter(comm, share(comm.rank, n))


def gather(comm, n, _):
    low, high = own_chunk(comm, n)
    return all_gather(comm, share(99, n)[low:high], n)


def cast(comm, n, root):
    return broadcast(comm, share(comm.rank, n), root)


PARTS = {scatter: reduce_scatter, gather: all_gather, cast: broadcast}


@sizes
@settings(max_examples=60)
def test_each_part_lands_where_it_belongs_and_sends_what_is_priced(K, n, root):
    root %= K
    runs = {f: launch(f, K, n, root) for f in PARTS}
    exact = np.sum([share(k, n) for k in range(K)], axis=0)
    for r, (part, (low, high)) in enumerate(runs[scatter].results):
        assert (low, high) == (r * n // K, (r + 1) * n // K)
        assert np.allclose(part, exact[low:high], rtol=1e-13, atol=1e-13)
    assert all(np.array_equal(r, share(99, n)) for r in runs[gather].results)
    assert all(np.array_equal(r, share(root, n)) for r in runs[cast].results)
    for f, run in runs.items():
        turned = root if f is cast else 0
        assert run.bytes_sent.tolist() == np.roll(PARTS[f].bytes(K, n, 8), turned).tolist()
        assert run.messages_sent.tolist() == np.roll(PARTS[f].messages(K, n), turned).tolist()


def test_in_place_changes_its_argument_and_the_others_do_not():
    def f(comm):
        x = share(comm.rank, 10)
        part, (low, high) = reduce_scatter(comm, x)
        whole = all_gather(comm, part, 10)
        first = broadcast(comm, x, 2)
        untouched = np.array_equal(x, share(comm.rank, 10))
        y = x.copy()
        assert reduce_scatter.inplace(comm, y) == (low, high)
        same = np.array_equal(y[low:high], part)
        all_gather.inplace(comm, y)
        broadcast.inplace(comm, x, 2)
        return untouched, same, np.array_equal(y, whole), np.array_equal(x, first)

    assert launch(f, 3).results == [(True,) * 4] * 3


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize("link", [Link(1e-4, 1e9), Link(0.0, 1e8), Link(1e-3, float("inf"))])
def test_the_simulated_time_is_the_closed_form(K, link):
    for f, priced in PARTS.items():
        run = launch(f, K, 20 * K, K - 1, world=Simulated(link=link))
        assert run.elapsed_s == pytest.approx(priced.time(K, 160 * K, link), rel=1e-9)


@pytest.mark.processes
@pytest.mark.parametrize("K", [2, 3, 5])
def test_processes_equal_the_simulation_in_bits_and_bytes(K):
    with Processes(device="cpu").ready(K) as pool:
        for n in (0, 1, 7, 300_001):
            for f in PARTS:
                real, model = (launch(f, K, n, K - 1, world=w) for w in (Processes(pool=pool), "simulated"))
                for a, b in zip(real.results, model.results, strict=True):
                    a, b = (a[0], b[0]) if f is scatter else (a, b)
                    assert a.tobytes() == b.tobytes()
                assert real.bytes_sent.tolist() == model.bytes_sent.tolist()
                assert real.messages_sent.tolist() == model.messages_sent.tolist()


@pytest.mark.processes
def test_torchs_own_reduce_scatter_and_all_gather_agree():
    def f(comm):
        import torch
        import torch.distributed as dist

        x = torch.from_numpy(share(comm.rank, 21))
        part, (low, high) = reduce_scatter(comm, x.reshape(3, 7))
        own = x.clone()
        dist.all_reduce(own)  # gloo has no reduce-scatter
        gathered = [torch.empty(7, dtype=torch.float64) for _ in range(3)]
        dist.all_gather(gathered, part)
        whole = all_gather(comm, part, 21)
        return torch.allclose(part, own[low:high], rtol=1e-13), torch.equal(whole, torch.cat(gathered))

    assert launch(f, 3, world=Processes(device="cpu")).results == [(True, True)] * 3


@pytest.mark.parametrize("root", [-1, 2, 1.0, True])
def test_a_root_that_is_no_rank_is_refused(root):
    with pytest.raises(RuntimeError, match="root must be a whole number from 0 to 1"):
        launch(lambda comm: broadcast(comm, np.ones(2), root), 2)


def test_a_part_of_another_length_is_refused():
    with pytest.raises(RuntimeError, match="part must have the 4 elements of rank 1's chunk of n = 7, got 3"):
        launch(lambda comm: all_gather(comm, np.ones(3), 7), 2)
