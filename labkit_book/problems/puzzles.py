"""Puzzles: the answer is a schedule as data. A referee carries it out up to its first fault, and draws what it has seen.

Who finds a schedule that is as short as any can be has solved it; one that keeps the rules is worth a part of the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, product
from typing import Any

import numpy as np

from labkit_book.problems import wire
from labkit_book.problems.catalogue import find
from labkit_book.problems.exercise import Wrong, number

MOST = 200  # rounds, or entries of a lane


@dataclass
class _Played:
    """What the referee saw: boxes (lane, begin, length, text), how long all took, ``counts`` in words, the first fault."""

    boxes: list[tuple[int, float, float, str]] = field(default_factory=list)
    took: float = 0.0
    counts: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Puzzle:
    """rules: carries an answer out on a ``_Played``, raises Wrong at the first fault. good, bound: lengths worth a part of
    the points, and all; no schedule is shorter than the bound. unit: of all lengths. mistakes: sentences on schedules by the
    rules, and how each is recognised.
    """

    lanes: Sequence[str]
    rules: Callable[[Any, _Played], None]
    good: float
    bound: float
    unit: str = "time units"
    mistakes: tuple[tuple[str, Callable[[Any], bool]], ...] = ()

    def played(self, answer: Any) -> _Played:
        """The answer carried out."""
        seen = _Played()
        try:
            self.rules(answer, seen)
        except Wrong as error:
            seen.fault = str(error)
        return seen

    def judge(self, answer: Any) -> None:
        """Wrong at a fault, or above the bound."""
        seen = self.played(answer)
        if seen.fault:
            raise Wrong(seen.fault)
        took = round(seen.took, 9)
        parts = {
            "it keeps the rules": True,
            f"at most {self.good:g}": took <= self.good,
            f"the bound {self.bound:g}": took <= self.bound,
        }
        if took > self.bound:
            known = "".join(f"{sentence}\n  " for sentence, holds in self.mistakes if holds(answer))
            said = f"{took:g} {self.unit} ({seen.counts}), {took / self.bound - 1:.0%} above the bound"
            raise Wrong(f"{known}it keeps the rules and takes {said} of {self.bound:g}", parts)

    def draw(self, answer: Any) -> Any:
        """The lanes, matplotlib axes: all of the schedule, or what came before its first fault."""
        import matplotlib.pyplot as plt  # where nothing is drawn, as in the grader, nothing loads it

        seen = self.played(answer)
        ax = plt.subplots(figsize=(7.2, 0.32 * len(self.lanes) + 1.1), layout="constrained")[1]
        for lane, begin, length, text in seen.boxes:
            ax.barh(lane, length, left=begin, height=0.8, color=f"C{lane % 8}", alpha=0.4, edgecolor="0.3")
            ax.text(begin + length / 2, lane, text, ha="center", va="center", fontsize=7, clip_on=True)
        ax.set_yticks(range(len(self.lanes)), self.lanes)
        ax.set(ylim=(len(self.lanes) - 0.5, -0.5), xlim=(0, None), xlabel=self.unit)
        said = f"{seen.counts}: {seen.took:g} {self.unit}; no schedule takes less than {self.bound:g}"
        colour = "tab:red" if seen.fault else "black"
        ax.set_title(seen.fault or said, fontsize=9, loc="left", color=colour, wrap=True)
        return ax


def draw(id: str, answer: Any) -> Any:
    """The picture of an answer to a puzzle, matplotlib axes; None where nothing is answered yet.

    id: as in ``"10.9-1"``. Raises ValueError if it is not a puzzle's.
    """
    if (puzzle := find(id).puzzle) is None:
        raise ValueError(f"{id} is no puzzle: there is nothing to draw")
    return None if answer is None or answer is Ellipsis else puzzle.draw(wire.as_sent(answer))


def _list(it: Any, what: str, most: int = MOST) -> list[Any]:
    if hasattr(it, "tolist") and np.size(it) <= most * MOST:
        it = it.tolist()
    if not isinstance(it, (list, tuple)) or len(it) > most:
        raise Wrong(f"{what} should be a list of at most {most}, not {it!r:.40}")
    return list(it)


def _one_of(it: Any, several: int, what: str) -> int:
    """A whole number below ``several``."""
    if not 0 <= (value := number(it, what)) < several or value % 1:
        raise Wrong(f"{what} should be one of 0 to {several - 1}, not {value:g}")
    return int(value)


# -- messages in rounds -------------------------------------------------------------------------------------------------


def _messages(seats: int, pieces: int, given: Any, r: int) -> Iterator[tuple[int, int, list[int]]]:
    """The messages of round ``r``: sender, receiver, pieces."""
    senders, receivers = set[int](), set[int]()
    for message in _list(given, f"round {r}", seats):
        if len(_list(message, f"a message of round {r}", 3)) != 3:
            raise Wrong(f"a message of round {r} should be (from, to, pieces), not {message!r:.40}")
        one, to = (_one_of(seat, seats, f"a seat in round {r}") for seat in message[:2])
        several = isinstance(message[2], (list, tuple)) or np.ndim(message[2]) > 0
        what = _list(message[2], "pieces", pieces) if several else [message[2]]
        of = sorted({_one_of(p, pieces, f"a piece in round {r}") for p in what})
        if one == to or one in senders:
            raise Wrong(f"in round {r} seat {one} sends " + ("to itself" if one == to else "two messages"))
        if to in receivers:
            raise Wrong(f"in round {r} seat {to} receives two messages")
        senders.add(one)
        receivers.add(to)
        yield one, to, of


def in_rounds(
    start: Sequence[Mapping[int, frozenset[int]]], answer: Any, seen: _Played,
    price: Callable[[int, int], float] = lambda one, to: 1, alpha: float = 1.0,
) -> None:  # fmt: skip
    """Rules of a schedule in rounds of messages (from, to, pieces), each seat with at most one out and one in.

    start: what each seat holds first: of a piece, whose parts are added up. In the end every seat is to hold all of it.
    price: how long a piece takes (from, to); a round takes ``alpha`` and as long as its longest message.
    """
    wanted: dict[int, frozenset[int]] = {}
    for p, of in chain.from_iterable(has.items() for has in start):
        wanted[p] = wanted.get(p, frozenset()) | of
    held = [dict(has) for has in start]
    sent = [0] * len(held)
    for r, given in enumerate(_list(answer, "the schedule"), 1):
        before, longest = [dict(has) for has in held], 0.0
        for one, to, pieces in _messages(len(held), len(wanted), given, r):
            longest = max(longest, took := float(price(one, to) * len(pieces)))
            seen.boxes.append((one, seen.took + alpha, took, f"→{to}: {','.join(map(str, pieces))}"))
            sent[one] += len(pieces)
            for p in pieces:
                held[to][p] = _received(before, one, to, p, r)
        seen.took += alpha + longest
        seen.counts = f"{r} rounds, {max(sent)} pieces from the busiest seat"
    for seat, has in enumerate(held):
        for p, of in wanted.items():
            if missing := of - has.get(p, frozenset()):
                whose = f"what seat {min(missing)} brought to piece {p}"
                raise Wrong(f"in the end seat {seat} lacks {whose if len(of) > 1 else f'piece {p}'}")


def _received(held: list[dict[int, frozenset[int]]], one: int, to: int, p: int, r: int) -> frozenset[int]:
    """Whose parts are in a piece after it came: added up if none is in both, replaced by what holds all it had."""
    came, had = held[one].get(p), held[to].get(p)
    if came is None:
        raise Wrong(f"in round {r} seat {one} sends piece {p}, which it does not have")
    if had is None or had <= came:
        return came
    if twice := came & had:
        raise Wrong(f"in round {r} seat {to} would add to piece {p} twice what seat {min(twice)} brought")
    return came | had


# -- a pipeline, and buckets --------------------------------------------------------------------------------------------


def pipeline(
    stages: int, batches: int, most: int, seconds: Mapping[str, float], answer: Any, seen: _Played
) -> None:
    """Rules of a pipeline: of each stage its work in order, "F0" a micro-batch's forward pass, "B0" its backward pass.

    most: micro-batches that a stage may hold between the two. seconds: of "F" and of "B".
    """
    lists = [_list(work, f"stage {s}") for s, work in enumerate(_list(answer, "the schedule", stages))]
    everything = sorted(f"{kind}{m}" for kind, m in product("FB", range(batches)))
    if len(lists) != stages:
        raise Wrong(f"there are {stages} stages, and so {stages} lists")
    for s, work in enumerate(lists):
        if sorted(map(str, work)) != everything:
            raise Wrong(f"stage {s} should do each of F0 to B{batches - 1} once")
        for w, kept in zip(work, accumulate(1 if w[0] == "F" else -1 for w in work), strict=True):
            if kept > most:
                raise Wrong(f"stage {s} has no memory for {w}: it would hold {kept} micro-batches")
    ends: dict[tuple[int, str], float] = {}
    at, free = [0] * stages, [0.0] * stages
    while waits := [s for s in range(stages) if at[s] < 2 * batches]:
        ready = [s for s in waits if all(n in ends for n in _needs(s, lists[s][at[s]], stages))]
        if not ready:
            raise Wrong(f"nobody can go on: stage {waits[0]} waits to do {lists[waits[0]][at[waits[0]]]}")
        s = ready[0]
        work, at[s] = lists[s][at[s]], at[s] + 1
        begin = max([free[s], *(ends[n] for n in _needs(s, work, stages))])
        free[s] = ends[s, work] = begin + seconds[work[0]]
        seen.boxes.append((s, begin, seconds[work[0]], work))
    seen.took = max(free)
    idle = 1 - batches * sum(seconds.values()) / seen.took
    seen.counts = f"each stage idle {idle:.0%} of the time"


def _needs(s: int, work: str, stages: int) -> list[tuple[int, str]]:
    """What must be done before a stage does this."""
    if work[0] == "F":
        return [(s - 1, work)] if s else []
    return [(s, "F" + work[1:]), *([(s + 1, work)] if s + 1 < stages else [])]


def buckets(ready: Sequence[float], sizes: Sequence[float], alpha: float, answer: Any, seen: _Played) -> None:
    """Rules of buckets behind a backward pass: lists of layers, all-reduced one after another in this order.

    ready, sizes: of each layer, when its gradient is there, and how long its bytes take; each bucket takes alpha, too.
    """
    given = [_list(layers, "a bucket", len(ready)) for layers in _list(answer, "the schedule", len(ready))]
    lists = [[_one_of(i, len(ready), "a layer") for i in layers] for layers in given]
    times, all_layers = [0.0, *sorted(ready)], list(chain(*lists))
    for begin, end in pairwise(times):
        seen.boxes.append((0, begin, end - begin, str(list(ready).index(end))))
    for i in range(len(ready)):
        if all_layers.count(i) != 1:
            raise Wrong(f"layer {i} is in {'no bucket' if i not in all_layers else 'two buckets'}")
    for layers in filter(None, lists):
        begin = max(seen.took, *(ready[i] for i in layers))
        took = alpha + sum(sizes[i] for i in layers)
        seen.boxes.append((1, begin, took, ",".join(map(str, layers))))
        seen.took = begin + took
    seen.counts = f"{seen.took - max(ready):g} after the backward pass"
