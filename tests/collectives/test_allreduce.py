"""Every all-reduce gives every rank the same sum, for any K, any length, in every world."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Link, Processes, Simulated, launch
from labkit.collectives import (
    doubling_allreduce,
    doubling_allreduce_inplace,
    halving_allreduce,
    halving_allreduce_inplace,
    hierarchical_allreduce,
    hierarchical_allreduce_inplace,
    naive_allreduce,
    naive_allreduce_inplace,
    ring_allreduce,
    ring_allreduce_inplace,
    server_allreduce,
    server_allreduce_inplace,
    shared_allreduce,
    shared_allreduce_inplace,
    textbook_ring_allreduce,
    torus_allreduce,
    torus_allreduce_inplace,
    tree_allreduce,
    tree_allreduce_inplace,
)
from labkit.cost import (
    doubling_bytes,
    doubling_messages,
    doubling_time,
    halving_bytes,
    halving_messages,
    halving_time,
    hierarchical_bytes,
    hierarchical_messages,
    naive_bytes,
    naive_time,
    ring_bytes,
    ring_messages,
    ring_time,
    server_bytes,
    server_messages,
    server_time,
    torus_bytes,
    torus_messages,
    torus_time,
    tree_bytes,
    tree_messages,
    tree_time,
)

HOSTS = (0, 0, 1, 0, 2, 1, 1, 3, 0)  # of up to nine ranks: uneven, and not in one piece

ALL = {
    "naive": (naive_allreduce, naive_allreduce_inplace),
    "tree": (tree_allreduce, tree_allreduce_inplace),
    "ring": (ring_allreduce, ring_allreduce_inplace),
    "doubling": (doubling_allreduce, doubling_allreduce_inplace),
    "halving": (halving_allreduce, halving_allreduce_inplace),
    "torus": (torus_allreduce, torus_allreduce_inplace),
    "one column": (
        lambda comm, x: torus_allreduce(comm, x, cols=1),
        lambda comm, x: torus_allreduce_inplace(comm, x, cols=1),
    ),
    "server": (server_allreduce, server_allreduce_inplace),
    "two servers": (
        lambda comm, x: server_allreduce(comm, x, servers=min(2, comm.K)),
        lambda comm, x: server_allreduce_inplace(comm, x, servers=min(2, comm.K)),
    ),
    "all serve": (
        lambda comm, x: server_allreduce(comm, x, servers=comm.K),
        lambda comm, x: server_allreduce_inplace(comm, x, servers=comm.K),
    ),
    "shared": (shared_allreduce, shared_allreduce_inplace),
    "hierarchical": (
        lambda comm, x: hierarchical_allreduce(comm, x, hosts=HOSTS[: comm.K]),
        lambda comm, x: hierarchical_allreduce_inplace(comm, x, hosts=HOSTS[: comm.K]),
    ),
}

# bytes of n elements of 8 bytes, and messages: what each rank sends, (K,)
SENT = {
    "naive": (lambda K, n: naive_bytes(K, 8 * n), None),
    "tree": (lambda K, n: tree_bytes(K, 8 * n), lambda K, n: tree_messages(K) * (n > 0)),
    "ring": (lambda K, n: ring_bytes(K, n, 8), ring_messages),
    "doubling": (lambda K, n: doubling_bytes(K, 8 * n), lambda K, n: doubling_messages(K) * (n > 0)),
    "halving": (lambda K, n: halving_bytes(K, n, 8), halving_messages),
    "torus": (lambda K, n: torus_bytes(K, n, 8), torus_messages),
    "one column": (lambda K, n: torus_bytes(K, n, 8, cols=1), lambda K, n: torus_messages(K, n, cols=1)),
    "server": (lambda K, n: server_bytes(K, n, 8), server_messages),
    "two servers": (
        lambda K, n: server_bytes(K, n, 8, min(2, K)),
        lambda K, n: server_messages(K, n, min(2, K)),
    ),
    "all serve": (lambda K, n: server_bytes(K, n, 8, K), lambda K, n: server_messages(K, n, K)),
    "shared": (lambda K, n: np.zeros(K, int), lambda K, n: np.zeros(K, int)),  # memory, not messages
    "hierarchical": (
        lambda K, n: hierarchical_bytes(HOSTS[:K], n, 8),
        lambda K, n: hierarchical_messages(HOSTS[:K], n),
    ),
}

# seconds of nbytes on K workers; hierarchical has a test of its own
TIMES = {
    "naive": naive_time,
    "tree": tree_time,
    "ring": ring_time,
    "doubling": doubling_time,
    "halving": halving_time,
    "torus": torus_time,
    "one column": lambda K, nbytes, link: torus_time(K, nbytes, link, cols=1),
    "server": server_time,
    "two servers": lambda K, nbytes, link: server_time(K, nbytes, link, min(2, K)),
    "all serve": lambda K, nbytes, link: server_time(K, nbytes, link, K),
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


@pytest.fixture(scope="module", params=[1, 2, 3, 4, 5])
def pool(request):
    """K workers that stand ready for all algorithms."""
    with Processes(device="cpu").ready(request.param) as pool:
        yield pool


@pytest.mark.processes
@pytest.mark.parametrize("name", ALL)
def test_processes_equal_the_simulation_in_bits_and_bytes(name, pool):
    for n in (0, 1, pool.K - 1, 7, 1000, 300_001):
        real = launch(reduce, pool.K, ALL[name][0], n, np.float32, world=Processes(pool=pool))
        model = launch(reduce, pool.K, ALL[name][0], n, np.float32)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(real.results, model.results, strict=True))
        assert real.bytes_sent.tolist() == model.bytes_sent.tolist()
        assert real.messages_sent.tolist() == model.messages_sent.tolist()


@pytest.mark.processes
@pytest.mark.parametrize("name", ALL)
def test_torch_agrees_with_numpy_and_with_torchs_own_all_reduce(name, pool):
    def f(comm, way):
        import torch
        import torch.distributed as dist

        x = torch.from_numpy(share(comm.rank, 1003, np.float64)).reshape(17, 59)
        ours = way(comm, x)
        own = x.clone()
        dist.all_reduce(own)
        return ours.shape == x.shape, torch.allclose(ours, own, rtol=1e-13, atol=1e-13), ours.numpy()

    run = launch(f, pool.K, ALL[name][0], world=Processes(pool=pool))
    model = launch(reduce, pool.K, ALL[name][0], 1003, np.float64)
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


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6, 8, 11, 13, 16, 21])
@pytest.mark.parametrize("link", [Link(1e-4, 1e9), Link(0.0, 1e8), Link(1e-3, float("inf"))])
def test_the_simulated_time_is_the_closed_form(name, K, link):
    n = 16 * K  # K, 2, and the largest power of two up to K divide n: the forms assume it
    run = launch(reduce, K, ALL[name][0], n, np.float32, world=Simulated(link=link))
    assert run.elapsed_s == pytest.approx(float(TIMES[name](K, 4 * n, link)), rel=1e-9)


@pytest.mark.parametrize("K", [2, 6, 12])
def test_the_textbooks_ring_takes_as_long_as_the_fast_one(K):
    link = Link(1e-4, 1e9)
    run = launch(reduce, K, textbook_ring_allreduce, 240 * K, np.float32, world=Simulated(link=link))
    assert run.elapsed_s == pytest.approx(ring_time(K, 960 * K, link), rel=1e-9)


@pytest.mark.parametrize("name", ALL)
@given(K=st.integers(1, 9), n=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_bytes_and_messages_are_the_closed_form_for_every_rank(name, K, n):
    nbytes, messages = SENT[name]
    run = launch(reduce, K, ALL[name][0], n, np.float64)
    assert run.bytes_sent.tolist() == nbytes(K, n).tolist()
    if messages is not None:  # the naive one sends empty messages too
        assert run.messages_sent.tolist() == messages(K, n).tolist()


@pytest.mark.parametrize("K", [3, 4, 5, 8])
@pytest.mark.parametrize("name", ALL)
def test_a_nan_has_the_same_bits_everywhere(name, K):
    def f(comm):
        x = np.array([0x7FC00000 + comm.rank] * 9, dtype=np.uint32).view(np.float32)  # a NaN that says whose
        return ALL[name][0](comm, x)

    assert len({r.tobytes() for r in launch(f, K).results}) == 1
