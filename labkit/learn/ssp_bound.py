"""What SSP promises a convex problem: a regret that grows like the square root of the updates.

Ho et al. 2013, *More effective distributed ML via a stale synchronous parallel parameter server*, theorem 1: with convex
losses f_u whose gradients are at most L long, all iterates within ``|w - w*|^2 / 2 <= F^2`` of the minimiser, steps

    eta_u = sigma / sqrt(u + 1),   sigma = F / (L sqrt(2 (s + 1) K)),

and views that lack at most the updates which SSP permits, the U gradients, each at the version its worker had read, obey

    sum over u of  f_u(w_read) - f_u(w*)   <=   4 F L sqrt(2 (s + 1) K U).

Their views are clocks; ours are versions in the order of application, for which the same proof holds. A view lacks the
tau_u <= (2 s + 1)(K - 1) < 2 (s + 1) K latest updates (``labkit.timing.staleness_bound``). With A = sqrt(2 (s + 1) K) the
three terms of the sum are at most F L sqrt(U) / A (the steps' lengths), A F L sqrt(U) (the distance covered) and
2 A F L sqrt(U) (the staleness), together less than 4 A F L sqrt(U).

Symbols: K workers, s ``slack``, U updates of one gradient each, ``tau`` staleness, L Lipschitz constant of the losses
(only here; elsewhere L is smoothness), F radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.problems import Array, Problem
from labkit.learn.stale import Batches
from labkit.timing.updates import Updates


def ssp_rate(F: float, L: float, slack: int, K: int) -> Callable[[int], float]:
    """The learning rate of theorem 1, a function of the update: ``F / (L sqrt(2 (s + 1) K)) / sqrt(u + 1)``."""
    sigma = _positive("F", F) / (_positive("L", L) * _A(slack, K))
    return lambda u: sigma / math.sqrt(u + 1)


def ssp_regret_bound(F: float, L: float, slack: int, K: int, U: ArrayLike) -> Any:
    """Theorem 1's bound on the regret after U updates, of U's shape: ``4 F L sqrt(2 (s + 1) K U)``."""
    updates = np.asarray(U)
    if updates.dtype.kind not in "iu" or (updates < 0).any():
        raise ValueError(f"U must be a whole number of updates >= 0, or an array of them, got {U!r}")
    bound = 4 * _positive("F", F) * _positive("L", L) * _A(slack, K) * np.sqrt(updates)
    return float(bound) if bound.ndim == 0 else bound


def regret(
    problem: Problem, iterates: Array, updates: Updates, batches: Batches, best: ArrayLike
) -> NDArray[np.float64]:
    """The regret after each gradient, (G,): sum of f(w_read) - f(best), f the loss on the gradient's own examples.

    iterates: (U + 1, d), all versions, as ``replay`` returns them. best: (d,), the minimiser to compare with.
    """
    if np.shape(iterates) != (updates.U + 1, problem.d):
        raise ValueError(
            f"iterates must be all {updates.U + 1} versions of {problem.d} numbers, got {np.shape(iterates)}"
        )
    w_best = np.asarray(best)
    losses = []
    for rank, step, read in zip(
        updates.rank.tolist(), updates.step.tolist(), updates.read.tolist(), strict=True
    ):
        idx = batches(rank, step)
        losses.append(problem.loss(iterates[read], idx) - problem.loss(w_best, idx))
    return np.cumsum(losses)


def _A(slack: int, K: int) -> float:
    return math.sqrt(2 * (_whole("slack", slack, 0) + 1) * _whole("K", K, 1))


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return float(value)
