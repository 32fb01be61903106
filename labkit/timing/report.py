"""Is it one sick worker, or everyone's noise? A report from arrival times at synchronisation points.

At a barrier every worker waits for the last. If the workers are alike (exchangeable) and the steps
independent, each rank is alone the last at a point with probability at most 1/K, so the times it is last
among S points are at most Binomial(S, 1/K). A rank is called a straggler if that has a tail probability of at
most false_alarm / K: by Bonferroni's inequality, alike workers then raise a false alarm with probability at
most ``false_alarm``. Ties make the test milder, never wrong. Where every point is a barrier that all leave
together (BSP), no lateness is carried into the next step, and steps are independent if the workers' own times
are; one that is slow for a stretch of steps may be named for it. Where a worker may run ahead (SSP,
asynchronous), lateness piles up and the test does not hold.

Symbols: K workers, S synchronisation points at which all K arrived. Times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray, number
from labkit.extras import scipy
from labkit.timing.timeline import IntArray, Timeline

_TIE = 1e-12  # arrivals closer than this share of the latest arrival are one and the same


@dataclass(frozen=True, eq=False)
class StragglerReport:
    """What the arrivals say, per rank and for the group.

    S: synchronisation points counted; those that some worker never reached are left out (``skipped``).
    mean_late_s: (K,) mean seconds by which a rank comes after the first to arrive; 0 for S = 0.
    times_last: (K,) points at which a rank was last, alone. share: (K,) that over S.
    caused_s: (K,) seconds the others would not have waited, had the rank, when last, come with the last but
        one.
    waited_s: seconds the group lost to waiting: sum over points and ranks of (last - arrival).
    p_values: (K,) probability that a rank among alike workers is last so often, times K, at most 1.
    stragglers: ranks with p_value <= false_alarm. verdict: one sentence.
    """

    K: int
    S: int
    skipped: int
    mean_late_s: FloatArray
    times_last: IntArray
    caused_s: FloatArray
    waited_s: float
    p_values: FloatArray
    false_alarm: float

    @property
    def share(self) -> FloatArray:
        return self.times_last / max(self.S, 1)

    @property
    def stragglers(self) -> tuple[int, ...]:
        return tuple(int(k) for k in np.flatnonzero(self.p_values <= self.false_alarm))

    @property
    def verdict(self) -> str:
        if self.K == 1:
            return "One worker waits for nobody."
        if self.S == 0:
            return (
                f"There is no synchronisation point that all {self.K} workers reached, so nothing to judge."
            )
        worst = int(np.argmax(self.times_last))
        count, p = f"last at {self.times_last[worst]} of {self.S} points", self.p_values[worst]
        if len(self.stragglers) == 1:
            return (
                f"Rank {worst} is a persistent straggler: {count}; among {self.K} workers alike, "
                f"somebody is that often last with probability at most {p:.2g}."
            )
        if self.stragglers:
            names = ", ".join(map(str, self.stragglers))
            return (
                f"Ranks {names} are persistent stragglers: together last at "
                f"{self.times_last[list(self.stragglers)].sum()} of {self.S} points, each more often than "
                f"chance explains (false-alarm rate {self.false_alarm:g})."
            )
        if not self.times_last.any():
            return f"Nobody is late: at none of {self.S} points was one worker alone the last."
        needed = 1 + math.ceil(math.log(1 / self.false_alarm) / math.log(self.K) - 1e-9)
        if needed > self.S:
            return (
                f"Too few points to tell: rank {worst} was {count}, and even a rank last every time takes "
                f"{needed} points to show at a false-alarm rate of {self.false_alarm:g}."
            )
        return (
            f"Everyone's noise: rank {worst} was {count} and nobody more often, which chance alone explains "
            f"(probability up to {p:.2g} among {self.K} workers alike)."
        )

    def __str__(self) -> str:
        lines = [f"{'rank':>6}{'mean late ms':>14}{'times last':>12}{'share':>9}{'caused ms':>12}"]
        order = np.argsort(-self.times_last, kind="stable")
        for k in sorted(order[:16].tolist()):
            lines.append(
                f"{k:>6}{1e3 * self.mean_late_s[k]:>14.2f}{self.times_last[k]:>12}"
                f"{100 * self.share[k]:>7.1f} %{1e3 * self.caused_s[k]:>12.2f}"
            )
        if self.K > 16:
            lines.append(f"(the 16 most often last of {self.K})")
        lines.append(f"The group waited {1e3 * self.waited_s:.2f} ms in all, at {self.S} points.")
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__


def straggler_report(timeline: Timeline, false_alarm: float = 0.01) -> StragglerReport:
    """Report on the synchronisation points of a timeline that all K workers reached.

    false_alarm: probability, at most, of naming a straggler where all workers are alike; in (0, 1).

    >>> times = draw(OneStraggler(Uniform(0.09, 0.11), slowdown=3.0, rank=2), K=4, T=30, seed=0)
    >>> report = straggler_report(Synchronous().timeline(times))
    >>> report.times_last.tolist()
    [0, 0, 30, 0]
    """
    number("false_alarm", false_alarm, above=0)
    if false_alarm >= 1:
        raise ValueError(f"false_alarm must be a probability below 1, got {false_alarm!r}")
    K = timeline.K
    complete = ~np.isnan(timeline.arrivals_s).any(axis=0)
    A = timeline.arrivals_s[:, complete]
    S = A.shape[1]
    if K == 1 or S == 0:
        zero, none = np.zeros(K), np.zeros(K, dtype=np.int64)
        return StragglerReport(K, S, int((~complete).sum()), zero, none, zero, 0.0, np.ones(K), false_alarm)

    betainc = scipy("special").betainc
    last_but_one, last = np.sort(A, axis=0)[-2:]
    lead = np.where(last - last_but_one > _TIE * np.abs(A).max(), last - last_but_one, 0.0)
    who = A.argmax(axis=0)[lead > 0]
    times_last = np.bincount(who, minlength=K)
    caused = (K - 1.0) * np.bincount(who, lead[lead > 0], minlength=K).astype(np.float64)
    # P(Binomial(S, 1/K) >= m) is the regularised incomplete beta function I_{1/K}(m, S - m + 1); 1 for m = 0
    tail = np.where(times_last > 0, betainc(np.maximum(times_last, 1), S - times_last + 1, 1 / K), 1.0)
    return StragglerReport(
        K=K,
        S=S,
        skipped=int((~complete).sum()),
        mean_late_s=(A - A.min(axis=0)).mean(axis=1),
        times_last=times_last,
        caused_s=caused,
        waited_s=float((last - A).sum()),
        p_values=np.minimum(K * tail, 1.0),
        false_alarm=false_alarm,
    )
