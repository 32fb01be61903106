"""What people write, read into SI units: "25 Gbit/s", "20us", "25.6M", "2.5/h", "fp16"; each wrong one gets a sentence.

In a rate b is a bit and B a byte, as everywhere; prefixes of rates and counts are decimal (k, M, G, T; Ki, Mi, Gi binary),
and since nothing here comes in milli-bits or milli-parameters, small letters are read as the large ones there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*([^\d\s].*)?")


@dataclass(frozen=True)
class _Unit:
    """How a quantity is written: a number and some letters.

    right: what a good one looks like. factors: letters -> how many SI units they are; "" for a bare number.
    whole: whether only whole numbers will do. ignored: characters that may stand anywhere.
    """

    right: str
    factors: Mapping[str, int | Fraction]
    whole: bool = False
    ignored: str = ""

    def read(self, text: str, name: str) -> float:
        """The quantity in SI units, an int if it is ``whole``. ValueError, about ``name``, for anything else.

        >>> from labkit_book.planner.units import COUNT, RATE, SECONDS
        >>> SECONDS.read("20 us", "latency"), RATE.read("25Gbit/s", "network"), COUNT.read("25.6M", "parameters")
        (2e-05, 3125000000.0, 25600000)
        """
        number, unit = self.split(text)
        if unit not in self.factors:
            hint = ": per second, /s, is missing" if f"{unit}/s" in self.factors else ""
            raise ValueError(f"{name} must be {self.right}{hint}, got {text!r}")
        # of what is written, exactly, so that 20us is 2e-05 and not 1.9999999999999998e-05
        exact = Fraction(number) * self.factors[unit]
        if not self.whole:
            return float(exact)
        if exact.denominator != 1:
            hint = f": is {text.strip()}M meant?" if not unit else ""
            raise ValueError(f"{name} must be {self.right}, got {text!r}{hint}")
        return int(exact)

    def split(self, text: str) -> tuple[str, str]:
        """The number and the letters of ``text``, both as text; letters that are no unit where there is no number."""
        for each in self.ignored:
            text = text.replace(each, "")
        found = _NUMBER.fullmatch(text.strip())
        return (found[1], (found[2] or "").replace(" ", "")) if found else ("", "no number")


def precision(text: str, name: str = "precision") -> int:
    """Bytes of an element: "fp32", "bf16", ..., or the number of bytes."""
    known = _PRECISIONS.get(text.strip().lower())
    if known is not None:
        return known
    if not text.strip().isdecimal():
        raise ValueError(f"{name} must be one of {', '.join(_PRECISIONS)} or a number of bytes, got {text!r}")
    return int(text)


def workers(text: str, name: str = "K") -> list[int]:
    """Numbers of workers: "8", "1,2,4", "1-64" (the powers of two from 1 to 64, and both ends)."""
    found: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not ends or int(ends[1]) < 1 or (ends[2] and int(ends[2]) < int(ends[1])):
            raise ValueError(f"{name} must be numbers of workers such as 8, 1,2,4 or 1-64, got {text!r}")
        low, high = int(ends[1]), int(ends[2] or ends[1])
        found |= {low, high} | {2**i for i in range(high.bit_length()) if low <= 2**i <= high}
    return sorted(found)


def steps(text: str, name: str = "measured") -> list[tuple[int, float]]:
    """Measured steps, (workers, seconds): "K=16:220ms", or several with commas.

    >>> steps("K=16:220ms,K=64:0.25s")
    [(16, 0.22), (64, 0.25)]
    """
    found = [re.fullmatch(r"\s*(?:K\s*=)?\s*(\d+)\s*:(.+)", part) for part in text.split(",")]
    if not all(found):
        raise ValueError(f"{name} must be workers and the time of a step, such as K=16:220ms, got {text!r}")
    return [(int(each[1]), SECONDS.read(each[2], f"the time in {name}")) for each in found if each]


@contextmanager
def naming(right: str, file: str) -> Iterator[None]:
    """What can't be opened in there is a ValueError. right: which argument must name what."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{right}, got {file!r}: {error.strerror}") from None


def written(value: float, unit: str, gap: str = "") -> str:
    """A value in SI units as the command line takes it, to four digits and without an exponent: 628MB/s, 20us, 25.6M.
    gap: before the letters, where people read; then three digits do.

    unit: "bytes/s", "bytes", "s", "parameters"; another has no letters.
    """
    if not math.isfinite(value):
        return "unlimited"
    scales = _SCALES.get(unit, ((1.0, ""),))
    scale, letters = next((each for each in scales if float(f"{value:.4g}") >= each[0]), scales[-1])
    x = value / scale
    said = f"{x:.0f}" if abs(x) >= 1000 else f"{Decimal(f'{x:.3g}' if gap else f'{x:.4g}'):f}"
    return f"{said}{gap}{letters}"


_Factors = dict[str, int | Fraction]
_LETTERS = [(letter, i) for i, pair in enumerate(("kK", "mM", "gG", "tT"), 1) for letter in pair]
_DECIMAL: _Factors = {"": 1, **{letter: 1000**i for letter, i in _LETTERS}}
_BINARY: _Factors = {f"{letter}i": 1024**i for letter, i in _LETTERS}
_BIT, _DAY, _MICRO = Fraction(1, 8), Fraction(1, 24), Fraction(1, 10**6)
_BYTES: _Factors = {"b": _BIT, "bit": _BIT, "bits": _BIT, "B": 1, "byte": 1, "bytes": 1, "Bytes": 1}
_MICROS = dict.fromkeys(("us", "µs", "μs"), _MICRO)
_TIMES: _Factors = {"s": 1, "ms": 1000 * _MICRO, **_MICROS, "ns": _MICRO / 1000}
_RATES: _Factors = {
    f"{prefix}{size}{per}": factor * nbytes
    for prefix, factor in (_DECIMAL | _BINARY).items()
    for size, nbytes in _BYTES.items()
    for per in ("/s", "ps", "/sec")
}
_PER_HOUR: _Factors = {"": 1, "/h": 1, "/hr": 1, "/hour": 1, "/s": 3600, "/d": _DAY, "/day": _DAY}
_PRECISIONS = {
    "fp64": 8, "float64": 8, "fp32": 4, "float32": 4, "tf32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2,
    "fp8": 1, "int8": 1,
}  # fmt: skip

#: Letters of values that are written.
_BYTES_SAID = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SCALES = {
    "bytes": _BYTES_SAID,
    "bytes/s": tuple((scale, f"{letters}/s") for scale, letters in _BYTES_SAID),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "parameters": ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")),
}

SECONDS = _Unit("a time such as 20us, 3ms or 0.5s", {**_TIMES, "min": 60, "h": 3600, "d": 86400, "": 1})
MILLISECONDS = _Unit(SECONDS.right, {**SECONDS.factors, "": 1000 * _MICRO})
RATE = _Unit("a rate such as 25Gbit/s or 3.125GB/s", {**_RATES, "": 1})
_COUNTS: _Factors = {**_DECIMAL, "b": 10**9, "B": 10**9}
_SIZES: _Factors = {f"{prefix}B": each for prefix, each in (_DECIMAL | _BINARY).items()}
SIZE = _Unit("bytes such as 80GB or 80GiB", {**_SIZES, "": 1})
COUNT = _Unit("a whole number such as 25.6M, 7B or 25600000", _COUNTS, whole=True, ignored="_")
SHARE = _Unit("a share such as 0.67 or 67%", {"": 1, "%": Fraction(1, 100)})
PRICE = _Unit("money for one worker and hour such as 2.5/h", _PER_HOUR, ignored="$€£")
