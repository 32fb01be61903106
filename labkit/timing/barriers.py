"""Barriers as recurrences: who waits for whom, from nothing but a matrix of compute times.

Bulk synchronous (BSP; Valiant 1990, *A bridging model for parallel computation*): a superstep lasts as long
as its slowest worker's compute, plus communication. Stale synchronous (SSP; Ho et al. 2013, *More effective
distributed ML via a stale synchronous parallel parameter server*): a worker may start step t when the slowest
has finished step t - s - 1. With F the times at which steps are finished,

    F[k, t] = max(F[k, t-1], M[t-1-s]) + X[k, t],     M[t] = max over k of F[k, t].

s = 0 is BSP, s >= T is asynchronous. Communication adds the same seconds to every step. In BSP, where it is an all-reduce,
it follows the wait; in SSP a worker pushes its gradient as soon as it has it, and it is the server's answer that it waits
for. The times at which steps start and end are the same either way.

Every model of this room has a quick form for big problems, named after it: ``bsp_ends``, ``ssp_ends``, ... say
when the slowest worker has finished each step, without a timeline, and take R independent replicas at once.

Symbols: X (K, T) compute times, s ``slack``. All times are seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, integer, matrix, number, replicas
from labkit.timing.timeline import Kind, Timeline, spans


def bsp(X: ArrayLike, comm_s: float = 0.0) -> Timeline:
    """Timeline of T supersteps: each lasts max over k of X[k, t], plus ``comm_s``.

    >>> timeline = bsp([[1.0, 2.0], [3.0, 1.0]], comm_s=0.5)
    >>> float(timeline.end_s.max()), timeline.arrivals_s.tolist()
    (6.0, [[1.0, 5.5], [3.0, 4.5]])
    """
    X = matrix("X", X)
    number("comm_s", comm_s, least=0)
    start = np.broadcast_to(np.concatenate([[0.0], bsp_ends(X, comm_s)[:-1]]), X.shape)
    arrive = start + X
    leave = np.broadcast_to(arrive.max(axis=0), X.shape)
    return Timeline.from_marks(start, arrive, leave, leave + comm_s, where="BSP recurrence")


def bsp_ends(X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
    """(T,) seconds at which each superstep of `bsp` ends; (T, R) for X of shape (K, T, R), R independent replicas.

    >>> bsp_ends([[1.0, 2.0], [3.0, 1.0]], comm_s=0.5)
    array([3.5, 6. ])
    """
    slowest = replicas("X", X).max(axis=0)
    number("comm_s", comm_s, least=0)
    laid = np.stack([slowest, np.full_like(slowest, comm_s)], axis=1)  # added one by one, as a clock would
    return np.cumsum(laid.reshape(-1, *slowest.shape[1:]), axis=0)[1::2]


def ssp(X: ArrayLike, slack: int, comm_s: float = 0.0) -> Timeline:
    """Timeline of T steps in which no worker is more than ``slack`` steps ahead of the slowest."""
    X = matrix("X", X)
    integer("slack", slack)
    number("comm_s", comm_s, least=0)
    K, T = X.shape
    start, arrive, pushed, leave = np.empty((4, T, K))
    clock = np.zeros(K)
    for t in range(T):
        start[t] = clock
        arrive[t] = clock + X[:, t]
        pushed[t] = arrive[t] + comm_s
        clock = leave[t] = pushed[t] if t < slack else np.maximum(pushed[t], pushed[t - slack].max())
    kinds = (Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT)
    return Timeline(
        K, *spans([start.T, arrive.T, pushed.T], [arrive.T, pushed.T, leave.T], kinds),
        arrivals_s=arrive.T, names=tuple(f"step {t}" for t in range(T)), measured=False,
        where=f"SSP recurrence, s = {slack}",
    )  # fmt: skip


def ssp_ends(X: ArrayLike, slack: int, comm_s: float = 0.0, *, checked: bool = False) -> FloatArray:
    """(T,) seconds at which the slowest worker has finished each step, communication included.

    Same recurrence as `ssp`, for big K and T: no timeline, one vector in place. X is (K, T), or (K, T, R) for
    R independent replicas, and the answer then (T, R). Fastest where step t of all workers lies together in
    memory, as `draw` makes it. ValueError for a time that is negative or not finite; ``checked=True``
    says that X is known to be good (the same times for another slack) and saves the time to look.

    >>> X = [[1.0, 3.0, 1.0], [3.0, 1.0, 1.0]]
    >>> ssp_ends(X, slack=0), ssp_ends(X, slack=1)
    (array([3., 6., 7.]), array([3., 4., 5.]))
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim not in (2, 3) or 0 in X.shape:
        raise ValueError(f"X must have shape (K, T) or (K, T, R) with no empty axis, got {X.shape}")
    integer("slack", slack)
    number("comm_s", comm_s, least=0)
    steps = np.ascontiguousarray(np.moveaxis(X, 1, 0))
    M = np.empty((len(steps), *steps.shape[2:]))
    F = np.zeros(steps.shape[1:])
    for t, x in enumerate(steps):
        if not checked and not x.min() >= 0:  # refuses nan too; here, where x is about to be read anyway
            raise ValueError(f"X must hold finite seconds >= 0, got {x.min()!r} at step {t}")
        if t > slack:
            np.maximum(F, M[t - 1 - slack], out=F)
        F += x
        if comm_s:
            F += comm_s
        M[t] = F.max(axis=0)
    if not np.isfinite(M).all():
        raise ValueError("X must hold finite seconds >= 0, got inf")
    return M
