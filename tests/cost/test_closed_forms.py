"""The all-reduce closed forms against the textbook's digits and against counting, message by message."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.cost import (
    Link,
    communication_share,
    naive_bytes,
    naive_messages,
    naive_time,
    ring_bytes,
    ring_crossover,
    ring_messages,
    ring_time,
    step_time,
    tree_bytes,
    tree_messages,
    tree_time,
)

# 10.3: P = 2e8 parameters of 4 bytes, 80 ms of computation, a ring at 10 GB/s without latency
P, ITEMSIZE, T_COMP = 2e8, 4, 80e-3
FAST = Link(alpha=0.0, beta=10e9)
BOTH = Link(alpha=30e-6, beta=1e9)


@pytest.mark.parametrize(
    ("K", "comm_ms", "step_ms", "share"), [(8, "140.0", "220.0", "63.6"), (64, "157.5", "237.5", "66.3")]
)
def test_the_reference_step_of_10_3_to_the_printed_digit(K, comm_ms, step_ms, share):
    t_comm = ring_time(K, P * ITEMSIZE, FAST)
    assert f"{t_comm * 1e3:.1f}" == comm_ms
    assert f"{step_time(T_COMP, t_comm) * 1e3:.1f}" == step_ms
    assert f"{communication_share(T_COMP, t_comm) * 100:.1f}" == share


def test_communication_ties_with_computation_at_two_workers_and_first_exceeds_it_at_three():
    assert ring_time(2, P * ITEMSIZE, FAST) == T_COMP
    assert ring_crossover(P, ITEMSIZE, T_COMP, FAST) == 3


@given(
    st.floats(0, 1e9),
    st.integers(1, 8),
    st.floats(1e-6, 10),
    st.floats(0, 1e-2),
    st.floats(1e3, 1e12),
)
def test_the_crossover_is_the_first_K_that_exceeds(P, itemsize, t_comp, alpha, beta):
    link = Link(alpha, beta)
    K = ring_crossover(P, itemsize, t_comp, link)
    if K is None:
        assert ring_time(2**40, P * itemsize, link) <= t_comp * (1 + 1e-9)
    else:
        assert ring_time(K, P * itemsize, link) > t_comp
        assert ring_time(K - 1, P * itemsize, link) <= t_comp * (1 + 1e-12)


def test_communication_that_cannot_exceed_never_crosses_over():
    assert ring_crossover(P, ITEMSIZE, 0.16, FAST) is None  # its supremum, 2 n / beta
    assert ring_crossover(P, ITEMSIZE, 0.17, FAST) is None
    assert ring_crossover(P, ITEMSIZE, 0.159, FAST) == 161  # 160 ties
    assert ring_crossover(P, ITEMSIZE, 1.0, Link(0.0, math.inf)) is None
    assert ring_crossover(0, 4, 1.0, Link(1e-3, 1e9)) == 502  # latency alone: 2 * 501 ms


def test_an_expensive_link_crosses_over_with_the_first_partner():
    assert ring_crossover(P, ITEMSIZE, 0.0, FAST) == 2


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
    assert naive_time(K, nbytes, BOTH) == pytest.approx(2 * (K - 1) * each, rel=1e-12)
    assert tree_time(K, nbytes, BOTH) == pytest.approx(tree_by_ports(K, each), rel=1e-12)
    assert tree_time(K, nbytes, BOTH) == pytest.approx(2 * math.ceil(math.log2(K)) * each, rel=1e-12)
    assert ring_time(K, nbytes, BOTH) == pytest.approx(2 * (K - 1) * BOTH.seconds(nbytes / K), rel=1e-12)


@pytest.mark.parametrize("time", [naive_time, tree_time, ring_time])
def test_one_worker_pays_nothing_and_arrays_broadcast(time):
    assert time(1, 1e6, BOTH) == 0
    K, nbytes = np.array([[1], [2], [3], [64]]), np.array([0.0, 1e3, 1e6])
    table = time(K, nbytes, BOTH)
    assert table.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            assert table[i, j] == time(int(K[i, 0]), float(nbytes[j]), BOTH)
    assert isinstance(time(4, 1000, BOTH), float)
    assert time(4, 1000, Link(1e-3, math.inf)) > 0


def test_two_workers_make_naive_and_tree_the_same():
    assert naive_time(2, 1e6, BOTH) == tree_time(2, 1e6, BOTH)


def test_ceil_log2_is_exact_beyond_where_floating_logarithms_are():
    link = Link(1.0, math.inf)
    assert tree_time(2**49, 0, link) == 98
    assert tree_time(2**49 + 1, 0, link) == 100


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
    np.testing.assert_array_equal(ring_bytes(K, n, itemsize), nbytes)
    np.testing.assert_array_equal(ring_messages(K, n), messages)


@sizes
def test_each_algorithm_moves_the_vector_to_and_from_everyone_once(K, n, itemsize):
    nbytes = n * itemsize
    for sent in (naive_bytes(K, nbytes), tree_bytes(K, nbytes), ring_bytes(K, n, itemsize)):
        assert sent.shape == (K,)
        assert sent.dtype == np.int64
        assert sent.sum() == 2 * (K - 1) * nbytes


@pytest.mark.parametrize("K", range(1, 40))
def test_tree_bytes_follow_the_edges_up_and_down(K):
    sent = np.zeros(K, int)
    for edges in binomial_edges(K):
        for child, parent in edges:
            sent[child] += 1
            sent[parent] += 1
    np.testing.assert_array_equal(tree_messages(K), sent)
    np.testing.assert_array_equal(tree_bytes(K, 12), 12 * sent)


def test_the_naive_server_carries_everyone_and_one_worker_carries_nothing():
    np.testing.assert_array_equal(naive_bytes(4, 100), [300, 100, 100, 100])
    np.testing.assert_array_equal(naive_messages(4), [3, 1, 1, 1])
    for sent in (naive_bytes(1, 8), tree_bytes(1, 8), ring_bytes(1, 2, 4), ring_messages(1, 2)):
        np.testing.assert_array_equal(sent, [0])


def test_the_ring_spreads_the_load_when_K_divides_n():
    np.testing.assert_array_equal(ring_bytes(5, 100, 4), np.full(5, 2 * 4 * 80))
    np.testing.assert_array_equal(ring_messages(5, 100), np.full(5, 8))


# -- bad input ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("K", [0, -1, 2.5, 4.0, math.nan, True, "4", [2, 0], None])
def test_a_number_of_workers_that_is_none_is_refused_by_name(K):
    for call in (
        lambda: naive_time(K, 8, BOTH),
        lambda: tree_time(K, 8, BOTH),
        lambda: ring_time(K, 8, BOTH),
    ):
        with pytest.raises(ValueError, match=r"^K must be a whole number"):
            call()


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "8", None, [1.0, -2.0]])
def test_amounts_must_be_finite_and_not_negative(bad):
    for time in (naive_time, tree_time, ring_time):
        with pytest.raises(ValueError, match="nbytes must be a finite number >= 0"):
            time(4, bad, BOTH)
    with pytest.raises(ValueError, match="t_comp"):
        step_time(bad, 1.0)
    with pytest.raises(ValueError, match="t_comm"):
        communication_share(1.0, bad)
    with pytest.raises(ValueError, match="P must"):
        ring_crossover(bad, 4, 1.0, BOTH)


@pytest.mark.parametrize("bad", [-1, 2.5, math.nan])
def test_counted_bytes_come_from_whole_numbers(bad):
    with pytest.raises(ValueError, match="nbytes must be a whole number"):
        naive_bytes(4, bad)
    with pytest.raises(ValueError, match="n must be a whole number"):
        ring_bytes(4, bad, 8)
    with pytest.raises(ValueError, match="itemsize must be a whole number"):
        ring_bytes(4, 8, bad)
    with pytest.raises(ValueError, match="K must be a whole number"):
        tree_messages([4, 5])


def test_a_step_that_takes_no_time_communicates_none_of_it():
    assert communication_share(0.0, 0.0) == 0.0
    np.testing.assert_array_equal(communication_share(np.array([1.0, 0.0]), 1.0), [0.5, 1.0])
