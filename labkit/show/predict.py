"""A prediction the reader commits to before the answer shows.

    bet = predict("How long does a step take with one straggler?", "ms", guess=None)   # write a number here
    ...
    bet.reveal(answer)

Nothing stops a notebook that runs from top to bottom unedited: without a guess it only says so. In the book's
pages, where nothing runs, a script (book/_static/predict.js) makes a form of what `predict` displays and keeps
what follows covered until the reader commits; what `reveal` displays carries the answer for it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from labkit.show.figures import stills
from labkit.show.palette import GUESS

_CLOSE = 0.05  # a guess this near, relatively, counts as right
UNGUESSED = "You made no guess this time: next time, write one down first."


@dataclass(frozen=True)
class Prediction:
    """A question, the unit of its answer ("" for a pure number), and the reader's guess if there is one.

    choices: the possible answers, where the answer is no number. between: (low, high), what a slider in the page
    offers, or None for no slider; log: whether the slider is logarithmic.
    """

    question: str
    unit: str = ""
    guess: float | str | None = None
    choices: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if self.choices:
            if len(set(self.choices)) < 2 or not all(isinstance(c, str) and c for c in self.choices):
                raise ValueError(f"choices must be two or more different texts, got {self.choices!r}")
            if self.guess is not None:
                self._among("guess", self.guess)
        elif self.guess is not None and not _finite(self.guess):
            raise ValueError(f"guess must be a finite number, or None for not yet, got {self.guess!r}")
        if self.between is not None:
            pair = tuple(self.between) if isinstance(self.between, Sequence) else ()
            if len(pair) != 2 or not all(map(_finite, pair)) or not pair[0] < pair[1]:
                raise ValueError(f"between must be (low, high) with low < high, got {self.between!r}")
            if self.log and pair[0] <= 0:
                raise ValueError(f"between must begin above 0 on a logarithmic scale, got {self.between!r}")

    @property
    def key(self) -> str:
        """What joins the question in the page with its answer: ten letters, the same in every run."""
        return hashlib.sha256(f"{self.question}|{self.unit}".encode()).hexdigest()[:10]

    def sentence(self, answer: float | str) -> str:
        """What `reveal` says."""
        if self.choices:
            right = self._among("answer", answer)
            if self.guess is None:
                return f"It is: {right}. {UNGUESSED}"
            return f"You said {self.guess}, and {right} it is." if self.guess == right else (
                f"You said {self.guess}; it is {right}."
            )  # fmt: skip
        if not _finite(answer):
            raise ValueError(f"answer must be a finite number, got {answer!r}")
        truth, it_is = _digits(float(answer)), self._said(answer)
        if self.guess is None:
            return f"It is {it_is}. {UNGUESSED}"
        guess, said = float(self.guess), self._said(self.guess)
        off = abs(guess - truth)
        if off == 0:
            return f"You said {said}, and {it_is} it is: exactly right."
        if off <= _CLOSE * abs(truth):
            near = math.ceil(100 * off / abs(truth))
            return f"You said {said}; it is {it_is}. Well predicted: within {near} %."
        way = "more" if truth > guess else "less"
        if truth <= 0 or guess <= 0:
            return f"You said {said}; it is {it_is}, {self._said(off)} {way} than you thought."
        ratio = max(truth / guess, guess / truth)
        if ratio < 1.5:
            return f"You said {said}; it is {it_is}, {_amount(round(100 * off / guess))} % {way} than you thought."
        times = f"{_amount(float(f'{ratio:.3g}'))} times {'bigger' if truth > guess else 'smaller'}"
        return f"You said {said}; it is {it_is}, {times} than you thought."

    def reveal(self, answer: float | str) -> None:
        """Show the answer beside the guess: a sentence and, for numbers, a small number line. ``answer`` in the
        prediction's unit, or one of its choices. Outside of a notebook, print the sentence."""
        shown = _Reveal(self, answer, self.sentence(answer))
        if not _displayed(shown):
            print(shown)

    def _said(self, x: float | str) -> str:
        return _amount(float(x), self.unit)

    def _among(self, name: str, said: object) -> str:
        if said not in self.choices:
            raise ValueError(f"{name} must be one of {', '.join(self.choices)}, got {said!r}")
        return str(said)

    def __str__(self) -> str:
        if self.guess is None:
            how = f" (one of: {', '.join(self.choices)})" if self.choices else ""
            how = how or (f" (in {self.unit})" if self.unit else "")
            return f"{self.question} Write down your guess{how} before you read on."
        said = self.guess if self.choices else self._said(self.guess)
        return f"{self.question} You committed to {said}."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        data: dict[str, Any] = {"key": self.key, "question": self.question, "unit": self.unit}
        if self.choices:
            data["choices"] = list(self.choices)
        if self.between is not None:
            data |= {"between": [float(x) for x in self.between], "log": self.log}
            data["whole"] = all(float(x).is_integer() for x in self.between) and not self.log
        asked = html.escape(json.dumps(data, ensure_ascii=False), quote=True)
        return f'<div class="labkit-predict" data-asked="{asked}"><p>{html.escape(str(self))}</p></div>'


@dataclass(frozen=True)
class _Reveal:
    """What a notebook shows and stores of an answer. In the page the answer is not readable at a glance."""

    bet: Prediction
    answer: float | str
    said: str

    def __repr__(self) -> str:
        return self.said

    def _repr_html_(self) -> str:
        truth = str(self.answer) if self.bet.choices else _digits(float(self.answer))
        truth = int(truth) if isinstance(truth, float) and truth.is_integer() else truth
        sealed = base64.b64encode(json.dumps(truth, ensure_ascii=False).encode()).decode()
        line = ""
        if self.bet.guess is not None and not self.bet.choices:
            with suppress(ImportError):  # without an engine to draw it, the sentence says it all
                pair = float(self.bet.guess), _digits(float(self.answer))
                drawn = stills.number_line(self.bet.unit, *pair, GUESS)
                line = f'<div style="max-width: 400px">{drawn}</div>'
        said = f"<p>{html.escape(self.said)}</p>"
        return (
            f'<div class="labkit-reveal" data-key="{self.bet.key}" data-truth="{sealed}">{said}{line}</div>'
        )


def predict(
    question: str,
    unit: str = "",
    guess: float | str | None = None,
    *,
    choices: Sequence[str] = (),
    between: tuple[float, float] | None = None,
    log: bool = False,
) -> Prediction:
    """Ask a question, and return the `Prediction`, which a notebook shows at once.

    question: what the answer is compared under. unit: of the answer, "" for a pure number. guess: the reader's
    number (or one of ``choices``), None for not yet. between, log: see `Prediction`. ValueError if the guess is
    not a finite number or not among the choices.

    >>> bet = predict("How long is a step?", "ms", 20, between=(1, 1000), log=True)
    >>> bet.guess, bet.unit
    (20, 'ms')
    """
    bet = Prediction(question, unit, guess, tuple(choices), between, log)
    _displayed(bet)
    return bet


def _finite(x: object) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(float(x))


def _displayed(shown: object) -> bool:
    """Display it, where this runs in IPython."""
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        return False
    from IPython.display import display

    display(shown)
    return True


def _digits(x: float) -> float:
    """``x`` as it is shown and stored: whole numbers as they are, others with four significant digits."""
    x = float(x)
    return x if x.is_integer() and abs(x) < 1e15 else float(f"{x:.4g}")


def _amount(x: float, unit: str = "") -> str:
    """``x`` in words: 0.4167, 1470, 263,412, 1e-15; with its unit, if it has one."""
    x = _digits(x)
    if x != 0 and not 1e-4 <= abs(x) < 1e15:
        mantissa, exponent = f"{x:.3e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        text = f"{Decimal(repr(x)).normalize():,f}" if abs(x) >= 1e4 else f"{Decimal(repr(x)).normalize():f}"
        text = "0" if x == 0 else text
    return f"{text} {unit}".rstrip()
