"""The plan: every method with every number of workers, in seconds, steps, money and efficiency; and the best of them.

How sure that is: where two methods tie, and the nearest value of an input, up and down, at which another gets best. Nothing
is drawn anew on the way: every value sees the same times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import one_of
from labkit_book.planner.case import Case
from labkit_book.planner.row import Row
from labkit_book.planner.units import written

#: What "best" may mean: the powers of (seconds, workers) in the number that is to be small; price is worker-seconds times a
#: constant. At the knee one per cent of time costs one per cent of money.
_GOALS = {"time": (1, 0), "price": (1, 1), "knee": (2, 1)}
#: An input is changed by so much up and down, in so many strides; where it flips in one, that is halved so often.
RANGE, STRIDES, HALVED = 1000.0, 10, 20
#: The inputs, fields of a case: what people call them, and their unit.
DIALS = {
    "beta_bytes_per_s": ("bandwidth", "B/s"),
    "alpha_s": ("latency", "s"),
    "parameters": ("parameters", ""),
    "slowdown": ("slowdown of one worker", ""),
}


class _Even(NamedTuple):
    """A tie: ``name`` needs ``factor`` times the steps of sync to be as quick as ``rival``, the best other method."""

    name: str
    factor: float
    rival: str


@dataclass(frozen=True)
class Plan:
    """All rows, in the order of the methods and then of K, and the impossible ones, each of which has a ``refusal``."""

    case: Case
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...] = ()

    def best(self, goal: str = "time", name: str | None = None) -> Row:
        """The row with the least "time", "price" or product of both ("knee"), of one method or all; of equals the first."""
        one_of("goal", goal, tuple(_GOALS))
        seconds, workers = _GOALS[goal]
        return min(self.of(name), key=lambda row: row.time_s**seconds * row.K**workers)

    def of(self, name: str | None = None, K: int | None = None) -> tuple[Row, ...]:
        """The rows of one method, of one K, or of both. ValueError where there is none."""
        rows = tuple(row for row in self.rows if name in (None, row.name) and K in (None, row.K))
        if not rows:
            there = ", ".join(f"{row.name} with K = {row.K}" for row in self.rows)
            raise ValueError(f"name and K must be in the plan ({there}), got {name!r}, {K!r}")
        return rows

    @property
    def ranking(self) -> list[Row]:
        """The row of every method's best K, best first."""
        names = dict.fromkeys(row.name for row in self.rows)
        return sorted((self.best(name=name) for name in names), key=lambda row: row.time_s)


def plan(case: Case, **changes: Any) -> Plan:
    """Every one of the case's methods with every number of its workers. changes: fields of the case to be changed first.

    What is impossible (as many backups as workers, say) is left out. ValueError where nothing is left.
    """
    case = replace(case, **changes)
    wanted = [Row(case, method, K) for method in case.methods for K in case.K_workers]
    rows = tuple(row for row in wanted if row.refusal is None)
    left_out = tuple(row for row in wanted if row not in rows)
    if not rows:
        raise ValueError(
            f"K must leave some method possible, but {wanted[0].name} with K = {wanted[0].K}: {wanted[0].refusal}. Cutting "
            f"layers or operations over workers is not planned here: Megatron-LM, DeepSpeed and torchtitan do it"
        )
    return Plan(case, rows, left_out)


def break_even(made: Plan) -> list[_Even]:
    """The steps factor at which every method ties with the best other one, each at its own best K; best first.

    ValueError where fewer than two methods are left.
    """
    ranked = made.ranking
    if len(ranked) < 2:
        raise ValueError(f"plan must hold two methods to compare them, got {[row.name for row in ranked]}")
    pairs = zip(ranked, [ranked[1], *[ranked[0]] * (len(ranked) - 1)], strict=True)
    return [_Even(a.name, a.method.steps_factor * b.time_s / a.time_s, b.name) for a, b in pairs]


@dataclass(frozen=True)
class Flip:
    """One direction of one input. now: where it stands, with ``best`` the best method there.

    at: the nearest value at which ``other`` is best (None: nothing fits any more); None: ``best`` is, up to ``until``.
    """

    dial: str
    now: float
    best: str
    at: float | None
    other: str | None
    until: float

    def __str__(self) -> str:
        said, unit = DIALS[self.dial]
        changed = f"{said} {'up' if self.until > self.now else 'down'}"
        if self.at is None:
            return f"{changed}: {self.best} stays best, as far as {written(self.until, unit)}"
        where = f"at {written(self.at, unit)} (now {written(self.now, unit)})"
        if self.other is None:
            return f"{changed}: no method fits into the memory any more {where}"
        return f"{changed}: {self.other} overtakes {self.best} {where}"


def sensitivity(made: Plan, dial: str) -> list[Flip]:
    """Down and up from the value of ``dial``, one of ``DIALS``, at the K of the plan's best row."""
    one_of("dial", dial, tuple(DIALS))
    case = replace(made.case, K_workers=(made.best().K,))
    now = getattr(case, dial)
    if now is None:  # a sweep's bandwidth
        now = case.cluster.link.beta
    least = 1.0 if dial in ("parameters", "slowdown") else 0.0
    ends = (max(least, now / RANGE), now * RANGE)
    return [_flip(case, dial, now, end) for end in ends if end != now]


def _winner(case: Case, dial: str, value: float, favourite: str = "") -> str | None:
    """The method with the least time there; of equals the favourite, or the first; None: nothing fits."""
    case = replace(case, **{dial: round(value) if dial == "parameters" else value})  # type: ignore[arg-type]
    rows = [Row(case, method, case.K_workers[0]) for method in case.methods]
    times = {row.name: row.time_s for row in rows if row.refusal is None}
    equals = [name for name, time_s in times.items() if time_s <= min(times.values()) * (1 + 1e-12)]
    return favourite if favourite in equals else next(iter(equals), None)


def _flip(case: Case, dial: str, now: float, end: float) -> Flip:
    """Stride from now to ``end``; where the winner has changed, bisect. A tie is no flip."""
    best = _winner(case, dial, now) or ""
    steps = pairwise(np.geomspace(now, end, STRIDES + 1).tolist())
    same, at = next((two for two in steps if _winner(case, dial, two[1], best) != best), (now, None))
    if at is None:
        return Flip(dial, now, best, None, None, end)
    for _ in range(HALVED):
        middle = math.sqrt(same * at)
        same, at = (middle, at) if _winner(case, dial, middle, best) == best else (same, middle)
    return Flip(dial, now, best, at, _winner(case, dial, at, best), end)
