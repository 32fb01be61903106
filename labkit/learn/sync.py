"""Synchronous SGD: K workers take the step that one worker would take with all their examples.

Every worker sums the gradients of its own examples, an all-reduce adds the sums, everyone takes the same
step (Bottou, Curtis and Nocedal 2018, section 4; Dean et al. 2012 for the setting). Exact up to rounding,
and only if what is divided by is the number of examples.

Symbols: K workers, b_k examples on worker k, M their sum over the workers, T steps, w (d,), ``eta`` the
learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start

if TYPE_CHECKING:
    from labkit.comm.base import Comm

#: ``shards[t][rank]`` or ``shards(t, rank)``: the numbers of the examples that a rank uses at step t.
Shards = Sequence[Sequence[ArrayLike]] | Callable[[int, int], ArrayLike]
#: Turns every rank's vector into their sum, the same on all of them; may overwrite what it is given.
AllReduce = Callable[["Comm", Array], Array]

Sizes = Sequence[int]  # b_k of every rank; empty where no rank needs them
Message = Callable[[Problem, Array, Array, Sizes], Array]
Direction = Callable[[Array, Sizes, int], Array]


def sync_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    allreduce: AllReduce,
    weights: str = "examples",
    T: int | None = None,
) -> Array:
    """Run synchronous SGD as one worker sees it; returns every iterate, (T + 1, d), beginning with w0.

    w0: (d,), the same on every rank. eta: a number or a function of t. shards: a list of T steps of K
    shards each, or a pure function (t, rank) -> example numbers together with T; a shard may be empty.
    weights: what travels,

    - "examples": the gradient sum and the number of examples, d + 1 numbers. Exact for any shards.
    - "known": the sum alone, d numbers; divided by the M that every rank counts in ``shards``. Exact.
    - "shard": b_k / M times the local mean, d numbers. Exact.
    - "plain": 1 / K times the local mean, d numbers. WRONG when the b_k differ: it is the mean of the means.

    Only the local gradient is timed as computation. Raises ValueError for bad input or a step without
    examples, Diverged (on every rank at the same step) when w stops being finite.

    >>> from labkit import launch
    >>> from labkit.collectives import ring_allreduce
    >>> problem = LeastSquares([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])
    >>> shards = [[[0, 1], [2]]] * 2  # two steps; worker 0 has two examples, worker 1 one
    >>> run = launch(sync_sgd, 2, problem, [0.0], 0.05, shards, ring_allreduce)
    >>> np.allclose(run.results[0], sgd(problem, [0.0], 0.05, [[0, 1, 2]] * 2))
    True
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    message, direction, counted = WEIGHTS[weights]
    pick, T = schedule(shards, T, comm.K)
    w = start(problem, w0)
    iterates = [w]
    for t in comm.steps(T):
        mine = np.asarray(pick(t, comm.rank))
        sizes = [np.size(pick(t, k)) for k in range(comm.K)] if counted else []
        if counted:
            _refuse_none(sum(sizes), t)
        with QUIETLY():  # descend says it when w overflows, on every rank at once
            vector = comm.compute(partial(message, problem, w, mine, sizes))
            g = direction(allreduce(comm, vector), sizes, t)
        w = descend(w, rate(eta, t), g, t)
        iterates.append(w)
    return np.array(iterates)


# -- what travels, and what the sum of it means -------------------------------------------------------------


def _sum_and_count(problem: Problem, w: Array, mine: Array, sizes: Sizes) -> Array:
    g = problem.grad_sum(w, mine)
    return np.append(g, np.array(mine.size, dtype=g.dtype))  # a Python int would make float32 float64


def _sum(problem: Problem, w: Array, mine: Array, sizes: Sizes) -> Array:
    return problem.grad_sum(w, mine)


def _share(problem: Problem, w: Array, mine: Array, sizes: Sizes) -> Array:
    return _mean(problem, w, mine) * (mine.size / sum(sizes))


def _plain(problem: Problem, w: Array, mine: Array, sizes: Sizes) -> Array:
    return _mean(problem, w, mine) / len(sizes)


def _mean(problem: Problem, w: Array, mine: Array) -> Array:
    return problem.grad(w, mine) if mine.size else problem.grad_sum(w, mine)  # no examples: zero


def _over_count(total: Array, sizes: Sizes, t: int) -> Array:
    _refuse_none(total[-1], t)
    return total[:-1] / total[-1]


def _over_known(total: Array, sizes: Sizes, t: int) -> Array:
    return total / sum(sizes)


def _as_it_is(total: Array, sizes: Sizes, t: int) -> Array:
    return total


def _refuse_none(M: float, t: int) -> None:
    if M == 0:
        raise ValueError(f"shards must hold an example at every step, got none at step {t}")


#: What a worker sends, the step's direction made from the sum, and whether every rank must count all shards.
WEIGHTS: dict[str, tuple[Message, Direction, bool]] = {
    "examples": (_sum_and_count, _over_count, False),
    "known": (_sum, _over_known, True),
    "shard": (_share, _as_it_is, True),
    "plain": (_plain, _as_it_is, True),
}


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


# -- dealing examples to workers ----------------------------------------------------------------------------


def split_sizes(n: int, K: int) -> NDArray[np.int64]:
    """Sizes of K near-equal shards of n examples, (K,): they sum to n and differ by 1 at most; 0 if K > n."""
    for name, value, least in (("n", n, 0), ("K", K, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return np.diff(np.arange(K + 1, dtype=np.int64) * n // K)


def split(idx: ArrayLike, K: int) -> list[Array]:
    """Cut example numbers into K contiguous, near-equal shards: ``idx[k n // K : (k + 1) n // K]``.

    >>> [part.tolist() for part in split(np.arange(7), 3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    rows = np.asarray(idx)
    if rows.ndim != 1:
        raise ValueError(f"idx must be a list of example numbers, got shape {rows.shape}")
    return np.split(rows, np.cumsum(split_sizes(len(rows), K))[:-1])


def shard_weights(sizes: ArrayLike) -> NDArray[np.float64]:
    """The weights b_k / M, (K,), that make means over shards of these sizes the mean over all.

    >>> shard_weights([3, 1])
    array([0.75, 0.25])
    """
    b = np.asarray(sizes)
    if b.ndim != 1 or b.dtype.kind not in "iu" or (b < 0).any() or b.sum() == 0:
        raise ValueError(f"sizes must be whole numbers >= 0, not all 0, got {sizes!r}")
    return b / b.sum()
