"""Local SGD: every worker takes H steps of its own, then all go on from the mean of where they are.

McDonald, Hall and Mann 2010; McMahan et al. 2017, algorithm 1 (FedAvg: the mean is weighted by examples); Stich 2019,
algorithm 1 (the plain mean). H = 1 is synchronous SGD: the mean of the steps is the step of the mean.

Symbols: K workers, T steps, H local steps per synchronisation, w (d,), ``eta`` the learning rate, b_k examples
that worker k has used since the last synchronisation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Diverged, Rate, rate, start
from labkit.learn.sync import AllReduce, Shards, schedule

if TYPE_CHECKING:
    from labkit.comm.base import Comm

_WEIGHTS = ("examples", "equal")


def local_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    allreduce: AllReduce,
    weights: str = "examples",
    T: int | None = None,
) -> Array:
    """Run local SGD as one worker sees it; returns its every iterate, (T + 1, d), beginning with w0.

    w0: (d,), the same on every rank. eta: a number or a function of t. shards: as for ``sync_sgd``; a shard may be
    empty, and its worker then stays where it is. H: whole number >= 1; after steps H, 2 H, ... and after the last one
    all ranks hold the same bits. weights: "examples" weights a worker by the examples it has used since the last
    synchronisation (d + 1 numbers travel), "equal" counts every worker alike (d numbers).

    Only the local steps are timed as computation. Raises ValueError for bad input or for a synchronisation to which
    nobody brings an example, Diverged (on every rank at the same synchronisation) when w stops being finite.
    """
    if weights not in _WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(_WEIGHTS)}, got {weights!r}")
    check_H(H)
    return alone_and_together(comm, problem, w0, eta, shards, H, allreduce, weights == "examples", 0, T)


def alone_and_together(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    allreduce: AllReduce,
    by_examples: bool,
    switch: int,
    T: int | None,
) -> Array:
    """The loop of ``local_sgd``, whose first ``switch`` steps are all synchronous."""
    pick, T = schedule(shards, T, comm.K)
    w = start(problem, w0)
    iterates, used = [w], 0
    for t in comm.steps(T):
        mine, eta_t = np.asarray(pick(t, comm.rank)), rate(eta, t)
        with QUIETLY():  # a worker that diverges alone goes on, so that all stop together below
            w = comm.compute(partial(local_step, problem, w, eta_t, mine))
        used += mine.size
        if meets(t, H, T, switch):
            w = mean_of_all(comm, w, used if by_examples else None, allreduce, t)
            used = 0
            if not np.isfinite(w).all():
                raise Diverged(t, eta_t)
        iterates.append(w)
    return np.array(iterates)


def meets(t: int, H: int, T: int, switch: int = 0) -> bool:
    """Whether workers synchronise after step t = 0, 1, ..., T - 1."""
    return t < switch or (t + 1 - switch) % H == 0 or t + 1 == T


def local_step(problem: Problem, w: Array, eta: float, mine: Array) -> Array:
    """``w - eta * (mean gradient of the examples mine)``, in w's dtype; w itself where there are none."""
    return (w - eta * problem.grad(w, mine)).astype(w.dtype, copy=False) if mine.size else w


def mean_of_all(comm: Comm, w: Array, used: int | None, allreduce: AllReduce, t: int) -> Array:
    """The mean of everybody's w, weighted by ``used`` or all alike, the same bits on every rank."""
    with QUIETLY():
        if used is None:
            return (allreduce(comm, w.copy()) / comm.K).astype(w.dtype, copy=False)
        total = allreduce(comm, np.append(w * used, used).astype(w.dtype, copy=False))
        _refuse_none(total[-1], t)
        return total[:-1] / total[-1]


def local_sgd_at_once(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    K: int,
    weights: str = "examples",
    T: int | None = None,
) -> Array:
    """What all K workers of ``local_sgd`` hold after each synchronisation, w0 first: (1 + ceil(T / H), d).

    One loop without messages, for studies that run it many times; equal to the workers' results up to rounding.
    """
    if weights not in _WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(_WEIGHTS)}, got {weights!r}")
    check_H(H)
    pick, T = schedule(shards, T, K)
    w = start(problem, w0)
    meetings = [w]
    for begin in range(0, T, H):
        ends, used = [], []
        for rank in range(K):
            own, count = w, 0
            for t in range(begin, min(begin + H, T)):
                mine = np.asarray(pick(t, rank))
                with QUIETLY():
                    own = local_step(problem, own, rate(eta, t), mine)
                count += mine.size
            ends.append(own)
            used.append(count if weights == "examples" else 1)
        last = min(begin + H, T) - 1
        _refuse_none(sum(used), last)
        with QUIETLY():
            w = np.average(ends, axis=0, weights=used).astype(w.dtype, copy=False)
        if not np.isfinite(w).all():
            raise Diverged(last, rate(eta, last))
        meetings.append(w)
    return np.array(meetings)


def check_H(H: int) -> None:
    if isinstance(H, bool) or not isinstance(H, (int, np.integer)) or H < 1:
        raise ValueError(f"H must be a whole number of local steps >= 1, got {H!r}")


def _refuse_none(used: float, t: int) -> None:
    if used == 0:
        raise ValueError(f"shards must hold an example between two synchronisations, got none up to step {t}")
