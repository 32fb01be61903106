"""Sensitivity of the ranking: the nearest value of an input, up and down, at which another method gets best.

Nothing is drawn anew on the way: every value sees the same times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from labkit.checks import one_of
from labkit_book.planner.case import Case
from labkit_book.planner.plan import Plan
from labkit_book.planner.row import Row
from labkit_book.planner.units import written

#: An input is changed by so much up and down, in so many strides; where it flips in one, that is halved so often.
RANGE, STRIDES, HALVED = 1000.0, 10, 20
#: The inputs, fields of a case: what people call them, and their unit.
DIALS = {
    "beta_bytes_per_s": ("bandwidth", "B/s"),
    "alpha_s": ("latency", "s"),
    "parameters": ("parameters", ""),
    "slowdown": ("slowdown of one worker", ""),
}


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
