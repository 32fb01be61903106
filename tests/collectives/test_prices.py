"""The prices against counting, message by message, against sums that no schedule can change, and one another."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import (
    ALLREDUCES,
    Hierarchical,
    Server,
    Torus,
    all_gather,
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


# -- times: every message that occupies a port, one after the other -------------------------------------
def binomial_edges(K):
    """Rounds of (child, parent) pairs, from the definition."""
    return [
        [(r, r - 2**i) for r in range(1, K) if r & -r == 2**i]
        for i in range(K.bit_length())
        if 2**i < K
    ]  # fmt: skip


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
    assert tree.time(K, nbytes, BOTH) == pytest.approx(2 * math.ceil(math.log2(K)) * each, rel=1e-12)
    assert ring.time(K, nbytes, BOTH) == pytest.approx(2 * (K - 1) * BOTH.seconds(nbytes / K), rel=1e-12)


PRICED = {**ALLREDUCES, "one server": Server(1), "hosts of four": Hierarchical(4, BOTH)}
PRICED |= {each.name: each for each in (reduce_scatter, all_gather, broadcast)}
every = pytest.mark.parametrize("way", PRICED.values(), ids=PRICED)


@every
def test_one_worker_pays_nothing_and_arrays_broadcast(way):
    assert way.time(1, 1e6, BOTH) == 0 == way.rounds(1)
    K, nbytes = np.array([[1], [2], [3], [12], [64]]), np.array([0.0, 1e3, 1e6])
    table = way.time(K, nbytes, BOTH)
    assert table.shape == (5, 3)
    assert table.tolist() == [[way.time(int(k), float(b), BOTH) for b in nbytes] for k in K.ravel()]
    assert way.rounds(K).tolist() == [[way.rounds(int(k))] for k in K.ravel()]
    assert isinstance(way.time(4, 1000, BOTH), float)


@every
@settings(deadline=None)
@given(K=st.integers(1, 5000))
def test_the_rounds_are_the_time_on_a_link_that_costs_one_second_a_message(way, K):
    tick = Link(alpha=1.0, beta=math.inf)
    if way == PRICED["hosts of four"]:
        way = Hierarchical(4, tick)
    assert way.time(K, 1000, tick) == way.rounds(K) == int(way.rounds(K))


# -- how they compare ------------------------------------------------------------------------------------
@settings(deadline=None)
@given(K=st.integers(1, 3000), nbytes=st.floats(0, 1e9))
def test_at_the_edges_one_shape_is_another(K, nbytes):
    fast, endless = Link(1e-6, 1e11), Link(0.0, 1e9)
    assert Server(1).time(K, nbytes, BOTH) == naive.time(K, nbytes, BOTH)
    assert Hierarchical(1, fast).time(K, nbytes, BOTH) == ring.time(K, nbytes, BOTH)
    assert Hierarchical(K, fast).time(K, nbytes, BOTH) == tree.time(K, nbytes, fast)
    assert Torus(K).time(K, nbytes, BOTH) == ring.time(K, nbytes, BOTH)
    halves = reduce_scatter.time(K, nbytes, BOTH) + all_gather.time(K, nbytes, BOTH)
    assert halves == pytest.approx(ring.time(K, nbytes, BOTH), rel=1e-14)
    around = pytest.approx(ring.time(K, nbytes, endless), rel=1e-12)  # as many bytes
    assert torus.time(K, nbytes, endless) == around == server.time(K, nbytes, endless)
    assert halving.time(K, nbytes, endless) == around
    assert halving.rounds(K) == tree.rounds(K)
    power = 1 << (K.bit_length() - 1)
    assert tree.rounds(power) == 2 * doubling.rounds(power)


def test_the_rounds_of_doubling_are_exact_where_floating_logarithms_are_not():
    for m in (1, 10, 52, 53, 60, 62):
        assert doubling.rounds(2**m) == m
        assert doubling.rounds(2**m - 1) == (m - 1 + 2 if m > 1 else 0)
        assert doubling.rounds(2**m + 1) == m + 2


@settings(deadline=None)
@given(K=st.integers(1, 3000))
def test_the_most_square_torus_is_the_one_with_the_fewest_rounds(K):
    assert torus.rounds(K) == min(Torus(c).rounds(K) for c in range(1, K + 1) if K % c == 0)


def test_ceil_log2_is_exact_beyond_where_floating_logarithms_are():
    link = Link(1.0, math.inf)
    assert tree.time(2**49, 0, link) == 98
    assert tree.time(2**49 + 1, 0, link) == 100


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
    ways = [each for name, each in ALLREDUCES.items() if name != "doubling"]
    ways += [*map(Server, {1, (K + 1) // 2, K}), Hierarchical(tuple(k * k % 5 for k in range(K)))]
    for way in ways:
        sent = way.bytes(K, n, itemsize)
        assert sent.shape == (K,) and sent.dtype == np.int64 and sent.min() >= 0
        assert sent.sum() == 2 * (K - 1) * n * itemsize
    for half in (reduce_scatter, all_gather, broadcast):
        assert 2 * half.bytes(K, n, itemsize).sum() == 2 * (K - 1) * n * itemsize
    np.testing.assert_array_equal(Server(1).bytes(K, n, itemsize), naive.bytes(K, n, itemsize))
    np.testing.assert_array_equal(Torus(1).bytes(K, n, itemsize), ring.bytes(K, n, itemsize))


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
    sent = np.zeros(K, int)
    for edges in binomial_edges(K):
        for child, parent in edges:
            sent[child] += 1
            sent[parent] += 1
    np.testing.assert_array_equal(tree.messages(K, 1), sent)
    np.testing.assert_array_equal(tree.bytes(K, 12, 1), 12 * sent)


@every
def test_one_worker_sends_nothing(way):
    assert way.bytes(1, 7, 8).tolist() == [0] == way.messages(1, 7).tolist()


# -- bad input ------------------------------------------------------------------------------------------
@every
@pytest.mark.parametrize("K", [0, -1, 2.5, 4.0, math.nan, True, "4", [2, 0], None])
def test_a_number_of_workers_that_is_none_is_refused_by_name(way, K):
    for call in (lambda: way.time(K, 8, BOTH), lambda: way.rounds(K), lambda: way.messages(K, 8)):
        with pytest.raises(ValueError, match=r"^K must be a whole number"):
            call()


@every
@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "8", None, [1.0, -2.0]])
def test_amounts_must_be_finite_and_not_negative(way, bad):
    with pytest.raises(ValueError, match="nbytes must be a finite number >= 0"):
        way.time(4, bad, BOTH)


@every
@pytest.mark.parametrize("bad", [-1, 2.5, math.nan])
def test_counted_bytes_come_from_whole_numbers(way, bad):
    with pytest.raises(ValueError, match="n must be a whole number"):
        way.bytes(4, bad, 8)
    with pytest.raises(ValueError, match="itemsize must be a whole number"):
        way.bytes(4, 8, bad)


def test_shapes_that_make_no_sense_are_refused_by_name():
    for bad in (0, 5, 1.0, True):
        with pytest.raises(ValueError, match="servers must be a whole number"):
            Server(bad).time(4, 8, BOTH)
        with pytest.raises(ValueError, match="servers must be a whole number"):
            Server(bad).bytes(4, 8, 8)
    for bad in (0, 3, 1.0, True):
        with pytest.raises(ValueError, match="cols must"):
            Torus(bad).time(4, 8, BOTH)
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="hosts must be a whole number"):
            Hierarchical(bad)
    for hosts in ((), (0, 0, 1)):
        with pytest.raises(ValueError, match="hosts must name the host of each of the 4 ranks"):
            Hierarchical(hosts).bytes(4, 8, 8)
