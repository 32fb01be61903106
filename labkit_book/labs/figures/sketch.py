"""Figure "sketch": the reader draws a curve before the answer shows; then both stand in one picture.

Predicting a curve tells more about what one believes than predicting a number. The answer travels sealed (as in
`labkit.show.predict`), so it can't be read at a glance, and the still picture and its description don't tell it either.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from labkit.checks import integer, number
from labkit.show.figures.base import Figure, parameter

_MOST = 12
_HARMONIC = tuple(accumulate(1 / n for n in range(1, 129)))
_X = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, repr=False)
class Sketch(Figure):
    """question: what is drawn. x, truth: 2 to 12 places and the answers there; the first ``given`` answers are told.

    x_label, y_label: axes, with units. low, high: the vertical axis, which must hold the answers without telling them.
    """

    name: ClassVar[str] = "sketch"
    question: str = "Harmonic numbers"
    x: tuple[float, ...] = _X
    truth: tuple[float, ...] = tuple(_HARMONIC[n - 1] for n in _X)
    x_label: str = "n"
    y_label: str = "1 + 1/2 + ... + 1/n"
    low: float = parameter(0.0, number)
    high: float = parameter(8.0, number)
    given: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        x, truth = self._numbers("x"), self._numbers("truth")
        if not 2 <= len(x) <= _MOST or any(b <= a for a, b in pairwise(x)):
            raise ValueError(f"x must hold 2 to {_MOST} numbers that rise, got {self.x!r}")
        if len(truth) != len(x):
            raise ValueError(f"truth must hold one for each of {len(x)} places, got {len(truth)}")
        if not (self.low < self.high and all(self.low <= y <= self.high for y in truth)):
            raise ValueError(f"low and high must enclose the answers, got {self.low!r} and {self.high!r}")
        integer("given", self.given, 0, len(x) - 1)

    def state(self) -> dict[str, Any]:
        """column: the place at which the keyboard draws. drawn: the reader's guesses, so far none. shown: the answer?"""
        x, truth = self._numbers("x"), [float(f"{y:.6g}") for y in self._numbers("truth")]
        keys = ("question", "x_label", "y_label", "low", "high", "given")
        asked: dict[str, Any] = {key: getattr(self, key) for key in keys}
        asked["x"] = [int(v) if v.is_integer() else v for v in x]
        asked["sealed"] = base64.b64encode(json.dumps(truth).encode()).decode()
        return {"column": 1, "shown": False, "asked": asked, "drawn": [None] * len(x)}

    def _numbers(self, name: str) -> list[float]:
        return [number(name, value) for value in np.asarray(getattr(self, name), dtype=float).tolist()]
