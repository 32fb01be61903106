"""Two small convex problems on which compression without error feedback fails for every learning rate.

``sign_stalls``: Karimireddy et al. (2019, section 3): two examples whose gradients have the same signs up to a factor of -1,
so steps along signs never leave a line that misses the optimum. ``top1_diverges``: Beznosikov et al. (2020, section 5):
three workers whose largest coordinates all point the wrong way, so the step goes uphill for ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labkit.learn.problems import Array, LeastSquares


class Counterexample(NamedTuple):
    """A problem, each worker's examples, and where to start. The optimum is zero, and so is its loss."""

    problem: LeastSquares
    shards: list[Array]
    w0: Array


def sign_stalls(epsilon: float = 0.5) -> Counterexample:
    """Two examples, two workers: ``a . w`` for a = +-(1, -1) + epsilon (1, 1), 0 < epsilon < 1, starting at (1, 1).

    The signs of both gradients are those of (1, -1) or its opposite, so w_1 + w_2 stays 2. ValueError for another epsilon.
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be between 0 and 1, got {epsilon!r}")
    across, along = np.array([1.0, -1.0]), np.array([1.0, 1.0])
    X = np.array([across + epsilon * along, -across + epsilon * along])
    return Counterexample(LeastSquares(X, np.zeros(2)), [np.array([0]), np.array([1])], along)


def top1_diverges() -> Counterexample:
    """Three workers with ``(a_k . w)^2 + |w|^2 / 4``, a = (-3, 2, 2) and its rotations, starting at (1, 1, 1).

    Worker k's gradient there is (-11, 9, 9) / 2 or a rotation: the mean is 7 / 6 in each coordinate, but every worker's
    *largest* coordinate is negative, and top-1 multiplies w by 1 + 11 eta / 6 in every step.
    """
    rows = []
    for k in range(3):
        rows += [np.roll([-3.0, 2.0, 2.0], k), *np.eye(3) / 2]
    X = 2 * np.array(rows)  # LeastSquares takes the mean of a worker's four rows; this makes it their sum
    return Counterexample(LeastSquares(X, np.zeros(12)), list(np.arange(12).reshape(3, 4)), np.ones(3))
