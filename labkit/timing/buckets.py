"""Overlap: communication that starts while the backward pass still computes, bucket by bucket.

The backward pass produces the gradient from the last layer to the first. Cut into L buckets, each bucket's all-reduce
may start as soon as all workers have the bucket and the channel is free (Li et al. 2020, *PyTorch Distributed*,
section 3.2.3). A step ends when the last bucket is through. With f_l the share of the backward pass after which
bucket l is ready, p the slowest worker's backward pass and a_l the seconds of bucket l's all-reduce, a step takes

    max over l of (f_l p + a_l + a_(l+1) + ... + a_L):

from some bucket on the channel never rests, and before that bucket it waited for the backward pass.

Symbols: X (K, T) backward times, L buckets. All times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, integer, matrix, number, replicas
from labkit.timing.timeline import Kind, Timeline, spans


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

    >>> round(overlap(backward_s=0.2, allreduce_s=0.06, L=6).total_s, 6)
    0.21
    """
    number("backward_s", backward_s, least=0)
    number("allreduce_s", allreduce_s, least=0)
    integer("L", L, least=1)
    channel_free = 0.0
    for bucket in range(1, L + 1):
        ready = backward_s * bucket / L
        channel_free = max(channel_free, ready) + allreduce_s / L
    return Overlap(backward_s, allreduce_s, L, channel_free)


def buckets(X: ArrayLike, ready: ArrayLike, allreduce_s: ArrayLike) -> Timeline:
    """Timeline of T steps whose buckets are summed while the backward pass goes on.

    X: (K, T) seconds of each worker's backward pass. ready: (L,) shares of the backward pass after which each bucket is
    complete, never decreasing, the last one 1. allreduce_s: (L,) seconds of each bucket's all-reduce.
    Bucket l of a step starts when all K workers have it and the channel is free; the next step starts when the last
    bucket is through. Communication lies over compute; a worker waits when it has computed all and nothing is under way.
    """
    X = matrix("X", X)
    f, a = _plan(ready, allreduce_s)
    K, T = X.shape
    L = len(f)
    begin, end = np.empty((T, L)), np.empty((T, L))  # of each bucket's all-reduce
    start, done = np.empty((K, T)), np.empty((K, T))
    clock = 0.0
    for t in range(T):
        start[:, t], done[:, t] = clock, clock + X[:, t]
        slowest, channel_free = X[:, t].max(), clock
        for bucket in range(L):
            begin[t, bucket] = max(channel_free, clock + f[bucket] * slowest)
            channel_free = end[t, bucket] = begin[t, bucket] + a[bucket]
        clock = channel_free
    before = np.concatenate(
        [start[0, :, None], end[:, :-1]], axis=1
    )  # (T, L): since when the channel is free
    free = np.maximum(before, done[:, :, None])  # (K, T, L): and the worker, too
    per_worker = (
        np.maximum(free, begin),
        np.broadcast_to(begin, free.shape),
        np.broadcast_to(end, free.shape),
    )
    waited, begins, ends = (list(np.moveaxis(m, 2, 0)) for m in per_worker)
    kinds = [Kind.COMPUTE] + [Kind.WAIT] * L + [Kind.COMMUNICATE] * L
    return Timeline(
        K, *spans([start, *np.moveaxis(free, 2, 0), *begins], [done, *waited, *ends], kinds),
        arrivals_s=done, names=tuple(f"step {t}" for t in range(T)), measured=False,
        where=f"overlap recurrence, L = {L}",
    )  # fmt: skip


def buckets_ends(X: ArrayLike, ready: ArrayLike, allreduce_s: ArrayLike) -> FloatArray:
    """(T,) seconds at which each step of `buckets` ends; (T, R) for X of shape (K, T, R), R independent replicas."""
    slowest = replicas("X", X).max(axis=0)
    f, a = _plan(ready, allreduce_s)
    still = np.cumsum(a[::-1])[::-1]  # a_l + ... + a_L
    step = np.zeros_like(slowest)
    for share, seconds in zip(f, still, strict=True):
        np.maximum(step, share * slowest + seconds, out=step)
    return np.cumsum(step, axis=0)


def _plan(ready: ArrayLike, allreduce_s: ArrayLike) -> tuple[FloatArray, FloatArray]:
    f, a = np.asarray(ready, dtype=np.float64), np.asarray(allreduce_s, dtype=np.float64)
    if f.ndim != 1 or not f.size or not ((f >= 0) & (f <= 1)).all() or (np.diff(f) < 0).any() or f[-1] != 1:
        raise ValueError(
            f"ready must be a list of shares of the backward pass from 0 to 1 that never decrease, the last one 1, "
            f"got {f.tolist()}"
        )
    if a.shape != f.shape or not (np.isfinite(a) & (a >= 0)).all():
        raise ValueError(
            f"allreduce_s must hold finite seconds >= 0 for each of the {len(f)} buckets, got {a.tolist()}"
        )
    return f, a
