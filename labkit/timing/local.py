"""Local steps: a barrier after every H-th step only.

Each worker takes H steps on its own; then all of them meet and average their parameters (Stich 2019, *Local SGD
converges fast and communicates little*, algorithm 1). Between two meetings lies, for each worker, a *sum* of H times:
chance evens out within a worker before the slowest counts, and communication is paid for once in H steps.

Symbols: X (K, T) compute times, H local steps. All times are seconds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, integer, matrix, number, replicas
from labkit.timing.timeline import Timeline


def local(X: ArrayLike, H: int, comm_s: float = 0.0) -> Timeline:
    """Timeline of T steps with a barrier, and ``comm_s`` of communication, after every H-th step and after the last.

    Its synchronisation points are the barriers; H = 1 is BSP.
    """
    X = matrix("X", X)
    integer("H", H, least=1)
    number("comm_s", comm_s, least=0)
    K, T = X.shape
    meets = _meets(T, H)
    start, arrive, leave, end = np.empty((4, T, K))
    clock = np.zeros(K)
    for t in range(T):
        start[t] = clock
        arrive[t] = clock + X[:, t]
        leave[t] = arrive[t].max() if meets[t] else arrive[t]
        clock = end[t] = leave[t] + comm_s if meets[t] else leave[t]
    timeline = Timeline.from_marks(
        start.T, arrive.T, leave.T, end.T, where=f"local steps recurrence, H = {H}"
    )
    names = tuple(name for name, meet in zip(timeline.names, meets, strict=True) if meet)
    return replace(timeline, arrivals_s=timeline.arrivals_s[:, meets], names=names)


def local_ends(X: ArrayLike, H: int, comm_s: float = 0.0) -> FloatArray:
    """(T,) seconds at which the slowest worker of `local` has finished each step, the communication after it included.

    (T, R) for X of shape (K, T, R), R independent replicas. ``[H - 1::H]`` are the barriers (and the last entry).

    >>> local_ends(np.ones((2, 4)), H=2, comm_s=0.5)
    array([1. , 2.5, 3.5, 5. ])
    """
    X = replicas("X", X)
    integer("H", H, least=1)
    number("comm_s", comm_s, least=0)
    steps = np.moveaxis(X, 1, 0)
    M = np.empty((len(steps), *steps.shape[2:]))
    F = np.zeros(steps.shape[1:])
    for t, meet in enumerate(_meets(len(steps), H)):
        F += steps[t]
        M[t] = F.max(axis=0)
        if meet:
            M[t] += comm_s
            F[:] = M[t]
    return M


def _meets(T: int, H: int) -> np.ndarray:
    """(T,) whether the workers meet after step t."""
    t = np.arange(1, T + 1)
    return (t % H == 0) | (t == T)
