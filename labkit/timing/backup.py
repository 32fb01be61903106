"""Backup workers: a round ends when the first K - b gradients are there; the rest are dropped.

Chen et al. 2016, *Revisiting distributed synchronous SGD*, section 3.2 and algorithms 3 and 4. A late worker is not
interrupted: it finishes, its gradient is dropped as being of a round that is over, and it joins the round that is
current by then. With f_k the time at which worker k is free, S the round's start and n_k the number of times that worker
k has computed before,

    a_k = max(S, f_k) + X[k, n_k],     E = the (K - b)-th smallest a_k.

Workers with f_k > E sort behind by themselves: they never started in this round. Who started and is not among the first
K - b stays busy until a_k. Of gradients that arrive at the same time those of smaller ranks count, and a late worker that
is free at the very moment at which a round ends joins the next.

A worker computes at most once in a round, so T rounds never ask for more than the T times of a row of X.

Symbols: X (K, T) compute times, b ``backups``. All times are seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, integer, matrix, number, replicas
from labkit.timing.timeline import Kind, Timeline, spans


def backup(X: ArrayLike, backups: int, comm_s: float = 0.0) -> Timeline:
    """Timeline of T rounds, each over with the first K - backups gradients; then ``comm_s`` of communication.

    X: (K, T) seconds; X[k, n] is worker k's n-th computation, in whatever round it falls.
    A span's step is the round in which it began. ``arrivals_s`` (K, T) is nan for those whose gradient was not used.
    Workers that are late in the last round finish what they have begun, so the timeline may end after the run, which
    is over at ``backup_ends(X, backups, comm_s)[-1]``. No backups is BSP.
    """
    X = matrix("X", X)
    K, T = X.shape
    _door(K, backups, comm_s)
    start, arrive, leave, end, arrivals = np.full((5, T, K), np.nan)
    free, n, S, every = np.zeros(K), np.zeros(K, dtype=np.int64), 0.0, np.arange(K)
    for r in range(T):
        begin = np.maximum(S, free)
        a = begin + X[every, n]
        used = np.zeros(K, dtype=bool)
        used[np.argsort(a, kind="stable")[: K - backups]] = True
        E = a[used].max()
        started = used | (free <= S) | (free < E)
        start[r, started] = begin[started]
        arrivals[r, used] = a[used]
        free = arrive[r] = np.where(started, a, free)
        S = E + comm_s
        leave[r] = np.where(
            used, E, np.maximum(free, S)
        )  # who is free before the next round starts waits for it
        end[r] = free = np.where(used, S, np.maximum(free, leave[r]))
        n += started
    marks, kinds = [start.T, arrive.T, leave.T, end.T], (Kind.COMPUTE, Kind.WAIT, Kind.COMMUNICATE)
    names = tuple(f"round {r}" for r in range(T))
    where = f"backup workers recurrence, b = {backups}"
    return Timeline(
        K, *spans(marks[:3], marks[1:], kinds),
        arrivals_s=arrivals.T, names=names, measured=False, where=where,
    )  # fmt: skip


def backup_ends(X: ArrayLike, backups: int, comm_s: float = 0.0) -> FloatArray:
    """(T,) seconds at which each round of `backup` is over; (T, R) for X of shape (K, T, R), R independent replicas.

    >>> backup_ends([[1.0, 1.0], [2.0, 2.0], [9.0, 1.0]], backups=1)
    array([2., 4.])
    """
    X = replicas("X", X)
    K, T = X.shape[:2]
    _door(K, backups, comm_s)
    last = K - backups - 1
    ends = np.empty((T, *X.shape[2:]))
    free, n, S = (
        np.zeros((K, *X.shape[2:])),
        np.zeros((K, 1, *X.shape[2:]), dtype=np.int64),
        np.zeros(X.shape[2:]),
    )
    for r in range(T):
        a = np.maximum(S, free)
        a += np.take_along_axis(X, n, axis=1)[:, 0]
        E = np.partition(a, last, axis=0)[last]
        started = (free <= S) | (free < E)
        surplus = (a == E) & ~started  # free just as the round ends, with a gradient that takes no time
        if surplus.any():
            used = np.argsort(np.argsort(a, axis=0, kind="stable"), axis=0) <= last
            started |= used
        np.copyto(free, a, where=started)
        n[:, 0] += started
        S = ends[r] = E + comm_s
    return ends


def _door(K: int, backups: int, comm_s: float) -> None:
    if integer("backups", backups) >= K:
        raise ValueError(f"backups must be less than the number of workers, {K}, got {backups}")
    number("comm_s", comm_s, least=0)
