"""Which gradients made which version of w, and when: the schedule of updates that learning follows.

Version u is w after u updates, and every gradient in update u was computed at some older version, the one its worker had
read: its staleness ``tau`` (Zhang et al. 2016, *Staleness-aware async-SGD*, section 3.1) is the number of updates between.
A step's gradient is computed from the start of its first compute span on, at the version that was there, and is applied when
the step's last compute or communicate span ends: a worker that then waits has pushed already.

Symbols: K workers, U updates, G gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray, every, freeze, integer
from labkit.timing.timeline import IntArray, Timeline


@dataclass(frozen=True, eq=False)
class Updates:
    """A schedule of updates. Arrays are copied, read-only; bad ones are refused with ValueError.

    into, rank, step, read: (G,) whole numbers, one entry for each gradient that was used, ordered by ``into``: the update it
    went into, who computed it, in which of that worker's steps, and at which version (``0 <= read <= into``). applied_s:
    (U,) seconds at which each was applied, never decreasing. K, measured, where: as in `Timeline`.
    """

    K: int
    into: IntArray
    rank: IntArray
    step: IntArray
    read: IntArray
    applied_s: FloatArray
    measured: bool
    where: str

    def __post_init__(self) -> None:
        K = integer("K", self.K, least=1)
        freeze(self, ("into", "rank", "step", "read"), int)
        freeze(self, ("applied_s",), float)
        into, applied = self.into, self.applied_s
        if not (np.isfinite(applied).all() and (np.diff(applied) >= 0).all()):
            raise ValueError(
                f"applied_s must be finite and never decrease, got {applied}"
            )
        if (np.diff(into) < 0).any() or not np.array_equal(
            np.unique(into), range(self.U)
        ):
            right = f"count up, each of {self.U} updates having a gradient"
            raise ValueError(
                f"into must {right}, got {np.array2string(into, threshold=8)}"
            )
        ok = (self.rank >= 0) & (self.rank < K) & (self.step >= 0)
        ok &= (self.read >= 0) & (self.read <= into)
        right = f"a rank below {K}, a step >= 0, and 0 <= read <= into"
        every("gradient", ok, right, self, ("rank", "step", "read", "into"))

    @classmethod
    def synchronous(cls, timeline: Timeline) -> Updates:
        """All gradients that arrived at a synchronisation point make one update: BSP, backup workers.

        Point t takes the gradients of step t, and is applied when the last of them has been communicated. A worker has read
        what it helped to make, and whatever else was applied by the start of its compute span. ValueError unless each step
        has a point at which somebody arrived.
        """
        K, T, S = timeline.K, timeline.T, len(timeline.names)
        if S != T:
            right = f"one synchronisation point for each of its {T} steps"
            raise ValueError(f"timeline must have {right}, got {S} points")
        used = ~np.isnan(timeline.arrivals_s)
        start, _, end = timeline.steps()
        nobody = ~used.any(axis=0)
        if nobody.any():
            at = timeline.names[nobody.argmax()]
            raise ValueError(
                f"timeline must have an arrival at each point, got none at {at!r}"
            )
        for k, t in np.argwhere(used & np.isnan(start)):
            right = "a compute span for each arrival"
            raise ValueError(
                f"timeline must have {right}, got none for worker {k}, step {t}"
            )
        last = np.where(used, end, -np.inf).max(axis=0)
        applied = np.maximum.accumulate(last)
        into, rank = np.nonzero(used.T)
        made = np.where(used, np.arange(1, T + 1), 0)
        helped = np.maximum.accumulate(
            made, axis=1
        )  # by each step, the last that it has
        before = np.pad(helped, ((0, 0), (1, 0)))
        seen = np.searchsorted(applied, start[rank, into], side="right")
        read = np.maximum(seen, before[rank, into])
        read = np.minimum(read, into)
        return cls(
            K, into, rank, into, read, applied, timeline.measured, timeline.where
        )

    @classmethod
    def asynchronous(cls, timeline: Timeline) -> Updates:
        """Every gradient is an update of its own: asynchronous and stale synchronous SGD. Read is what all updates up to the
        start of its compute span, that instant included, have made; of updates at the same instant the smaller rank's goes
        first.
        """
        start, _, end = timeline.steps()
        rank, step = np.nonzero(~np.isnan(start))
        order = np.lexsort((step, rank, end[rank, step]))
        rank, step = rank[order], step[order]
        applied = end[rank, step]
        into = np.arange(len(applied))
        read = np.searchsorted(applied, start[rank, step], side="right")
        read = np.minimum(read, into)  # a step that took no time did not read itself
        of = timeline.measured, timeline.where
        return cls(timeline.K, into, rank, step, read, applied, *of)

    @property
    def U(self) -> int:
        """Number of updates."""
        return len(self.applied_s)

    @property
    def tau(self) -> IntArray:
        """(G,) staleness of each gradient: how many updates came between the version it was computed at and its own."""
        return self.into - self.read
