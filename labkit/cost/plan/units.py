"""What people write, read into SI units: "25 Gbit/s", "20us", "25.6M", "2.5/h", "fp16"; each wrong one gets a sentence.

In a rate b is a bit and B a byte, as everywhere; prefixes of rates and counts are decimal (k, M, G, T; Ki, Mi, Gi binary),
and since nothing here comes in milli-bits or milli-parameters, small letters are read as the large ones there.
"""

from __future__ import annotations

import math
import re

_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf|infinity)"
#: How many of each make a second: 20 / 1e6 is 2e-05, where 20 * 1e-6 is not.
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "μs": 1e6, "ns": 1e9, "min": 1 / 60, "h": 1 / 3600}
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30}
_COUNT = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
#: Bytes of an element, by what people call it.
PRECISIONS = {
    "fp64": 8, "float64": 8, "fp32": 4, "float32": 4, "tf32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2,
    "fp8": 1, "int8": 1,
}  # fmt: skip


def seconds(text: str, name: str = "time", plain: str = "s") -> float:
    """Seconds of "20us", "3 ms", "0.5 s"; a bare number is in ``plain`` units."""
    value, unit = _parts(text, name, "a time such as 20us, 3ms or 0.5s")
    if (unit or plain) not in _PER_SECOND:
        raise ValueError(
            f"{name} must be a time in {', '.join(_PER_SECOND)}, such as 20us or 3ms, got {text!r}"
        )
    return _finite(value / _PER_SECOND[unit or plain], text, name)


def rate(text: str, name: str = "network") -> float:
    """Bytes per second of "25Gbit/s", "25Gbps", "25 Gb/s" (bits), "3.1GB/s", "3GiB/s" (bytes); bare: bytes per second."""
    right = "a rate such as 25Gbit/s or 3.125GB/s"
    value, unit = _parts(text, name, right)
    if not unit:
        return _finite(value, text, name)
    found = re.fullmatch(r"(ki|mi|gi|[kmgtKMGT]?i?)(bit|bits|Bytes|bytes|byte|b|B)(/s|ps|/sec)?", unit)
    if not found or found[1].lower() not in _PREFIX:
        raise ValueError(f"{name} must be {right}, got {text!r}")
    if not found[3]:
        raise ValueError(f"{name} must be {right}: per second, /s, is missing, got {text!r}")
    bits = found[2].startswith("bit") or found[2] == "b"
    return _finite(value * _PREFIX[found[1].lower()] / (8 if bits else 1), text, name)


def in_bits(text: str) -> bool:
    """Whether a rate is written in bits."""
    unit = _parts(text, "network", "a rate")[1]
    return "bit" in unit.lower() or bool(re.search(r"b(/s|ps)", unit))


def count(text: str, name: str = "parameters") -> int:
    """A whole number of "25.6M", "7B", "340k", "1_000", "25600000"."""
    right = "a whole number such as 25.6M, 7B or 25600000"
    value, unit = _parts(text.replace("_", ""), name, right)
    if unit.lower() not in _COUNT:
        raise ValueError(f"{name} must be {right}, got {text!r}")
    whole = _finite(value * _COUNT[unit.lower()], text, name)
    if not math.isclose(whole, round(whole), rel_tol=1e-12):
        hint = f": is {text.strip()}M meant?" if not unit else ""
        raise ValueError(f"{name} must be {right}, got {text!r}{hint}")
    return round(whole)


def price(text: str, name: str = "price") -> float:
    """Money per hour of "2.5/h", "2.5", "$2.5/h", "0.0007/s", "60/day"."""
    found = re.fullmatch(rf"[$€£]?\s*{_NUMBER}\s*[$€£]?\s*(/\s*(h|hr|hour|s|d|day))?", text.strip())
    if not found:
        raise ValueError(f"{name} must be money for one worker and hour such as 2.5/h, got {text!r}")
    per = {"h": 1.0, "s": 3600.0, "d": 1 / 24}[(found[3] or "h")[0]]
    return _finite(float(found[1]) * per, text, name)


def precision(text: str, name: str = "precision") -> int:
    """Bytes of an element: "fp32", "bf16", ..., or the number of bytes."""
    known = PRECISIONS.get(text.strip().lower())
    if known is not None:
        return known
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError(f"{name} must be one of {', '.join(PRECISIONS)} or a number of bytes, got {text!r}")
    return int(text)


def numbers_of_workers(text: str, name: str = "K") -> list[int]:
    """ "8", "1,2,4", "1-64" (the powers of two from 1 to 64, and both ends)."""
    found: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not ends or int(ends[1]) < 1 or (ends[2] and int(ends[2]) < int(ends[1])):
            raise ValueError(f"{name} must be numbers of workers such as 8, 1,2,4 or 1-64, got {text!r}")
        low, high = int(ends[1]), int(ends[2] or ends[1])
        found |= {low, high} | {2**i for i in range(high.bit_length()) if low <= 2**i <= high}
    return sorted(found)


def _parts(text: str, name: str, right: str) -> tuple[float, str]:
    found = re.fullmatch(rf"{_NUMBER}\s*([A-Za-zµμ/]*)", text.strip(), flags=re.IGNORECASE)
    if not found:
        raise ValueError(f"{name} must be {right}, got {text!r}")
    return float(found[1]), found[2]


def _finite(value: float, text: str, name: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {text!r}")
    return value
