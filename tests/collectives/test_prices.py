"""The prices against counting, message by message, against sums that no schedule can change, and one another."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import (
    ALLREDUCES,
    all_gather,
    best,
    broadcast,
    doubling,
    halving,
    naive,
    reduce_scatter,
    ring,
    server,
    torus,
    tree,
)
from labkit.network import Link

BOTH = Link(alpha=30e-6, beta=1e9)
HALVES = (reduce_scatter, all_gather, broadcast)
PRICED = {**ALLREDUCES, **{each.name: each for each in HALVES}}
every = pytest.mark.parametrize("way", PRICED.values(), ids=PRICED)


# -- times: every message that occupies a port, one after the other -------------------------------------
def binomial_edges(K):
    """Rounds of (child, parent) pairs, from the definition."""
    rounds = [2**i for i in range(K.bit_length()) if 2**i < K]
    return [[(r, r - bit) for r in range(1, K) if r & -r == bit] for bit in rounds]


def tree_by_ports(K, seconds):
    """Replay reduce and broadcast with a clock per worker; no worker does two things at once in a phase."""
    clock = np.zeros(K)
    for edges in binomial_edges(K):
        for child, parent in edges:
            clock[parent] = max(clock[parent], clock[child]) + seconds
    down = np.full(K, np.inf)
    down[0] = clock[0]
    for edges in reversed(binomial_edges(K)):
        for child, parent in edges:
            down[parent] += seconds  # its port is busy until the child has it
            down[child] = down[parent]
    return down.max()


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 33, 100])
def test_times_equal_a_replay_of_the_messages(K):
    nbytes = 5040_000.0
    each = BOTH.seconds(nbytes)
    assert naive.time(K, nbytes, BOTH) == pytest.approx(2 * (K - 1) * each, rel=1e-12)
    assert tree.time(K, nbytes, BOTH) == pytest.approx(tree_by_ports(K, each), rel=1e-12)
    assert ring.time(K, nbytes, BOTH) == pytest.approx(2 * (K - 1) * BOTH.seconds(nbytes / K), rel=1e-12)


@every
def test_one_worker_pays_nothing_and_arrays_broadcast(way):
    assert way.time(1, 1e6, BOTH) == 0 == way.rounds(1)
    assert way.bytes(1, 7, 8).tolist() == [0] == way.messages(1, 7).tolist()
    K, nbytes = np.array([[1], [2], [3], [12], [64]]), np.array([0.0, 1e3, 1e6])
    table = way.time(K, nbytes, BOTH)
    assert table.tolist() == [[way.time(int(k), float(b), BOTH) for b in nbytes] for k in K.ravel()]
    assert way.rounds(K).tolist() == [[way.rounds(int(k))] for k in K.ravel()]
    assert isinstance(way.time(4, 1000, BOTH), float)


# -- how they compare ------------------------------------------------------------------------------------
@settings(deadline=None)
@given(K=st.integers(1, 3000), nbytes=st.floats(0, 1e9))
def test_halves_make_a_ring_and_whoever_sends_as_many_bytes_takes_as_long_without_latency(K, nbytes):
    halves = reduce_scatter.time(K, nbytes, BOTH) + all_gather.time(K, nbytes, BOTH)
    assert halves == pytest.approx(ring.time(K, nbytes, BOTH), rel=1e-14)
    endless = Link(0.0, 1e9)
    for way in (torus, server, halving):
        assert way.time(K, nbytes, endless) == pytest.approx(ring.time(K, nbytes, endless), rel=1e-12)
    assert halving.rounds(K) == tree.rounds(K)
    shapes = [(K // cols, cols) for cols in range(1, K + 1) if K % cols == 0]
    assert torus.rounds(K) == min(2 * (rows + cols - 2) for rows, cols in shapes)


@pytest.mark.parametrize("m", [2, 10, 49, 52])
def test_rounds_are_exact_where_floating_logarithms_are_not(m):
    assert [doubling.rounds(2**m + d) for d in (-1, 0, 1)] == [m + 1, m, m + 2]
    assert [tree.rounds(2**m + d) for d in (-1, 0, 1)] == [2 * m, 2 * m, 2 * m + 2]


# -- bytes and messages ---------------------------------------------------------------------------------
sizes = given(st.integers(1, 40), st.integers(0, 200), st.sampled_from([1, 4, 8]))


@sizes
def test_ring_bytes_and_messages_equal_the_schedule_sent_chunk_by_chunk(K, n, itemsize):
    nbytes, messages = np.zeros(K, int), np.zeros(K, int)
    for r in range(K):
        for phase in (0, 1):  # reduce-scatter starts with its own chunk, the all-gather with the next
            for j in range(K - 1):
                i = (r + phase - j) % K
                size = (i + 1) * n // K - i * n // K
                nbytes[r] += size * itemsize
                messages[r] += size > 0
    np.testing.assert_array_equal(ring.bytes(K, n, itemsize), nbytes)
    np.testing.assert_array_equal(ring.messages(K, n), messages)


@settings(deadline=None)
@sizes
def test_whoever_adds_in_one_place_moves_the_vector_to_and_from_everyone_once(K, n, itemsize):
    for way in (each for name, each in ALLREDUCES.items() if name != "doubling"):
        sent = way.bytes(K, n, itemsize)
        assert sent.shape == (K,) and sent.dtype == np.int64 and sent.min() >= 0
        assert sent.sum() == 2 * (K - 1) * n * itemsize
    for half in HALVES:
        assert half.bytes(K, n, itemsize).sum() == (K - 1) * n * itemsize


@sizes
def test_doubling_sends_the_whole_vector_in_every_round(K, n, itemsize):
    m = K.bit_length() - 1
    extras = K - 2**m
    sent = doubling.bytes(K, n, itemsize)
    assert sent.sum() == n * itemsize * (m * 2**m + 2 * extras)
    assert sent.max() == n * itemsize * (m + (extras > 0))


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize("way", [ring, halving, torus, server], ids=lambda way: way.name)
def test_the_load_is_even_when_K_divides_n(way, K):
    np.testing.assert_array_equal(way.bytes(K, 160 * K, 4), np.full(K, 2 * 4 * 160 * (K - 1)))
    np.testing.assert_array_equal(way.messages(K, 160 * K), np.full(K, way.rounds(K)))


@pytest.mark.parametrize("K", range(1, 40))
def test_tree_bytes_follow_the_edges_up_and_down(K):
    ends = np.array([end for edges in binomial_edges(K) for edge in edges for end in edge], dtype=int)
    sent = np.bincount(ends, minlength=K)
    np.testing.assert_array_equal(tree.messages(K, 1), sent)
    np.testing.assert_array_equal(tree.bytes(K, 12, 1), 12 * sent)


# -- the best of them -----------------------------------------------------------------------------------
@given(st.integers(1, 300), st.floats(0, 1e10), st.floats(1e-7, 1e-2), st.floats(1e3, 1e11))
@settings(deadline=None)
def test_best_is_the_minimum_over_all(K, nbytes, alpha, beta):
    link = Link(alpha, beta)
    seconds = {name: each.time(K, nbytes, link) for name, each in ALLREDUCES.items()}
    chosen = best(K, nbytes, link, ALLREDUCES)
    assert seconds[chosen] == pytest.approx(min(seconds.values()), rel=1e-12)


def test_a_tie_goes_to_the_first_named():
    assert best(2, 1e6, BOTH, {"b": tree, "a": naive}) == "b"
    assert best(2, 1e6, BOTH, {"a": naive.time, "b": tree.time}) == "a"


# -- bad input ------------------------------------------------------------------------------------------
@every
@pytest.mark.parametrize("K", [0, -1, 2.5, 4.0, math.nan, True, "4", [2, 0], None])
def test_a_number_of_workers_that_is_none_is_refused_by_name(way, K):
    for call in (lambda: way.time(K, 8, BOTH), lambda: way.rounds(K), lambda: way.messages(K, 8)):
        with pytest.raises(ValueError, match=r"^K must be a whole number"):
            call()


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "8", None, [1.0, -2.0]])
def test_amounts_must_be_finite_and_not_negative(bad):
    with pytest.raises(ValueError, match="nbytes must be a finite number >= 0"):
        ring.time(4, bad, BOTH)
    with pytest.raises(ValueError, match="n must be a whole number"):
        ring.bytes(4, bad, 8)
