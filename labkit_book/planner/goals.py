"""What "best" means: a number that is to be small. Fastest, cheapest, the knee between them, or efficient enough.

The knee is the row of least time x worker-seconds. Around it one per cent of time costs one per cent of money: on the way
from the cheapest row to the knee a per cent of time costs less, beyond it more. With nothing but computation and weak
scaling that is the critical batch, K b = B_crit, where steps and examples are both twice their least (McCandlish et al.
2018, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.checks import number
from labkit_book.planner.units import SHARE

#: What is to be small, and the powers of (seconds, workers) in it; price is worker-seconds times a constant.
_POWERS = {"time": (1, 0), "price": (1, 1), "knee": (2, 1)}
_SAID = {"time": "the least time", "price": "the least price", "knee": "the least time x price"}


@dataclass(frozen=True)
class Goal:
    """what: "time", "price" or "knee", of the rows whose efficiency is ``at_least`` or more."""

    what: str = "time"
    at_least: float = 0.0

    @property
    def power(self) -> int:
        """``value`` grows as this power of the number of steps."""
        return _POWERS[self.what][0]

    def value(self, time_s: float, K: int, efficiency: float) -> float:
        """The number that is to be small; ``math.inf`` for what is not efficient enough."""
        if efficiency < self.at_least * (1 - 1e-12):
            return math.inf
        seconds, workers = _POWERS[self.what]
        return time_s**seconds * K**workers

    @property
    def text(self) -> str:
        """What `parse_goal` reads."""
        return f"efficiency>={self.at_least!r}" if self.at_least else self.what

    def __str__(self) -> str:
        beyond = f" with an efficiency of {self.at_least:g} or more" if self.at_least else ""
        return _SAID[self.what] + beyond


def parse_goal(text: str | Goal, name: str = "goal") -> Goal:
    """The goal that ``text`` names: "time", "price", "knee" or "efficiency>=0.8" (the least time of what is as efficient).

    ValueError, about ``name``, for another.
    """
    if isinstance(text, Goal):
        return text
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a text, got {text!r}")
    what, found, share = text.replace(" ", "").partition("efficiency>=")
    if found and not what and share:
        return Goal(at_least=number(name, SHARE.read(share, f"the efficiency in {name}"), above=0, most=1))
    if text.strip() not in _POWERS:
        raise ValueError(f"{name} must be time, price, knee or efficiency>=0.8, got {text!r}")
    return Goal(text.strip())
