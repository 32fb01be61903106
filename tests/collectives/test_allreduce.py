"""Every all-reduce gives every rank the same sum, for any K, any length, in every world, in the seconds of its price."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Link, Processes, Simulated, launch
from labkit.collectives import ALLREDUCES, ring, shared

WAYS = {**ALLREDUCES, "shared": shared}


def share(rank: int, n: int, dtype=np.float64) -> np.ndarray:
    """A vector that differs from rank to rank."""
    return np.random.default_rng([11, rank]).standard_normal(n).astype(dtype)


def reduce(comm, way, n, dtype=np.float64):
    return way(comm, share(comm.rank, n, dtype))


@pytest.mark.parametrize("name", WAYS)
@given(K=st.integers(1, 9), n=st.integers(0, 40), dtype=st.sampled_from([np.float32, np.float64]))
@settings(max_examples=40)
def test_every_rank_ends_with_the_same_bits_of_the_sum_and_sends_what_is_priced(name, K, n, dtype):
    way = WAYS[name]
    run = launch(reduce, K, way.allreduce, n, dtype)
    exact = np.sum([share(k, n, dtype).astype(np.float64) for k in range(K)], axis=0)
    for r in run.results:
        assert r.dtype == dtype and r.tobytes() == run.results[0].tobytes()
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    assert np.allclose(run.results[0], exact, rtol=tolerance, atol=tolerance)
    assert run.bytes_sent.tolist() == way.bytes(K, n, np.dtype(dtype).itemsize).tolist()
    assert run.messages_sent.tolist() == way.messages(K, n).tolist()


@pytest.fixture(scope="module", params=[1, 2, 3, 4, pytest.param(5, marks=pytest.mark.weekly)])
def pool(request):
    """K workers that stand ready for all algorithms."""
    with Processes(device="cpu").ready(request.param) as pool:
        yield pool


@pytest.mark.processes
@pytest.mark.parametrize("name", WAYS)
def test_processes_equal_the_simulation_in_bits_and_bytes_and_torchs_own_all_reduce(name, pool):
    def f(comm, way):
        import torch
        import torch.distributed as dist

        x = torch.from_numpy(share(comm.rank, 1003)).reshape(17, 59)
        ours, own = way(comm, x), x.clone()
        dist.all_reduce(own)
        return ours.shape == x.shape, torch.allclose(ours, own, rtol=1e-13, atol=1e-13), ours.numpy()

    way = WAYS[name].allreduce
    for n in (0, 1, pool.K - 1, 7, 1000, 300_001):
        real = launch(reduce, pool.K, way, n, np.float32, world=Processes(pool=pool))
        model = launch(reduce, pool.K, way, n, np.float32)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(real.results, model.results, strict=True))
        assert real.bytes_sent.tolist() == model.bytes_sent.tolist()
        assert real.messages_sent.tolist() == model.messages_sent.tolist()
    in_numpy = launch(reduce, pool.K, way, 1003).results
    for k, (shape, close, ours) in enumerate(launch(f, pool.K, way, world=Processes(pool=pool)).results):
        assert shape and close and ours.tobytes() == in_numpy[k].tobytes()


@pytest.mark.parametrize("name", WAYS)
def test_in_place_changes_its_argument_and_the_other_does_not(name):
    def f(comm):
        way, x = WAYS[name], share(comm.rank, 10)
        total = way.allreduce(comm, x)
        untouched = np.array_equal(x, share(comm.rank, 10))
        way.allreduce_inplace(comm, x)
        return untouched, np.array_equal(x, total)

    assert launch(f, 3).results == [(True, True)] * 3


def test_memory_that_cannot_be_reduced_in_place_is_refused():
    frozen = np.ones(4)
    frozen.setflags(write=False)
    for x in (np.ones((4, 4)).T[::2], frozen):
        with pytest.raises(RuntimeError, match="must be contiguous"):
            launch(lambda comm, x=x: ring.allreduce_inplace(comm, x), 2)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6, 8, 11, 12, 13, 16, 21])
@pytest.mark.parametrize("link", [Link(1e-4, 1e9), Link(0.0, 1e8), Link(1e-3, float("inf"))])
def test_the_simulated_time_is_the_closed_form(name, K, link):
    n = 2 * K  # K divides n, and so does every number of columns: the forms assume it
    way = WAYS[name]
    run = launch(reduce, K, way.allreduce, n, np.float32, world=Simulated(link=link))
    assert run.elapsed_s == pytest.approx(way.time(K, 4 * n, link), rel=1e-9)


@pytest.mark.parametrize("K", [3, 4, 5, 8])
@pytest.mark.parametrize("name", [name for name in WAYS if name != "doubling"])  # where both ends add
def test_a_nan_has_the_same_bits_everywhere(name, K):
    def f(comm):
        x = np.array([0x7FC00000 + comm.rank] * 9, dtype=np.uint32).view(np.float32)  # a NaN that says whose
        return WAYS[name].allreduce(comm, x)

    assert len({r.tobytes() for r in launch(f, K).results}) == 1
