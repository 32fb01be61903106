"""Synchronous SGD: K workers take the step that one worker would take with all their examples.

Every worker sums the gradients of its own examples, an all-reduce adds the sums, everyone takes the same step (Bottou,
Curtis and Nocedal 2018, section 4). Exact up to rounding, because the number of examples travels with the sum and is what
it is divided by. Symbols: K workers, T steps, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer
from labkit.collectives.arrays import chunk_bounds
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start

if TYPE_CHECKING:
    from labkit.comm.base import Comm

#: ``shards[t][rank]`` or ``shards(t, rank)``: the numbers of the examples that a rank uses at step t.
Shards = Sequence[Sequence[ArrayLike]] | Callable[[int, int], ArrayLike]
#: Turns every rank's vector into their sum, the same on all of them; may overwrite what it is given.
AllReduce = Callable[["Comm", Array], Array]


def sync_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    allreduce: AllReduce,
    T: int | None = None,
) -> Array:
    """Run synchronous SGD as one worker sees it; returns every iterate, (T + 1, d), beginning with w0, the same on every
    rank.

    eta: a number or a function of t. shards: a list of T steps of K shards each, or a pure function (t, rank) -> example
    numbers together with T; a shard may be empty. Only the local gradient is timed as computation. ValueError for a step
    without examples, Diverged (on every rank at the same step) when w stops being finite.

    >>> from labkit.collectives import ring
    >>> problem = LeastSquares([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])
    >>> shards = [[[0, 1], [2]]] * 2  # two steps; worker 0 has two examples, worker 1 one
    >>> run = launch(sync_sgd, 2, problem, [0.0], 0.05, shards, ring.allreduce)
    >>> np.allclose(run.results[0], sgd(problem, [0.0], 0.05, [[0, 1, 2]] * 2))
    True
    """
    pick, T = schedule(shards, T, comm.K)
    w = start(problem, w0)
    iterates = [w]
    for t in comm.steps(T):
        mine = np.asarray(pick(t, comm.rank))
        with QUIETLY():  # descend says it when w overflows, on every rank at once
            g = comm.compute(partial(problem.grad_sum, w, mine))
            message = np.append(g, g.dtype.type(mine.size))
            total = allreduce(comm, message)
            if total[-1] == 0:
                raise ValueError(
                    f"shards must hold an example at every step, got none at step {t}"
                )
            g = total[:-1] / total[-1]
        w = descend(w, rate(eta, t), g, t)
        iterates.append(w)
    return np.array(iterates)


def schedule(
    shards: Shards, T: int | None, K: int
) -> tuple[Callable[[int, int], ArrayLike], int]:
    """The shards as a function of (t, rank), and how many steps; ValueError if they don't fit K and T."""
    if callable(shards):
        if T is None:
            raise ValueError("T must be given when shards is a function, got None")
        return shards, T
    steps = shards[:T]
    for t, step in enumerate(steps):
        if len(step) != K:
            raise ValueError(
                f"shards must hold K = {K} shards a step, got {len(step)} at step {t}"
            )
    if T is not None and len(steps) < T:
        raise ValueError(
            f"T must be at most the {len(steps)} steps in shards, got {T}"
        )
    return (lambda t, rank: steps[t][rank]), len(steps)


def split(idx: ArrayLike, K: int) -> list[Array]:
    """Cut example numbers into K contiguous shards whose sizes differ by 1 at most: ``idx[k n // K : (k + 1) n // K]``.

    >>> [part.tolist() for part in split(np.arange(7), 3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    rows = np.asarray(idx)
    if rows.ndim != 1:
        raise ValueError(f"idx must be a list of numbers, got shape {rows.shape}")
    bounds = chunk_bounds(len(rows), integer("K", K, 1))
    return [rows[low:high] for low, high in pairwise(bounds)]
