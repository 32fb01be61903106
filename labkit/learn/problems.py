"""Problems: a loss that is a mean over examples, so a gradient that is a sum over them.

Every problem is empirical risk minimisation (Bottou, Curtis and Nocedal 2018, section 2): minimise ``F(w)
= (1/N) sum_i f_i(w)`` over w. The gradient of the sum splits over any partition of the examples, and that
is all that data-parallel training needs.

Symbols: N examples, d parameters, w (d,), ``idx`` the examples to use, m how many that is, L and mu the
constants of smoothness and strong convexity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


class Problem(Protocol):
    """What an optimiser may ask of a problem.

    ``idx`` is a list or array of example numbers; one that stands there twice counts twice, and None
    means all. A mean over no examples is refused with ValueError; their sum is zero, so a worker without
    examples can take part.
    """

    N: int
    d: int

    def loss(self, w: Array, idx: ArrayLike | None = None) -> float:
        """Mean loss over the examples ``idx``."""

    def grad(self, w: Array, idx: ArrayLike | None = None) -> Array:
        """Mean of the examples' gradients, (d,)."""

    def grad_sum(self, w: Array, idx: ArrayLike | None = None) -> Array:
        """Sum of the examples' gradients, (d,)."""


class Examples(ABC):
    """A problem given by features and labels; a subclass says what the losses and gradients of some rows are.

    X: (N, p), finite; float32 stays float32, all else is computed in float64. y: (N,), finite.
    Neither is copied if its dtype is right. Raises ValueError for any other shape, or for NaN.
    """

    N: int
    d: int

    def __init__(self, X: ArrayLike, y: ArrayLike) -> None:
        features, labels = np.asarray(X), np.asarray(y)
        if features.dtype.kind not in "biuf" or labels.dtype.kind not in "biuf":
            raise ValueError(
                f"X and y must hold real numbers, got dtypes {features.dtype} and {labels.dtype}"
            )
        self.dtype = np.dtype(np.float32 if features.dtype == np.float32 else np.float64)
        self.X: Array = features.astype(self.dtype, copy=False)
        if self.X.ndim != 2 or 0 in self.X.shape:
            raise ValueError(f"X must have shape (N, p) with N, p >= 1, got {self.X.shape}")
        if labels.shape != self.X.shape[:1]:
            raise ValueError(f"y must have shape {self.X.shape[:1]}, one per row of X, got {labels.shape}")
        if not (np.isfinite(self.X).all() and np.isfinite(labels).all()):
            raise ValueError("X and y must be finite, got NaN or infinity in one of them")
        self.y = self._labels(labels)
        self.N = len(self.X)
        self.d = self.X.shape[1]

    def loss(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Mean loss over the examples ``idx``."""
        X, y = self._rows(idx)
        return float(self._loss_sum(self._weights(w), X, y)) / self._some(len(y), "loss")

    def grad(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Mean of the examples' gradients, (d,): ``grad_sum`` divided by their number."""
        X, y = self._rows(idx)
        return self._grad_sum(self._weights(w), X, y) / self._some(len(y), "grad")

    def grad_sum(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Sum of the examples' gradients, (d,); zero if there are none. This is what workers should send."""
        X, y = self._rows(idx)
        return self._grad_sum(self._weights(w), X, y)

    @abstractmethod
    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any: ...

    @abstractmethod
    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array: ...

    def _labels(self, y: Array) -> Array:
        return y.astype(self.dtype, copy=False)

    def _weights(self, w: ArrayLike) -> Array:
        given = np.asarray(w, dtype=self.dtype)
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
            raise ValueError(f"idx must be from 0 to {self.N - 1}, got {rows.min()} to {rows.max()}")
        rows = rows.astype(np.intp, copy=False)
        return self.X[rows], self.y[rows]

    @staticmethod
    def _some(m: int, what: str) -> int:
        if m == 0:
            raise ValueError(
                f"idx must hold at least one example: {what} is a mean; the sum (grad_sum) may be empty"
            )
        return m

    def __repr__(self) -> str:
        return f"<{type(self).__name__} N = {self.N}, d = {self.d}, {self.dtype}>"


class LeastSquares(Examples):
    """``F(w) = (1/N) sum_i (x_i . w - y_i)^2``: mean squared error, without the half.

    X: (N, d). y: (N,). Gradient of one example: ``2 (x_i . w - y_i) x_i``. No intercept.

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
        return np.linalg.svd(self.X.astype(np.float64), compute_uv=False)

    @property
    def L(self) -> float:
        """Smoothness: largest eigenvalue of the Hessian ``2 X^T X / N``; keep eta below 2 / L."""
        return float(2 * self._singular_values[0] ** 2 / self.N)

    @property
    def mu(self) -> float:
        """Strong convexity: the Hessian's smallest eigenvalue; 0 if the columns of X are dependent."""
        s = self._singular_values
        noise = s[0] * max(self.X.shape) * float(np.spacing(self.dtype.type(1)))
        return float(2 * s[-1] ** 2 / self.N) if len(s) == self.d and s[-1] > noise else 0.0

    def optimum(self) -> Array:
        """The minimiser w, (d,), in the problem's dtype; the shortest one if there are several."""
        w = np.linalg.lstsq(self.X.astype(np.float64), self.y.astype(np.float64), rcond=None)[0]
        return w.astype(self.dtype)


class LogisticRegression(Examples):
    """``F(w) = (1/N) sum_i [log(1 + exp(z_i)) - y_i z_i]`` with ``z_i = x_i . w``.

    X: (N, d). y: (N,), each 0 or 1. No intercept: append a column of ones to X. Stable for any finite z.
    Raises ValueError for other labels.
    """

    def _labels(self, y: Array) -> Array:
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y must hold only the labels 0 and 1, got {y[~np.isin(y, (0, 1))][0]!r}")
        return super()._labels(y)

    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any:
        z = X @ w
        return np.sum(np.logaddexp(0, z) - y * z)

    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array:
        p = np.exp(-np.logaddexp(0, -(X @ w)))  # the sigmoid; no exponential overflows, small p stay exact
        return X.T @ (p - y)

    @property
    def L(self) -> float:
        """Smoothness, an upper bound: largest eigenvalue of ``X^T X / (4 N)``."""
        return float(np.linalg.norm(self.X.astype(np.float64), 2) ** 2 / (4 * self.N))
