"""What failures cost: the share of a job's time that counts in the end, with checkpoints at the best interval.

Failures are exponential; K workers fail K times as often as one, and a failure of any stops all. After tau seconds of work
come delta seconds of writing; what is not written is lost, and a restart of R seconds comes first (Daly 2006, *A higher
order estimate of the optimum checkpoint interval for restart dumps*, equation 13 and its derivation; Young 1974 has the
first term of the interval, sqrt(2 delta M)). Symbols: M mean time between failures of the job.
"""

from __future__ import annotations

import math

from labkit_book.planner.case import Case


def interval_s(write_s: float, M: float) -> float:
    """The best seconds of work between two checkpoints: the root x of (1 - x / M) e^(x / M) = e^(-write_s / M).

    write_s, M: seconds, > 0. By bisection, to 2^-50 of M.

    >>> round(interval_s(30.0, 11_000.0))  # Young: 812, less two thirds of a write
    793
    """
    low, high, d = 0.0, 1.0, write_s / M
    for _ in range(50):
        x = (low + high) / 2
        # of the logarithms, where nothing cancels
        low, high = (x, high) if -math.log1p(-x) - x < d else (low, x)
    return M * (low + high) / 2


def _goodput(interval_s: float, write_s: float, restart_s: float, M: float) -> float:
    """The share of a long job's time that is work which counts: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)); all seconds."""
    if (restart_s + interval_s + write_s) / M > 700:
        return 0.0
    return interval_s / (M * math.exp(restart_s / M) * math.expm1((interval_s + write_s) / M))


def kept(case: Case, K: int) -> float:
    """The share of the time that counts with K of the case's workers; 1 where it knows of no failures."""
    if case.mtbf_s is None or case.checkpoint_s is None or case.restart_s is None:
        return 1.0
    M = case.mtbf_s / K
    return _goodput(interval_s(case.checkpoint_s, M), case.checkpoint_s, case.restart_s, M)
