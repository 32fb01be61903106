"""The prices against sums that no schedule can change, and one another.

Against the messages, bytes and seconds of every run: test_allreduce.py and test_parts.py.
"""

import math

import numpy as np
import pytest
from hypothesis import given
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
def test_whoever_adds_in_one_place_moves_the_vector_to_and_from_everyone_once(K, n, itemsize):
    for way in (each for name, each in ALLREDUCES.items() if name != "doubling"):
        sent = way.bytes(K, n, itemsize)
        assert sent.shape == (K,) and sent.dtype == np.int64 and sent.min() >= 0
        assert sent.sum() == 2 * (K - 1) * n * itemsize
    for half in HALVES:
        assert half.bytes(K, n, itemsize).sum() == (K - 1) * n * itemsize


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize("way", [ring, halving, torus, server], ids=lambda way: way.name)
def test_the_load_is_even_when_K_divides_n(way, K):
    np.testing.assert_array_equal(way.bytes(K, 160 * K, 4), np.full(K, 2 * 4 * 160 * (K - 1)))
    np.testing.assert_array_equal(way.messages(K, 160 * K), np.full(K, way.rounds(K)))


# -- the best of them -----------------------------------------------------------------------------------
@given(st.integers(1, 300), st.floats(0, 1e10), st.floats(1e-7, 1e-2), st.floats(1e3, 1e11))
def test_best_is_the_minimum_over_all(K, nbytes, alpha, beta):
    link = Link(alpha, beta)
    seconds = {name: each.time(K, nbytes, link) for name, each in ALLREDUCES.items()}
    chosen = best(K, nbytes, link, ALLREDUCES)
    assert seconds[chosen] <= min(seconds.values()) * (1 + 1e-12)


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
