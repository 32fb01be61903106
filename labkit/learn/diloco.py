"""DiLoCo: H steps of AdamW alone, then one step together along how far everybody went (Douillard et al. 2023, algorithm 1).

Every H steps the *outer gradient*, the mean over the workers of (where they last agreed minus where they are now), goes
through an optimiser of its own, SGD with Nesterov momentum, and all go on from where that leads. Each worker's AdamW keeps
its memory from round to round and never speaks. With inner plain SGD, ``outer_eta = 1`` and no outer momentum the outer step
is the mean of the workers: local SGD; with H = 1 as well, synchronous SGD. ``labkit.train.local`` is the same for torch.

Symbols: K workers, T inner steps, H inner steps per outer step, w (d,), ``eta`` the inner learning rate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.local import check_H, meets
from labkit.learn.optimisers import AdamW, Momentum, Optimiser
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Diverged, Rate, rate, start
from labkit.learn.sync import AllReduce, Shards, schedule

if TYPE_CHECKING:
    from labkit.comm.base import Comm


def diloco(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    allreduce: AllReduce,
    inner: Optimiser = AdamW(),  # noqa: B008 (frozen)
    outer: Optimiser = Momentum(0.9, nesterov=True),  # noqa: B008 (frozen)
    outer_eta: float = 0.7,
    T: int | None = None,
) -> Array:
    """Run DiLoCo as one worker sees it; returns its every iterate, (T + 1, d), beginning with w0.

    w0: (d,), the same on every rank. eta: inner learning rate, a number or a function of t. shards: as for
    ``sync_sgd``; a shard may be empty, and its worker then stays where it is. H: whole number >= 1; after steps H,
    2 H, ... and after the last one comes an outer step, an all-reduce of d numbers, after which all ranks hold the same
    bits (H beyond T: one outer step, at the end). outer_eta: outer learning rate, > 0. The defaults are the paper's.

    Only the inner steps are timed as computation. Raises ValueError for bad input, Diverged (on every rank at the same
    outer step) when w stops being finite.
    """
    check_H(H)
    if not (np.isfinite(outer_eta) and outer_eta > 0):
        raise ValueError(f"outer_eta must be finite and > 0, got {outer_eta!r}")
    pick, T = schedule(shards, T, comm.K)
    w = anchor = start(problem, w0)
    iterates, own, common = [w], inner.start(w), outer.start(w)
    for t in comm.steps(T):
        mine, eta_t = np.asarray(pick(t, comm.rank)), rate(eta, t)
        with QUIETLY():  # a worker that diverges alone goes on, so that all stop together below
            if mine.size:
                w, own = comm.compute(partial(_inner_step, problem, inner, w, eta_t, own, mine))
            if meets(t, H, T):
                outer_gradient = (allreduce(comm, anchor - w) / comm.K).astype(w.dtype, copy=False)
                w, common = outer.step(anchor, outer_gradient, outer_eta, common)
                anchor = w
                if not np.isfinite(w).all():
                    raise Diverged(t, eta_t)
        iterates.append(w)
    return np.array(iterates)


def _inner_step(
    problem: Problem, inner: Optimiser, w: Array, eta: float, memory: Any, mine: Array
) -> tuple[Array, Any]:
    return inner.step(w, problem.grad(w, mine), eta, memory)
