"""One cause out after another: from the recorded steps down to a mean worker that waits for nobody.

Functions of P (K, T, 6), seconds of K ranks in T steps in all phases but the stay; x (T,) is what a step takes beyond the
slowest rank's work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray
from labkit.extras import scipy
from labkit.train.recorder import Phase
from labkit_book.why.answer import MENTION
from labkit_book.why.samples import block
from labkit_book.why.steps import Steps

COMPUTE = [Phase.FORWARD, Phase.BACKWARD]
#: Where a slow rank may be slow.
PLACES = {
    "loading": [Phase.BETWEEN], "computing": COMPUTE, "the loss": [Phase.LOSS],
    "code before the optimizer": [Phase.AFTER], "the optimizer": [Phase.OPTIMIZER],
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Peeled:
    """The phases as recorded; then without calls that synchronise (quiet), without uneven batches too (even), without the
    slow ranks too (cured). x, x_quiet: as recorded, and without calls. calls: their mean number in a step.
    """

    recorded: FloatArray
    quiet: FloatArray
    even: FloatArray
    cured: FloatArray
    x: FloatArray
    x_quiet: FloatArray
    calls: float
    slow: tuple[int, ...]

    @property
    def layers(self) -> list[FloatArray]:
        """(T,) seconds of each step: as recorded, without calls, uneven batches, slow ranks, waiting."""
        kept = [slowest(P) + self.x_quiet for P in (self.quiet, self.even, self.cured)]
        return [slowest(self.recorded) + self.x, *kept, self.cured.sum(axis=-1).mean(axis=0) + self.x_quiet]

    @property
    def slow_ranks(self) -> str:
        return f"rank{'s' * (len(self.slow) > 1)} {', '.join(map(str, self.slow))}"

    @property
    def slow_in(self) -> str:
        """The place of PLACES that has most of what the slow ranks take longer; "" where none is slow."""
        longer = (self.even - self.cured)[list(self.slow)].sum(axis=(0, 1))
        return max(PLACES, key=lambda place: longer[PLACES[place]].sum()) if self.slow else ""


def peel(steps: Steps, shortest: float, false_alarm: float) -> Peeled:
    """shortest: seconds of an all-reduce of next to nothing. false_alarm: of naming a rank where all are alike."""
    P = steps.seconds[..., : Phase.STAY]
    x = steps.seconds.sum(axis=-1).mean(axis=0) - slowest(P)
    quiet, in_phases = _without_calls(P, steps.calls, shortest)
    # From the first gradient on.
    sums = steps.calls[..., [Phase.BACKWARD, Phase.STAY]].sum(axis=-1).mean(axis=0)
    own = np.maximum(sums - len(steps.messages), 0.0) * bool(len(steps.messages))
    x_quiet = x - np.minimum(own * shortest, np.maximum(x, 0.0))
    even = evened(quiet, steps.examples)
    slow = _stragglers(even, false_alarm)
    cured = like_the_others(even, slow)
    return Peeled(P, quiet, even, cured, x, x_quiet, in_phases + float(own.mean()), slow)


def slowest(P: FloatArray) -> FloatArray:
    """(T,) seconds of the slowest rank's work."""
    return np.asarray(P.sum(axis=-1).max(axis=0))


def _without_calls(P: FloatArray, calls: FloatArray, shortest: float) -> tuple[FloatArray, float]:
    """P if nobody waits in a phase that calls a collective and no message is paid there; how many there are in a step."""
    P, many = P.copy(), 0.0
    for phase in (Phase.AFTER, Phase.OPTIMIZER, Phase.BETWEEN, Phase.FORWARD, Phase.LOSS):
        here = calls[..., phase]
        if len(P) > 1 and here.mean() >= 0.5:
            least = np.maximum(P[..., phase].min(axis=0) - here * shortest, 0.0)
            P[..., phase] = np.where(here > 0, least, P[..., phase])
            many += float((here * (P[..., phase] > 0)).mean())  # those with room for the price of a message
    return P, many


def evened(P: FloatArray, examples: FloatArray) -> FloatArray:
    """With the mean number of examples on every rank: work per example is the slope within ranks, or else among them."""
    work, extra = P[..., COMPUTE].sum(axis=-1), examples - examples.mean(axis=0)
    if not extra.any():
        return P
    b, w = (each - each.mean(axis=1, keepdims=True) for each in (examples, work))
    if not b.any():
        b, w = extra, work - work.mean()
    slope = float((b * w).sum() / (b * b).sum())
    P = P.copy()
    P[..., Phase.BACKWARD] -= np.clip(slope, 0.0, work.mean() / examples.mean()) * extra
    return P


def _stragglers(P: FloatArray, false_alarm: float) -> tuple[int, ...]:
    """The ranks whose work takes surely longer than the others' mean (Student's t of blocks of steps), and MENTION of it."""
    work, (K, T) = P.sum(axis=-1), P.shape[:2]
    m = block(T)
    n = T // m
    if K == 1 or n < 2:
        return ()
    late = (work - work.mean(axis=0))[:, : n * m] * (K / (K - 1))
    blocks = late.reshape(K, n, m).mean(axis=2)
    quantile = scipy("special").stdtrit(n - 1, 1 - false_alarm / K)
    least = quantile * blocks.std(axis=1, ddof=1) / math.sqrt(n)
    slow = blocks.mean(axis=1) > np.maximum(least, MENTION * work.mean())
    return tuple(int(k) for k in np.flatnonzero(slow))


def like_the_others(P: FloatArray, slow: tuple[int, ...]) -> FloatArray:
    """With every phase of the slow ranks scaled to the mean of the others', and its ups and downs with it."""
    P = P.copy()
    fine = np.delete(P, slow, axis=0).mean(axis=(0, 1))
    for k in slow:
        own = P[k].mean(axis=0)
        P[k] = np.where(own > 0, P[k] * fine / np.where(own > 0, own, 1.0), fine)
    return P
