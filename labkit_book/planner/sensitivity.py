"""Sensitivity of the ranking: the nearest value of each dial at which another method gets best.

A dial is turned from where it stands, up and down, at fixed K (but for the dial K itself), until another method has the
least time; then the place is found by bisection. Nothing is drawn anew on the way: every value sees the same times.

Symbols: K workers, P parameters, alpha and beta of the link (between hosts), ``slowdown`` of one straggler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from labkit.timing import OneStraggler
from labkit_book.planner.case import Case
from labkit_book.planner.estimate import means
from labkit_book.planner.plan import Plan
from labkit_book.planner.row import Row
from labkit_book.planner.units import written

#: A dial is turned by as much up and as much down, in steps of this factor, and a flip is found to this precision.
RANGE, STRIDE, PRECISION = 1000.0, 2.0, 1e-6
#: What the dials are called where somebody reads.
_NAMES = {"beta": "bandwidth beta", "alpha": "latency alpha", "P": "parameters P"}
#: Who has the least time where no method's state fits into a worker's memory.
NOTHING = "nothing that fits"
#: A floor so many times the least time is above it beyond all chance in the simulation.
BEYOND = 1.05


@dataclass(frozen=True)
class Flip:
    """One direction of one dial. dial and unit: what is turned. now: where it stands, with ``best`` the best method there.

    at: the nearest value at which another is best, ``other``; None: never up to ``until``.
    """

    dial: str
    unit: str
    now: float
    best: str
    at: float | None
    other: str | None
    until: float

    def __str__(self) -> str:
        of = f" {self.unit}" if self.unit.startswith("of ") else ""
        name = f"{_NAMES.get(self.dial, self.dial)}{of}, turned {'up' if self.until > self.now else 'down'}"
        if self.at is None:
            return f"{name}: {self.best} stays best, as far as {written(self.until, self.unit)}"
        if self.other == NOTHING:
            return f"{name}: no method fits into the memory any more at {written(self.at, self.unit)}"
        return (
            f"{name}: {self.other} overtakes {self.best} at {written(self.at, self.unit)} "
            f"(now {written(self.now, self.unit)})"
        )


def sensitivity(made: Plan, only: Iterable[str] | None = None) -> list[Flip]:
    """For every dial (or ``only`` those named), up and down, where another method than now has the least time.

    All but the dial K are turned at the K of the plan's best row; that goes from 1 to the largest K of the plan. Only
    methods that may be the answer are compared (`Plan.certain`). (How many more steps a method could need says
    `labkit_book.planner.break_even`.) ValueError for another dial.
    """
    possible = {row.name: row.method for row in made.rows if row.name in made.certain}
    case = replace(made.case, K_workers=(made.best().K,), methods=tuple(possible.values()))
    dials = {dial.name: dial for dial in _dials(case, max(row.K for row in made.rows))}
    wanted = list(dials) if only is None else list(only)
    if unknown := [name for name in wanted if name not in dials]:
        raise ValueError(f"only must name dials of {', '.join(dials)}, got {unknown[0]!r}")
    chosen = [dial for name, dial in dials.items() if name in wanted]
    return [_flip(dial, end) for dial in chosen for end in (dial.low, dial.high) if end != dial.now]


def _winner(case: Case, favourite: str | None = None) -> str:
    """The method with the least time at the case's one K; of equals (to 1e-12, relatively) the favourite, or the first.

    Methods that can't be best are not simulated: their floor is well above another's time. ValueError where there is none.
    """
    (K,) = case.K_workers
    possible = [row for method in case.methods if (row := Row(case, method, K)).refusal is None]
    if not possible and any(Row(case, method, K).misfit for method in case.methods):
        return NOTHING
    if not possible:
        raise ValueError(f"K must leave some method possible, got {K}")
    means(case.law, K)  # refuses a law without them
    floors = {row.name: row.steps * row.floor_s for row in possible}
    times: dict[str, float] = {}
    for row in sorted(possible, key=lambda row: floors[row.name]):
        if floors[row.name] > BEYOND * min(times.values(), default=math.inf):
            break
        times[row.name] = row.time_s
    best = min(times.values()) * (1 + 1e-12)
    equals = [row.name for row in possible if times.get(row.name, math.inf) <= best]
    return favourite if favourite in equals else equals[0]


class _Dial(NamedTuple):
    """A number that can be turned. ``set(value)`` is the case that it then is."""

    name: str
    unit: str
    now: float
    low: float
    high: float
    set: Callable[[float], Case]
    whole: bool = False


def _dials(case: Case, K_max: int) -> list[_Dial]:
    """The dials of a case with one K: K, beta, alpha, P and the slowdown of one straggler."""
    K, P, alpha, beta = case.K_workers[0], case.parameters, case.alpha_s, case.network.link.beta
    law = case.law if isinstance(case.law, OneStraggler) else OneStraggler(case.law, 1.0)
    slow = law.slowdown
    found = [
        _Dial("K", "workers", K, 1, K_max, lambda v: replace(case, K_workers=(round(v),)), whole=True),
        _Dial("beta", "bytes/s", beta, beta / RANGE, beta * RANGE, lambda v: replace(case, beta_bytes_per_s=v)),
        _Dial("alpha", "s", alpha, alpha / RANGE, alpha * RANGE, lambda v: replace(case, alpha_s=v)),
        _Dial(
            "P", "parameters", P, max(1.0, P / RANGE), P * RANGE,
            lambda v: replace(case, parameters=round(v)), whole=True,
        ),
        _Dial(
            "slowdown", "of one straggler", slow, 1.0, max(100.0, slow),
            lambda v: replace(case, law=replace(law, slowdown=v)),
        ),
    ]  # fmt: skip
    return [dial for dial in found if dial.now > 0]


def _flip(dial: _Dial, end: float) -> Flip:
    """Stride from now to ``end``; where the winner has changed, bisect."""
    now = _winner(dial.set(dial.now))
    same, other, at = dial.now, now, None
    while same != end:
        up = end > same
        ahead = same * STRIDE if up else same / STRIDE
        if dial.whole:  # K - 1 and K + 1 count too
            ahead = max(round(ahead), same + 1) if up else min(round(ahead), same - 1)
        ahead = min(ahead, end) if up else max(ahead, end)
        other = _winner(dial.set(ahead), now)  # a tie is no flip
        if other != now:
            at = ahead
            break
        same = ahead
    if at is None:
        return Flip(dial.name, dial.unit, dial.now, now, None, None, end)
    while abs(same - at) > (1 if dial.whole else PRECISION * max(same, at)):
        middle = round((same + at) / 2) if dial.whole else math.sqrt(same * at)
        there = _winner(dial.set(middle), now)
        same, at, other = (middle, at, other) if there == now else (same, middle, there)
    return Flip(dial.name, dial.unit, dial.now, now, at, other, end)
