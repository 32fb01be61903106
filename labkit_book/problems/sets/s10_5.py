"""Problem set 10.5: half an all-reduce, shards on two hosts, a deadlock, and a link measured.

Sources: Patarasuk and Yuan 2009 (ring), Hockney 1994 (alpha-beta). Chunk i of n elements is those from i n // K to
(i + 1) n // K. Symbols: K workers, n elements, ``nbytes`` bytes, alpha and beta of the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.comm import Run, Simulated
from labkit.network import Link
from labkit_book.problems.exercise import Case, Exercise, Wrong, close, number, once, same_array
from labkit_book.problems.puzzles import Puzzle, in_rounds
from labkit_book.problems.sets import Array, as_if, follow, pasted, spoke, workers


def _edges(K: int, n: int) -> Array:
    return np.arange(K + 1) * n // K


def _refuse(*found: tuple[Any, str]) -> None:
    """Wrong, with the first sentence that holds."""
    for holds, said in found:
        if holds:
            raise Wrong(said)


# -- 1: half an all-reduce, in a given order --------------------------------------------------------------------------

SLOW_S = 1000.0  # of a message off the ring, where one along it takes a second


def _every_rank(wanted: list[Array], run: Run) -> None:
    for k, (given, want) in enumerate(zip(run.results, wanted, strict=True)):
        same_array(given, want, f"what rank {k} returned", rtol=1e-9, atol=1e-9)


def _scattered(mine: list[Array], order: Array, real: bool, run: Run) -> None:
    K, n = len(mine), sum(map(len, mine))
    for k, given in enumerate(run.results):
        if (sent := 8 * (n - len(mine[k]))) and given is not None:
            spoke(run, k, "its part of the sum")
        for i, chunk in enumerate(mine):
            if i != k and len(chunk) and np.shape(given) == chunk.shape and np.allclose(given, chunk):
                where = "whose number is its place in the order" if order[i] == k else f"of rank {i}"
                raise Wrong(f"rank {k} returned a finished chunk, but the one {where}")
        than = "more" if run.bytes_sent[k] > sent else "fewer"
        _refuse(
            (sent != run.bytes_sent[k], f"rank {k} sent {than} bytes than all chunks but one have"),
            (run.messages_sent[k] > K - 1, f"rank {k} sent more messages than there are other ranks"),
        )
    _every_rank(mine, run)
    took_s = 0 if real else run.elapsed_s
    _refuse(
        (took_s >= SLOW_S, "a message went to a rank that does not come next in the order"),
        (took_s > K - 1, "the ranks wait for one another, longer than K - 1 rounds take"),
    )


def _reduce_scatter(rng: np.random.Generator) -> Iterator[Case]:
    for K, n in ((4, 12), (3, 9), (1, 5), (2, 7), (3, 2), (5, 13), (4, 3), (6, 20), (3, 7)):
        real = (K, n) == (3, 7)
        xs, order, edges = rng.standard_normal((K, n)), rng.permutation(K), _edges(K, n)
        total, after = xs.sum(axis=0), dict(zip(order, np.roll(order, -1), strict=True))
        mine = [total[a:b] for a, b in pairwise(edges)]

        def link(source: int, to: int, after: Any = after) -> Link:
            return Link(1.0 if after[source] == to else SLOW_S, np.inf)

        even = [total[k * (n // K) : (k + 1) * (n // K)] for k in range(K)]
        own, kept = ([xs[of[k]][a:b] for k, (a, b) in enumerate(pairwise(edges))] for of in (range(K), after))
        mistakes = as_if(
            _every_rank,
            ("Each rank returns what it brought itself: to this chunk nobody has added anything.", own),
            ("Of each chunk the share of one single rank is left: nothing has been added up.", kept),
            ("As if all chunks had n // K elements: some elements are then in nobody's chunk.", even),
        )
        label = f"{workers(K)}, n = {n} elements, order {order.tolist()}" + ", real processes" * real
        args, judge = tuple((x, order.tolist()) for x in xs), partial(_scattered, mine, order, real)
        world: Any = "processes" if real else Simulated(link=link)
        known = mistakes[: 2 + (n % K > 0)] if K > 1 else ()
        yield Case(args, judge, K, label, world, mistakes=known)


# -- 2: shards on two hosts -------------------------------------------------------------------------------------------

# No less than 13: to have eight pieces a seat needs three rounds. If one round brings one piece across to every seat, six
# more come from within: 3 + 4 + 6. Two rounds across, or one with two pieces, take 8 alone, and leave more than two to come.
_START = [{k: frozenset({k})} for k in range(8)]
SHARDS = Puzzle(
    [f"seat {k}, host {k // 4}" for k in range(8)],
    partial(in_rounds, _START, price=lambda one, to: 1 if one // 4 == to // 4 else 4),
    good=22,
    bound=13,
)

# -- 3: a deadlock ----------------------------------------------------------------------------------------------------


def _followed(K: int, plan: Any) -> None:
    """Carry out the calls, each message as soon as both its ends stand in it: one unit of time, both ends busy."""
    try:
        plan = [[(str(what), int(number(whom, "a rank"))) for what, whom in calls] for calls in plan]
    except (TypeError, ValueError):
        plan = []
    _refuse((len(plan) != K, f"return a list of K lists of pairs, here K = {K}"))
    for k, calls in enumerate(plan):
        right, left = (k + 1) % K, (k - 1) % K
        wanted = [("send", right), ("send", left), ("recv", left), ("recv", right)] if K > 1 else []
        whole = sorted(calls) == sorted(wanted)
        _refuse((any(whom == k for _, whom in calls), f"rank {k} calls itself"))
        _refuse((not whole, f"rank {k} has not one send and one recv for each neighbour, and nothing else"))
    at, clock = [0] * K, [0] * K
    now = {k: plan[k][0] for k in range(K) if plan[k]}
    while now:
        ready = [k for k, (what, to) in now.items() if what == "send" and now.get(to) == ("recv", k)]
        if not ready:
            said = [f"rank {k} in {what}({whom})" for k, (what, whom) in now.items()]
            raise Wrong(f"nobody can go on: {', '.join(said[:6])}")
        for k in ready:
            to = now[k][1]
            clock[k] = clock[to] = max(clock[k], clock[to]) + 1
            for end in (k, to):
                at[end] += 1
                now.pop(end)
                if at[end] < len(plan[end]):
                    now[end] = plan[end][at[end]]
    _refuse((max(clock) > 6, f"it ends, but takes as long as {max(clock)} messages one after the other"))


def _deadlock(rng: np.random.Generator) -> Iterator[Case]:
    for K in (4, 3, 2, 5, 1, 7, 10, int(rng.integers(15, 40)), 41):
        yield Case((K,), partial(_followed, K), label=workers(K))


# -- 4: a link that is measured ---------------------------------------------------------------------------------------

RING_BYTES, _BYTES = 600_000, (1000, 20_000, 50_000, 100_000, 200_000)


def _like(sizes: Array, medians: Array, given: Array, weights: Array) -> bool:
    """Whether the line is, to three digits, the one with the least squares of the misses with these weights."""
    line = np.linalg.lstsq(np.column_stack([weights, weights * sizes]), weights * medians, rcond=None)[0]
    apart = np.column_stack([1 / medians, sizes / medians]) @ (line - given)
    return bool(abs(apart).max() < 0.015)


def _measured(answer: Any) -> None:
    keys = ("alpha", "beta", "predicted", "low", "high", "chance", "prediction")
    answer, v = pasted(answer, keys, (*_BYTES, "ring"), 7)
    sizes, ran, medians = np.array(_BYTES), v["ring"], np.array([np.median(v[n]) for n in _BYTES])
    alpha, beta, predicted, low, high = (number(answer[k], k) for k in keys[:-2])
    _refuse(
        (beta <= 1, "this beta is no speed in bytes per second; is it what one byte costs?"),
        (alpha > 20 * medians.min(), "this alpha is longer than a whole message took: in which unit is it?"),
    )

    fit = partial(_like, sizes, medians, np.array([alpha, 1 / beta]))
    loose = not fit(1 / medians)
    line = (
        (loose and fit(medians**0), "To this fit a short message's relative miss hardly matters."),
        (loose, "Another line is nearer to the medians, relative to each of them."),
    )
    for part in ("alpha", "beta"):  # one line
        with answer.of(part):
            _refuse(*line)
    with answer.of("chance"):
        chance, right = number(answer["chance"], "chance"), 1 - 2 * 0.5 ** len(ran)
        one_side = abs(chance - (1 + right) / 2) <= 0.002
        _refuse((one_side, "chance: it forgets one side on which the median may lie"))
        close(chance, right, "chance", 0.002)
    where = "too short" if predicted < low else "too long" if predicted > high else "inside"
    whole, ring = alpha + RING_BYTES / beta, 6 * (alpha + RING_BYTES / 4 / beta)  # of four
    follow(
        answer, {"predicted": ring, "low": ran.min(), "high": ran.max(), "prediction": where},
        ("that is one message of all the bytes, and a ring has more to do", "predicted", whole),
        ("every message of the ring is priced as long as the vector", "predicted", 6 * whole),
        ("one half of the ring is missing", "predicted", ring / 2),
        ("that is what was measured, and so no prediction", "predicted", np.median(ran)),
        ("your own numbers do not say so", "prediction", ""),
    )  # fmt: skip


_HALF = tuple(f"labkit.collectives.reduce_scatter.{way}" for way in ("__call__", "inplace", "among"))
_SCATTER = "Reduce-scatter in the order of the seats"
EXERCISES = (
    Exercise("10.5-1", _SCATTER, "build", 3, "reduce_scatter", _reduce_scatter, (1,), withheld=_HALF),
    Exercise("10.5-2", "Shards on two hosts", "puzzle", 3, "", once(SHARDS.judge), (1, 4), puzzle=SHARDS),
    Exercise("10.5-3", "Mend a deadlock", "debug", 3, "mended", _deadlock, (3,)),
    Exercise("10.5-4", "A link, and a run foretold", "measure", 4, "", once(_measured), (2, 5, 6)),
)
