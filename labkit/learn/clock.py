"""Error against seconds: what a schedule of updates, or rounds of local steps, has learned by when.

A method is fast per step or fast per second, and the two are different questions (Chen et al. 2016). Here all
methods see the same problem, the same examples and the same seeded compute times; a method's step size is the best of one
grid that all share, best meaning the first to reach a target and stay there.

Symbols: U updates, ``eta`` the learning rate, H local steps, ``target`` a loss. Times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.local import local_sgd_at_once
from labkit.learn.problems import Problem
from labkit.learn.sgd import Diverged, Rate
from labkit.learn.stale import Batches, Scale, replay
from labkit.learn.sync import Shards
from labkit.timing.updates import Updates

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Loss against seconds. eta: the learning rate. seconds: (n,), rising. loss: (n,), at those times.

    diverged: the update at which w stopped being finite, or None.
    """

    eta: Rate
    seconds: FloatArray
    loss: FloatArray
    diverged: int | None = None

    def time_to(self, target: float) -> float:
        """Seconds from which on the loss stays at or below ``target``; ``math.inf`` if it ends above (a lucky dip is not
        an arrival: a large step passes below a target that its noise cannot hold)."""
        above = np.flatnonzero(~(self.loss <= target))
        if not above.size:
            return float(self.seconds[0])
        return float(self.seconds[above[-1] + 1]) if above[-1] + 1 < len(self.loss) else math.inf


def first_updates(updates: Updates, until_s: float) -> Updates:
    """The updates applied no later than ``until_s`` seconds. ValueError if there are none."""
    U = int(np.searchsorted(updates.applied_s, until_s, side="right"))
    if U == 0:
        raise ValueError(
            f"until_s must be at least {updates.applied_s[:1]}, when the first update comes, got {until_s!r}"
        )
    kept = updates.into < U
    rows = {name: getattr(updates, name)[kept] for name in ("into", "rank", "step", "read")}
    return replace(updates, **rows, applied_s=updates.applied_s[:U])


def error_over_time(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    updates: Updates,
    batches: Batches,
    scale: Scale | None = None,
    points: int = 100,
) -> Curve:
    """Replay ``updates`` and look at the loss about ``points`` times, evenly in updates, first and last among them.

    A run that diverges gives a curve of infinite loss from the start, with ``diverged`` set: it is a result, not an error.
    """
    if isinstance(points, bool) or not isinstance(points, (int, np.integer)) or points < 2:
        raise ValueError(f"points must be a whole number >= 2, got {points!r}")
    versions = np.unique(np.linspace(0, updates.U, points).astype(np.int64))
    seconds = np.concatenate([[0.0], updates.applied_s])[versions]
    return _curve(problem, eta, seconds, lambda: replay(problem, w0, eta, updates, batches, scale, versions))


def local_error_over_time(
    problem: Problem, w0: ArrayLike, eta: Rate, shards: Shards, H: int, K: int, meetings_s: ArrayLike
) -> Curve:
    """The same for local SGD with H steps between meetings, which take place at ``meetings_s``, (R,) rising seconds."""
    seconds = np.asarray(meetings_s, dtype=np.float64)
    if (
        seconds.ndim != 1
        or not np.isfinite(seconds).all()
        or (np.diff(seconds) < 0).any()
        or not seconds.size
    ):
        raise ValueError(f"meetings_s must be finite seconds that never decrease, got {meetings_s!r}")
    T = H * len(seconds)
    return _curve(
        problem,
        eta,
        np.concatenate([[0.0], seconds]),
        lambda: local_sgd_at_once(problem, w0, eta, shards, H, K, T=T),
    )


def tuned(run: Callable[[float], Curve], etas: Iterable[float], target: float) -> Curve:
    """The curve of the eta with the least ``time_to(target)``; if none does, of the one with the least last loss."""
    curves = [run(eta) for eta in etas]
    if not curves:
        raise ValueError("etas must hold at least one learning rate, got none")
    return min(curves, key=lambda c: (c.time_to(target), c.loss[-1]))


def _curve(
    problem: Problem, eta: Rate, seconds: FloatArray, run: Callable[[], NDArray[np.floating]]
) -> Curve:
    try:
        iterates = run()
    except Diverged as error:
        return Curve(eta, seconds, np.full(len(seconds), np.inf), error.step)
    with np.errstate(over="ignore"):
        return Curve(eta, seconds, np.array([problem.loss(w) for w in iterates]))
