"""Stale gradients: SGD along a schedule that says at which old version of w each gradient was computed.

    w_{u+1} = w_u - eta_u (1 / M_u) sum over the gradients g in update u of b_g c(tau_g) grad F_g(w_{read_g})

with tau_g = u - read_g (Dean et al. 2012, Downpour SGD; Ho et al. 2013). c = 1 is what a plain parameter server does; a
staleness-aware one divides the step by the staleness, c = 1 / max(1, tau) (Zhang et al. 2016, *Staleness-aware async-SGD*).
No stale gradient is in a schedule of barriers, and this is then mini-batch SGD on the joined batches.

Symbols: U updates, G gradients, ``tau`` staleness in versions, b_g the examples of a gradient, M_u those of an update,
w (d,), ``eta`` the learning rate, c ``scale``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import number
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start
from labkit.timing.updates import Updates


def replay(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    updates: Updates,
    batches: Callable[[int, int], ArrayLike | None],
    scale: Callable[[int], float] | None = None,
) -> Array:
    """Run SGD along ``updates``; returns every version of w, (U + 1, d), beginning with w0.

    w0: (d,), its dtype (if floating) is that of the iterates. eta: a number or a function of the update u = 0, 1, ...,
    finite and >= 0. batches: the numbers of the examples that a rank uses in its t-th step (None: all), a pure function
    of (rank, step). scale: a factor >= 0 for each gradient, by its staleness. Along the record of a server it repeats
    the run, to the bit where each update had one gradient. Raises Diverged at the first update that leaves w not
    finite, ValueError for bad input.

    >>> from labkit.timing import Updates
    >>> into, read = np.array([0, 1, 2]), np.array([0, 0, 1])  # two workers take turns
    >>> turns = Updates(2, into, into % 2, into // 2, read, into + 1.0, measured=False, where="turns")
    >>> replay(LeastSquares([[1.0]], [1.0]), [0.0], 0.25, turns, lambda rank, step: [0]).ravel()
    array([0.  , 0.5 , 1.  , 1.25])
    """
    path = [start(problem, w0)]
    edges = np.searchsorted(updates.into, np.arange(updates.U + 1)).tolist()
    rows = np.stack([updates.rank, updates.step, updates.read], axis=1).tolist()
    for u in range(updates.U):
        examples, gradients = [], []
        with QUIETLY():
            for rank, step, read in rows[edges[u] : edges[u + 1]]:
                idx = batches(rank, step)
                c = 1.0 if scale is None else number(f"scale({u - read})", scale(u - read), least=0)
                gradients.append(c * problem.grad(path[read], idx))
                examples.append(problem.N if idx is None else np.size(idx))
            g = np.sum([b / sum(examples) * g for b, g in zip(examples, gradients, strict=True)], axis=0)
        path.append(descend(path[u], rate(eta, u), g, u))
    return np.array(path)
