"""A prediction the reader commits to before the answer shows.

    bet = predict("How long does a step take with one straggler?", "ms", guess=None)   # write a number here
    ...
    bet.reveal(answer)

Nothing stops a notebook that runs from top to bottom unedited: without a guess it only says so.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from labkit.show.palette import GUESS, INK, style

_CLOSE = 0.05  # a guess this near, relatively, counts as right


@dataclass(frozen=True)
class Prediction:
    """A question, the unit of its answer ("" for a pure number), and the reader's guess if there is one."""

    question: str
    unit: str
    guess: float | None = None

    def __post_init__(self) -> None:
        if self.guess is not None and not _finite(self.guess):
            raise ValueError(f"guess must be a finite number, or None for not yet, got {self.guess!r}")

    def sentence(self, answer: float) -> str:
        """What `reveal` prints."""
        if not _finite(answer):
            raise ValueError(f"answer must be a finite number, got {answer!r}")
        it_is = self._amount(answer)
        if self.guess is None:
            return f"It is {it_is}. You made no guess this time: next time, write one down first."
        said = self._amount(self.guess)
        off = abs(self.guess - answer)
        if off == 0:
            return f"You said {said}, and {it_is} it is: exactly right."
        if off <= _CLOSE * abs(answer):
            near = math.ceil(100 * off / abs(answer))
            return f"You said {said}; it is {it_is}. Well predicted: within {near} %."
        way = "more" if answer > self.guess else "less"
        if answer * self.guess <= 0:
            return f"You said {said}; it is {it_is}, {self._amount(off)} {way} than you thought."
        ratio = max(abs(answer / self.guess), abs(self.guess / answer))
        if ratio < 1.5:
            return (
                f"You said {said}; it is {it_is}, {100 * off / abs(self.guess):.0f} % {way} than you thought."
            )
        times = "bigger" if abs(answer) > abs(self.guess) else "smaller"
        return f"You said {said}; it is {it_is}, {ratio:.3g} times {times} than you thought."

    def reveal(self, answer: float) -> None:
        """Print the answer beside the guess, in one sentence. ``answer`` in the prediction's unit."""
        print(self.sentence(answer))

    def mark(self, ax: Any, *, x: float | None = None, axis: str = "y") -> None:
        """Draw the guess on a matplotlib Axes: a dashed line across, or a star at ``x``; nothing without one.

        axis: "y" if the vertical axis is in the prediction's unit, "x" if the horizontal one is.
        """
        if axis not in ("x", "y"):
            raise ValueError(f"axis must be 'x' or 'y', got {axis!r}")
        if self.guess is None:
            return
        with style():
            if x is not None:
                ax.plot(
                    [x],
                    [self.guess],
                    "*",
                    color=GUESS,
                    markeredgecolor=INK,
                    markersize=15,
                    zorder=5,
                    label="your guess",
                )
            else:
                line = ax.axhline if axis == "y" else ax.axvline
                line(self.guess, color=GUESS, linestyle="--", zorder=5, label="your guess")
            ax.legend()

    def _amount(self, x: float) -> str:
        return f"{float(x):.4g} {self.unit}".rstrip()

    def __str__(self) -> str:
        if self.guess is None:
            unit = f" (in {self.unit})" if self.unit else ""
            return f"{self.question} Write down your guess{unit} before you read on."
        return f"{self.question} You committed to {self._amount(self.guess)}."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"


def predict(question: str, unit: str, guess: float | None = None) -> Prediction:
    """A `Prediction`. ValueError if the guess is not a finite number."""
    return Prediction(question, unit, guess)


def _finite(x: object) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(float(x))
