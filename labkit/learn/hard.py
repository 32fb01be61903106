"""A quadratic that is hard for every first-order method, its springs shared out between two workers, and how hard it is.

The chain of Nesterov (2004, section 2.1.2) as least squares: coordinates w_1, ..., w_d between the fixed ends w_0 = 1 and
w_{d+1} = 0, and a spring between neighbours,

    f(w) = (L / 8) sum_{i=0}^{d} (w_i - w_{i+1})^2,

his function plus the constant L / 8. Each spring is one of the N = d + 1 examples, so a split is a choice of shards. From
zero, a point with t leading non-zero coordinates has a gradient that reaches t + 1: one more a round. If the springs go to
two workers in turn, neither gets further alone, whatever it does between two exchanges (after Arjevani and Shamir 2015).

Symbols: d coordinates, N = d + 1 springs, L smoothness, t rounds, ``distance`` from the start to the minimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.problems import Array, LeastSquares

Shards = tuple[NDArray[np.intp], NDArray[np.intp]]


def chain(d: int, L: float = 1.0) -> LeastSquares:
    """The chain of d coordinates as a ``LeastSquares`` of d + 1 springs.

    d: whole number >= 1. L: finite, > 0; the Hessian's largest eigenvalue is below it and tends to it as d grows.
    The minimiser is ``1 - i / (d + 1)`` for i = 1, ..., d and the minimum ``L / (8 (d + 1))``. ValueError for anything else.
    """
    d, L = _whole(d, "d", 1), _positive(L, "L")
    X = np.eye(d + 1, d) - np.eye(d + 1, d, k=-1)  # row i: w_{i+1} - w_i, counting from w_1
    y = np.zeros(d + 1)
    y[0] = 1.0  # the end that is held at 1
    scale = np.sqrt(L * (d + 1) / 8)  # LeastSquares takes the mean over the springs
    return LeastSquares(scale * X, scale * y)


def in_turn(d: int) -> Shards:
    """The springs of ``chain(d)`` dealt to two workers in turn: worker 0 has 0, 2, 4, ..., worker 1 has 1, 3, 5, ..."""
    springs = np.arange(_whole(d, "d", 1) + 1)
    return springs[::2], springs[1::2]


def in_halves(d: int) -> Shards:
    """The springs of ``chain(d)`` cut in two: worker 0 has the first half, one more if they are odd."""
    springs = np.arange(_whole(d, "d", 1) + 1)
    middle = (d + 2) // 2
    return springs[:middle], springs[middle:]


def reached(w: ArrayLike) -> Any:
    """How many coordinates of ``w`` (..., d), from the first to the last that is not zero; (...) integers."""
    touched = np.asarray(w) != 0
    d = touched.shape[-1]
    last = d - np.argmax(touched[..., ::-1], axis=-1)
    found = np.where(touched.any(axis=-1), last, 0)
    return int(found) if found.ndim == 0 else found


def least_gap(t: ArrayLike, d: int, L: float = 1.0) -> Any:
    """The least ``f(w) - min f`` of ``chain(d, L)`` over all w with at most t leading non-zero coordinates.

    That is ``(L / 8) (1 / (t + 1) - 1 / (d + 1))``, which no first-order method started at zero goes below after t rounds
    (Nesterov 2004, section 2.1.2: the minimum of the shorter chain, less that of the whole).
    t: whole numbers >= 0, beyond d the gap is 0. Returns a float for a number. ValueError for anything else.
    """
    d, L = _whole(d, "d", 1), _positive(L, "L")
    gap = L / 8 * (1 / (np.minimum(_rounds(t), d) + 1) - 1 / (d + 1))
    return float(gap) if np.ndim(gap) == 0 else gap


def nesterov_gap(t: ArrayLike, distance: float, L: float = 1.0) -> Any:
    """``3 L distance^2 / (32 (t + 1)^2)``, Nesterov (2004), theorem 2.1.7: for every first-order method and every
    t >= 1 there is a convex L-smooth function of d >= 2 t + 1 coordinates on which it is no better after t rounds.

    distance: from start to minimiser, >= 0. The function is ``chain(2 t + 1, L)``, whose ``least_gap`` lies just above this.
    """
    L = _positive(L, "L")
    if not (np.isfinite(distance) and distance >= 0):
        raise ValueError(f"distance must be finite and >= 0, got {distance!r}")
    gap = 3 * L * float(distance) ** 2 / (32 * (_rounds(t) + 1.0) ** 2)
    return float(gap) if np.ndim(gap) == 0 else gap


def _rounds(t: ArrayLike) -> Array:
    given = np.asarray(t)
    if given.dtype.kind not in "iu" or np.any(given < 0):
        raise ValueError(f"t must be a whole number of rounds >= 0, or an array of them, got {t!r}")
    return given


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def _positive(value: float, name: str) -> float:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return float(value)
