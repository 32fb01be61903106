"""From a timeline to versions: which gradient read which version of w, and how far ahead of the slowest a worker ran.

Nothing but the timeline is read, so simulations, recurrences and measured runs are treated alike. A step's gradient is
computed from the start of its first compute span on, at the version that was there, and is applied when the step's last
compute or communicate span ends: a worker that then waits has pushed already, and waits for the answer.

How stale can a gradient get under SSP (Ho et al. 2013) with slack s? Let worker k compute in step t, and look at another
worker j. When k starts, the slowest has finished step t - s - 1, so j's steps 0 to t - s - 1 are in: at least t - s updates.
How many may be in when k's own is applied? Before j starts its step u, k has finished its step u - s - 1. If j then finishes
before k finishes step t, u - s - 1 < t: at most j's steps 0 to t + s are in, t + s + 1 updates. The difference is
2 s + 1 for each of the others, so

    tau <= (K - 1) (2 s + 1).

It is attained: a worker that was s steps behind when k started can be s steps ahead, and through with that step too, when
k is done. (At one and the same instant all updates count as read, so the first count holds; the second one needs
compute times > 0.)

Symbols: K workers, T steps, U updates, ``tau`` staleness in versions.
"""

from __future__ import annotations

import numpy as np

from labkit.timing._check import FloatArray, integer
from labkit.timing.timeline import IntArray, Kind, Timeline
from labkit.timing.updates import Updates


def one_by_one(timeline: Timeline) -> Updates:
    """Every gradient is an update of its own: asynchronous and stale synchronous SGD.

    Applied when its step's last compute or communicate span ends. Read is the version that all updates up to the start of
    its compute span, that instant included, have made. Of updates at the same instant the smaller rank's goes first.

    >>> one_by_one(asynchronous([[1.0, 1.0], [1.5, 1.5]])).tau
    array([0, 1, 1, 1])
    """
    start, _, end = _steps(timeline)
    rank, step = np.nonzero(~np.isnan(start))
    order = np.lexsort((step, rank, end[rank, step]))
    rank, step = rank[order], step[order]
    applied = end[rank, step]
    into = np.arange(len(applied))
    read = np.searchsorted(applied, start[rank, step], side="right")
    # A step that took no time was applied at the instant it started, and read what came before itself.
    return Updates(
        timeline.K, into, rank, step, np.minimum(read, into), applied, timeline.measured, timeline.where
    )


def together(timeline: Timeline) -> Updates:
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
    start, _, end = _steps(timeline)
    if not used.any(axis=0).all():
        raise ValueError(
            f"timeline must have an arrival at each point, got none at {timeline.names[int(used.any(axis=0).argmin())]!r}"
        )
    if (used & np.isnan(start)).any():
        k, t = np.argwhere(used & np.isnan(start))[0]
        raise ValueError(
            f"timeline must have a compute span for each arrival, got none for worker {k}, step {t}"
        )
    applied = np.maximum.accumulate(np.where(used, end, -np.inf).max(axis=0))
    into, rank = np.nonzero(used.T)
    helped = np.maximum.accumulate(
        np.where(used, np.arange(1, T + 1), 0), axis=1
    )  # the last version it helped to make
    own = np.concatenate([np.zeros((timeline.K, 1), dtype=np.int64), helped[:, :-1]], axis=1)
    read = np.maximum(np.searchsorted(applied, start[rank, into], side="right"), own[rank, into])
    return Updates(
        timeline.K, into, rank, into, np.minimum(read, into), applied, timeline.measured, timeline.where
    )


def lead(timeline: Timeline) -> IntArray:
    """(K, T) steps by which each worker is ahead of the slowest as it starts to compute each step.

    Worker k starts step t when everyone has computed t - lead[k, t] steps. ValueError unless every worker computes in
    every step.
    """
    start, computed, _ = _steps(timeline)
    if np.isnan(start).any():
        k, t = np.argwhere(np.isnan(start))[0]
        raise ValueError(
            f"timeline must have a compute span for every worker and step, got none for worker {k}, step {t}"
        )
    everyone = computed.max(axis=0)  # when the slowest has computed step t
    return np.arange(timeline.T) - np.searchsorted(everyone, start, side="right")


def staleness_bound(K: int, slack: int) -> int:
    """The most versions by which a gradient can be stale under SSP among K workers: the theorem above.

    >>> staleness_bound(K=4, slack=2)
    15
    """
    return (integer("K", K, least=1) - 1) * (2 * integer("slack", slack) + 1)


def _steps(timeline: Timeline) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(K, T) start of the first compute span, its last one's end, and the end of the last compute or communicate span;
    nan where nothing was computed."""
    shape = timeline.K, timeline.T
    start, computed, end = np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, -np.inf)
    inside = timeline.step >= 0
    compute = inside & (timeline.kind == Kind.COMPUTE)
    for into, ufunc, of, value in (
        (start, np.minimum, compute, timeline.start_s),
        (computed, np.maximum, compute, timeline.end_s),
        (end, np.maximum, inside & (timeline.kind != Kind.WAIT), timeline.end_s),
    ):
        ufunc.at(into, (timeline.rank[of], timeline.step[of]), value[of])
    nothing = np.isinf(start)
    for one in (start, computed, end):
        one[nothing] = np.nan
    return start, computed, end
