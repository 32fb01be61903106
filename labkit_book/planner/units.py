"""Quantities as people write them: "25Gbit/s", "20us", "25.6M", "80GB". In a rate b is a bit and B a byte."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*(\D*)")
_LARGE = {letter: Fraction(1000**i) for i, letter in enumerate(("", "k", "M", "G", "T"))}
_MICRO = Fraction(1, 10**6)
_PER_S = {"bit/s": Fraction(1, 8), "bps": Fraction(1, 8), "B/s": Fraction(1)}
#: unit -> what a right text looks like, and what each of its letters stands for.
_READ: dict[str, tuple[str, dict[str, Fraction]]] = {
    "": ("a number such as 25.6M, 7B or 25600000", _LARGE | {"B": Fraction(10**9)}),
    "B": ("bytes such as 80GB", {f"{letter}B": size for letter, size in _LARGE.items()}),
    "s": ("a time such as 20us, 3ms or 0.5s", {"s": 10**6 * _MICRO, "ms": 1000 * _MICRO, "us": _MICRO, "µs": _MICRO}),
    "B/s": (
        "a rate such as 25Gbit/s or 3.125GB/s",
        {f"{letter}{unit}": size * part for letter, size in _LARGE.items() for unit, part in _PER_S.items()},
    ),
}  # fmt: skip
_WRITTEN = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"))


def read(text: str, unit: str = "") -> float:
    """``text``, a number of that unit ("", "B", "s" or "B/s"), in SI units, an int if it is whole. ValueError for others.

    >>> read("20 us", "s"), read("25Gbit/s", "B/s"), read("25.6M")
    (2e-05, 3125000000, 25600000)
    """
    right, letters = _READ[unit]
    found = _NUMBER.fullmatch(text.strip())
    if not found or found[2] not in letters:
        raise ValueError(f"must be {right}, got {text!r}")
    # exact until the end, so that 20us is 2e-05 and not 1.9999999999999998e-05
    exact = Fraction(found[1]) * letters[found[2]]
    return int(exact) if exact.denominator == 1 else float(exact)


def workers(text: str) -> list[int]:
    """Numbers of workers: "8", "1,2,4", or "1-64", the powers of two from 1 to 64 and both ends. ValueError for others."""
    found: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        low, high = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= low <= high:
            raise ValueError(f"must be numbers of workers such as 8, 1,2,4 or 1-64, got {text!r}")
        powers = (2**i for i in range(high.bit_length()))
        found |= {low, high, *(power for power in powers if power >= low)}
    return sorted(found)


def written(value: float, unit: str) -> str:
    """To three digits, with a letter that suits its size: 628 MB/s, 20 us, 25.6 M."""
    scale, letter = next((each for each in _WRITTEN if float(f"{value:.3g}") >= each[0]), _WRITTEN[-1])
    return f"{value / scale:.3g} {letter}{unit}".rstrip()
