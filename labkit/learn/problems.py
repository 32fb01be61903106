"""Problems: a loss that is a mean over examples, so a gradient that is a sum over them. And data to learn from.

Every problem is empirical risk minimisation (Bottou, Curtis and Nocedal 2018, section 2): minimise
``F(w) = (1/N) sum_i f_i(w)`` over w. The gradient of the sum splits over any partition of the examples, and that is all
that data-parallel training needs. The same seed of ``rng`` gives the same data in every world and on every rank.

Symbols: N examples, d parameters, w (d,), ``idx`` the examples to use.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import integer, number
from labkit.extras import need

Array = NDArray[Any]


class Problem(Protocol):
    """What an optimiser may ask of a problem: mean loss, mean gradient (d,) and the gradients' sum over examples ``idx``.

    idx: example numbers; one that stands there twice counts twice, and None means all. A mean over no examples is refused
    with ValueError; their sum is zero, so a worker without examples can take part.
    """

    N: int
    d: int

    def loss(self, w: Array, idx: ArrayLike | None = None) -> float: ...

    def grad(self, w: Array, idx: ArrayLike | None = None) -> Array: ...

    def grad_sum(self, w: Array, idx: ArrayLike | None = None) -> Array: ...


class Examples(ABC):
    """A problem given by features X (N, p) and labels y (N,), finite; a subclass says what losses and gradients of rows are.

    float32 stays float32, all else is computed in float64.
    """

    N: int
    d: int

    def __init__(self, X: ArrayLike, y: ArrayLike) -> None:
        features, labels = np.asarray(X), np.asarray(y)
        self.dtype = np.dtype(
            np.float32 if features.dtype == np.float32 else np.float64
        )
        self.X = features.astype(self.dtype, copy=False)
        if self.X.ndim != 2 or 0 in self.X.shape:
            raise ValueError(
                f"X must have shape (N, p) with N, p >= 1, got {self.X.shape}"
            )
        self.N, self.d = self.X.shape
        if labels.shape != (self.N,):
            raise ValueError(
                f"y must have shape ({self.N},), one per row of X, got {labels.shape}"
            )
        if not (np.isfinite(self.X).all() and np.isfinite(labels).all()):
            raise ValueError(
                "X and y must be finite, got NaN or infinity in one of them"
            )
        self.y = self._labels(labels)

    def loss(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Mean loss over the examples ``idx``."""
        X, y = self._rows(idx)
        return float(self._loss_sum(self._weights(w), X, y)) / _some(len(y))

    def grad(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Mean of the examples' gradients, (d,): ``grad_sum`` divided by their number."""
        return self.grad_sum(w, idx) / _some(self.N if idx is None else np.size(idx))

    def grad_sum(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Sum of the examples' gradients, (d,); zero if there are none."""
        X, y = self._rows(idx)
        return self._grad_sum(self._weights(w), X, y)

    @abstractmethod
    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any: ...

    @abstractmethod
    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array: ...

    def _labels(self, y: Array) -> Array:
        return y.astype(self.dtype, copy=False)

    def _weights(self, w: ArrayLike) -> Array:
        given = np.asarray(w, self.dtype)
        if given.shape != (self.d,):
            raise ValueError(f"w must have shape ({self.d},), got {given.shape}")
        return given

    def _rows(self, idx: ArrayLike | None) -> tuple[Array, Array]:
        if idx is None:
            return self.X, self.y
        rows = np.asarray(idx)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError(f"idx must be a list of example numbers, got {idx!r}")
        if rows.size and not (rows.min() >= 0 and rows.max() < self.N):
            got = f"{rows.min()} to {rows.max()}"
            raise ValueError(f"idx must be from 0 to {self.N - 1}, got {got}")
        rows = rows.astype(np.intp, copy=False)
        return self.X[rows], self.y[rows]


def _some(m: int) -> int:
    if m == 0:
        raise ValueError("idx must hold at least one example for a mean, got none")
    return m


class LeastSquares(Examples):
    """``F(w) = (1/N) sum_i (x_i . w - y_i)^2``: mean squared error, without the half and without an intercept.

    >>> problem = LeastSquares([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0])
    >>> float(problem.loss(np.zeros(2))), problem.grad(np.zeros(2)), problem.optimum().round(6)
    (2.5, array([-1., -4.]), array([1., 1.]))
    """

    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any:
        r = X @ w - y
        return r @ r

    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array:
        return 2 * (X.T @ (X @ w - y))

    @cached_property
    def _singular_values(self) -> Array:
        return np.linalg.svd(self.X.astype(float), compute_uv=False)

    @property
    def L(self) -> float:
        """Smoothness: largest eigenvalue of the Hessian ``2 X^T X / N``; keep eta below 2 / L."""
        return float(2 * self._singular_values[0] ** 2 / self.N)

    @property
    def mu(self) -> float:
        """Strong convexity: the Hessian's smallest eigenvalue; 0 if the columns of X are dependent."""
        s = self._singular_values
        rounding = float(np.spacing(self.dtype.type(1)))
        if len(s) < self.d or s[-1] <= s[0] * max(self.X.shape) * rounding:
            return 0.0
        return float(2 * s[-1] ** 2 / self.N)

    def optimum(self) -> Array:
        """The minimiser w, (d,), in the problem's dtype; the shortest one if there are several."""
        X, y = self.X.astype(float), self.y.astype(float)
        w, *_ = np.linalg.lstsq(X, y, rcond=None)
        return w.astype(self.dtype)


class Split(NamedTuple):
    """Examples to train on, X (N, p) and y (N,), and examples kept back, X_test and y_test."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def linear_data(
    N: int, d: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Labels that are linear in the features, up to an error: features (N, d), labels (N,), coefficients (d,). All are
    normal, the errors with standard deviation 0.1.
    """
    integer("N", N, 1), integer("d", d, 1)
    # In this order ``default_rng(7)`` with N = 4096, d = 20 gives the reference data of lab 10.3, bit for bit.
    features = rng.standard_normal((N, d))
    coefficients = rng.standard_normal(d)
    errors = rng.standard_normal(N)
    return features, features @ coefficients + 0.1 * errors, coefficients


def digits(rng: np.random.Generator, test: float = 0.25) -> Split:
    """scikit-learn's 1797 handwritten digits, shuffled: X (N, 64) in [0, 1], labels y (N,) 0..9. Nothing is downloaded.

    test: share of them kept back, above 0 and at most 0.99. ImportError without scikit-learn.
    """
    number("test", test, above=0, most=0.99)
    # Their file is enough: importing scikit-learn takes every process a second.
    package: Any = find_spec("sklearn") or need("sklearn", install="scikit-learn")
    file = f"{package.submodule_search_locations[0]}/datasets/data/digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=int)
    kept, train = np.split(rng.permutation(table), [round(test * len(table))])
    return Split(train[:, :-1] / 16, train[:, -1], kept[:, :-1] / 16, kept[:, -1])
