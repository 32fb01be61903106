"""Which gradients made which version of w, and when: the schedule of updates that learning follows.

A timeline says when workers computed, waited and communicated; its `Updates` say what that means for learning:
version u is w after u updates, update u turns version u into version u + 1, and every gradient in it was computed
at some older version, the one its worker had read. The staleness of a gradient (Dean et al. 2012; Ho et al. 2013;
Zhang et al. 2016, *Staleness-aware async-SGD*, section 3.1) is the number of updates between the two.

Nothing but the timeline is read, so simulations, recurrences and measured runs are treated alike. A step's gradient is
computed from the start of its first compute span on, at the version that was there, and is applied when the step's last
compute or communicate span ends: a worker that then waits has pushed already, and waits for the answer.

Symbols: K workers, U updates, G gradients, ``tau`` staleness in versions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray, column, every, integer
from labkit.timing.timeline import IntArray, Timeline


@dataclass(frozen=True, eq=False)
class Updates:
    """A schedule of updates. Arrays are copied, read-only; bad ones are refused with ValueError.

    K: number of workers.
    into, rank, step, read: (G,) whole numbers, one entry for each gradient that was used, ordered by ``into``: the
        update it went into, who computed it, in which of that worker's steps, and the version it was computed at
        (``0 <= read <= into``).
    applied_s: (U,) seconds at which each update was applied, never decreasing; every update has a gradient.
    measured: True if a clock measured these times, False if a model made them.
    where: the machine and the day, or the model.
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
        K, G, U = integer("K", self.K, least=1), np.size(self.into), np.size(self.applied_s)
        for name in ("into", "rank", "step", "read"):
            object.__setattr__(self, name, column(name, getattr(self, name), G, whole=True))
        applied, into = column("applied_s", self.applied_s, U), self.into
        object.__setattr__(self, "applied_s", applied)
        every("applied_s", applied, np.isfinite(applied), "finite seconds")
        every("applied_s", applied[1:], np.diff(applied) >= 0, "seconds that never decrease")
        if (np.diff(into) < 0).any() or not np.array_equal(np.unique(into), np.arange(U)):
            short = np.array2string(into, threshold=8)
            raise ValueError(f"into must count up, each of {U} updates having a gradient, got {short}")
        every("rank", self.rank, (self.rank >= 0) & (self.rank < K), f"between 0 and {K - 1}")
        every("step", self.step, self.step >= 0, "a step >= 0")
        there = (self.read >= 0) & (self.read <= into)
        every("read", self.read, there, "a version that was there: 0 <= read <= into")

    @classmethod
    def synchronous(cls, timeline: Timeline) -> Updates:
        """All gradients that arrived at a synchronisation point make one update: BSP, backup workers, overlap.

        The timeline must have one synchronisation point a step; point t takes the gradients of step t from the workers that
        arrived there (the others' were dropped). It is applied when the last of them has computed and communicated. A worker
        has read what it helped to make, and whatever else was applied by the start of its compute span.
        Raises ValueError for another number of points, and for a point at which nobody arrived.
        """
        T, S = timeline.T, len(timeline.names)
        if S != T:
            raise ValueError(
                f"timeline must have one synchronisation point for each of its {T} steps, got {S} points"
            )
        used = ~np.isnan(timeline.arrivals_s)
        start, _, end = timeline.steps()
        if not used.any(axis=0).all():
            nobody = timeline.names[int(used.any(axis=0).argmin())]
            raise ValueError(f"timeline must have an arrival at each point, got none at {nobody!r}")
        if (used & np.isnan(start)).any():
            k, t = np.argwhere(used & np.isnan(start))[0]
            raise ValueError(
                f"timeline must have a compute span for each arrival, got none for worker {k}, step {t}"
            )
        applied = np.maximum.accumulate(np.where(used, end, -np.inf).max(axis=0))
        into, rank = np.nonzero(used.T)
        # the last version it helped to make
        helped = np.maximum.accumulate(np.where(used, np.arange(1, T + 1), 0), axis=1)
        own = np.concatenate([np.zeros((timeline.K, 1), dtype=np.int64), helped[:, :-1]], axis=1)
        read = np.maximum(np.searchsorted(applied, start[rank, into], side="right"), own[rank, into])
        return cls(
            timeline.K, into, rank, into, np.minimum(read, into), applied, timeline.measured, timeline.where
        )

    @classmethod
    def asynchronous(cls, timeline: Timeline) -> Updates:
        """Every gradient is an update of its own: asynchronous and stale synchronous SGD.

        Applied when its step's last compute or communicate span ends. Read is the version that all updates up to the
        start of its compute span, that instant included, have made. Of updates at the same instant the smaller
        rank's goes first.

        >>> Updates.asynchronous(StaleSynchronous(1).timeline([[1.0, 1.0], [1.5, 1.5]])).tau
        array([0, 1, 1, 1])
        """
        start, _, end = timeline.steps()
        rank, step = np.nonzero(~np.isnan(start))
        order = np.lexsort((step, rank, end[rank, step]))
        rank, step = rank[order], step[order]
        applied = end[rank, step]
        into = np.arange(len(applied))
        read = np.searchsorted(applied, start[rank, step], side="right")
        # A step that took no time was applied at the instant it started, and read what came before itself.
        return cls(
            timeline.K, into, rank, step, np.minimum(read, into), applied, timeline.measured, timeline.where
        )

    @property
    def U(self) -> int:
        """Number of updates."""
        return len(self.applied_s)

    @property
    def tau(self) -> IntArray:
        """(G,) staleness of each gradient: how many updates came between the version it was computed at and its own."""
        return self.into - self.read

    def staleness(self) -> IntArray:
        """Histogram of tau: entry i is the number of gradients that were i versions old."""
        return np.bincount(self.tau)

    def used(self) -> IntArray:
        """(K,) gradients of each worker that went into an update."""
        return np.bincount(self.rank, minlength=self.K)
