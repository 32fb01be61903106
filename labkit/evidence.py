"""Evidence: what a conclusion drawn from seeded runs rests on. The intervals: Efron and Tibshirani 1993, *An Introduction to
the Bootstrap*, chapter 14; David and Nagaraja 2003, *Order Statistics*, section 7.1 (of a median, for any law).
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit import extras
from labkit.checks import integer


def seeds(n: int) -> range:
    """``n`` >= 1 seeds, from 0 on, or from where LABKIT_SEEDS in the environment says. ValueError for other than numbers."""
    integer("n", n, least=1)
    first = os.environ.get("LABKIT_SEEDS", "0")
    if not first.isdecimal():
        raise ValueError(f"LABKIT_SEEDS must be a whole number >= 0, got {first!r}")
    return range(int(first), int(first) + n)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number from several runs, and how far to trust it.

    center: the mean or median of the runs. low, high: ends of its interval. level: the share of such intervals that hold
    the true value, as intended (mean) or exactly (median). values: (R,) what each run gave.
    """

    center: float
    low: float
    high: float
    level: float
    values: NDArray[np.float64]

    def __str__(self) -> str:
        return f"{self:.3g}"

    def __format__(self, spec: str) -> str:
        low, high = format(self.low, spec).strip(), format(self.high, spec).strip()
        return (
            f"{format(self.center, spec)} ({low} to {high}, {len(self.values)} seeds)"
        )


def mean(values: ArrayLike, level: float = 0.95) -> Estimate:
    """The mean of R >= 5 runs, (R,) finite ``values``, and its interval, by scipy's bias-corrected bootstrap.

    With as few as 5 runs the interval is too narrow: of normal values it holds the mean about 17 times in 20, not 19.
    """
    x = _runs(values)
    if not np.isfinite(x).all():
        raise ValueError(
            f"values must be finite for a mean, got {x.tolist()}: take the median"
        )
    center = float(x.mean())
    # In whole numbers, whose sums are exact: resamples that tie with x then do so on every machine.
    unit = float(np.abs(x).max()) / 2**40 or 1.0
    whole = np.rint(x / unit)
    if np.ptp(whole) == 0:
        return Estimate(center, center, center, level, x)
    rng = np.random.default_rng(0)
    bootstrap = extras.scipy("stats").bootstrap
    found = bootstrap((whole,), np.mean, confidence_level=level, random_state=rng)
    low, high = found.confidence_interval
    return Estimate(center, unit * float(low), unit * float(high), level, x)


def median(values: ArrayLike, level: float = 0.95) -> Estimate:
    """The median of R >= 5 runs, between two of the runs themselves; ``inf`` for a run that never arrived.

    The interval is the narrowest pair of order statistics, equally far from both ends, that holds the median of *any*
    continuous law with probability ``level`` (or the widest; R = 5: 0.9375), which the result gives exactly.
    """
    x = np.sort(_runs(values))
    n = len(x)
    # From the j-th smallest to the j-th largest: missed if fewer than j of n fair coins fall either way.
    few = accumulate(math.comb(n, i) for i in range((n + 1) // 2))
    holds = [1 - 2 * ways / 2**n for ways in few]
    j = max(sum(h >= level for h in holds), 1)
    # numpy's median would make nan of the mean of two infinite runs.
    lower, upper = x[(n - 1) // 2], x[n // 2]
    center = float(lower if lower == upper else (lower + upper) / 2)
    given = np.array(values, float)
    return Estimate(center, float(x[j - 1]), float(x[n - j]), holds[j - 1], given)


def repeat(
    experiment: Callable[..., float],
    n: int = 5,
    of: Callable[[ArrayLike], Estimate] = mean,
    data: Callable[[int], Any] | None = None,
) -> Estimate:
    """Run ``experiment(seed)`` for ``seeds(n)`` and estimate: its ``mean``, or its ``median``.

    Every run draws its data anew, ``data(seed)``, so that the interval covers other data and not only another order of the
    same; the experiment is then ``experiment(data(seed), seed)``. To compare two things, return their difference or ratio.

    >>> rolled = repeat(lambda dice, seed: dice.mean(), data=lambda seed: np.random.default_rng(seed).integers(1, 7, 600))
    >>> rolled.low < 3.5 < rolled.high
    True
    """
    return of(
        [
            float(experiment(seed) if data is None else experiment(data(seed), seed))
            for seed in seeds(n)
        ]
    )


def reach_and_stay(
    values: Iterable[float], target: float, stay: int | None = None
) -> int | None:
    """The first index from which on ``values`` are at most ``target``; None if there is none. A nan is above every target.

    stay: for so many values in a row, all of them recorded; None: to the end of the record.

    >>> reach_and_stay([9, 2, 5, 3, 1, 1], target=3), reach_and_stay([9, 2, 5, 3, 1, 1], target=3, stay=1)
    (3, 1)
    """
    below = np.asarray(list(values), float) <= target
    if stay is None:
        above = np.flatnonzero(~below)
        first = int(above[-1]) + 1 if len(above) else 0
        return first if first < len(below) else None
    integer("stay", stay, least=1)
    starts = range(len(below) - stay + 1)
    return next(
        (first for first in starts if below[first : first + stay].all()), None
    )


@dataclass(frozen=True)
class Tuned:
    """The best of a grid. best: the point with the least score. scores: one per point of ``grid``, ``inf`` for a failure."""

    best: Any
    score: float
    grid: tuple[Any, ...]
    scores: tuple[float, ...]

    @property
    def at_edge(self) -> bool:
        """Whether the best is the grid's first or last point, so that a wider grid might find a better one."""
        return self.best in (self.grid[0], self.grid[-1])


def tune(score: Callable[[Any], float | None], grid: Sequence[Any]) -> Tuned:
    """Try every point of ``grid`` and keep the one with the least ``score(point)``; the first of equals.

    None and nan count as ``inf``: a run that failed. ValueError for an empty grid, or if every point fails.

    >>> tune(lambda eta: abs(eta - 0.3), grid=(0.1, 0.2, 0.4, 0.8)).best
    0.2
    """
    points = tuple(grid)
    given = [score(point) for point in points]
    scores = tuple(
        math.inf if s is None or math.isnan(s) else float(s) for s in given
    )
    least = min(scores, default=math.inf)
    if math.isinf(least):
        raise ValueError(
            f"no point of the grid {points} arrives: widen it, or run longer"
        )
    return Tuned(points[scores.index(least)], least, points, scores)


def _runs(values: ArrayLike) -> NDArray[np.float64]:
    x = np.array(values, float)
    if x.ndim != 1 or len(x) < 5 or np.isnan(x).any():
        raise ValueError(
            f"values must be 5 or more numbers, one per run, got {x.tolist()}"
        )
    return x
