"""What a step's messages cost: prices that were clocked, held against what the step was seen to wait for its sums.

Message l of n_l bytes may leave r_l seconds before the backward pass ends, messages leave one after the other, and one of
n bytes takes a(n) (Li et al. 2020, *PyTorch Distributed*, section 3.2.3). Behind the backward pass then stand out

    max over l of  a(n_l) + a(n_l+1) + ... + a(n_L) - r_l,   and at least 0.

Within a step the cores have other things to do, and a message takes longer. So all prices are taken times one factor, with
which they promise what was seen to stand out: ``min over l of (seen + r_l) / (a(n_l) + ... + a(n_L))``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit.train.recorder import Phase
from labkit_book.why.steps import Steps


@dataclass(frozen=True, eq=False)
class Prices:
    """Of messages of n (L,) bytes that may leave before_s (L,) seconds before the backward pass ends: ``prices`` over
    ``sizes``; pipelined_s, the latency of one of many sent at once; sending_s, what sending one takes of that pass."""

    n: FloatArray
    before_s: FloatArray
    sizes: FloatArray
    prices: FloatArray
    pipelined_s: float = 0.0
    sending_s: float = 0.0

    @classmethod
    def of(cls, steps: Steps, rounds: Any = slice(None)) -> Prices:
        """Means over these rounds of measuring."""
        if not steps.sizes.size or steps.K == 1:
            return cls(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        curve = np.maximum.accumulate(steps.prices[rounds].mean(axis=0))
        backward = float(steps.seconds[..., Phase.BACKWARD].mean())
        self = cls(steps.messages, (1 - steps.ready) * backward, steps.sizes, curve)
        if not (L := len(self.n)):
            return self
        # messages sent at once share their latencies: what they took beyond their bytes, at most one's each
        spare = (steps.burst_s[rounds].mean() - self._volume_s(self.n).sum()) / L
        behind = not steps.calls[..., Phase.BACKWARD].any()  # all of them
        one = 0.0 if behind else float(steps.sending_s[rounds].mean()) / L
        before_s = self.before_s + one * np.arange(L - 1, -1, -1)
        return replace(self, before_s=before_s, pipelined_s=np.clip(spare, 0.0, self.shortest), sending_s=one)

    def fitted(self, seen_s: float) -> Prices:
        """Times the factor with which they promise that so many seconds stand out."""
        if not len(self.n):
            return self
        behind = self._message_s(self.n)[::-1].cumsum()[::-1]
        factor = float(((max(seen_s, 0.0) + self.before_s) / np.maximum(behind, 1e-12)).min())
        return replace(self, prices=self.prices * factor, pipelined_s=self.pipelined_s * factor)

    @property
    def shortest(self) -> float:
        """Seconds of an all-reduce of next to nothing."""
        return float(self.prices[0]) if self.prices.size else 0.0

    def _volume_s(self, n: FloatArray) -> FloatArray:
        """Seconds of messages beyond the shortest's."""
        beyond = np.interp(n, self.sizes, self.prices) - self.shortest
        return np.asarray(beyond * np.maximum(n / self.sizes[-1], 1))

    def _message_s(self, n: FloatArray, latency: float = 1.0, bandwidth: float = 1.0) -> FloatArray:
        return latency * (self.shortest if len(n) == 1 else self.pipelined_s) + bandwidth * self._volume_s(n)

    def exposed(self, parts: int = 0, latency: float = 1.0, bandwidth: float = 1.0) -> float:
        """Seconds that stand out behind the backward pass, in so many messages (0: those recorded), with these factors."""
        if not (L := len(self.n)):
            return 0.0
        first = np.linspace(0, L, min(parts or L, L), endpoint=False).astype(int)
        n, last = np.add.reduceat(self.n, first), np.append(first[1:], L) - 1
        left = self._message_s(n, latency, bandwidth)[::-1].cumsum()[::-1]  # from each message to the last
        return max(0.0, float((left - self.before_s[last]).max()))

    @cached_property
    def parts(self) -> int:
        """The best number of messages."""
        L = len(self.n)
        return min([L, *(p for p in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if p < L)], key=self.exposed)

    def split(self) -> tuple[float, float]:
        """What stands out because of the messages' latency, and of their bytes."""
        smooth = self.exposed(latency=0.0)
        return self.exposed() - smooth + self.sending_s * len(self.n), smooth
