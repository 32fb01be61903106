"""Synchronous SGD: K workers take the step that one worker would take with all their examples.

Every worker sums the gradients of its own examples, an all-reduce adds the sums, everyone takes the same
step (Bottou, Curtis and Nocedal 2018, section 4; Dean et al. 2012 for the setting). Exact up to rounding,
because the number of examples travels with the sum and is what it is divided by.

Symbols: K workers, b_k examples on worker k, M their sum over the workers, T steps, w (d,), ``eta`` the
learning rate.
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
    """Run synchronous SGD as one worker sees it; returns every iterate, (T + 1, d), beginning with w0.

    w0: (d,), the same on every rank. eta: a number or a function of t. shards: a list of T steps of K
    shards each, or a pure function (t, rank) -> example numbers together with T; a shard may be empty.
    What travels is the gradient sum and the number of examples, d + 1 numbers. Only the local gradient is
    timed as computation. Raises ValueError for bad input or a step without examples, Diverged (on every
    rank at the same step) when w stops being finite.

    >>> from labkit import launch
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
            total = allreduce(comm, np.append(g, g.dtype.type(mine.size)))
            _refuse_none(total[-1], t)
            g = total[:-1] / total[-1]
        w = descend(w, rate(eta, t), g, t)
        iterates.append(w)
    return np.array(iterates)


def schedule(shards: Shards, T: int | None, K: int) -> tuple[Callable[[int, int], ArrayLike], int]:
    """The shards as a function of (t, rank), and how many steps; ValueError if they don't fit K and T."""
    if callable(shards):
        if T is None:
            raise ValueError("T must be given when shards is a function, got None")
        return shards, T
    for t, step in enumerate(shards):
        if len(step) != K:
            raise ValueError(f"shards must hold K = {K} shards a step, got {len(step)} at step {t}")
    known = len(shards)
    if T is not None and known < T:
        raise ValueError(f"T must be at most the {known} steps in shards, got {T}")
    return (lambda t, rank: shards[t][rank]), known if T is None else T


def _refuse_none(M: float, t: int) -> None:
    if M == 0:
        raise ValueError(f"shards must hold an example at every step, got none at step {t}")


def split(idx: ArrayLike, K: int) -> list[Array]:
    """Cut example numbers into K contiguous, near-equal shards: ``idx[k n // K : (k + 1) n // K]``.

    Their sizes differ by 1 at most; some are empty if K > n. ValueError unless idx is one list and K >= 1.

    >>> [part.tolist() for part in split(np.arange(7), 3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    rows = np.asarray(idx)
    if rows.ndim != 1:
        raise ValueError(f"idx must be a list of example numbers, got shape {rows.shape}")
    bounds = chunk_bounds(len(rows), integer("K", K, 1))
    return [rows[low:high] for low, high in pairwise(bounds)]
