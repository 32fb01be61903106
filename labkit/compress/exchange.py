"""One compressed exchange over ``Comm``; what it sends and costs, in closed form; and on which links it pays.

A step's exchange takes encode + wire + decode seconds. Each collective on the wire has a number of rounds and a number of
bytes through the busiest port (a ring all-reduce of n bytes: 2 (K - 1) and 2 (K - 1) n / K; a ring all-gather of n bytes
from each: K - 1 and (K - 1) n), so its price is a line in 1 / beta, and two lines cross once: at the break-even bandwidth.

Symbols: K workers, d elements of ``itemsize`` bytes, alpha and beta of the link, coding_s seconds to encode and decode.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from labkit.checks import number
from labkit.collectives import all_gather, ring
from labkit.collectives.base import Counts
from labkit.comm.base import Comm
from labkit.compress.scheme import Compressor, Exchanged, Identity, Scheme, rngs
from labkit.compress.wire import Array, OverComm
from labkit.network.link import Link


def compressed_mean(comm: Comm, g: Array, compressor: Compressor, seed: int = 0) -> Exchanged:
    """The mean over the workers of what their messages say, and what this worker's own says; nothing is remembered.

    g: (d,), this worker's; d and the dtype must be the same on every rank. seed: the same on every rank; each draws from
    it in its own way, or all alike where the compressor needs that. Every rank gets the same bits. Raises ValueError for a
    gradient that can't be compressed.
    """
    if not isinstance(compressor, Compressor):
        raise TypeError(f"compressor must be a compressor, as in QSGD(s=15), got {compressor!r}")
    return compressor.mean(OverComm(comm), g, None, rngs(seed, comm.rank))[0]


def sent_bytes(how: Scheme, K: int, d: int, itemsize: int, t: int = 0) -> Counts:
    """Bytes each rank sends at step t, (K,), for d elements of ``itemsize`` bytes; exact for every K and d.

    A sum of n numbers costs ``ring.bytes``, a message of n bytes that is gathered (K - 1) n.

    >>> sent_bytes(TopK(0.01), K=4, d=1000, itemsize=4)
    array([180, 180, 180, 180])
    """
    total = np.zeros(K, dtype=np.int64)
    for summed, n, size in Scheme.of(how).crossings(d, itemsize, t):
        total += ring.bytes(K, n, size) if summed else all_gather.bytes(K, K * n, size)
    return total


class Pays(NamedTuple):
    """The bandwidths, in bytes per second, on which compression is faster: above ``low`` and below ``high``."""

    low: float
    high: float

    def at(self, beta: float) -> bool:
        """Whether it is faster on a link of this bandwidth."""
        return self.low < beta < self.high


NEVER, ALWAYS = Pays(0.0, 0.0), Pays(0.0, math.inf)


def wire_time(how: Scheme, K: int, d: int, itemsize: int, link: Link, t: int = 0) -> float:
    """Seconds on the wire of step t; exact where K divides what is summed, as ``ring.time`` is.

    >>> from labkit.network import Link
    >>> link = Link(0.0, 1e6)
    >>> [round(wire_time(how, 4, 1000, 4, link), 6) for how in (Identity(), TopK(0.01))]
    [0.006, 0.00018]
    """
    total = 0.0
    for summed, n, size in Scheme.of(how).crossings(d, itemsize, t):
        total += ring.time(K, n * size, link) if summed else all_gather.time(K, K * n * size, link)
    return total


def pays(how: Scheme, K: int, d: int, itemsize: int, alpha: float, coding_s: float = 0.0, t: int = 0) -> Pays:
    """On which bandwidths the exchange is faster than a plain ring all-reduce of the whole vector.

    The saving is ``saved_rounds alpha - coding_s + saved_bytes / beta`` seconds, so the break-even bandwidth is
    ``saved_bytes / (coding_s - saved_rounds alpha)``: below it compression pays, if it saves bytes at all.
    """
    coding_s = number("coding_s", coding_s, least=0)
    fixed, per_byte = _line(Identity(), K, d, itemsize, alpha, t)
    its_fixed, its_per_byte = _line(how, K, d, itemsize, alpha, t)
    saved_s, saved_bytes = fixed - (coding_s + its_fixed), per_byte - its_per_byte
    if saved_bytes > 0:
        return ALWAYS if saved_s >= 0 else Pays(0.0, saved_bytes / -saved_s)
    if saved_s <= 0:
        return NEVER
    return Pays(-saved_bytes / saved_s, math.inf)


def _line(how: Scheme, K: int, d: int, itemsize: int, alpha: float, t: int) -> tuple[float, float]:
    """(seconds on the wire whatever the bandwidth, bytes through the busiest port)."""
    on = (Link(alpha, math.inf), Link(0.0, 1.0))
    fixed, per_byte = (wire_time(how, K, d, itemsize, link, t) for link in on)
    return fixed, per_byte
