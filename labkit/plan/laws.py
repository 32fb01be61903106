"""Laws of stragglers in a few letters, for the command line and for job files: "lognormal:0.1+one:1.43".

A law here is that of the *factor* by which a worker's step is longer than an undisturbed one's.
"""

from __future__ import annotations

from collections.abc import Callable

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
_MAKES: dict[str, Callable[[float], Fleet]] = {
    "lognormal": lambda x: LogNormal(1.0, x),
    "normal": lambda x: TruncatedNormal(1.0, x),
    "exponential": lambda x: ShiftedExponential(1.0, x),
    "uniform": lambda x: Uniform(1.0, 1.0 + x),
    "pareto": lambda x: Pareto(1.0, x),
}


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
            found = _MAKES[word](number)
        else:
            raise ValueError(f"{name} must be of {', '.join(LAWS)}, got {text!r}")
    return found


def format_law(law: Fleet) -> str:
    """What `parse_law` would read as ``law``. ValueError for a law that it can't.

    >>> format_law(parse_law("lognormal:0.1+one:1.43"))
    'lognormal:0.1+one:1.43'
    """
    match law:
        case Constant(t) if t == 1:
            return "none"
        case LogNormal(m, x) if m == 1:
            return f"lognormal:{x!r}"
        case TruncatedNormal(m, x) if m == 1:
            return f"normal:{x!r}"
        case ShiftedExponential(m, x) if m == 1:
            return f"exponential:{x!r}"
        case Uniform(low, high) if low == 1:
            return f"uniform:{high - 1!r}"
        case Pareto(m, x) if m == 1:
            return f"pareto:{x!r}"
        case OneStraggler(base, x, rank) if rank == 0 and not isinstance(base, OneStraggler):
            return f"one:{x!r}" if base == Constant(1.0) else f"{format_law(base)}+one:{x!r}"
    raise ValueError(f"law must be one that a job file can hold ({', '.join(LAWS)}), got {law!r}")
