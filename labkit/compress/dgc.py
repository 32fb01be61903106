"""Deep Gradient Compression: top-k with momentum inside, for sparsities of 99.9 % (Lin et al. 2018, section 3).

Momentum added after a sparse exchange would not be the momentum of what has waited. So every worker applies it to its own
gradient first and lets the *velocity* gather until it is large enough to be sent ("momentum correction"):

    u <- m u + g;   v <- v + u;   send the k largest of v, where also v <- 0 and u <- 0.

Clearing u too keeps stale momentum from pushing on where it was just sent ("momentum factor masking"). In the first steps
k comes down from a quarter of the coordinates to its final value, by a factor of 4 at a time ("warm-up"). The learner
takes a plain step ``w <- w - eta * mean``: the momentum is already inside.

Symbols: u (d,) velocity, v (d,) what has gathered, m ``momentum``, t the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import integer, number
from labkit.compress.scheme import Crossing, Exchanged, Rngs, Scheme, vector
from labkit.compress.sparse import TopK
from labkit.compress.wire import Array, Wire


class _Gathered(NamedTuple):
    """A worker's memory: velocity u (d,), accumulated v (d,), and the number of steps taken."""

    u: Array
    v: Array
    t: int


@dataclass(frozen=True)
class DGC(Scheme):
    """``k`` coordinates a step: a whole number, or a share as a float.

    momentum: m, from 0 to below 1. masking: whether u is cleared where v is sent. warmup: steps for each factor of 4
    on the way from a quarter of the coordinates down to k; 0: none. clip: longest gradient before anything else, divided
    by sqrt(K) as every worker clips by itself (section 3.2); None: any length.
    """

    k: float
    momentum: float = 0.9
    masking: bool = True
    warmup: int = 0
    clip: float | None = None

    def __post_init__(self) -> None:
        TopK(self.k)
        integer("warmup", self.warmup, 0)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {self.momentum!r}")
        if self.clip is not None:
            number("clip", self.clip, above=0)

    def start(self, d: int, dtype: Any, rngs: Rngs) -> _Gathered:
        return _Gathered(np.zeros(d, dtype=dtype), np.zeros(d, dtype=dtype), 0)

    def mean(self, wire: Wire, g: Array, memory: _Gathered, rngs: Rngs) -> tuple[Exchanged, _Gathered]:
        g = self._clipped(vector(g), wire.K)
        u = (self.momentum * memory.u + g).astype(g.dtype, copy=False)
        v = memory.v + u
        out, _ = TopK(self.at(memory.t, len(g))).mean(wire, v, None, rngs)
        sent = out.mine != 0
        v[sent] = 0  # a coordinate is sent whole, so this is v - mine, exactly
        if self.masking:
            u[sent] = 0
        return out, _Gathered(u, v, memory.t + 1)

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [TopK(self.at(t, d)).crossing(d, itemsize)]

    def at(self, t: int, d: int) -> int:
        """How many of d coordinates are sent at step t."""
        final = TopK(self.k).kept(d)
        if self.warmup == 0:
            return final
        return max(final, min(d, math.ceil(d * 0.25 ** (1 + min(t // self.warmup, 500)))))

    def _clipped(self, g: Array, K: int) -> Array:
        if self.clip is None:
            return g
        most, length = self.clip / math.sqrt(K), float(np.linalg.norm(g))
        return g if length <= most else (g * (most / length)).astype(g.dtype)
