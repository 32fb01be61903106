"""Problem set 10.9: eight seats, a chain that is hard, a floor, a claim of optimality.

Sources: Patarasuk and Yuan 2009 (bytes), Chan et al. 2007 (rounds), Nesterov 2004 and Arjevani and Shamir 2015 (chain),
Suresh et al. 2017 (levels between the ends), Safaryan et al. 2021 (bits). Symbols: K workers, ``nbytes`` bytes, alpha and
beta of the link, d coordinates, t rounds, c bits a coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives import halving
from labkit.network import Link, least_bytes, least_time
from labkit_book.problems.exercise import Case, Exercise, Wrong, number, once, same_array
from labkit_book.problems.puzzles import Puzzle, in_rounds
from labkit_book.problems.sets import Array, as_if, derived, follow, pasted

# -- 1: an all-reduce of eight seats ----------------------------------------------------------------------------------

# Halving and doubling takes 20: six rounds and 14 pieces. No less than 19: of each piece, three rounds take 24 messages (all
# eight must hear in each), four rounds at least 16 (after the third, four seats must have the sum), and any number at least
# 14; the pieces of the longest messages are at least an eighth of all.
SEATS = Puzzle(
    [f"seat {k}" for k in range(8)],
    partial(in_rounds, [dict.fromkeys(range(8), frozenset({k})) for k in range(8)]),
    good=20,
    bound=19,
)

# -- 2: a chain that is hard to get along -------------------------------------------------------------------------------


def _furthest(owner: Array, t: int) -> int:
    """From coordinate c on, the owner of spring c goes to the end of its run of springs, once a round."""
    d, c = len(owner) - 1, 0
    for _ in range(t):
        mine = owner[min(c, d)]
        while c <= d and owner[c] == mine:
            c += 1
    return min(c, d)


def _hard(quota: list[int], answer: Any) -> None:
    n, rest = sum(quota), sum(quota) - max(quota)
    same_array(np.shape(answer), np.array([n]), "the shape of what you return", rtol=0.0)
    owner = np.array([number(k, "a worker") for k in answer])
    has = [int((owner == k).sum()) for k in range(len(quota))]
    if has != quota:
        raise Wrong(f"the workers have {has} springs, and not as many as they are to have")
    single = n if max(quota) <= rest + 1 else 2 * rest  # springs, from the first on, without a like neighbour
    for t in range(n):
        if (c := _furthest(owner, t)) > (min(t, n - 1) if t <= single else n - 1):
            raise Wrong(f"after {t} rounds {c} coordinates can differ from zero; with another deal fewer can")


def _deal(rng: np.random.Generator) -> Iterator[Case]:
    settings = [[4, 4], [3, 5], [5, 2, 2], [2, 2, 5], [1, 1, 8], [6], [1, 2, 3, 4]]
    settings += [[int(q) for q in rng.integers(1, 9, K)] for K in (2, 3, 4, 5)]
    for quota in settings:
        together = [k for k, q in enumerate(quota) for _ in range(q)]
        in_turn = [k for i in range(max(quota)) for k in range(len(quota)) if i < quota[k]]
        known = as_if(
            lambda wanted, answer: same_array(answer, np.array(wanted)),
            ("Each worker's springs lie side by side, and one round takes it to their end.", together),
            ("In turn until somebody runs out: whose are the springs that are left?", in_turn),
        )
        mistakes = known if len(quota) > 1 else ()  # one worker has one deal
        yield Case((quota,), partial(_hard, quota), label=f"quota = {quota}", mistakes=mistakes)


# -- 3: a quantiser, and its floor ------------------------------------------------------------------------------------


def _quantised(answer: Any) -> None:
    answer, v = pasted(answer, ("times", "margin", "worth", "factor", "four"), (1, 2, 3, 4, 5), 12)
    runs = np.array([v[bits] for bits in (1, 2, 3, 4, 5)])
    mean, floor = runs.mean(axis=1), 1 / (4.0 ** np.arange(1, 6) - 1)
    scatter = runs.std(axis=1, ddof=1)
    error = scatter / np.sqrt(12)
    ratio, spread = mean[:-1] / mean[1:], 2 * np.hypot(error[1:] / mean[1:], error[:-1] / mean[:-1])
    with answer.of("four"):
        _by_four(answer["four"], ratio * (1 - spread), ratio * (1 + spread))
    wide, worth = scatter / floor, np.log2(1 + 1 / mean) / 2
    follow(
        answer, {"times": mean / floor, "margin": 2 * error / floor, "worth": worth, "factor": ratio},
        ("that is the floor over what was measured", "times", floor / mean),
        ("that is the error itself; how many times the least possible is it?", "times", mean),
        ("that is how far single runs scatter, and not how well their mean is known", "margin", 2 * wide),
        ("one standard error to either side is too narrow for 95 per cent", "margin", error / floor),
        ("it is not in units of the floor", "margin", 2 * error),
        ("the bound has something beside one over the error in its logarithm", "worth", -np.log2(mean) / 2),
        ("this is as if a bit halved the variance at best", "worth", 2 * worth),
        ("it says how much is left, and asked is by how much it is divided", "factor", 1 / ratio),
        ("that is what the distance to the floor is divided by", "factor", ratio * floor[1:] / floor[:-1]),
    )  # fmt: skip


def _by_four(said: Any, low: Array, high: Array) -> None:
    if not isinstance(said, (list, tuple)) or len(said) != 4 or set(said) - {"more", "less", "not decided"}:
        raise Wrong("'four' is a list of four words, each 'more', 'less' or 'not decided'")
    for c, word in enumerate(said, 1):
        fits = {"more": low[c - 1] > 3.98, "less": high[c - 1] < 4.02}
        fits["not decided"] = low[c - 1] < 4.02 and high[c - 1] > 3.98
        if not fits[word]:
            why = "all of the interval lies on the other side of 4"
            why = "an interval that holds 4 decides nothing" if fits["not decided"] else why
            why = "the interval leaves 4 out" if word == "not decided" else why
            raise Wrong(f"from {c} to {c + 1} bits your data say otherwise: {why}")


# -- 4: optimal, of what? ---------------------------------------------------------------------------------------------


def _optimal(rng: np.random.Generator) -> Iterator[Case]:
    for m in (3, 4, 2, 6, 9, int(rng.integers(4, 12))):
        K, link = 2**m, Link(float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10)))
        ab, v = link.alpha * link.beta, float(least_bytes(K, 1))
        away = float(rng.uniform(2, 30)) ** (1 if m % 2 else -1)
        nbytes = m * ab / v * away  # to either side of where both tie
        took, both_s = float(halving.time(K, nbytes, link)), m * link.alpha + v * nbytes / link.beta
        left = 1 - float(least_time(K, nbytes, link)) / took
        right = {"doubling": m * ab / (m - v), "worst": m * ab / v, "tenth": 20 * m * ab / v, "left": left}
        right["switch"] = 1 / v
        label = f"K = {K}, {nbytes:.0f} bytes, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        yield derived(
            (K, nbytes, link.alpha, link.beta), right, label,
            ("This lets doubling send no more than halving does.", "doubling", m * ab),
            ("There its own latency and bytes cost the same; how does the bound go on from there?", "worst", 2 * m * ab / v),
            ("There another algorithm is as fast; this one's distance is asked from the bound.", "worst", m * ab / (m - v)),
            ("Latency is to be a tenth of the bound, and not of the whole.", "tenth", 18 * m * ab / v),
            ("This adds the two bounds; is their sum one?", "left", 1 - both_s / took),
            ("That is the part that must remain.", "left", 1 - left),
            ("This is how many times more halving sends, and not the other way round.", "switch", v),
        )  # fmt: skip


EXERCISES = (
    Exercise("10.9-1", "Eight seats", "puzzle", 3, "", once(SEATS.judge), (1,), puzzle=SEATS),
    Exercise("10.9-2", "Make it hard", "debug", 3, "deal", _deal, (2,)),
    Exercise("10.9-3", "How far above the floor?", "measure", 4, "", once(_quantised), (3,)),
    Exercise("10.9-4", "Optimal, of what?", "criticise", 3, "optimal", _optimal, (1, 4)),
)
