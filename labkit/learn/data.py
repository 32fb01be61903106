"""Data to learn from: made from a generator, or scikit-learn's handwritten digits.

Every function takes the generator ``rng``: the same seed gives the same data in every world and on every
rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Split(NamedTuple):
    """Examples to train on, X (N, p) and y (N,), and examples kept back, X_test and y_test."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def linear_data(N: int, d: int, rng: np.random.Generator, noise: float = 0.1) -> tuple[Array, Array, Array]:
    """A linear model with noise: X (N, d) standard normal, y (N,) = X w_true + noise * normal, w_true (d,).

    The three draws come in this order; with ``default_rng(7)``, N = 4096, d = 20 this is the reference
    data of 10.3. noise: standard deviation, >= 0. Raises ValueError for N or d < 1 or another noise.
    """
    _at_least_one(N=N, d=d)
    _scale("noise", noise)
    X = rng.standard_normal((N, d))
    w_true = rng.standard_normal(d)
    y = X @ w_true + noise * rng.standard_normal(N)
    return X, y, w_true


def two_clouds(N: int, d: int, rng: np.random.Generator, distance: float = 3.0) -> tuple[Array, Array]:
    """Two round normal clouds, ``distance`` apart in a random direction: X (N, d), labels y (N,) of 0 and 1.

    The line between them passes through zero, so no intercept is needed; half the labels are 1 (rounded
    down), in random order. The best classifier's accuracy is Phi(distance / 2). Raises ValueError for N
    or d < 1.
    """
    _at_least_one(N=N, d=d)
    _scale("distance", distance)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    y = rng.permutation(np.arange(N) % 2)
    X = rng.standard_normal((N, d)) + np.outer(y - 0.5, distance * direction)
    return X, y


def digits(rng: np.random.Generator, test: float = 0.25) -> Split:
    """scikit-learn's 1797 handwritten digits, shuffled and split: X (N, 64) in [0, 1], labels y (N,) 0..9.

    test: share of the examples kept back, between 0 and 1; they are ``round(test * 1797)``. The file
    comes with scikit-learn (nothing is downloaded). Raises ModuleNotFoundError without scikit-learn,
    ValueError for another share.
    """
    if not 0 < test < 1:
        raise ValueError(f"test must be a share between 0 and 1, got {test!r}")
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "digits() reads its pictures from scikit-learn: install it with `pip install scikit-learn`"
        ) from missing
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    kept, train = np.split(order, [round(test * len(y))])
    return Split(X[train] / 16.0, y[train], X[kept] / 16.0, y[kept])


def _at_least_one(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def _scale(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
