"""What lab 10.7 needs to race compressors: SGD that sends less than a gradient, and DGC.

Symbols: K workers, d elements of ``itemsize`` bytes, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer
from labkit.comm import Comm
from labkit.compress import Crossing, Exchanged, OverComm, Rngs, Scheme, TopK, Wire, rngs
from labkit.compress.scheme import Array
from labkit.learn.problems import Problem
from labkit.learn.sgd import QUIETLY, Diverged, descend, start


class Trained(NamedTuple):
    """What a worker brings home.

    iterates: (T + 1, d), beginning with w0. encode_s, decode_s: (T,), real seconds of coding per step, in every world.
    wire_s: (T,), seconds of communication per step on the world's clock.
    """

    iterates: Array
    encode_s: Array
    wire_s: Array
    decode_s: Array


def compressed_sgd(
    comm: Comm, problem: Problem, w0: ArrayLike, eta: float, shards: Sequence[Sequence[Array]], how: Scheme, seed: int = 0
) -> Trained:  # fmt: skip
    """Synchronous SGD with compressed gradients, as one worker sees it.

    ``shards[t][k]`` are worker k's examples of step t, at least one. how: a scheme; a compressor is one that remembers
    nothing. seed: of all random choices, the same on every rank. Raises Diverged when w or a gradient stops being finite.
    """
    wire, draws, w = OverComm(comm), rngs(seed, comm.rank), start(problem, w0)
    memory = how.start(len(w), w.dtype, draws)
    iterates, spent = [w], []
    for t in comm.steps(len(shards)):
        mine, everyone = shards[t][comm.rank], sum(map(len, shards[t]))
        with QUIETLY():
            # weighted so that the plain mean over the workers is the gradient of all examples
            share = len(mine) * (comm.K / everyone)
            g = (comm.compute(partial(problem.grad, w, mine)) * share).astype(w.dtype, copy=False)
            if not np.isfinite(g).all():  # the gradient overflows before w does
                raise Diverged(t, eta)
            wire.start()
            out, memory = how.mean(wire, g, memory, draws)
            spent.append(wire.stop())
        w = descend(w, eta, out.mean, t)
        iterates.append(w)
    return Trained(np.array(iterates), *np.array(spent).T)


class _Gathered(NamedTuple):
    """A worker's memory: velocity u (d,), accumulated v (d,), and the number of steps taken."""

    u: Array
    v: Array
    t: int


@dataclass(frozen=True)
class DGC(Scheme):
    """Deep Gradient Compression: top-k with momentum inside (Lin et al. 2018, section 3).

    Momentum added after a sparse exchange would not be the momentum of what has waited. So every worker applies it to its
    own gradient, and lets the velocity gather until it is large enough to be sent; where it was sent, both are cleared:

        u <- m u + g;   v <- v + u;   send the k largest of v, where also v <- 0 and u <- 0.

    k: coordinates a step, a whole number, or a share as a float. momentum: m, from 0 to below 1. warmup: steps for each
    factor of 4 on the way from a quarter of the coordinates down to k; 0: none.
    """

    k: float
    momentum: float = 0.9
    warmup: int = 0

    def __post_init__(self) -> None:
        TopK(self.k)
        integer("warmup", self.warmup)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be from 0 to below 1, got {self.momentum!r}")

    def start(self, d: int, dtype: Any, rngs: Rngs) -> _Gathered:
        return _Gathered(np.zeros(d, dtype=dtype), np.zeros(d, dtype=dtype), 0)

    def mean(self, wire: Wire, g: Array, memory: _Gathered, rngs: Rngs) -> tuple[Exchanged, _Gathered]:
        u = (self.momentum * memory.u + g).astype(g.dtype, copy=False)
        v = memory.v + u
        out, _ = TopK(self.at(memory.t, len(g))).mean(wire, v, None, rngs)
        sent = out.mine != 0
        u[sent] = v[sent] = 0
        return out, _Gathered(u, v, memory.t + 1)

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [TopK(self.at(t, d)).crossing(d, itemsize)]

    def at(self, t: int, d: int) -> int:
        """How many of d coordinates are sent at step t."""
        quarters = 1 + min(t // self.warmup, 500) if self.warmup else 500
        return max(TopK(self.k).kept(d), min(d, math.ceil(d * 0.25**quarters)))
