"""Puzzles: their bounds can be had and not be beaten, where all schedules can be tried; a picture of any answer."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from labkit_book import check, draw
from labkit_book.problems.catalogue import all_exercises, find

PUZZLES = {e.id: e.puzzle for e in all_exercises() if e.puzzle}


def test_five_puzzles():
    assert sorted(PUZZLES) == ["10.5-2", "10.9-1", "2.2-6", "A-5", "B-5"]


def test_no_cut_of_the_buckets_is_through_earlier():
    order = list(range(7, -1, -1))
    cuts = [[0, *at, 8] for n in range(8) for at in combinations(range(1, 8), n)]
    took = [PUZZLES["2.2-6"].played([order[a:b] for a, b in pairwise(cut)]).took for cut in cuts]
    assert len(took) == 128 and min(took) == 38 == PUZZLES["2.2-6"].bound


def test_no_schedule_of_messages_sums_a_piece_in_fewer_than_the_bound_of_eight_seats_says():
    """Of four seats, nine units: of each piece two rounds take 8 messages, three 6, and no schedule has fewer than 6."""
    fewest = {2: 99, 3: 99}
    everybody = frozenset(range(4))
    one_round = [m for m in product((None, 0, 1, 2, 3), repeat=4) if all(k != to for k, to in enumerate(m))]
    one_round = [
        m for m in one_round if len({t for t in m if t is not None}) == sum(t is not None for t in m)
    ]
    states = {tuple(frozenset({k}) for k in range(4)): 0}
    for r in range(1, 4):
        after: dict = {}
        for held, sent in states.items():
            for m in one_round:
                now = list(held)
                for k, to in enumerate(m):
                    if to is not None and (held[k] >= held[to] or not held[k] & held[to]):
                        now[to] = held[k] | held[to]
                n = sent + sum(to is not None for to in m)
                after[tuple(now)] = min(after.get(tuple(now), 99), n)
        states = after
        fewest[r] = states.get((everybody,) * 4, 99)
    assert fewest == {1: 99, 2: 8, 3: 6}


@pytest.mark.parametrize("id", PUZZLES)
def test_any_answer_is_drawn_and_the_title_says_its_first_fault(id):
    for answer in (7, "words", [[(0, 1)]], [[]], np.zeros((3, 3)), [np.zeros((300, 300))]):
        fault = draw(id, answer).get_title(loc="left")
        assert fault and fault in check(id, answer).message
    assert draw(id, ...) is None is draw(id, None) and find(id).kind == "puzzle"


def test_what_is_no_puzzle_has_no_picture():
    with pytest.raises(ValueError, match=r"10\.5-1 is no puzzle"):
        draw("10.5-1", [])
