"""A network link as two numbers: the alpha-beta model (Hockney 1994).

A message of ``nbytes`` takes ``alpha + nbytes / beta`` seconds: ``alpha`` seconds whatever its length,
then ``beta`` bytes every second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A link between two workers.

    alpha: seconds per message, finite and >= 0.
    beta: bytes per second, > 0; ``math.inf`` is a link that costs latency only.
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
