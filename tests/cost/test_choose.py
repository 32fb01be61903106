"""The best algorithm is the cheapest one, and it changes where two lines cross: on paper and in the simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Simulated, launch
from labkit.collectives import (
    doubling_allreduce,
    halving_allreduce,
    naive_allreduce,
    ring_allreduce,
    tree_allreduce,
)
from labkit.cost import (
    Link,
    best,
    crossover,
    crossovers,
    doubling_time,
    halving_time,
    naive_time,
    ring_time,
    server_time,
    times,
    torus_time,
    tree_time,
)

LINK = Link(alpha=1e-4, beta=1e8)
FORMS = {
    "naive": naive_time,
    "tree": tree_time,
    "ring": ring_time,
    "doubling": doubling_time,
    "halving": halving_time,
    "server": server_time,
    "torus": torus_time,
}
links = st.builds(Link, st.floats(1e-7, 1e-2), st.floats(1e3, 1e11))


def straight(messages, share):
    """A form with that many messages and that many times the vector."""
    return lambda K, nbytes, link: messages * link.alpha + share * nbytes / link.beta


counts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8)


def envelope_is_brute_force(K, link, forms):
    found = crossovers(K, link, forms)
    assert found[0].low == 0
    assert found[-1].high == math.inf
    for before, after in itertools.pairwise(found):
        assert before.high == after.low > before.low
        assert before.name != after.name
        seconds = times(K, after.low, link, forms)
        assert seconds[before.name] == pytest.approx(seconds[after.name], rel=1e-9)
    for low, high, name in found:
        a, b = max(low, 1e-3), min(high, 1e15)
        inside = math.sqrt(a * b) if a < b else (low + high) / 2
        for nbytes in (low, inside, min(high, 1e18)):
            seconds = times(K, nbytes, link, forms)
            assert seconds[name] == pytest.approx(min(seconds.values()), rel=1e-9, abs=1e-300)
    return found


@given(st.integers(1, 300), links)
@settings(deadline=None)
def test_each_interval_names_who_costs_least_on_it(K, link):
    envelope_is_brute_force(K, link, FORMS)


@given(counts, links)
@settings(deadline=None)
def test_the_envelope_of_any_lines_is_brute_force(lines, link):
    found = envelope_is_brute_force(4, link, {str(i): straight(*each) for i, each in enumerate(lines)})
    assert len({each.name for each in found}) == len(found)


@given(st.integers(1, 300), st.floats(0, 1e10), links)
@settings(deadline=None)
def test_best_is_the_minimum_over_all(K, nbytes, link):
    seconds = {name: form(K, nbytes, link) for name, form in FORMS.items()}
    assert times(K, nbytes, link, FORMS) == seconds
    assert seconds[best(K, nbytes, link, FORMS)] == pytest.approx(min(seconds.values()), rel=1e-12)


@given(st.integers(2, 300), links, st.sampled_from(list(itertools.combinations(FORMS.values(), 2))))
@settings(deadline=None)
def test_at_a_crossover_both_cost_the_same_and_beside_it_they_swap(K, link, pair):
    a, b = pair
    nbytes = crossover(a, b, K, link)
    assert nbytes == crossover(b, a, K, link)
    difference = [a(K, n, link) - b(K, n, link) for n in (1e-3, 1e15)]
    if nbytes is None:
        close = 1e-9 * np.array([a(K, n, link) for n in (1e-3, 1e15)])
        assert np.all(np.array(difference) >= -close) or np.all(np.array(difference) <= close)
    else:
        assert a(K, nbytes, link) == pytest.approx(b(K, nbytes, link), rel=1e-9)
        below, above = (a(K, nbytes * x, link) - b(K, nbytes * x, link) for x in (0.5, 2))
        assert below * above < 0


def test_ring_against_tree_for_four_workers_by_hand():
    # 6 alpha + 1.5 n / beta = 4 alpha + 4 n / beta
    assert crossover(ring_time, tree_time, 4, LINK) == pytest.approx(2 / 2.5 * 1e4)
    assert [name for _, _, name in crossovers(4, LINK, {"ring": ring_time, "tree": tree_time})] == [
        "tree",
        "ring",
    ]


def seconds(way, K, n):
    return launch(lambda comm: way(comm, np.ones(n)), K, world=Simulated(LINK)).elapsed_s


@pytest.mark.parametrize(
    ("short", "long", "K"),
    [
        ((tree_time, tree_allreduce), (ring_time, ring_allreduce), 4),
        ((tree_time, tree_allreduce), (ring_time, ring_allreduce), 5),
        ((doubling_time, doubling_allreduce), (halving_time, halving_allreduce), 8),
        ((doubling_time, doubling_allreduce), (naive_time, naive_allreduce), 5),
    ],
)
def test_the_simulation_changes_its_mind_at_the_crossover(short, long, K):
    nbytes = crossover(short[0], long[0], K, LINK)
    if nbytes is None:
        assert short[0] is doubling_time and long[0] is naive_time  # fewer messages and fewer bytes
        for n in (1, 8000):
            assert seconds(short[1], K, n) < seconds(long[1], K, n)
        return
    n = round(nbytes / 8)
    for factor in (0.5, 0.9):
        below = int(n * factor) // K * K
        assert seconds(short[1], K, below) < seconds(long[1], K, below)
    for factor in (1.1, 2):
        above = int(n * factor) // K * K
        assert seconds(short[1], K, above) > seconds(long[1], K, above)
    if n % K == 0 and n == nbytes / 8:  # a whole number of equal chunks: then to rounding
        assert seconds(short[1], K, n) == pytest.approx(seconds(long[1], K, n), rel=1e-9)


def test_algorithms_that_never_cross_say_so():
    assert crossover(naive_time, tree_time, 2, LINK) is None  # the same
    assert crossover(ring_time, naive_time, 8, LINK) is None  # fewer bytes, as many messages
    assert crossover(ring_time, halving_time, 8, LINK) is None  # as many bytes, fewer messages
    assert crossover(ring_time, tree_time, 4, Link(0.0, 1e8)) is None
    assert crossover(ring_time, tree_time, 4, Link(1e-4, math.inf)) is None
    assert crossover(ring_time, tree_time, 1, LINK) is None


def test_a_tie_goes_to_the_first_named():
    assert best(2, 1e6, LINK, {"b": tree_time, "a": naive_time}) == "b"
    assert crossovers(1, LINK, FORMS) == [(0, math.inf, "naive")]
    assert crossovers(2, LINK, {"tree": tree_time, "naive": naive_time}) == [(0, math.inf, "tree")]


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 64))
def test_without_latency_the_fewest_bytes_win_and_without_bytes_the_fewest_messages(K):
    two = {"tree": tree_time, "ring": ring_time}
    assert crossovers(K, Link(0.0, 1e8), two) == [(0, math.inf, "ring" if K > 1 else "tree")]
    few = min(two, key=lambda name: two[name](K, 0, Link(1.0, math.inf)))
    assert crossovers(K, Link(1e-4, math.inf), two) == [(0, math.inf, few)]


def test_what_is_no_choice_is_refused():
    with pytest.raises(ValueError, match="forms must map at least one name"):
        best(4, 1e6, LINK, {})
    with pytest.raises(ValueError, match="forms must map"):
        crossovers(4, LINK, [ring_time])
    with pytest.raises(ValueError, match="K must be"):
        best(0, 1e6, LINK, FORMS)
    with pytest.raises(ValueError, match="form must be linear in nbytes"):
        crossover(lambda K, nbytes, link: link.alpha + nbytes**0.5, ring_time, 4, LINK)
