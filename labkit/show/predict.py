"""A prediction the reader commits to before the answer shows.

    bet = predict("How long does a step take with one straggler?", "ms", guess=None)   # write a number here
    ...
    bet.reveal(answer)

Without a guess it only says so, and the notebook runs on. In the book's pages, where nothing runs, a script
(book/_static/guess.js) makes a form of what `predict` displays and keeps what follows covered until the reader commits;
what `reveal` displays carries the answer for it.
"""

import base64
import hashlib
import html
import json
import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from labkit.checks import number, one_of

_CLOSE = 0.05  # a guess this near, relatively, counts as right
UNGUESSED = "You made no guess this time: next time, write one down first."


@dataclass(frozen=True)
class Prediction:
    """A question, the unit of its answer ("" for a pure number), and the reader's guess if there is one.

    choices: the possible answers, where it is no number. between: (low, high) of a slider in the page, or None for no
    slider.
    """

    question: str
    unit: str = ""
    guess: float | str | None = None
    choices: tuple[str, ...] = ()
    between: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.guess is not None:
            self._check("guess", self.guess)
        if self.between is not None:
            low, high = self.between
            number("between's high", high, above=number("between's low", low))

    @property
    def key(self) -> str:
        """What joins the question in the page with its answer: ten letters, the same in every run."""
        return hashlib.sha256(f"{self.question}|{self.unit}".encode()).hexdigest()[
            :10
        ]

    def sentence(self, answer: float | str) -> str:
        """What `reveal` says."""
        self._check("answer", answer)
        it_is = self._said(answer)
        if self.guess is None:
            return f"It is{':' if self.choices else ''} {it_is}. {UNGUESSED}"
        said = f"You said {self._said(self.guess)}"
        if self.choices:
            right = self.guess == answer
            return (
                f"{said}, and {it_is} it is." if right else f"{said}; it is {it_is}."
            )
        truth, guess = _digits(float(answer)), float(self.guess)
        off = abs(guess - truth)
        if off == 0:
            return f"{said}, and {it_is} it is: exactly right."
        if off <= _CLOSE * abs(truth):
            near = math.ceil(100 * off / abs(truth))
            return f"{said}; it is {it_is}. Well predicted: within {near} %."
        return (
            f"{said}; it is {it_is}, {self._how_far(guess, truth)} than you thought."
        )

    def _how_far(self, guess: float, truth: float) -> str:
        """As a difference, in per cent, or as a ratio: whatever says most."""
        off, way = abs(guess - truth), "more" if truth > guess else "less"
        if truth <= 0 or guess <= 0:
            return f"{self._said(off)} {way}"
        ratio = max(truth / guess, guess / truth)
        if ratio < 1.5:
            return f"{_amount(round(100 * off / guess))} % {way}"
        return f"{_amount(float(f'{ratio:.3g}'))} times {'bigger' if truth > guess else 'smaller'}"

    def reveal(self, answer: float | str) -> None:
        """Show the answer beside the guess, in a sentence. ``answer``: in the prediction's unit, or one of its choices."""
        shown = _Reveal(self, answer, self.sentence(answer))
        if not _displayed(shown):
            print(shown)

    def _said(self, x: float | str) -> str:
        return str(x) if self.choices else _amount(float(x), self.unit)

    def _check(self, name: str, said: Any) -> None:
        one_of(name, said, self.choices) if self.choices else number(name, said)

    def __str__(self) -> str:
        if self.guess is None:
            how = f" (in {self.unit})" if self.unit else ""
            how = f" (one of: {', '.join(self.choices)})" if self.choices else how
            return f"{self.question} Write down your guess{how} before you read on."
        return f"{self.question} You committed to {self._said(self.guess)}."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        data: Any = {"key": self.key, "question": self.question, "unit": self.unit}
        if self.choices:
            data["choices"] = list(self.choices)
        if self.between is not None:
            data["between"] = [float(x) for x in self.between]
            data["whole"] = all(x.is_integer() for x in data["between"])
        asked = html.escape(json.dumps(data, ensure_ascii=False))
        said = html.escape(str(self))
        return f'<div class="labkit-predict" data-asked="{asked}"><p>{said}</p></div>'


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
        truth = (
            int(truth) if isinstance(truth, float) and truth.is_integer() else truth
        )
        sealed = base64.b64encode(
            json.dumps(truth, ensure_ascii=False).encode()
        ).decode()
        inside = f"<p>{html.escape(self.said)}</p>"
        return f'<div class="labkit-reveal" data-key="{self.bet.key}" data-truth="{sealed}">{inside}</div>'


def predict(
    question: str, unit: str = "", guess: Any = None, **how: Any
) -> Prediction:
    """Ask a question, and return the `Prediction`, which a notebook shows at once. The arguments are its fields.

    >>> bet = predict("How long is a step?", "ms", 20, between=(1, 1000))
    >>> bet.guess, bet.unit
    (20, 'ms')
    """
    bet = Prediction(question, unit, guess, **how)
    _displayed(bet)
    return bet


def _displayed(shown: object) -> bool:
    """Display it, where this runs in IPython."""
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        return False
    from IPython.display import display

    display(shown)
    return True


def _digits(x: float) -> float:
    """``x`` as it is shown and stored: whole numbers as they are, others with four significant digits."""
    return x if x.is_integer() and abs(x) < 1e15 else float(f"{x:.4g}")


def _amount(x: float, unit: str = "") -> str:
    """``x`` in words: 0.4167, 1470, 263,412, 1e-15; with its unit, if it has one."""
    x = _digits(float(x))
    if x != 0 and not 1e-4 <= abs(x) < 1e15:
        mantissa, exponent = f"{x:.3e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        exact = Decimal(repr(x)).normalize() if x else Decimal(0)
        text = f"{exact:,f}" if abs(x) >= 1e4 else f"{exact:f}"
    return f"{text} {unit}".rstrip()
