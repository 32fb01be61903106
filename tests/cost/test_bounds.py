"""No all-reduce beats the bounds, neither on paper nor in the simulation, and some reach them."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Simulated, launch
from labkit.collectives import (
    doubling_allreduce,
    halving_allreduce,
    hierarchical_allreduce,
    naive_allreduce,
    ring_allreduce,
    server_allreduce,
    textbook_ring_allreduce,
    torus_allreduce,
    tree_allreduce,
)
from labkit.cost import (
    Link,
    distance,
    doubling_time,
    halving_time,
    hierarchical_time,
    least_bytes,
    least_rounds,
    least_time,
    naive_time,
    ring_time,
    server_time,
    torus_time,
    tree_time,
)

LINK = Link(alpha=30e-6, beta=1e9)


def flat_hierarchy(K, nbytes, link):
    return hierarchical_time(K, nbytes, link, inside=link, per_host=2)


FORMS = (
    naive_time,
    tree_time,
    ring_time,
    doubling_time,
    halving_time,
    server_time,
    torus_time,
    flat_hierarchy,
)
RUNS = (
    naive_allreduce,
    tree_allreduce,
    ring_allreduce,
    textbook_ring_allreduce,
    doubling_allreduce,
    halving_allreduce,
    server_allreduce,
    torus_allreduce,
    hierarchical_allreduce,
)
links = st.builds(Link, st.floats(0, 1e-2), st.floats(1e3, 1e11))


@given(st.sampled_from(FORMS), st.integers(2, 300), st.floats(1, 1e10), links)
@settings(deadline=None)
def test_no_closed_form_beats_a_bound(form, K, nbytes, link):
    far = distance(form, K, nbytes, link)
    assert min(far) >= 1 - 1e-12
    assert form(K, nbytes, link) >= least_time(K, nbytes, link) * (1 - 1e-12)


@given(st.sampled_from(RUNS), st.integers(1, 9), st.integers(0, 40), links)
@settings(max_examples=80, deadline=None)
def test_no_simulated_run_beats_a_bound(way, K, n, link):
    run = launch(lambda comm: way(comm, np.ones(n) * comm.rank), K, world=Simulated(link))
    assert run.bytes_sent.max() >= least_bytes(K, 8 * n) - 1e-9
    assert run.elapsed_s >= least_time(K, 8 * n, link) * (1 - 1e-9)


@given(st.integers(2, 500), st.floats(1, 1e10))
@settings(deadline=None)
def test_the_ring_is_at_distance_one_in_bytes_and_far_off_in_rounds(K, nbytes):
    far = distance(ring_time, K, nbytes, LINK)
    assert far.bandwidth == pytest.approx(1, rel=1e-12)
    assert far.latency == pytest.approx(2 * (K - 1) / math.ceil(math.log2(K)))


@pytest.mark.parametrize("K", [2, 4, 8, 16, 64])
def test_powers_of_two_reach_either_bound(K):
    assert distance(doubling_time, K, 1e6, LINK).latency == 1
    assert distance(doubling_time, K, 1, Link(1e-3, math.inf)).time == 1
    assert distance(halving_time, K, 1e6, LINK).bandwidth == pytest.approx(1, rel=1e-12)
    assert distance(halving_time, K, 1e6, LINK).latency == 2
    assert distance(halving_time, K, 1e6, Link(0.0, 1e9)).time == pytest.approx(1, rel=1e-12)
    assert distance(tree_time, K, 1e6, LINK).latency == 2


def test_rounds_are_what_it_takes_for_news_to_reach_everyone():
    for K in range(1, 200):
        rounds, informed = 0, 1
        while informed < K:
            rounds, informed = rounds + 1, 2 * informed
        assert least_rounds(K) == rounds
    assert least_rounds(2**49 + 1) == 50


def test_four_workers_to_the_printed_digit():
    assert least_bytes(4, 1000) == 1500
    assert least_rounds(4) == 2
    assert least_time(4, 1e6, LINK) == pytest.approx(1.5e-3)
    assert least_time(4, 1, LINK) == pytest.approx(60e-6)
    assert distance(naive_time, 4, 1e6, LINK)[:2] == (3, 4)


def test_bounds_broadcast_as_the_closed_forms_do():
    K, nbytes = np.array([[1], [2], [8]]), np.array([0.0, 1e6])
    np.testing.assert_allclose(least_bytes(K, nbytes), [[0, 0], [0, 1e6], [0, 1.75e6]])
    np.testing.assert_array_equal(least_rounds(K), [[0], [1], [3]])
    table = least_time(K, nbytes, LINK)
    assert table.shape == (3, 2)
    assert table[2, 1] == least_time(8, 1e6, LINK)
    assert isinstance(least_time(8, 1e6, LINK), float)
    assert isinstance(least_rounds(8), int)


def test_where_nothing_is_needed_nothing_is_optimal():
    for form in FORMS:
        assert distance(form, 1, 1e6, LINK) == (1, 1, 1)
    assert distance(lambda K, nbytes, link: link.alpha, 1, 1e6, LINK) == (math.inf, 1, math.inf)
    assert distance(ring_time, 4, 1e6, Link(0.0, math.inf)).time == 1
    assert least_time(4, 0, LINK) == 0  # the sum of empty vectors


def test_what_the_bounds_do_not_speak_of_is_refused():
    two_links = partial(hierarchical_time, inside=Link(1e-6, 1e10), per_host=2)
    with pytest.raises(ValueError, match="form must be all-reduce on one kind of link"):
        distance(two_links, 4, 1e6, LINK)
    with pytest.raises(ValueError, match="K must be"):
        least_rounds(0)
    with pytest.raises(ValueError, match="K must be"):
        least_bytes(2.5, 1)
    with pytest.raises(ValueError, match="nbytes must be"):
        least_time(4, -1, LINK)
