"""The best algorithm is the cheapest one, and it changes where two lines cross: on paper and in the simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Simulated, launch
from labkit.collectives import ALLREDUCES, best, crossovers, doubling, halving, naive, ring, tied, tree
from labkit.network import Link
from labkit.network.linear import evaluate

LINK = Link(alpha=1e-4, beta=1e8)
FORMS = {
    name: each for name, each in ALLREDUCES.items() if name not in ("server", "hierarchical")
}  # as the ring
links = st.builds(Link, st.floats(1e-7, 1e-2), st.floats(1e3, 1e11))


def times(K, nbytes, link, forms):
    return {name: evaluate(form, K, nbytes, link) for name, form in forms.items()}


def crossover(a, b, K, link):
    """The size above which the cheaper of two is another one; None if there is none."""
    return (
        crossovers(K, link, {"a": a, "b": b})[0].high
        if len(crossovers(K, link, {"a": a, "b": b})) > 1
        else None
    )


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
    seconds = times(K, nbytes, link, FORMS)
    assert seconds[best(K, nbytes, link, FORMS)] == pytest.approx(min(seconds.values()), rel=1e-12)


@given(st.integers(2, 300), links, st.sampled_from(list(itertools.combinations(FORMS.values(), 2))))
@settings(deadline=None)
def test_at_a_crossover_both_cost_the_same_and_beside_it_they_swap(K, link, pair):
    a, b = pair
    nbytes = crossover(a, b, K, link)
    assert (
        nbytes == pytest.approx(crossover(b, a, K, link), rel=1e-12)
        if nbytes
        else crossover(b, a, K, link) is None
    )
    difference = [a.time(K, n, link) - b.time(K, n, link) for n in (1e-3, 1e15)]
    if nbytes is None:
        close = 1e-9 * np.array([a.time(K, n, link) for n in (1e-3, 1e15)])
        assert np.all(np.array(difference) >= -close) or np.all(np.array(difference) <= close)
    else:
        assert a.time(K, nbytes, link) == pytest.approx(b.time(K, nbytes, link), rel=1e-9)
        below, above = (a.time(K, nbytes * x, link) - b.time(K, nbytes * x, link) for x in (0.5, 2))
        assert below * above < 0


def test_ring_against_tree_for_four_workers_by_hand():
    # 6 alpha + 1.5 n / beta = 4 alpha + 4 n / beta
    assert crossover(ring, tree, 4, LINK) == pytest.approx(2 / 2.5 * 1e4)
    assert [name for _, _, name in crossovers(4, LINK, {"ring": ring, "tree": tree})] == [
        "tree",
        "ring",
    ]


def seconds(way, K, n):
    return launch(lambda comm: way.allreduce(comm, np.ones(n)), K, world=Simulated(LINK)).elapsed_s


@pytest.mark.parametrize(
    ("short", "long", "K"),
    [
        (tree, ring, 4),
        (tree, ring, 5),
        (doubling, halving, 8),
        (doubling, naive, 5),
    ],
)
def test_the_simulation_changes_its_mind_at_the_crossover(short, long, K):
    nbytes = crossover(short, long, K, LINK)
    if nbytes is None:
        assert short is doubling and long is naive  # fewer messages and fewer bytes
        for n in (1, 8000):
            assert seconds(short, K, n) < seconds(long, K, n)
        return
    n = round(nbytes / 8)
    for factor in (0.5, 0.9):
        below = int(n * factor) // K * K
        assert seconds(short, K, below) < seconds(long, K, below)
    for factor in (1.1, 2):
        above = int(n * factor) // K * K
        assert seconds(short, K, above) > seconds(long, K, above)
    if n % K == 0 and n == nbytes / 8:  # a whole number of equal chunks: then to rounding
        assert seconds(short, K, n) == pytest.approx(seconds(long, K, n), rel=1e-9)


def test_algorithms_that_never_cross_say_so():
    assert crossover(naive, tree, 2, LINK) is None  # the same
    assert crossover(ring, naive, 8, LINK) is None  # fewer bytes, as many messages
    assert crossover(ring, halving, 8, LINK) is None  # as many bytes, fewer messages
    assert crossover(ring, tree, 4, Link(0.0, 1e8)) is None
    assert crossover(ring, tree, 4, Link(1e-4, math.inf)) is None
    assert crossover(ring, tree, 1, LINK) is None


def test_a_tie_goes_to_the_first_named():
    assert best(2, 1e6, LINK, {"b": tree, "a": naive}) == "b"
    assert crossovers(1, LINK, FORMS) == [(0, math.inf, "naive")]
    assert crossovers(2, LINK, {"tree": tree, "naive": naive}) == [(0, math.inf, "tree")]


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 64))
def test_without_latency_the_fewest_bytes_win_and_without_bytes_the_fewest_messages(K):
    two = {"tree": tree, "ring": ring}
    assert crossovers(K, Link(0.0, 1e8), two) == [(0, math.inf, "ring" if K > 1 else "tree")]
    few = min(two, key=lambda name: two[name].time(K, 0, Link(1.0, math.inf)))
    assert crossovers(K, Link(1e-4, math.inf), two) == [(0, math.inf, few)]


def test_what_is_no_choice_is_refused():
    with pytest.raises(ValueError, match="forms must map at least one name"):
        best(4, 1e6, LINK, {})
    with pytest.raises(ValueError, match="forms must map"):
        crossovers(4, LINK, [ring])
    with pytest.raises(ValueError, match="K must be"):
        best(0, 1e6, LINK, FORMS)
    with pytest.raises(ValueError, match="form must be linear in nbytes"):
        crossover(lambda K, nbytes, link: link.alpha + nbytes**0.5, ring, 4, LINK)


def test_what_a_link_cannot_tell_apart_is_a_tie_in_order_of_price():
    forms = {
        "ring": ring,
        "naive": naive,
        "doubling": doubling,
    }  # of two workers: 2 alpha + n, 2 alpha + 2 n, alpha + n
    link = Link(1e-4, 1e9)
    assert tied(2, 4e7, link, forms, 0.0) == [best(2, 4e7, link, forms)] == ["doubling"]
    assert tied(2, 4e7, link, forms, 0.1) == ["doubling", "ring"]
    assert tied(2, 4e7, link, forms, 1.0) == ["doubling", "ring", "naive"]
    assert tied(2, 4e3, link, forms, 0.9) == ["doubling"]  # a second alpha is no longer small
    with pytest.raises(ValueError, match="within must be"):
        tied(2, 4e7, link, forms, -0.1)
