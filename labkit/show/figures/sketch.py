"""Figure "sketch": the reader draws a curve before the answer shows; then both stand in one picture.

Predicting a curve tells more about what one believes than predicting a number. The answer travels sealed (as in
`labkit.show.predict`), so it can't be read at a glance, and the still picture and its description don't tell it either.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from labkit.checks import integer, number
from labkit.show.figures.base import Interactive, parameter

_MOST = 12


@dataclass(frozen=True)
class Sketch(Interactive):
    """question: what is drawn. x, truth: 2 to 12 places and the answers there; the first ``given`` answers are told.

    x_label, y_label: axes, with units. low, high: the vertical axis, which must hold the answers without telling them.
    column: the place at which the keyboard draws. drawn: the reader's guesses, None where there is none. shown: whether
    the answer is.
    """

    name: ClassVar[str] = "sketch"
    question: str = "Harmonic numbers"
    x: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    truth: tuple[float, ...] = ()
    x_label: str = "n"
    y_label: str = "1 + 1/2 + ... + 1/n"
    low: float = parameter(0.0, number)
    high: float = parameter(8.0, number)
    given: int = 1
    column: int = 1
    drawn: tuple[float | None, ...] = ()
    shown: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        x = tuple(int(v) if v.is_integer() else v for v in _numbers("x", self.x))
        if not 2 <= len(x) <= _MOST or any(b <= a for a, b in pairwise(x)):
            raise ValueError(f"x must hold 2 to {_MOST} numbers that rise, got {self.x!r}")
        harmonic = (np.sum(1 / np.arange(1, n + 1)) for n in x)
        truth = _numbers("truth", self.truth if len(self.truth) else harmonic)
        drawn = tuple(self.drawn) or (None,) * len(x)
        for name, values in (("truth", truth), ("drawn", drawn)):
            if len(values) != len(x):
                raise ValueError(f"{name} must hold one for each of {len(x)} places, got {len(values)}")
        _numbers("drawn", (y for y in drawn if y is not None))
        if not (self.low < self.high and all(self.low <= y <= self.high for y in truth)):
            raise ValueError(f"low and high must enclose the answers, got {self.low!r} and {self.high!r}")
        integer("given", self.given, 0, len(x) - 1)
        integer("column", self.column, 0, len(x) - 1)
        if not isinstance(self.shown, bool):
            raise ValueError(f"shown must be True or False, got {self.shown!r}")
        for name, value in {"x": x, "truth": truth, "drawn": drawn}.items():
            object.__setattr__(self, name, value)

    def state(self) -> dict[str, Any]:
        return {"column": self.column, "shown": self.shown, **self.data()}

    def data(self) -> dict[str, Any]:
        sealed = base64.b64encode(json.dumps([float(f"{y:.6g}") for y in self.truth]).encode()).decode()
        keys = ("question", "x_label", "y_label", "low", "high", "given")
        asked = {key: getattr(self, key) for key in keys}
        return {"asked": {**asked, "x": list(self.x), "sealed": sealed}, "drawn": list(self.drawn)}


def _numbers(name: str, given: Iterable[Any]) -> tuple[float, ...]:
    return tuple(number(name, value) for value in np.asarray(list(given), dtype=float).tolist())
