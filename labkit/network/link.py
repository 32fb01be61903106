"""A network link as two numbers: the alpha-beta model (Hockney 1994).

A message of ``nbytes`` takes ``alpha + nbytes / beta`` seconds: ``alpha`` seconds whatever its length,
then ``beta`` bytes every second.

``beta`` is goodput: bytes of the vector that arrive in a second. What a port is sold as is its rate on the wire, headers and
gaps between frames included: ``goodput`` turns the one into the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.checks import integer, number


@dataclass(frozen=True)
class Link:
    """A link between two workers.

    alpha: seconds per message, finite and >= 0.
    beta: bytes of payload per second, > 0, not the rate on the wire (``goodput``); ``math.inf``: it costs latency only.
    Raises ValueError for anything else.

    >>> Link(alpha=0.001, beta=1e6).seconds(4000)
    0.005
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha must be a finite number of seconds >= 0, got {self.alpha!r}")
        if math.isnan(self.beta) or self.beta <= 0:
            raise ValueError(f"beta must be a number of bytes per second > 0, got {self.beta!r}")

    def seconds(self, nbytes: float) -> float:
        """Seconds one message of ``nbytes`` bytes takes."""
        if nbytes < 0:
            raise ValueError(f"nbytes must be >= 0, got {nbytes!r}")
        return self.alpha + nbytes / self.beta

    def __str__(self) -> str:
        return f"alpha = {self.alpha * 1e6:g} µs, beta = {self.beta / 1e9:g} GB/s"


def goodput(rate: float, mtu: int = 1500) -> float:
    """Bytes of payload per second of a TCP connection over Ethernet, of a port that sends ``rate`` bytes a second.

    Of each packet of ``mtu`` bytes 52 are headers (IPv4 20, TCP 20 and its time stamps 12), and around it 38 more pass the
    wire: preamble 8, Ethernet's header 14 and checksum 4, a gap of 12 (IEEE 802.3; RFC 791, 9293, 7323). 1448 of 1538
    bytes for an MTU of 1500, so 5.9 % less; 0.99 of the rate for 9000. A shaped link that counts bytes where the kernel
    hands over packets (``Emulated``) knows of 1448 of 1514. The least that is lost: acknowledgements and pauses come on top.
    ValueError for a rate that is not above 0 or an MTU that leaves no payload.

    >>> round(goodput(1.25e9) / 1.25e9, 4), round(goodput(1.25e9, mtu=9000) / 1.25e9, 4)
    (0.9415, 0.99)
    """
    rate, mtu = number("rate", rate, above=0), integer("mtu", mtu, least=53)
    return rate * (mtu - 52) / (mtu + 38)
