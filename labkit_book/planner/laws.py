"""Laws of stragglers in a few letters, for the command line and for job files: "lognormal:0.1+one:1.43".

A law here is that of the *factor* by which a worker's step is longer than an undisturbed one's.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from labkit.timing import (
    Constant,
    Fleet,
    LogNormal,
    OneStraggler,
    Pareto,
    ShiftedExponential,
    TruncatedNormal,
    Uniform,
)

LAWS = {
    "none": "all workers alike",
    "lognormal:sigma": "exp(sigma normal)",
    "normal:sigma": "normal around 1",
    "exponential:mean": "1 + exponential of this mean",
    "uniform:width": "between 1 and 1 + width",
    "pareto:shape": "from 1 on, P(> x) = x ** -shape",
    "one:slowdown": "one worker so many times slower; may be added: lognormal:0.1+one:1.43",
}
#: The laws themselves, each with 1 first and then what stands behind the word; a uniform one ends at 1 + width.
_MAKES: dict[str, Any] = {
    "lognormal": LogNormal, "normal": TruncatedNormal, "exponential": ShiftedExponential, "uniform": Uniform,
    "pareto": Pareto,
}  # fmt: skip


def parse_law(text: str, name: str = "law") -> Fleet:
    """The law that ``text`` names, as in ``LAWS``. ValueError, about ``name``, for another.

    >>> parse_law("lognormal:0.1").mean > 1, parse_law("one:2").slowdown
    (True, 2.0)
    """
    found: Fleet = Constant(1.0)
    if text.strip() == "none":
        return found
    for i, part in enumerate(text.strip().split("+")):
        word, _, argument = part.strip().partition(":")
        try:
            number = float(argument)
        except ValueError:
            word = ""
        if word == "one" and not isinstance(found, OneStraggler):
            found = OneStraggler(found, number)
        elif word in _MAKES and i == 0:
            found = _MAKES[word](1.0, number + (word == "uniform"))
        else:
            raise ValueError(f"{name} must be of {', '.join(LAWS)}, got {text!r}")
    return found


def format_law(law: Any) -> str:
    """What `parse_law` would read as ``law``. ValueError for a law that it can't.

    >>> format_law(parse_law("lognormal:0.1+one:1.43"))
    'lognormal:0.1+one:1.43'
    """
    if law == Constant(1.0):
        return "none"
    if isinstance(law, OneStraggler) and law.rank == 0 and not isinstance(law.base, OneStraggler):
        alone = f"one:{law.slowdown!r}"
        return alone if law.base == Constant(1.0) else f"{format_law(law.base)}+{alone}"
    for word, kind in _MAKES.items():
        if type(law) is kind and (numbers := astuple(law))[0] == 1:
            return f"{word}:{numbers[1] - (word == 'uniform')!r}"
    raise ValueError(f"law must be one that a job file can hold ({', '.join(LAWS)}), got {law!r}")
