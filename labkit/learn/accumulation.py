"""Gradient accumulation: m micro-batches, then one step, as if they had been one batch; and where they are not.

A gradient is a sum over examples, so one worker may add it up in parts exactly as K workers do: a micro-batch
is a shard in time. The memory of one micro-batch then suffices for a batch of any size, and among workers one
all-reduce serves m of them (the ``no_sync`` of Li et al. 2020, section 3.2.4). What breaks exactness for shards
breaks it for micro-batches (``exactness``); here is what is special to steps: momentum and running statistics
that move at every micro-batch instead of once.

Symbols: m micro-batches a step, K workers, T steps, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.exactness import Gap, gap
from labkit.learn.optimisers import Optimiser
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start
from labkit.learn.sync import AllReduce, split

if TYPE_CHECKING:
    from labkit.comm.base import Comm


def accumulate(problem: Problem, w: ArrayLike, micros: Iterable[ArrayLike]) -> Array:
    """The mean gradient over all examples of the micro-batches, (d,): sums added up, divided once, by their count.

    micros: lists of example numbers, of any sizes; some may be empty. ValueError if all are.
    """
    return _mean(_sum_and_count(problem, np.asarray(w), micros))


def accumulating_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Sequence[Sequence[ArrayLike]],
    m: int,
    allreduce: AllReduce,
    talk: str = "once",
) -> Array:
    """Synchronous SGD with accumulation, as one worker sees it; returns every iterate, (T + 1, d), beginning with w0.

    shards: ``shards[t][rank]``, a worker's examples of step t, cut into m near-equal micro-batches (empty ones
    where there are too few). m >= 1. allreduce: turns everyone's vector into the sum. talk: all-reduce "once" a
    step, or after "every" micro-batch, as a training loop does that forgets to hold it back. Both are exact: d
    + 1 numbers travel once or m times. Raises ValueError for bad input, Diverged when w stops being finite.
    """
    if isinstance(m, bool) or not isinstance(m, (int, np.integer)) or m < 1:
        raise ValueError(f"m must be a whole number of micro-batches >= 1, got {m!r}")
    if talk not in ("once", "every"):
        raise ValueError(f"talk must be 'once' or 'every', got {talk!r}")
    w = start(problem, w0)
    iterates = [w]
    for t in comm.steps(len(shards)):
        if len(shards[t]) != comm.K:
            raise ValueError(f"shards must hold K = {comm.K} shards a step, got {len(shards[t])} at step {t}")
        micros = split(shards[t][comm.rank], m)
        portions = [micros] if talk == "once" else [[mine] for mine in micros]
        total = np.zeros(problem.d + 1, dtype=w.dtype)
        with QUIETLY():
            for portion in portions:
                mine = comm.compute(partial(_sum_and_count, problem, w, portion))
                total = total + allreduce(comm, mine.astype(w.dtype, copy=False))
            g = _mean(total)
        w = descend(w, rate(eta, t), g, t)
        iterates.append(w)
    return np.array(iterates)


def _sum_and_count(problem: Problem, w: Array, micros: Iterable[ArrayLike]) -> Array:
    total, count = problem.grad_sum(w, []), 0
    for idx in micros:
        total = total + problem.grad_sum(w, idx)
        count += np.size(idx)
    return np.append(total, np.array(count, dtype=total.dtype))


def _mean(total: Array) -> Array:
    if total[-1] == 0:
        raise ValueError("micros must hold at least one example, got none")
    return total[:-1] / total[-1]


# -- where one step in m parts is not one step --------------------------------------------------------------


def momentum(
    problem: Problem, w0: ArrayLike, eta: float, rule: Optimiser, batches: Sequence[ArrayLike], m: int
) -> Gap:
    """Stepping at every micro-batch, each gradient divided by m; repaired by stepping once per batch.

    rule: such as ``Momentum(0.9)``. The gap is that of w after the last batch. Even without momentum it does
    not close: the later micro-batches see a w that has moved.
    """
    w = start(problem, w0)
    whole = each = once = (w, rule.start(w))
    for idx in batches:
        whole = rule.step(whole[0], problem.grad(whole[0], idx), eta, whole[1])
        once = rule.step(once[0], accumulate(problem, once[0], split(idx, m)), eta, once[1])
        for micro in split(idx, m):
            each = rule.step(each[0], problem.grad(each[0], micro) / m, eta, each[1])
    return Gap(gap(each[0], whole[0]), gap(once[0], whole[0]))


def running_mean(x: Array, micros: Sequence[ArrayLike], rate: float = 0.1) -> Gap:
    """BatchNorm's running mean, moved at every micro-batch; repaired by moving it once, by the mean of all of them.

    x: (M, d). rate: of the moving average ``r <- (1 - rate) r + rate mean``, torch's ``momentum``; r starts at
    zero.
    """
    means = [x[np.asarray(idx)].mean(axis=0) for idx in micros]
    whole = rate * x[np.concatenate(micros)].mean(axis=0)
    each = np.zeros(x.shape[1])
    for mean in means:
        each = (1 - rate) * each + rate * mean
    counts = np.array([np.size(idx) for idx in micros])
    return Gap(gap(each, whole), gap(rate * (counts @ np.array(means)) / counts.sum(), whole))
