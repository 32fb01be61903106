"""Sparse least squares: every example touches few of the d coordinates, the case that Hogwild! was made for.

Example i has m features, in the columns ``cols[i]``, with the values ``vals[i]``; all others are zero. So its gradient is
zero outside ``cols[i]`` and a step changes m numbers (Recht, Re, Wright and Niu 2011, *Hogwild!*, section 2). m = d is the
dense case. All rows have equally many features, so that they make a rectangle: no library is needed.

Symbols: N examples, d parameters, m features of an example, w (d,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array
from labkit.timing._check import generator, integer, number


class SparseLeastSquares:
    """``F(w) = (1/N) sum_i (vals_i . w[cols_i] - y_i)^2``, a ``labkit.learn.Problem``.

    cols: (N, m) whole numbers from 0 to d - 1, no row with one twice. vals: (N, m). y: (N,). Raises ValueError otherwise.
    """

    def __init__(self, cols: ArrayLike, vals: ArrayLike, y: ArrayLike, d: int) -> None:
        self.d = integer("d", d, least=1)
        columns = np.asarray(cols)
        if columns.ndim != 2 or 0 in columns.shape or columns.dtype.kind not in "iu":
            raise ValueError(f"cols must be (N, m) whole numbers with N, m >= 1, got shape {columns.shape}")
        self.cols = columns.astype(np.intp)
        self.vals = np.asarray(vals, dtype=np.float64)
        self.y = np.asarray(y, dtype=np.float64)
        self.N, self.m = self.cols.shape
        if self.cols.min() < 0 or self.cols.max() >= d:
            raise ValueError(
                f"cols must be from 0 to d - 1 = {d - 1}, got {self.cols.min()} to {self.cols.max()}"
            )
        if (np.diff(np.sort(self.cols, axis=1), axis=1) == 0).any():
            raise ValueError("cols must not name a column twice in one row")
        if self.vals.shape != self.cols.shape or self.y.shape != (self.N,):
            raise ValueError(f"vals and y must have shapes {self.cols.shape} and ({self.N},)")
        if not (np.isfinite(self.vals).all() and np.isfinite(self.y).all()):
            raise ValueError("vals and y must be finite, got NaN or infinity in one of them")

    def slope(self, i: int, x: Array) -> Array:
        """The gradient of example i in its own columns, (m,); x: (m,), w there."""
        v = self.vals[i]
        return (2.0 * (v.dot(x) - self.y[i])) * v

    def loss(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Mean loss over the examples ``idx``; None: all."""
        r = self._residuals(w, idx)
        if not r.size:
            raise ValueError("loss needs at least one example, got none")
        return float(r @ r) / r.size

    def grad(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Mean of the examples' gradients, (d,)."""
        b = self.N if idx is None else np.size(idx)
        if b == 0:
            raise ValueError("grad needs at least one example, got none")
        return self.grad_sum(w, idx) / b

    def grad_sum(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """Sum of the examples' gradients, (d,); zero if there are none."""
        rows = self._rows(idx)
        terms = 2.0 * self._residuals(w, idx)[:, None] * self.vals[rows]
        return np.bincount(self.cols[rows].ravel(), terms.ravel(), minlength=self.d)

    def conflicts(self, rng: np.random.Generator, pairs: int = 20_000) -> float:
        """Estimate of the probability that two examples touch a common coordinate, from random pairs."""
        i, j = generator(rng).integers(self.N, size=(2, integer("pairs", pairs, least=1)))
        meet = np.zeros(pairs, dtype=bool)
        for column in self.cols[i].T:
            meet |= (self.cols[j] == column[:, None]).any(axis=1)
        return float(meet.mean())

    def _residuals(self, w: ArrayLike, idx: ArrayLike | None) -> Array:
        x = np.asarray(w, dtype=np.float64)
        if x.shape != (self.d,):
            raise ValueError(f"w must have shape ({self.d},), got {x.shape}")
        rows = self._rows(idx)
        return np.einsum("ij,ij->i", self.vals[rows], x[self.cols[rows]]) - self.y[rows]

    def _rows(self, idx: ArrayLike | None) -> Array:
        if idx is None:
            return np.arange(self.N)
        rows = np.asarray(idx)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError(f"idx must be a list of example numbers, got {idx!r}")
        if rows.size and not (rows.min() >= 0 and rows.max() < self.N):
            raise ValueError(f"idx must be from 0 to {self.N - 1}, got {rows.min()} to {rows.max()}")
        return rows.astype(np.intp)

    def __repr__(self) -> str:
        return f"<SparseLeastSquares N = {self.N}, d = {self.d}, {self.m} features each>"


def sparse_data(
    N: int, d: int, m: int, rng: np.random.Generator, noise: float = 0.1, intercept: bool = False
) -> tuple[SparseLeastSquares, Array]:
    """A sparse linear model with noise, and the w_true (d,) behind it.

    Each example has m features in columns drawn evenly, normal values of variance 1/m (so that a row is about 1 long)
    and y = x . w_true + noise * normal. intercept: one of the m is column 0, with the value 1, in every example.
    Raises ValueError unless 1 <= m <= d.
    """
    for name, value in (("N", N), ("d", d), ("m", m)):
        integer(name, value, least=1)
    number("noise", noise, least=0)
    if m > d:
        raise ValueError(f"m must be at most d = {d}, got {m}")
    generator(rng)
    own = int(intercept)
    cols = own + _distinct(N, d - own, m - own, rng)
    vals = rng.standard_normal((N, m)) / np.sqrt(m)
    if intercept:
        cols, vals[:, 0] = np.column_stack([np.zeros(N, dtype=np.intp), cols]), 1.0
    w_true = rng.standard_normal(d)
    y = np.einsum("ij,ij->i", vals, w_true[cols]) + noise * rng.standard_normal(N)
    return SparseLeastSquares(cols, vals, y, d), w_true


def _distinct(N: int, d: int, m: int, rng: np.random.Generator) -> Array:
    """(N, m) columns from 0 to d - 1, drawn evenly, without repetition in a row."""
    if m * m > d:
        return rng.permuted(np.tile(np.arange(d, dtype=np.intp), (N, 1)), axis=1)[:, :m]
    cols = rng.integers(d, size=(N, m)).astype(np.intp)
    while (again := (np.diff(np.sort(cols, axis=1), axis=1) == 0).any(axis=1)).any():
        cols[again] = rng.integers(d, size=(int(again.sum()), m))
    return cols
