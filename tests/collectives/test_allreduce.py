"""Every all-reduce gives every rank the same sum, for any K, any length, in every world."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Link, Processes, Simulated, launch
from labkit.collectives import (
    naive_allreduce,
    naive_allreduce_inplace,
    ring_allreduce,
    ring_allreduce_inplace,
    textbook_ring_allreduce,
    tree_allreduce,
    tree_allreduce_inplace,
)
from labkit.cost import (
    naive_bytes,
    naive_time,
    ring_bytes,
    ring_time,
    tree_bytes,
    tree_time,
)  # fmt: skip

ALL = {
    "naive": (naive_allreduce, naive_allreduce_inplace),
    "tree": (tree_allreduce, tree_allreduce_inplace),
    "ring": (ring_allreduce, ring_allreduce_inplace),
}


def share(rank: int, n: int, dtype) -> np.ndarray:
    """A vector that differs from rank to rank."""
    return np.random.default_rng([11, rank]).standard_normal(n).astype(dtype)


def reduce(comm, way, n, dtype):
    return way(comm, share(comm.rank, n, dtype))


@pytest.mark.parametrize("name", ALL)
@given(K=st.integers(1, 9), n=st.integers(0, 40), dtype=st.sampled_from([np.float32, np.float64]))
@settings(max_examples=40, deadline=None)
def test_every_rank_ends_with_the_same_bits_of_the_sum(name, K, n, dtype):
    results = launch(reduce, K, ALL[name][0], n, dtype).results
    exact = np.sum([share(k, n, dtype).astype(np.float64) for k in range(K)], axis=0)
    for r in results:
        assert r.dtype == dtype and r.tobytes() == results[0].tobytes()
    assert np.allclose(
        results[0],
        exact,
        rtol=1e-5 if dtype == np.float32 else 1e-13,
        atol=1e-5 if dtype == np.float32 else 1e-13,
    )


@given(K=st.integers(1, 8), n=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_the_fast_ring_is_the_textbooks_ring_bit_for_bit(K, n):
    fast = launch(reduce, K, ring_allreduce, n, np.float32)
    plain = launch(reduce, K, textbook_ring_allreduce, n, np.float32)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(fast.results, plain.results, strict=True))
    assert fast.bytes_sent.tolist() == plain.bytes_sent.tolist()


@pytest.mark.processes
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ALL)
def test_processes_equal_the_simulation_in_bits_and_bytes(name, K):
    with Processes(device="cpu").ready(K) as pool:
        for n in (0, 1, K - 1, 7, 1000, 300_001):
            real = launch(reduce, K, ALL[name][0], n, np.float32, world=Processes(pool=pool))
            model = launch(reduce, K, ALL[name][0], n, np.float32)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(real.results, model.results, strict=True))
            assert real.bytes_sent.tolist() == model.bytes_sent.tolist()
            assert real.messages_sent.tolist() == model.messages_sent.tolist()


@pytest.mark.processes
@pytest.mark.parametrize("name", ALL)
def test_torch_agrees_with_numpy_and_with_torchs_own_all_reduce(name):
    def f(comm, way):
        import torch
        import torch.distributed as dist

        x = torch.from_numpy(share(comm.rank, 1003, np.float64)).reshape(17, 59)
        ours = way(comm, x)
        own = x.clone()
        dist.all_reduce(own)
        return ours.shape == x.shape, torch.allclose(ours, own, rtol=1e-13), ours.numpy()

    run = launch(f, 3, ALL[name][0], world=Processes(device="cpu"))
    model = launch(reduce, 3, ALL[name][0], 1003, np.float64)
    for (shape, close, ours), expected in zip(run.results, model.results, strict=True):
        assert shape and close and ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_in_place_changes_its_argument_and_the_other_does_not(name):
    def f(comm):
        x = share(comm.rank, 10, np.float64)
        before = x.copy()
        total = ALL[name][0](comm, x)
        untouched = np.array_equal(x, before)
        ALL[name][1](comm, x)
        return untouched, np.array_equal(x, total)

    assert launch(f, 3).results == [(True, True)] * 3


def test_memory_that_cannot_be_reduced_in_place_is_refused():
    def f(comm, x):
        ring_allreduce_inplace(comm, x)

    frozen = np.ones(4)
    frozen.setflags(write=False)
    for x in (np.ones((4, 4)).T[::2], frozen):
        with pytest.raises(RuntimeError, match="must be contiguous"):
            launch(f, 2, x)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize("link", [Link(1e-4, 1e9), Link(0.0, 1e8), Link(1e-3, float("inf"))])
def test_the_simulated_time_is_the_closed_form(K, link):
    n = 240 * K  # K divides n: the ring's form assumes it
    for way, form in [
        (naive_allreduce, naive_time), (tree_allreduce, tree_time),
        (ring_allreduce, ring_time), (textbook_ring_allreduce, ring_time),
    ]:  # fmt: skip
        run = launch(reduce, K, way, n, np.float32, world=Simulated(link=link))
        assert run.elapsed_s == pytest.approx(float(form(K, 4 * n, link)), rel=1e-9)


@given(K=st.integers(1, 9), n=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_bytes_are_the_closed_form_for_every_rank(K, n):
    forms = {"naive": naive_bytes(K, 8 * n), "tree": tree_bytes(K, 8 * n), "ring": ring_bytes(K, n, 8)}
    for name, form in forms.items():
        run = launch(reduce, K, ALL[name][0], n, np.float64)
        assert run.bytes_sent.tolist() == list(form), name
