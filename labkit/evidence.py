"""Evidence: what a conclusion drawn from seeded runs rests on.

A number from one seed is an anecdote. Here a seeded experiment is run several times and gives an estimate with an interval
(``repeat``); arriving at a target means to reach it *and stay* (``reach_and_stay``); and all that is compared is tuned on
one written grid (``tune``).

Sources: Efron & Tibshirani 1993, *An Introduction to the Bootstrap*, chapter 14 (the interval of a mean, by scipy); David &
Nagaraja 2003, *Order Statistics*, section 7.1 (the interval of a median, which holds for any law).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit import extras
from labkit.checks import integer

OTHER_SEEDS = "LABKIT_SEEDS"


def seeds(n: int) -> range:
    """``n`` >= 1 seeds, 0 to n - 1; others where the environment variable LABKIT_SEEDS says where to start.

    A lab that takes its seeds from here can be asked whether its verdicts hold under others. ValueError for n < 1, or where
    the variable holds no whole number >= 0.
    """
    integer("n", n, least=1)
    start = os.environ.get(OTHER_SEEDS, "0")
    if not start.isdecimal():
        raise ValueError(f"{OTHER_SEEDS} must be a whole number >= 0, got {start!r}")
    return range(int(start), int(start) + n)


@dataclass(frozen=True)
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
        n, said = len(self.values), [format(x, spec) for x in (self.center, self.low, self.high)]
        return f"{said[0]} ({said[1].strip()} to {said[2].strip()}, {n} seeds)"


def mean(values: ArrayLike, level: float = 0.95) -> Estimate:
    """The mean of R >= 5 runs and its interval, by scipy's bias-corrected bootstrap.

    values: (R,) finite. With as few as 5 runs the interval is too narrow: of normal values it holds the mean about 17
    times in 20, not 19. ValueError for fewer runs, or for a value that is not finite: a run that never arrived
    has no place in a mean (take the median).
    """
    x = _runs(values)
    if not np.isfinite(x).all():
        raise ValueError(f"values must be finite for a mean, got {x.tolist()}: take the median")
    center = float(x.mean())
    # In whole numbers, whose sums are exact: resamples that tie with x then do so on every machine.
    unit = float(np.abs(x).max()) / 2**40 or 1.0
    whole = np.rint(x / unit)
    if np.ptp(whole) == 0:
        return Estimate(center, center, center, level, x)
    found = extras.scipy("stats").bootstrap(
        (whole,), np.mean, confidence_level=level, random_state=np.random.default_rng(0)
    )
    low, high = found.confidence_interval
    return Estimate(center, unit * float(low), unit * float(high), level, x)


def median(values: ArrayLike, level: float = 0.95) -> Estimate:
    """The median of R >= 5 runs, between two of the runs themselves.

    values: (R,); ``inf`` for a run that never arrived. The interval is the narrowest pair of order statistics, equally far
    from both ends, that holds the median of *any* continuous law with probability ``level``; where even the smallest and the
    largest run do not (R = 5: 0.9375), it is those two. ``level`` of what is returned is that probability, exactly.
    """
    x = np.sort(_runs(values))
    n = len(x)
    # From the j-th smallest to the j-th largest: missed if fewer than j of n fair coins fall either way.
    missed = [2 * sum(math.comb(n, i) for i in range(j)) / 2**n for j in range(1, (n + 1) // 2 + 1)]
    j = max((j for j, p in enumerate(missed, 1) if 1 - p >= level), default=1)
    # numpy's median would make nan of the mean of two infinite runs.
    lower, upper = x[(n - 1) // 2], x[n // 2]
    center = float(lower if lower == upper else (lower + upper) / 2)
    return Estimate(
        center, float(x[j - 1]), float(x[n - j]), 1 - missed[j - 1], np.array(values, dtype=np.float64)
    )


def repeat(
    experiment: Callable[[int], float], n: int = 5, of: Callable[[ArrayLike], Estimate] = mean
) -> Estimate:
    """Run ``experiment(seed)`` for ``seeds(n)`` and estimate: its ``mean``, or its ``median``.

    To compare two things, let one experiment run both from the same seed and return the difference or the ratio.

    >>> rolled = repeat(lambda seed: np.random.default_rng(seed).integers(1, 7, size=600).mean(), n=5)
    >>> rolled.low < 3.5 < rolled.high
    True
    """
    return of([float(experiment(seed)) for seed in seeds(n)])


def reach_and_stay(values: Iterable[float], target: float, stay: int | None = None) -> int | None:
    """The first index from which on ``values`` are at most ``target``; None if there is none.

    values: (T,) losses, say. stay: for so many values in a row, >= 1, all of them recorded; None: to the end of the record.
    A nan is above every target.

    >>> reach_and_stay([9, 2, 5, 3, 1, 1], target=3), reach_and_stay([9, 2, 5, 3, 1, 1], target=3, stay=1)
    (3, 1)
    """
    below = np.asarray(list(values), dtype=np.float64) <= target
    if stay is None:
        above = np.flatnonzero(~below)
        first = int(above[-1]) + 1 if len(above) else 0
        return first if first < len(below) else None
    integer("stay", stay, least=1)
    for first in range(len(below) - stay + 1):
        if below[first : first + stay].all():
            return first
    return None


@dataclass(frozen=True)
class Tuned:
    """The best of a grid. best: the point with the least score. scores: one per point of ``grid``, ``inf`` for a failure.

    at_edge: whether the best is the grid's first or last point, so that a wider grid might find a better one.
    """

    best: Any
    score: float
    grid: tuple[Any, ...]
    scores: tuple[float, ...]

    @property
    def at_edge(self) -> bool:
        return self.best in (self.grid[0], self.grid[-1])


def tune(score: Callable[[Any], float | None], grid: Sequence[Any]) -> Tuned:
    """Try every point of ``grid`` and keep the one with the least ``score(point)``; the first of equals.

    None and nan count as ``inf``: a run that failed. ValueError for an empty grid, or if every point fails.

    >>> tune(lambda eta: abs(eta - 0.3), grid=(0.1, 0.2, 0.4, 0.8)).best
    0.2
    """
    points = tuple(grid)
    if not points:
        raise ValueError("grid must hold at least one point, got none")
    given = [score(point) for point in points]
    scores = tuple(math.inf if s is None or math.isnan(s) else float(s) for s in given)
    least = int(np.argmin(scores))
    if math.isinf(scores[least]):
        raise ValueError(f"no point of the grid {points} arrives: widen it, or let the runs be longer")
    return Tuned(points[least], scores[least], points, scores)


def _runs(values: ArrayLike) -> NDArray[np.float64]:
    x = np.array(values, dtype=np.float64)
    if x.ndim != 1 or len(x) < 5 or np.isnan(x).any():
        raise ValueError(f"values must be at least 5 numbers, one per run, got {x.tolist()!r}")
    return x
