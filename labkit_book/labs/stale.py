"""Stale gradients: SGD along a schedule that says at which old version of w each gradient was computed.

    w_{u+1} = w_u - eta_u (1 / M_u) sum over the gradients g in update u of b_g grad F_g(w_{read_g})

(Dean et al. 2012, Downpour SGD; Ho et al. 2013.) In a schedule of barriers no gradient is stale, and this is mini-batch SGD
on the joined batches.

Symbols: U updates, b_g the examples of a gradient, M_u those of an update, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start
from labkit.timing import Updates


def replay(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    updates: Updates,
    batches: Callable[[int, int], ArrayLike | None],
) -> Array:
    """Run SGD along ``updates``; returns every version of w, (U + 1, d), beginning with w0.

    w0: (d,). eta: a number or a function of the update u = 0, 1, ... batches: the numbers of the examples that a rank uses
    in its t-th step (None: all), a pure function of (rank, step). Along the record of a server it repeats the run, to the
    bit. Raises Diverged at the first update that leaves w not finite, ValueError for bad input.

    >>> from labkit.learn import LeastSquares
    >>> from labkit.timing import Updates
    >>> into, read = np.array([0, 1, 2]), np.array([0, 0, 1])  # two workers take turns
    >>> turns = Updates(2, into, into % 2, into // 2, read, into + 1.0, measured=False, where="turns")
    >>> replay(LeastSquares([[1.0]], [1.0]), [0.0], 0.25, turns, lambda rank, step: [0]).ravel()
    array([0.  , 0.5 , 1.  , 1.25])
    """
    path = [start(problem, w0)]
    gradients = np.stack([updates.rank, updates.step, updates.read], axis=1)
    of_update = np.split(gradients, np.searchsorted(updates.into, np.arange(1, updates.U)))
    for u in range(updates.U):
        examples, parts = [], []
        for rank, step, read in of_update[u].tolist():
            rows = batches(rank, step)
            with QUIETLY():
                parts.append(problem.grad(path[read], rows))
            examples.append(problem.N if rows is None else np.size(rows))
        weights = np.array(examples) / sum(examples)
        with QUIETLY():
            g = np.sum([b * part for b, part in zip(weights, parts, strict=True)], axis=0)
        path.append(descend(path[u], rate(eta, u), g, u))
    return np.array(path)
