"""What a compressed step costs, in closed form, and on which links it pays.

A step's exchange takes encode + wire + decode seconds. Each collective on the wire has a number of rounds and a number of
bytes through the busiest port (a ring all-reduce of n bytes: 2 (K - 1) and 2 (K - 1) n / K; a ring all-gather of n bytes
from each: K - 1 and (K - 1) n), so its price is a line in 1 / beta, and two lines cross once: at the break-even bandwidth.

Symbols: K workers, d elements of ``itemsize`` bytes, alpha and beta of the link, coding_s seconds to encode and decode.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from labkit.compress.base import Compressor
from labkit.compress.identity import Identity
from labkit.compress.scheme import Scheme, as_scheme
from labkit.cost.closed_forms import ring_time
from labkit.cost.link import Link
from labkit.cost.parts import all_gather_time


class Pays(NamedTuple):
    """The bandwidths, in bytes per second, on which compression is faster: above ``low`` and below ``high``."""

    low: float
    high: float

    def at(self, beta: float) -> bool:
        """Whether it is faster on a link of this bandwidth."""
        return self.low < beta < self.high


NEVER, ALWAYS = Pays(0.0, 0.0), Pays(0.0, math.inf)


def wire_time(how: Scheme | Compressor, K: int, d: int, itemsize: int, link: Link, t: int = 0) -> float:
    """Seconds on the wire of step t; exact where K divides what is summed, as ``ring_time`` is.

    >>> from labkit.cost import Link
    >>> link = Link(0.0, 1e6)
    >>> [round(wire_time(how, 4, 1000, 4, link), 6) for how in (Identity(), TopK(0.01))]
    [0.006, 0.00018]
    """
    total = 0.0
    for summed, n, size in as_scheme(how).crossings(d, itemsize, t):
        total += ring_time(K, n * size, link) if summed else all_gather_time(K, K * n * size, link)
    return total


def exchange_time(
    how: Scheme | Compressor, K: int, d: int, itemsize: int, link: Link, coding_s: float = 0.0, t: int = 0
) -> float:
    """Seconds of encode + wire + decode. coding_s: finite, >= 0, the first and the last of them."""
    return _coding(coding_s) + wire_time(how, K, d, itemsize, link, t)


def pays(
    how: Scheme | Compressor, K: int, d: int, itemsize: int, alpha: float, coding_s: float = 0.0, t: int = 0
) -> Pays:
    """On which bandwidths the exchange is faster than a plain ring all-reduce of the whole vector.

    The saving is ``saved_rounds alpha - coding_s + saved_bytes / beta`` seconds, so the break-even bandwidth is
    ``saved_bytes / (coding_s - saved_rounds alpha)``: below it compression pays, if it saves bytes at all.
    """
    fixed, per_byte = _line(Identity(), K, d, itemsize, alpha, 0.0, t)
    its_fixed, its_per_byte = _line(how, K, d, itemsize, alpha, _coding(coding_s), t)
    saved_s, saved_bytes = fixed - its_fixed, per_byte - its_per_byte
    if saved_bytes > 0:
        return ALWAYS if saved_s >= 0 else Pays(0.0, saved_bytes / -saved_s)
    if saved_s <= 0:
        return NEVER
    return Pays(-saved_bytes / saved_s, math.inf)


def _line(
    how: Scheme | Compressor, K: int, d: int, itemsize: int, alpha: float, coding_s: float, t: int
) -> tuple[float, float]:
    """(seconds whatever the bandwidth, bytes through the busiest port)."""
    fixed = exchange_time(how, K, d, itemsize, Link(alpha, math.inf), coding_s, t)
    return fixed, wire_time(how, K, d, itemsize, Link(0.0, 1.0), t)


def _coding(coding_s: float) -> float:
    if not (math.isfinite(coding_s) and coding_s >= 0):
        raise ValueError(f"coding_s must be a finite number of seconds >= 0, got {coding_s!r}")
    return float(coding_s)
