"""What a step's messages cost: prices that were clocked, held against what the step was seen to wait for its sums.

Message l of n_l bytes may leave r_l seconds before the backward pass ends, messages leave one after the other, and one of
n bytes takes a(n) (Li et al. 2020, *PyTorch Distributed*, section 3.2.3). Behind the backward pass then stand out

    max over l of  a(n_l) + a(n_l+1) + ... + a(n_L) - r_l,   and at least 0.

What was seen to stand out is the step's own measurement of the same: within a step, where the same cores have other things
to do, a message takes longer than when nothing else is asked for. So all prices are taken times one factor, with which they
promise what was seen: ``min over l of (seen + r_l) / (a(n_l) + ... + a(n_L))``. The shares of latency and bytes stay.

Symbols: K ranks, L messages of n_l bytes. Times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit.collectives import ALLREDUCES, ring
from labkit.network import Link
from labkit.train.steps import Phase, Steps


@dataclass(frozen=True)
class Prices:
    """Of this step's messages: ``shortest`` seconds for next to nothing, and a measured curve beyond.

    before_s: (L,) seconds before the end of the backward pass. pipelined_s: latency of one of many that are sent at once.
    sending_s: of one, in the backward pass; 0 where they are sent behind it. parts: the best number of messages.
    """

    K: int
    n: FloatArray
    before_s: FloatArray
    sizes: FloatArray
    prices: FloatArray
    pipelined_s: float = 0.0
    sending_s: float = 0.0

    @classmethod
    def of(cls, steps: Steps, rounds: Any = None) -> Prices:
        """Means over the rounds of measuring, or over some of them."""
        if not steps.sizes.size or steps.K == 1:
            return cls(steps.K, np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        some = slice(None) if rounds is None else rounds
        curve = np.maximum.accumulate(steps.prices[some].mean(axis=0))
        backward = float(steps.seconds[..., Phase.BACKWARD].mean())
        self = cls(steps.K, steps.messages, (1 - steps.ready) * backward, steps.sizes, curve)
        if not len(self.n):
            return self
        # messages sent at once share their latencies: what they took beyond their bytes, at most one's each
        spare = (steps.burst_s[some].mean() - self._volume_s(self.n).sum()) / len(self.n)
        self = replace(self, pipelined_s=float(np.clip(spare, 0.0, self.shortest)))
        if not steps.calls[..., Phase.BACKWARD].any():
            return self
        one = float(steps.sending_s[some].mean()) / len(self.n)
        return replace(self, sending_s=one, before_s=self.before_s + one * np.arange(len(self.n) - 1, -1, -1))

    def fitted(self, seen_s: float) -> Prices:
        """Times the factor with which they promise that so many seconds stand out."""
        if not len(self.n):
            return self
        behind = self._message_s(self.n)[::-1].cumsum()[::-1]
        least = (max(seen_s, 0.0) + self.before_s) / np.maximum(behind, 1e-12)
        return replace(
            self, prices=self.prices * least.min(), pipelined_s=self.pipelined_s * float(least.min())
        )

    @property
    def shortest(self) -> float:
        """Seconds of an all-reduce of next to nothing."""
        return float(self.prices[0]) if self.prices.size else 0.0

    @property
    def link(self) -> Link | None:
        """Alpha and beta of a ring that takes as long for the shortest and for the longest vector."""
        if not self.prices.size:
            return None
        slope = float(self.prices[-1] - self.prices[0]) / self.sizes[-1]
        rounds = 2 * (self.K - 1)
        return Link(self.shortest / rounds, rounds / self.K / slope if slope > 0 else math.inf)

    def _volume_s(self, n: FloatArray) -> FloatArray:
        """Seconds of messages beyond the shortest's."""
        beyond: FloatArray = np.interp(n, self.sizes, self.prices) - self.shortest
        beyond *= np.maximum(n / self.sizes[-1], 1)
        return beyond

    def _message_s(self, n: FloatArray, latency: float = 1.0, bandwidth: float = 1.0) -> FloatArray:
        each = self.shortest if len(n) == 1 else self.pipelined_s
        return latency * each + bandwidth * self._volume_s(n)

    def exposed(
        self,
        parts: int = 0,
        latency: float = 1.0,
        bandwidth: float = 1.0,
        way: FloatArray | float = 1.0,
        ends: float = 1.0,
    ) -> float:
        """Seconds of communication that stand out behind the backward pass.

        parts: messages it goes in, 0 for those recorded. latency, bandwidth: factors. way: (L,) factors of each message.
        ends: factor of what the backward pass still takes when a message may leave.
        """
        L = len(self.n)
        if not L:
            return 0.0
        first = np.linspace(0, L, min(parts or L, L), endpoint=False).astype(int)
        n, last = np.add.reduceat(self.n, first), np.append(first[1:], L) - 1
        seconds = self._message_s(n, latency, bandwidth) * way
        return max(0.0, float((seconds[::-1].cumsum()[::-1] - ends * self.before_s[last]).max()))

    @cached_property
    def parts(self) -> int:
        L = len(self.n)
        return min([L, *(p for p in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if p < L)], key=self.exposed)

    def split(self, parts: int) -> tuple[float, float, float]:
        """What stands out because of many messages, of the latency of so many parts, and of bytes."""
        full, few = self.exposed(), self.exposed(parts)
        smooth = min(few, self.exposed(parts, latency=0.0))
        sending = self.sending_s * parts
        return full - few + self.sending_s * len(self.n) - sending, few - smooth + sending, smooth

    @property
    def bare(self) -> Prices:
        """If nothing were hidden behind the backward pass."""
        return replace(self, before_s=np.zeros(len(self.n)), sending_s=0.0)

    @property
    def best_ways(self) -> FloatArray:
        """(L,) what the best all-reduce of labkit takes for each message, over what a ring takes; at most 1."""
        if self.link is None or not self.shortest:
            return np.ones(len(self.n))
        times = np.array([[each.time(self.K, n, self.link) for n in self.n] for each in ALLREDUCES.values()])
        own = np.array([ring.time(self.K, n, self.link) for n in self.n])
        ways: FloatArray = np.minimum(times.min(axis=0) / own, 1.0)
        return ways
