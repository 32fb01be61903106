"""Data to learn from: made from a generator, or scikit-learn's handwritten digits.

Every function takes the generator ``rng``: the same seed gives the same data in every world and on every
rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labkit.checks import integer, number
from labkit.extras import need

Array = NDArray[Any]


class Split(NamedTuple):
    """Examples to train on, X (N, p) and y (N,), and examples kept back, X_test and y_test."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def linear_data(N: int, d: int, rng: np.random.Generator, noise: float = 0.1) -> tuple[Array, Array, Array]:
    """Labels that are linear in the features, up to an error: features (N, d), labels (N,), coefficients (d,).

    ``rng`` is asked for standard normals three times: N d features, then d coefficients, then N errors, which are scaled
    by ``noise``, their standard deviation, >= 0. So ``default_rng(7)`` with N = 4096, d = 20 gives the reference data of
    10.3, bit for bit. Raises ValueError for N or d < 1 or another noise.
    """
    integer("N", N, 1), integer("d", d, 1), number("noise", noise, least=0)
    features = rng.standard_normal((N, d))
    coefficients = rng.standard_normal(d)
    errors = rng.standard_normal(N)
    return features, features @ coefficients + noise * errors, coefficients


def two_clouds(N: int, d: int, rng: np.random.Generator, distance: float = 3.0) -> tuple[Array, Array]:
    """Two round normal clouds, ``distance`` apart in a random direction: X (N, d), labels y (N,) of 0 and 1.

    The line between them passes through zero, so no intercept is needed; half the labels are 1 (rounded
    down), in random order. The best classifier's accuracy is Phi(distance / 2). Raises ValueError for N
    or d < 1.
    """
    integer("N", N, 1), integer("d", d, 1), number("distance", distance, least=0)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    y = rng.permutation(np.arange(N) % 2)
    X = rng.standard_normal((N, d)) + np.outer(y - 0.5, distance * direction)
    return X, y


def digits(rng: np.random.Generator, test: float = 0.25) -> Split:
    """scikit-learn's 1797 handwritten digits, shuffled and split: X (N, 64) in [0, 1], labels y (N,) 0..9.

    test: share of the examples kept back, between 0 and 1; they are ``round(test * 1797)``. The file
    comes with scikit-learn (nothing is downloaded). Raises ImportError without scikit-learn,
    ValueError for another share.
    """
    if not 0 < test < 1:
        raise ValueError(f"test must be a share between 0 and 1, got {test!r}")
    X, y = need("sklearn.datasets", install="scikit-learn").load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    kept, train = np.split(order, [round(test * len(y))])
    return Split(X[train] / 16.0, y[train], X[kept] / 16.0, y[kept])
