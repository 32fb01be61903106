"""Local SGD: every worker takes H steps of its own, then all go on from the mean of where they are.

McDonald, Hall and Mann 2010; McMahan et al. 2017, algorithm 1 (FedAvg: the mean is weighted by examples); Stich 2019,
algorithm 1. H = 1 is synchronous SGD: the mean of the steps is the step of the mean. `labkit.train.local` has it for torch.

Symbols: K workers, T steps, H local steps per synchronisation, w (d,), ``eta`` the learning rate, b_k examples
that worker k has used since the last synchronisation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Diverged, Rate, rate, start
from labkit.learn.sync import AllReduce, Shards, schedule

if TYPE_CHECKING:
    from labkit.comm.base import Comm


def local_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    allreduce: AllReduce,
    T: int | None = None,
) -> Array:
    """Run local SGD as one worker sees it; returns its every iterate, (T + 1, d), beginning with w0.

    w0: (d,), the same on every rank. eta: a number or a function of t. shards: as for ``sync_sgd``; a shard may be
    empty, and its worker then stays where it is. H: whole number >= 1; after steps H, 2 H, ... and after the last one
    all ranks hold the same bits, the mean of everybody's w weighted by b_k (d + 1 numbers travel).

    Only the local steps are timed as computation. Raises ValueError for bad input or for a synchronisation to which
    nobody brings an example, Diverged (on every rank at the same synchronisation) when w stops being finite.
    """
    integer("H", H, least=1)
    pick, T = schedule(shards, T, comm.K)
    w = start(problem, w0)
    iterates, used = [w], 0
    for t in comm.steps(T):
        mine, eta_t = np.asarray(pick(t, comm.rank)), rate(eta, t)
        with QUIETLY():  # a worker that diverges alone goes on, so that all stop together below
            w = comm.compute(partial(_step, problem, w, eta_t, mine))
            used += mine.size
            if (t + 1) % H == 0 or t + 1 == T:
                total = allreduce(comm, np.append(w * used, used).astype(w.dtype, copy=False))
                if total[-1] == 0:
                    raise ValueError(
                        f"shards must hold an example between two synchronisations, got none up to step {t}"
                    )
                w, used = total[:-1] / total[-1], 0
                if not np.isfinite(w).all():
                    raise Diverged(t, eta_t)
        iterates.append(w)
    return np.array(iterates)


def _step(problem: Problem, w: Array, eta: float, mine: Array) -> Array:
    return (w - eta * problem.grad(w, mine)).astype(w.dtype, copy=False) if mine.size else w
