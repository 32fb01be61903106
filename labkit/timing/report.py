"""Is it one sick worker, or everyone's noise? A report from arrival times at synchronisation points.

At a barrier every worker waits for the last. If the workers are alike (exchangeable) and the steps independent, each rank is
alone the last at a point with probability at most 1/K, so the times it is last among S points are at most Binomial(S, 1/K).
A rank is called a straggler if that has a tail probability of at most false_alarm / K: by Bonferroni's inequality, alike
workers then raise a false alarm with probability at most ``false_alarm``.

Where a worker is slow for a stretch of steps, one stretch counts as many points. So points are judged in blocks of m = 1, 2,
4, ... in a row, m the first at which a block no longer resembles the next (batch means; Schmeiser 1982): the lag-1
autocorrelation of the blocks' lateness, each rank's mean taken off, is at most the standard error that it has without any,
1/sqrt((K - 1) S/m) (twice that for m = 1). A block's last is who is late by most in sum. If no m leaves points enough to
name anybody and two standard errors are still exceeded, nobody is named, unless one rank is last in every block by ten
times its lead's standard deviation: such points resemble each other in how late it is, not in who is late. Where a worker
may run ahead the test does not hold.

Symbols: K workers, S synchronisation points at which all K arrived, m points in a block. Times are seconds.
"""

import math
from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray, number
from labkit.extras import scipy
from labkit.timing.timeline import IntArray, Timeline

_TIE = 1e-12  # arrivals closer than this share of the latest arrival are one and the same
_CLEAR = 10  # standard deviations; 1 in 500 records of alike workers that remember as long as the record has such a lead
_ROWS = 16  # ranks that a printed report shows


@dataclass(frozen=True, eq=False)
class StragglerReport:
    """What the arrivals say, per rank and for the group.

    S: synchronisation points counted; those that some worker never reached are left out.
    mean_late_s: (K,) mean seconds by which a rank comes after the first to arrive; 0 for S = 0.
    times_last: (K,) points at which a rank was last, alone. share: (K,) that over S.
    caused_s: (K,) seconds the others would not have waited, had the rank, when last, come with the last but one.
    waited_s: seconds the group lost to waiting: sum over points and ranks of (last - arrival).
    p_values: (K,) probability that a rank among alike workers is last in so many blocks, times K, at most 1.
    block: points in a row that are judged as one; 0 where all resemble their neighbours too much to judge any.
    stragglers: ranks with p_value <= false_alarm. verdict: one sentence.
    """

    K: int
    S: int
    mean_late_s: FloatArray
    times_last: IntArray
    caused_s: FloatArray
    waited_s: float
    p_values: FloatArray
    false_alarm: float
    block: int = 1

    @property
    def share(self) -> FloatArray:
        return self.times_last / max(self.S, 1)

    @property
    def stragglers(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.p_values <= self.false_alarm).tolist())

    @property
    def verdict(self) -> str:
        if self.K == 1:
            return "One worker waits for nobody."
        if self.S == 0:
            return f"There is no point that all {self.K} workers reached, so nothing to judge."
        if len(self.stragglers) > 1:
            names = ", ".join(map(str, self.stragglers))
            together = self.times_last[list(self.stragglers)].sum()
            return (
                f"Ranks {names} are persistent stragglers: together last at {together} of {self.S} points, "
                f"each more often than chance explains (false-alarm rate {self.false_alarm:g})."
            )
        worst = (
            self.stragglers[0] if self.stragglers else int(np.argmax(self.times_last))
        )
        count = f"last at {self.times_last[worst]} of {self.S} points"
        if self.block > 1:
            count += f" (judged in blocks of {self.block}, as neighbours are alike)"
        if self.stragglers:
            return (
                f"Rank {worst} is a persistent straggler: {count}; among {self.K} workers alike, "
                f"somebody is that often last with probability at most {self.p_values[worst]:.2g}."
            )
        return self._of_nobody(worst, count)

    def _of_nobody(self, worst: int, count: str) -> str:
        """The verdict where no straggler is named. count: how often rank ``worst`` was last, in words."""
        if not self.times_last.any():
            return f"Nobody is late: at none of {self.S} points was one worker alone the last."
        if not self.block:
            return (
                f"Too few points to tell: rank {worst} was {count}, but a point is so much like the one before it "
                f"that all {self.S} say little more than one."
            )
        needed = _needed(self.K, self.false_alarm)
        if needed > self.S:
            return (
                f"Too few points to tell: rank {worst} was {count}, and even a rank last every time takes "
                f"{needed} points to show at a false-alarm rate of {self.false_alarm:g}."
            )
        return (
            f"Everyone's noise: rank {worst} was {count} and nobody more often, which chance alone explains "
            f"(probability up to {self.p_values[worst]:.2g} among {self.K} workers alike)."
        )

    def __str__(self) -> str:
        lines = ["  rank  mean late ms  times last    share   caused ms"]
        order = np.argsort(-self.times_last, kind="stable")
        for k in sorted(order[:_ROWS].tolist()):
            late, caused = 1e3 * self.mean_late_s[k], 1e3 * self.caused_s[k]
            share = 100 * self.share[k]
            times = self.times_last[k]
            lines.append(
                f"{k:>6}{late:>14.2f}{times:>12}{share:>7.1f} %{caused:>12.2f}"
            )
        if self.K > _ROWS:
            lines.append(f"(the {_ROWS} most often last of {self.K})")
        lines += [
            f"The group waited {1e3 * self.waited_s:.2f} ms in all, at {self.S} points."
        ]
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__


def straggler_report(
    timeline: Timeline, false_alarm: float = 0.01
) -> StragglerReport:
    """Report on the synchronisation points of a timeline that all K workers reached.

    false_alarm: probability, at most, of naming a straggler where all workers are alike; in (0, 1).

    >>> times = draw(OneStraggler(Uniform(0.09, 0.11), slowdown=3.0, rank=2), K=4, T=30, seed=0)
    >>> report = straggler_report(Synchronous().timeline(times))
    >>> report.times_last.tolist()
    [0, 0, 30, 0]
    """
    number("false_alarm", false_alarm, above=0, most=1)
    K = timeline.K
    A = timeline.arrivals_s[:, ~np.isnan(timeline.arrivals_s).any(axis=0)]
    S = A.shape[1]
    if K == 1 or S == 0:
        zero, none = np.zeros(K), np.zeros(K, np.int64)
        return StragglerReport(K, S, zero, none, zero, 0.0, np.ones(K), false_alarm)

    tie_s = _TIE * float(np.abs(A).max())
    lead, who = _lead(A, tie_s)
    late = A - A.min(axis=0)
    m = _block(late, _needed(K, false_alarm), tie_s)
    return StragglerReport(
        K=K,
        S=S,
        mean_late_s=late.mean(axis=1),
        times_last=np.bincount(who[lead > 0], minlength=K),
        caused_s=(K - 1.0) * np.bincount(who, lead, minlength=K).astype(float),
        waited_s=float((A.max(axis=0) - A).sum()),
        p_values=_p_values(late, m, tie_s),
        false_alarm=false_alarm,
        block=m,
    )


def _p_values(late: FloatArray, m: int, tie_s: float) -> FloatArray:
    """(K,) probabilities that a rank among alike workers is last in so many blocks of m points, times K, at most 1."""
    K, S = late.shape
    if m == 0:
        return np.ones(K)
    lead, who = _lead(_means(late, m), tie_s)
    counts = np.bincount(who[lead > 0], minlength=K)
    # P(Binomial(n, 1/K) >= c) is the regularised incomplete beta function I_{1/K}(c, n - c + 1); 1 for c = 0
    tail = scipy("special").betainc(np.maximum(counts, 1), S // m - counts + 1, 1 / K)
    return np.where(counts > 0, np.minimum(K * tail, 1.0), 1.0)


def _needed(K: int, false_alarm: float) -> int:
    """Points that it takes, at least, to name a rank that is last at all of them."""
    return 1 + math.ceil(math.log(1 / false_alarm) / math.log(K) - 1e-9)


def _lead(A: FloatArray, tie_s: float) -> tuple[FloatArray, IntArray]:
    """(S,) seconds by which the last comes after the last but one, 0 for a tie, and who is last."""
    last_but_one, last = np.sort(A, axis=0)[-2:]
    lead = last - last_but_one
    lead[lead <= tie_s] = 0.0
    return lead, A.argmax(axis=0)


def _means(x: FloatArray, m: int) -> FloatArray:
    """(K, S // m) means over m points in a row; what is left over at the begin is left out."""
    K, S = x.shape
    n = S // m
    blocks = x[:, S - n * m :].reshape(K, n, m)
    return np.asarray(blocks.mean(axis=2))


def _block(late: FloatArray, needed: int, tie_s: float) -> int:
    """Points to judge as one: the first of 1, 2, 4, ... whose blocks, at least ``needed``, do not resemble the next."""
    K, S = late.shape
    own = late - late.mean(axis=0)
    m = 1
    while True:
        like = _resemblance(_means(own, m), tie_s)
        error = 1 / math.sqrt((K - 1) * (S // m))
        if like <= (error if m > 1 else 2 * error):
            return m
        if S // (2 * m) < needed:
            lead, who = _lead(_means(late, m), tie_s)
            one = np.ptp(who) == 0
            clear = one and lead.mean() >= _CLEAR * lead.std()
            if clear or like <= 2 * error:
                return m
            return 0
        m *= 2


def _resemblance(blocks: FloatArray, tie_s: float) -> float:
    """Lag-1 autocorrelation of the blocks (K, n), each rank's mean taken off."""
    d = blocks - blocks.mean(axis=1, keepdims=True)
    if np.abs(d).max() <= tie_s:
        return 0.0
    n = d.shape[1]
    together = d[:, 1:] * d[:, :-1]
    estimate = float(together.sum() / np.square(d).sum())
    return estimate + 1 / n  # it is 1/n too low, as the means were estimated too
