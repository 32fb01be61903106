"""A job that fails and restarts, simulated: how long it takes, how often it failed, what was lost.

The same rules as `labkit.cost.failures` prices in closed form (Daly 2006): work ``interval_s``, write ``write_s``, and so
on; failures come after exponential times of mean ``mtbf_s``; each throws the job back to its last checkpoint and costs
``restart_s``, during which it may fail again. R replicas run side by side. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.timing._check import FloatArray, generator, integer, number
from labkit.timing.timeline import IntArray

_HOPELESS = (
    10.0  # an interval, with writing and restarting, of this many mtbf_s takes exp(10) = 22,000 attempts
)


@dataclass(frozen=True, eq=False)
class Failures:
    """What happened to each of R replicas of a job.

    work_s: seconds of work that the job needs. wall_s: (R,) seconds until it was done. failures: (R,) how many.
    lost_s: (R,) seconds of work and writing that failures threw away.
    """

    work_s: float
    wall_s: FloatArray
    failures: IntArray
    lost_s: FloatArray

    @property
    def goodput(self) -> FloatArray:
        """(R,) share of the time that was work which counted."""
        return self.work_s / self.wall_s


def run_with_failures(
    work_s: float,
    interval_s: float,
    write_s: float,
    restart_s: float,
    mtbf_s: float,
    rng: np.random.Generator,
    replicas: int = 1,
) -> Failures:
    """Simulate a job of ``work_s`` seconds of work, ``replicas`` times; its last interval may be shorter.

    Raises ValueError for bad input, and for a job that would hardly ever get through an interval.
    """
    work, tau = number("work_s", work_s, above=0), number("interval_s", interval_s, above=0)
    delta, restart = number("write_s", write_s, least=0), number("restart_s", restart_s, least=0)
    M, R = number("mtbf_s", mtbf_s, above=0), integer("replicas", replicas, least=1)
    generator(rng)
    if restart + min(tau, work) + delta > _HOPELESS * M:
        raise ValueError(
            f"interval_s must leave the job a chance to get through one: at a failure every {M:g} s it hardly ever "
            f"works for {min(tau, work):g} s; take a shorter interval_s"
        )
    done, wall, lost = np.zeros(R), np.zeros(R), np.zeros(R)
    failed, restarting = np.zeros(R, dtype=np.int64), np.zeros(R)
    going = np.arange(R)
    while going.size:
        left = work - done[going]
        last = left <= tau * (1 + 1e-12)
        piece = np.where(last, left, tau)
        need = restarting[going] + piece + delta
        survives = rng.exponential(M, going.size)
        ok = survives >= need
        wall[going] += np.minimum(survives, need)
        hurt = going[~ok]
        lost[hurt] += np.maximum(survives[~ok] - restarting[hurt], 0.0)
        failed[hurt] += 1
        restarting[hurt], restarting[going[ok]] = restart, 0.0
        done[going[ok]] += piece[ok]
        going = going[~(ok & last)]
    return Failures(work, wall, failed, lost)
