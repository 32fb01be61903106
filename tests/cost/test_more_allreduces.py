"""The closed forms of doubling, halving, torus, two levels, servers and the parts: against counting, and one another."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import cost
from labkit.cost import Link

LINK = Link(alpha=30e-6, beta=1e9)
TICK = Link(alpha=1.0, beta=math.inf)
FAST = Link(alpha=1e-6, beta=1e11)

FLAT = {
    "naive": (cost.naive_time, cost.naive_rounds),
    "tree": (cost.tree_time, cost.tree_rounds),
    "ring": (cost.ring_time, cost.ring_rounds),
    "doubling": (cost.doubling_time, cost.doubling_rounds),
    "halving": (cost.halving_time, cost.halving_rounds),
    "torus": (cost.torus_time, cost.torus_rounds),
    "server": (cost.server_time, cost.server_rounds),
    "reduce-scatter": (cost.reduce_scatter_time, cost.reduce_scatter_rounds),
    "all-gather": (cost.all_gather_time, cost.all_gather_rounds),
    "broadcast": (cost.broadcast_time, cost.broadcast_rounds),
    "hierarchical": (
        lambda K, nbytes, link: cost.hierarchical_time(K, nbytes, link, link, 4),
        lambda K: cost.hierarchical_rounds(K, 4),
    ),
}


@pytest.mark.parametrize("name", FLAT)
@settings(deadline=None)
@given(K=st.integers(1, 5000))
def test_the_rounds_are_the_time_on_a_link_that_costs_one_second_a_message(name, K):
    time, rounds = FLAT[name]
    assert time(K, 1000, TICK) == rounds(K) == int(rounds(K))


@pytest.mark.parametrize("name", FLAT)
def test_one_worker_pays_nothing_and_arrays_broadcast(name):
    time, rounds = FLAT[name]
    assert time(1, 1e6, LINK) == 0 == rounds(1)
    K, nbytes = np.array([[1], [2], [3], [12], [64]]), np.array([0.0, 1e3, 1e6])
    table = time(K, nbytes, LINK)
    assert table.shape == (5, 3)
    assert table.tolist() == [[time(int(k), float(b), LINK) for b in nbytes] for k in K.ravel()]
    assert rounds(K).tolist() == [[rounds(int(k))] for k in K.ravel()]
    assert isinstance(time(4, 1000, LINK), float)


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("K", [0, 2.5, True, "4", None])
def test_a_number_of_workers_that_is_none_is_refused_by_name(name, K):
    with pytest.raises(ValueError, match=r"^K must be a whole number"):
        FLAT[name][0](K, 8, LINK)
    with pytest.raises(ValueError, match=r"^K must be a whole number"):
        FLAT[name][1](K)


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "8"])
def test_amounts_must_be_finite_and_not_negative(name, bad):
    with pytest.raises(ValueError, match="nbytes must be a finite number >= 0"):
        FLAT[name][0](4, bad, LINK)


# -- how they compare ------------------------------------------------------------------------------------
@settings(deadline=None)
@given(m=st.integers(0, 40), nbytes=st.floats(0, 1e12))
def test_for_a_power_of_two_halving_has_the_rings_bytes_and_the_trees_rounds(m, nbytes):
    K = 2**m
    assert cost.halving_rounds(K) == cost.tree_rounds(K) == 2 * cost.doubling_rounds(K)
    bandwidth_only = Link(0.0, 1e9)
    assert cost.halving_time(K, nbytes, bandwidth_only) == pytest.approx(
        cost.ring_time(K, nbytes, bandwidth_only), rel=1e-12
    )


def test_the_folds_powers_are_exact_where_floating_logarithms_are_not():
    for m in (1, 10, 52, 53, 60, 62):
        assert cost.doubling_rounds(2**m) == m
        assert cost.doubling_rounds(2**m - 1) == (m - 1 + 2 if m > 1 else 0)
        assert cost.doubling_rounds(2**m + 1) == m + 2


@settings(deadline=None)
@given(K=st.integers(1, 3000), nbytes=st.floats(0, 1e9))
def test_a_torus_and_servers_everywhere_carry_the_rings_bytes(K, nbytes):
    link = Link(0.0, 1e9)
    ring = pytest.approx(cost.ring_time(K, nbytes, link), rel=1e-12)
    assert cost.torus_time(K, nbytes, link) == ring
    assert cost.server_time(K, nbytes, link, K) == ring
    assert cost.torus_time(K, nbytes, LINK, cols=K) == cost.ring_time(K, nbytes, LINK)
    assert cost.torus_rounds(K) <= cost.ring_rounds(K)


@settings(deadline=None)
@given(K=st.integers(1, 3000))
def test_the_most_square_torus_is_the_one_with_the_fewest_rounds(K):
    cols = cost.torus_cols(K)
    assert K % cols == 0 and cols >= K // cols
    assert cost.torus_rounds(K) == min(cost.torus_rounds(K, c) for c in range(1, K + 1) if K % c == 0)


@settings(deadline=None)
@given(K=st.integers(1, 200), nbytes=st.floats(0, 1e9))
def test_one_server_is_naive_and_two_levels_of_one_are_a_ring_or_a_tree(K, nbytes):
    assert cost.server_time(K, nbytes, LINK) == cost.naive_time(K, nbytes, LINK)
    assert cost.hierarchical_time(K, nbytes, LINK, FAST, 1) == cost.ring_time(K, nbytes, LINK)
    assert cost.hierarchical_time(K, nbytes, LINK, FAST, K) == cost.tree_time(K, nbytes, FAST)


def test_the_halves_make_the_ring():
    halves = cost.reduce_scatter_time(6, 1e6, LINK) + cost.all_gather_time(6, 1e6, LINK)
    assert halves == pytest.approx(cost.ring_time(6, 1e6, LINK), rel=1e-15)


# -- bytes: the sums that no schedule can change ---------------------------------------------------------
sizes = given(K=st.integers(1, 40), n=st.integers(0, 200), itemsize=st.sampled_from([1, 4, 8]))


@settings(deadline=None)
@sizes
def test_whoever_adds_in_one_place_moves_the_vector_to_and_from_everyone_once(K, n, itemsize):
    hosts = [k * k % 5 for k in range(K)]
    least = 2 * (K - 1) * n * itemsize
    for sent in (
        cost.halving_bytes(K, n, itemsize),
        cost.torus_bytes(K, n, itemsize),
        cost.hierarchical_bytes(hosts, n, itemsize),
        *(cost.server_bytes(K, n, itemsize, S) for S in {1, (K + 1) // 2, K}),
    ):
        assert sent.shape == (K,) and sent.dtype == np.int64 and sent.min() >= 0
        assert sent.sum() == least
    np.testing.assert_array_equal(cost.server_bytes(K, n, itemsize), cost.naive_bytes(K, n * itemsize))
    np.testing.assert_array_equal(cost.torus_bytes(K, n, itemsize, cols=1), cost.ring_bytes(K, n, itemsize))
    together = cost.reduce_scatter_bytes(K, n, itemsize) + cost.all_gather_bytes(K, n, itemsize)
    assert together.sum() == least
    assert 2 * cost.broadcast_bytes(K, n * itemsize, K - 1).sum() == least


@settings(deadline=None)
@sizes
def test_doubling_sends_the_whole_vector_in_every_round(K, n, itemsize):
    m = K.bit_length() - 1
    extras = K - 2**m
    sent = cost.doubling_bytes(K, n * itemsize)
    assert sent.sum() == n * itemsize * (m * 2**m + 2 * extras)
    assert sent.max() == n * itemsize * (m + (extras > 0))


@pytest.mark.parametrize("K", [1, 2, 4, 8, 16])
def test_the_load_is_even_when_K_divides_n(K):
    share = np.full(K, 2 * 4 * 160 * (K - 1))
    for sent in (
        cost.halving_bytes(K, 160 * K, 4),
        cost.torus_bytes(K, 160 * K, 4),
        cost.server_bytes(K, 160 * K, 4, K),
    ):
        np.testing.assert_array_equal(sent, share)
    np.testing.assert_array_equal(cost.halving_messages(K, 160 * K), np.full(K, cost.halving_rounds(K)))
    np.testing.assert_array_equal(cost.torus_messages(K, 160 * K), np.full(K, cost.torus_rounds(K)))


# -- bad input -------------------------------------------------------------------------------------------
def test_what_makes_no_sense_is_refused_by_name():
    for bad in (0, 5, 1.0, True):
        with pytest.raises(ValueError, match="servers must be a whole number"):
            cost.server_time(4, 8, LINK, bad)
        with pytest.raises(ValueError, match="servers must be a whole number"):
            cost.server_bytes(4, 8, 8, bad)
    for bad in (0, 3, 1.0, True):
        with pytest.raises(ValueError, match="cols must"):
            cost.torus_time(4, 8, LINK, bad)
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="per_host must be a whole number"):
            cost.hierarchical_time(4, 8, LINK, FAST, bad)
    with pytest.raises(ValueError, match="hosts must name the host of each rank"):
        cost.hierarchical_bytes([], 8, 8)
    with pytest.raises(ValueError, match="root must be a rank from 0 to 3"):
        cost.broadcast_bytes(4, 8, root=4)
    with pytest.raises(ValueError, match="itemsize must be a whole number"):
        cost.halving_bytes(4, 8, 2.5)
    with pytest.raises(ValueError, match="n must be a whole number"):
        cost.hierarchical_messages([0, 0], -1)
