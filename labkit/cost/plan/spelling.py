"""Methods and laws in a few letters, for the command line and for job files: "ssp:3", "topk:0.01", "lognormal:0.1+one:1.43".

What is written is what tables print: ``method(text).name == text``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from labkit.compress import QSGD, ErrorFeedback, RandomK, Sign, TopK
from labkit.cost.plan.compressed import Compressed
from labkit.cost.plan.method import Method
from labkit.cost.plan.served import SSP, Async, Backup
from labkit.cost.plan.summed import LocalSGD, Overlapped, Sync
from labkit.timing import (
    Constant,
    Law,
    LogNormal,
    OneStraggler,
    Pareto,
    ShiftedExponential,
    TruncatedNormal,
    Uniform,
)

#: QSGD's norms are of as many coordinates each, as in Alistarh et al. 2017, section 4.
BUCKET = 512

METHODS = {
    "sync": "compute, wait, sum",
    "overlapped:L": "sync, summed in L buckets while the backward pass goes on",
    "backup:b": "a round is over with the first K - b gradients",
    "ssp:s": "nobody more than s steps ahead of the slowest",
    "async": "nobody waits",
    "local:H": "H steps on one's own, then the average",
    "topk:share": "the largest coordinates, with error feedback",
    "randomk:share": "random coordinates, the same on all workers, unbiased",
    "qsgd:levels": f"stochastic rounding, a norm for every {BUCKET} coordinates, unbiased",
    "sign": "one bit a coordinate, with error feedback",
}

LAWS = {
    "none": "all workers alike",
    "lognormal:sigma": "exp(sigma normal)",
    "normal:sigma": "normal around 1",
    "exponential:mean": "1 + exponential of this mean",
    "uniform:width": "between 1 and 1 + width",
    "pareto:shape": "from 1 on, P(> x) = x ** -shape",
    "one:slowdown": "one worker so many times slower; may be added: lognormal:0.1+one:1.43",
}


def method(text: str, steps_factor: float = 1.0, coding_s: float = 0.0) -> Method:
    """The method that ``text`` names, as in ``METHODS``. coding_s: for those that compress. ValueError for another."""
    word, _, argument = text.strip().partition(":")
    whole: dict[str, Callable[[int], Method]] = {
        "overlapped": lambda n: Overlapped(n, steps_factor=steps_factor),
        "backup": lambda n: Backup(n, steps_factor=steps_factor),
        "ssp": lambda n: SSP(n, steps_factor=steps_factor),
        "local": lambda n: LocalSGD(n, steps_factor=steps_factor),
        "qsgd": lambda n: Compressed(
            QSGD(n, BUCKET),
            coding_s,
            min(BUCKET / n**2, math.sqrt(BUCKET) / n),
            text,
            steps_factor=steps_factor,
        ),
    }
    shares: dict[str, Callable[[float], Method]] = {
        "topk": lambda x: Compressed(ErrorFeedback(TopK(x)), coding_s, label=text, steps_factor=steps_factor),
        "randomk": lambda x: Compressed(
            RandomK(x, unbiased=True), coding_s, 1 / x - 1, text, steps_factor=steps_factor
        ),
    }
    bare: dict[str, Callable[[], Method]] = {
        "sync": lambda: Sync(steps_factor=steps_factor),
        "async": lambda: Async(steps_factor=steps_factor),
        "sign": lambda: Compressed(ErrorFeedback(Sign()), coding_s, label="sign", steps_factor=steps_factor),
    }
    text = text.strip()
    if word in bare and not argument and ":" not in text:
        return bare[word]()
    if word in whole and argument.isdecimal():
        return whole[word](int(argument))
    if word in shares:
        return shares[word](_number(argument, text, "methods", METHODS))
    raise ValueError(f"methods must be of {', '.join(METHODS)}, got {text!r}")


def law(text: str) -> Law:
    """The law of the factor that ``text`` names, as in ``LAWS``. ValueError for another."""
    found: Law = Constant(1.0)
    for i, part in enumerate(text.strip().split("+")):
        word, _, argument = part.strip().partition(":")
        makes: dict[str, Callable[[float], Law]] = {
            "lognormal": lambda x: LogNormal(1.0, x),
            "normal": lambda x: TruncatedNormal(1.0, x),
            "exponential": lambda x: ShiftedExponential(1.0, x),
            "uniform": lambda x: Uniform(1.0, 1.0 + x),
            "pareto": lambda x: Pareto(1.0, x),
        }
        if part.strip() == "none" and "+" not in text:
            return found
        if word == "one" and not isinstance(found, OneStraggler):
            found = OneStraggler(found, _number(argument, text, "stragglers", LAWS))
        elif word in makes and i == 0:
            found = makes[word](_number(argument, text, "stragglers", LAWS))
        else:
            raise ValueError(f"stragglers must be of {', '.join(LAWS)}, got {text!r}")
    return found


def law_text(of: Law) -> str:
    """How ``law`` would be written. ValueError for a law that ``law`` can't read."""
    match of:
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
            return f"one:{x!r}" if base == Constant(1.0) else f"{law_text(base)}+one:{x!r}"
    raise ValueError(f"law must be one that a job file can hold ({', '.join(LAWS)}), got {of!r}")


def _number(argument: str, text: str, name: str, known: dict[str, str]) -> float:
    try:
        return float(argument)
    except ValueError:
        raise ValueError(f"{name} must be of {', '.join(known)}, got {text!r}") from None
