"""What failures cost a synchronous job: how often they come, how often to checkpoint, and what is left for work.

Failures arrive independently, one worker's after ``mtbf_s`` seconds on average (exponential), so K workers together fail
K times as often. A job works ``interval_s`` seconds, writes a checkpoint for ``write_s``, and so on; a failure throws it
back to its last checkpoint, and ``restart_s`` passes before it works again; a failure may also strike while it writes or
restarts. Young 1974, *A first order approximation to the optimum checkpoint interval*; Daly 2006, *A higher order
estimate of the optimum checkpoint interval for restart dumps*, equations 13, 20 and 37.

Symbols: K workers; M = ``mtbf_s`` of the whole job, delta = ``write_s``, tau = ``interval_s``, R = ``restart_s``. Seconds.
"""

from __future__ import annotations

import math
from numbers import Real

from labkit.extras import scipy


def mtbf(worker_mtbf_s: float, K: int) -> float:
    """Seconds between failures of a job of K workers, each failing every ``worker_mtbf_s`` on average: M1 / K.

    >>> mtbf(worker_mtbf_s=1e6, K=1000)
    1000.0
    """
    if isinstance(K, bool) or not hasattr(K, "__index__") or K < 1:
        raise ValueError(f"K must be a whole number of workers >= 1, got {K!r}")
    return _seconds("worker_mtbf_s", worker_mtbf_s, above=0) / K


def young(write_s: float, mtbf_s: float) -> float:
    """Young's interval, sqrt(2 delta M): right while writing is short beside M.

    >>> young(write_s=2.0, mtbf_s=100.0)
    20.0
    """
    return math.sqrt(2 * _seconds("write_s", write_s, above=0) * _seconds("mtbf_s", mtbf_s, above=0))


def daly(write_s: float, mtbf_s: float) -> float:
    """Daly's interval: two more terms of the series for delta < 2 M, and M beyond."""
    share = _seconds("write_s", write_s, above=0) / (2 * _seconds("mtbf_s", mtbf_s, above=0))
    if share >= 1:
        return mtbf_s
    return young(write_s, mtbf_s) * (1 + math.sqrt(share) / 3 + share / 9) - write_s


def best_interval(write_s: float, mtbf_s: float) -> float:
    """The interval that minimises `wall_time`, to ten digits: M (1 + W(-exp(-1 - delta / M))), W Lambert's function.

    Where that would cancel, delta < 1e-6 M, it is Daly's series, whose error is then below 1e-11.
    """
    lambertw = scipy("special").lambertw
    ratio = _seconds("write_s", write_s, above=0) / _seconds("mtbf_s", mtbf_s, above=0)
    if ratio < 1e-6:
        return daly(write_s, mtbf_s)
    return float(mtbf_s * (1 + lambertw(-math.exp(-1 - ratio)).real))


def wall_time(work_s: float, interval_s: float, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Expected seconds from start to end of a job that needs ``work_s`` seconds of undisturbed work.

    M exp(R / M) (exp((tau + delta) / M) - 1) work / tau; ``math.inf`` where that is beyond any float.
    """
    M = _seconds("mtbf_s", mtbf_s, above=0)
    tau, delta = _seconds("interval_s", interval_s, above=0), _seconds("write_s", write_s, least=0)
    R, work = _seconds("restart_s", restart_s, least=0), _seconds("work_s", work_s, least=0)
    try:
        return M * math.exp(R / M) * math.expm1((tau + delta) / M) * work / tau
    except OverflowError:
        return math.inf


def goodput(interval_s: float, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Share of the time that is work which counts in the end: tau / (the expected time of an interval), in (0, 1)."""
    expected = wall_time(interval_s, interval_s, write_s, restart_s, mtbf_s)
    return interval_s / expected


def _seconds(name: str, value: object, least: float = -math.inf, above: float = -math.inf) -> float:
    ok = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if not ok or float(value) < least or float(value) <= above:  # type: ignore[arg-type]
        bound = "> 0" if above == 0 else ">= 0"
        raise ValueError(f"{name} must be a finite number of seconds {bound}, got {value!r}")
    return float(value)  # type: ignore[arg-type]
