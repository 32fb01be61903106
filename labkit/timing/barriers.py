"""Barriers as recurrences: who waits for whom, from nothing but a matrix of compute times.

Bulk synchronous (BSP; Valiant 1990, *A bridging model for parallel computation*): a superstep lasts as long
as its slowest worker's compute, plus communication. Stale synchronous (SSP; Ho et al. 2013, *More effective
distributed ML via a stale synchronous parallel parameter server*): a worker may start step t when the slowest
has finished step t - s - 1. With F the times at which steps are finished,

    F[k, t] = max(F[k, t-1], M[t-1-s]) + X[k, t],     M[t] = max over k of F[k, t].

s = 0 is BSP, s >= T is asynchronous. A worker that must not start yet waits at the end of its step, before it
communicates, so that the barrier is seen where BSP has it; communication adds the same seconds to every step.

Symbols: X (K, T) compute times, s ``slack``, L buckets. All times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, integer, matrix, number
from labkit.timing.timeline import Timeline


def bsp(X: ArrayLike, comm_s: float = 0.0) -> Timeline:
    """Timeline of T supersteps: each lasts max over k of X[k, t], plus ``comm_s``."""
    X = matrix("X", X)
    number("comm_s", comm_s, least=0)
    ends = np.cumsum(X.max(axis=0) + comm_s)
    start = np.broadcast_to(np.concatenate([[0.0], ends[:-1]]), X.shape)
    arrive = start + X
    leave = np.broadcast_to(arrive.max(axis=0), X.shape)
    return Timeline.from_marks(start, arrive, leave, leave + comm_s, where="BSP recurrence")


def ssp(X: ArrayLike, slack: int, comm_s: float = 0.0) -> Timeline:
    """Timeline of T steps in which no worker is more than ``slack`` steps ahead of the slowest."""
    X = matrix("X", X)
    integer("slack", slack)
    number("comm_s", comm_s, least=0)
    K, T = X.shape
    start, arrive, leave = np.empty((T, K)), np.empty((T, K)), np.empty((T, K))
    clock = np.zeros(K)
    for t in range(T):
        start[t] = clock
        arrive[t] = clock + X[:, t]
        leave[t] = arrive[t] if t < slack else np.maximum(arrive[t], arrive[t - slack].max())
        clock = leave[t] + comm_s
    return Timeline.from_marks(
        start.T, arrive.T, leave.T, leave.T + comm_s, where=f"SSP recurrence, s = {slack}"
    )


def ssp_slowest(X: ArrayLike, slack: int, comm_s: float = 0.0, *, checked: bool = False) -> FloatArray:
    """(T,) seconds at which the slowest worker has finished each step, communication included.

    Same recurrence as `ssp`, for big K and T: no timeline, one vector in place. X is (K, T), or (K, T, R) for
    R independent replicas, and the answer then (T, R). Fastest where step t of all workers lies together in
    memory, as `laws.draw` makes it. ValueError for a time that is negative or not finite; ``checked=True``
    says that X is known to be good (the same times for another slack) and saves the time to look.
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


@dataclass(frozen=True)
class Overlap:
    """A backward pass and an all-reduce in L buckets, overlapped. Seconds.

    total_s: the step. exposed_s: communication that compute could not hide. hidden_s: the rest of it.
    """

    backward_s: float
    allreduce_s: float
    L: int
    total_s: float

    @property
    def exposed_s(self) -> float:
        return self.total_s - self.backward_s

    @property
    def hidden_s(self) -> float:
        return self.allreduce_s - self.exposed_s

    @property
    def share(self) -> float:
        """Share of the step in which nothing but communication happens; 0 for a step of no time."""
        return self.exposed_s / self.total_s if self.total_s else 0.0

    def __str__(self) -> str:
        return (
            f"L = {self.L}: step {1e3 * self.total_s:.2f} ms, of the all-reduce {1e3 * self.hidden_s:.2f} ms "
            f"hidden and {1e3 * self.exposed_s:.2f} ms exposed ({100 * self.share:.1f} % of the step)"
        )


def overlap(backward_s: float, allreduce_s: float, L: int) -> Overlap:
    """Step time when each of L equal buckets is sent as soon as its gradients are there.

    Bucket l = 1..L is ready at backward_s * l / L; the all-reduces, allreduce_s / L each, run one after
    another on one channel (Li et al. 2020, *PyTorch Distributed*, section 3.2.3).
    """
    number("backward_s", backward_s, least=0)
    number("allreduce_s", allreduce_s, least=0)
    integer("L", L, least=1)
    channel_free = 0.0
    for bucket in range(1, L + 1):
        ready = backward_s * bucket / L
        channel_free = max(channel_free, ready) + allreduce_s / L
    return Overlap(backward_s, allreduce_s, L, channel_free)
