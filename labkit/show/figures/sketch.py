"""Figure "sketch": the reader draws a curve before the answer shows; then both stand in one picture.

Predicting a curve tells more about what one believes than predicting a number. The answer travels sealed (as in
`labkit.show.predict`), so it can't be read at a glance, and the still picture and its description don't tell it either.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.show.figures.base import Interactive, real, whole
from labkit.show.palette import GUESS, INK, LIGHT, WIDTH_IN

MOST = 12


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
    low: float = 0.0
    high: float = 8.0
    given: int = 1
    column: int = 1
    drawn: tuple[float | None, ...] = ()
    shown: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _numbers("x", self.x))
        harmonic = (
            [float(np.sum(1 / np.arange(1, n + 1))) for n in self.x] if len(self.truth) == 0 else self.truth
        )
        object.__setattr__(self, "truth", _numbers("truth", harmonic))
        if not 2 <= len(self.x) <= MOST or any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError(f"x must hold 2 to {MOST} numbers that rise, got {self.x!r}")
        if len(self.truth) != len(self.x):
            raise ValueError(
                f"truth must hold an answer for each of {len(self.x)} places, got {len(self.truth)}"
            )
        real("low", self.low, -1e300)
        real("high", self.high, self.low)
        if not (self.low < self.high and all(self.low <= y <= self.high for y in self.truth)):
            raise ValueError(f"low and high must enclose the answers, got {self.low!r} and {self.high!r}")
        whole("given", self.given, 0, len(self.x) - 1)
        whole("column", self.column, 0, len(self.x) - 1)
        drawn = tuple(self.drawn) or (None,) * len(self.x)
        if len(drawn) != len(self.x):
            raise ValueError(
                f"drawn must hold a guess or None for each of {len(self.x)} places, got {len(drawn)}"
            )
        guesses = [y for y in drawn if y is not None]
        _numbers("drawn", guesses)
        object.__setattr__(self, "drawn", drawn)
        if not isinstance(self.shown, bool):
            raise ValueError(f"shown must be True or False, got {self.shown!r}")

    def state(self) -> dict[str, Any]:
        return {"column": self.column, "shown": self.shown, **self.data()}

    def data(self) -> dict[str, Any]:
        sealed = base64.b64encode(json.dumps([float(f"{y:.6g}") for y in self.truth]).encode()).decode()
        keys = ("question", "x", "x_label", "y_label", "low", "high", "given")
        asked = {key: getattr(self, key) for key in keys}
        return {"asked": {**asked, "x": list(self.x), "sealed": sealed}, "drawn": list(self.drawn)}

    def draw(self) -> Any:
        import matplotlib.pyplot as plt

        figure, ax = plt.subplots(figsize=(WIDTH_IN, 3.8))
        place = np.arange(len(self.x))
        known = len(self.x) if self.shown else self.given
        if any(y is not None for y in self.drawn):
            ax.plot(
                place,
                [np.nan if y is None else y for y in self.drawn],
                "o--",
                color=GUESS,
                label="your guess",
            )
        if known:
            ax.plot(
                place[:known], self.truth[:known], "o-", color=INK, label="labkit" if self.shown else "given"
            )
            ax.legend()
        if not self.shown:
            words = "Draw your guess before you read on."
            ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", color=LIGHT["muted"])
        ax.set_xticks(place, [f"{x:g}" for x in self.x])
        ax.set(
            ylim=(self.low, self.high),
            xlim=(-0.5, len(self.x) - 0.5),
            xlabel=self.x_label,
            ylabel=self.y_label,
        )
        ax.grid(True, axis="y")
        return figure

    def alt(self) -> str:
        told = "".join(
            f" At {x:g} it is {y:.4g}."
            for x, y in zip(self.x, self.truth[: len(self.x) if self.shown else self.given], strict=False)
        )
        empty = "" if self.shown else " An empty plot, in which you draw your guess before you read on."
        return f"{self.question}: {self.y_label} against {self.x_label}.{told}{empty}"


def _numbers(name: str, given: Iterable[Any]) -> tuple[float, ...]:
    values = tuple(np.asarray(list(given), dtype=float).tolist())
    for value in values:
        real(name, value, -1e300)
    return tuple(int(v) if v.is_integer() else v for v in values) if name == "x" else values


FIGURE = Sketch
