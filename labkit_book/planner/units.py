"""Quantities as people write them: "25Gbit/s", "20us", "25.6M", "80GB". In a rate b is a bit and B a byte."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*"
_POWERS = {"": 0, "k": 3, "M": 6, "G": 9, "B": 9, "T": 12, "m": -3, "u": -6, "µ": -6}
#: unit -> what a right text looks like, and after its number one of the letters above and the unit, b for bits.
_READ = {
    "": ("a number such as 25.6M, 7B or 25600000", "([kMGBT]?)()"),
    "B": ("bytes such as 80GB", "([kMGT]?)(B)"),
    "s": ("a time such as 20us, 3ms or 0.5s", "([muµ]?)(s)"),
    "B/s": ("a rate such as 25Gbit/s or 3.125GB/s", "([kMGT]?)(B/s|bit/s|bps)"),
}
_WRITTEN = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"))


def read(text: str, unit: str = "") -> float:
    """``text``, a number of that unit ("", "B", "s" or "B/s"), in SI units, an int if it is whole. ValueError for others.

    >>> read("20 us", "s"), read("25Gbit/s", "B/s"), read("25.6M")
    (2e-05, 3125000000, 25600000)
    """
    right, letters = _READ[unit]
    found = re.fullmatch(_NUMBER + letters, text.strip())
    if not found:
        raise ValueError(f"must be {right}, got {text!r}")
    # exact until the end, so that 20us is 2e-05 and not 1.9999999999999998e-05
    exact = Fraction(found[1]) * Fraction(10) ** _POWERS[found[2]] / (8 if found[3].startswith("b") else 1)
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
