"""What "best" means: a number that is to be small. Fastest, cheapest, the knee between them, or efficient enough.

The knee is the row of least time x worker-seconds. Around it one per cent of time costs one per cent of money: on the way
from the cheapest row to the knee a per cent of time costs less, beyond it more. With nothing but computation and weak
scaling that is the critical batch, K b = B_crit, where steps and examples are both twice their least (McCandlish et al.
2018, section 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from labkit.timing._check import number

if TYPE_CHECKING:
    from labkit.cost.plan.plan import Row

#: Powers of (seconds, workers) in the number that is to be small; price is worker-seconds times a constant.
POWERS = {"time": (1, 0), "price": (1, 1), "knee": (2, 1)}


class Goal(Protocol):
    """``value(row)`` is to be small, and is ``math.inf`` where a row is not allowed; it grows as the steps to ``power``."""

    @property
    def power(self) -> int: ...
    def value(self, row: Row) -> float: ...
    def nearest(self, rows: Sequence[Row]) -> str: ...


@dataclass(frozen=True)
class Least:
    """The least time, the least price, or the knee."""

    what: str = "time"

    def __post_init__(self) -> None:
        if self.what not in POWERS:
            raise ValueError(f"what must be one of {', '.join(POWERS)}, got {self.what!r}")

    @property
    def power(self) -> int:
        return POWERS[self.what][0]

    def value(self, row: Row) -> float:
        seconds, workers = POWERS[self.what]
        return row.time_s**seconds * row.K**workers

    def nearest(self, rows: Sequence[Row]) -> str:
        return "no row takes a finite time"

    def __str__(self) -> str:
        return {"time": "the least time", "price": "the least price", "knee": "the least time x price"}[
            self.what
        ]


@dataclass(frozen=True)
class Efficient:
    """The least time of the rows with an efficiency of ``at_least``, 0 < at_least <= 1."""

    at_least: float

    def __post_init__(self) -> None:
        number("at_least", self.at_least, above=0, most=1)

    power = 1

    def value(self, row: Row) -> float:
        return row.time_s if row.efficiency >= self.at_least * (1 - 1e-12) else math.inf

    def nearest(self, rows: Sequence[Row]) -> str:
        top = max(rows, key=lambda row: row.efficiency)
        return f"the most efficient, {top.name} with K = {top.K}, has {top.efficiency:.3f}"

    def __str__(self) -> str:
        return f"the least time with an efficiency of {self.at_least:g} or more"


def goal(text: str) -> Goal:
    """The goal that ``text`` names: "time", "price", "knee" or "efficiency>=0.8". ValueError for another."""
    found = re.fullmatch(r"efficiency\s*>=\s*(\d+\.?\d*|\.\d+)\s*(%?)", text.strip())
    if found:
        return Efficient(float(found[1]) / (100 if found[2] else 1))
    if text.strip() not in POWERS:
        raise ValueError(f"goal must be time, price, knee or efficiency>=0.8, got {text!r}")
    return Least(text.strip())
