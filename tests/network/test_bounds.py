"""No price and no run beats a bound, and some reach it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Simulated, launch
from labkit.collectives import ALLREDUCES, doubling, halving, ring, tree
from labkit.network import Link, least_bytes, least_rounds, least_time

LINK = Link(alpha=30e-6, beta=1e9)
ways = st.sampled_from(list(ALLREDUCES.values()))
links = st.builds(Link, st.floats(0, 1e-2), st.floats(1e3, 1e11))


@given(ways, st.integers(1, 300), st.floats(1, 1e10), links)
def test_no_price_beats_a_bound(way, K, nbytes, link):
    assert way.time(K, nbytes, link) >= least_time(K, nbytes, link) * (1 - 1e-12)
    assert way.rounds(K) >= least_rounds(K)
    assert way.bytes(K, int(nbytes), 1).max() >= least_bytes(K, int(nbytes)) - 1e-6


@pytest.mark.parametrize("beta", [0, -1e9, float("nan")])
def test_a_link_without_bandwidth_is_refused(beta):
    with pytest.raises(ValueError, match="beta must be bytes per second > 0, got"):
        Link(0.0, beta)


@given(ways, st.integers(1, 9), st.integers(0, 40), links)
@settings(max_examples=80)
def test_no_simulated_run_beats_a_bound(way, K, n, link):
    run = launch(lambda comm: way.allreduce(comm, np.ones(n) * comm.rank), K, world=Simulated(link))
    assert run.bytes_sent.max() >= least_bytes(K, 8 * n) - 1e-9
    assert run.elapsed_s >= least_time(K, 8 * n, link) * (1 - 1e-9)


@pytest.mark.parametrize("K", [2, 4, 8, 16, 64])
def test_powers_of_two_reach_either_bound(K):
    endless = Link(0.0, 1e9)
    assert doubling.rounds(K) == least_rounds(K)
    assert halving.rounds(K) == tree.rounds(K) == 2 * least_rounds(K)
    for way in (halving, ring):
        assert way.time(K, 1e6, endless) == pytest.approx(least_time(K, 1e6, endless), rel=1e-12)
        assert way.bytes(K, 640, 8).max() == least_bytes(K, 5120)


def test_rounds_are_what_it_takes_for_news_to_reach_everyone():
    for K in [*range(1, 200), 2**49 + 1]:
        rounds, informed = 0, 1
        while informed < K:
            rounds, informed = rounds + 1, 2 * informed
        assert least_rounds(K) == rounds


def test_four_workers_by_hand_and_arrays_of_workers_and_sizes():
    assert least_time(4, 1e6, LINK) == pytest.approx(1.5e-3)
    assert least_time(4, 1, LINK) == pytest.approx(60e-6)
    assert least_time(4, 0, LINK) == 0  # an empty vector needs nothing
    K, nbytes = np.array([[1], [2], [8]]), np.array([0.0, 1e6])
    np.testing.assert_allclose(least_bytes(K, nbytes), [[0, 0], [0, 1e6], [0, 1.75e6]])
    np.testing.assert_array_equal(least_rounds(K), [[0], [1], [3]])
    assert least_time(K, nbytes, LINK)[2, 1] == least_time(8, 1e6, LINK)


@pytest.mark.parametrize(("bound", "args", "name"), [
    (least_rounds, (0,), "K"), (least_bytes, (2.5, 1), "K"), (least_time, (4, -1, LINK), "nbytes"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(bound, args, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        bound(*args)
