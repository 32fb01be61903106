"""PowerSGD: send a matrix as the product of two thin ones, which can be added in flight (Vogels et al. 2019, algorithm 1).

A gradient matrix M (n, m) is approximated by P Q^T with P (n, r), Q (m, r): one step of subspace iteration, begun where the
last step's ended ("warm start").

    P = M Q;   all-reduce P;   orthogonalise P;   Q = M^T P;   all-reduce Q;   the mean is P (mean Q)^T

Both products are linear in M, so summing them over the workers is the product of the summed matrix: two all-reduces of
(n + m) r numbers in place of one of n m. Error feedback is part of the method (algorithm 2). Vectors (biases), and matrices
where (n + m) r * ``ratio`` is not below n m, travel whole: so does any matrix whose rank is below r.

Symbols: r the rank of the approximation, n rows, m columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import integer, number
from labkit.compress.scheme import Crossing, Exchanged, Rngs, Scheme, vector
from labkit.compress.wire import Array, Wire


class _Factors(NamedTuple):
    """A worker's memory: the error (d,), and for each matrix that is factored the last Q (m, r), the same on all workers."""

    error: Array
    Qs: list[Array]


class _Part(NamedTuple):
    """Where a matrix of n rows and m columns lies in the flat gradient."""

    low: int
    high: int
    n: int
    m: int


@dataclass(frozen=True)
class PowerSGD(Scheme):
    """Rank-``r`` approximation of the matrices of these ``shapes``, which lie one after another in the flat gradient.

    shapes: of all parameters, as ``[p.shape for p in model.parameters()]``; sides beyond the second are flattened into it.
    ratio: a matrix is factored if that divides its numbers by more than this. feedback: whether there is an error memory.
    warm: whether Q is kept from step to step; without, each step begins with a random one.
    """

    shapes: tuple[tuple[int, ...], ...]
    r: int = 2
    ratio: float = 1.0
    feedback: bool = True
    warm: bool = True

    def __post_init__(self) -> None:
        integer("r", self.r, 1)
        number("ratio", self.ratio, least=1)
        shapes = tuple(tuple(int(side) for side in shape) for shape in self.shapes)
        if not shapes or any(side < 1 for shape in shapes for side in shape):
            raise ValueError(f"shapes must hold shapes with sides >= 1, got {self.shapes!r}")
        object.__setattr__(self, "shapes", shapes)

    def start(self, d: int, dtype: Any, rngs: Rngs) -> _Factors:
        parts, _ = self._parts(d)
        return _Factors(np.zeros(d, dtype=dtype), self._random(parts, dtype, rngs))

    def mean(self, wire: Wire, g: Array, memory: _Factors, rngs: Rngs) -> tuple[Exchanged, _Factors]:
        x = vector(g) + memory.error if self.feedback else vector(g)
        parts, rest = self._parts(len(x))
        Ms = [x[p.low : p.high].reshape(p.n, p.m) for p in parts]
        Qs = memory.Qs if self.warm else self._random(parts, x.dtype, rngs)
        Ps = [M @ Q for M, Q in zip(Ms, Qs, strict=True)]
        summed = wire.sum(_joined([*Ps, x[rest]], x.dtype))
        *Ps, whole_sum = _cut(summed, [*Ps, x[rest]])
        Ps = [_orthogonal(P) for P in Ps]  # of the sum: orthogonalising forgets a factor of K
        own = [M.T @ P for M, P in zip(Ms, Ps, strict=True)]
        Qs = _cut(wire.sum(_joined(own, x.dtype)) / wire.K, own) if own else []
        mean, mine = np.empty_like(x), np.empty_like(x)
        mean[rest], mine[rest] = whole_sum / wire.K, x[rest]
        for p, P, Q, local in zip(parts, Ps, Qs, own, strict=True):
            mean[p.low : p.high] = (P @ Q.T).reshape(-1)
            mine[p.low : p.high] = (P @ local.T).reshape(-1)
        return Exchanged(mean, mine), _Factors(x - mine if self.feedback else memory.error, Qs)

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        parts, rest = self._parts(d)
        first = self.r * sum(p.n for p in parts) + len(rest)
        second = self.r * sum(p.m for p in parts)
        return [Crossing(True, n, itemsize) for n in (first, second) if n]

    def _parts(self, d: int) -> tuple[list[_Part], Array]:
        """The matrices to factor, and the places of all other numbers."""
        sizes = [math.prod(shape) for shape in self.shapes]
        if sum(sizes) != d:
            raise ValueError(
                f"shapes must hold the d = {d} elements of the gradient, got {sum(sizes)}: {self.shapes}"
            )
        parts, rest, low = [], [], 0
        for shape, size in zip(self.shapes, sizes, strict=True):
            n = shape[0] if shape else 1
            m = size // n
            if (n + m) * self.r * self.ratio < n * m:
                parts.append(_Part(low, low + size, n, m))
            else:
                rest.append(np.arange(low, low + size))
            low += size
        return parts, np.concatenate(rest) if rest else np.empty(0, dtype=np.intp)

    def _random(self, parts: list[_Part], dtype: Any, rngs: Rngs) -> list[Array]:
        """Q to begin with: orthonormal columns, drawn alike by all workers."""
        return [_orthogonal(rngs.common.standard_normal((p.m, self.r)).astype(dtype)) for p in parts]


def _orthogonal(A: Array) -> Array:
    """Orthonormal columns that span those of A (n, r), r <= n, by Householder's QR: defined for a zero matrix as well."""
    small = A.dtype == np.float16  # LAPACK has no half precision
    Q = np.linalg.qr(A.astype(np.float32) if small else A)[0]
    return Q.astype(A.dtype) if small else Q


def _joined(parts: list[Array], dtype: Any) -> Array:
    return np.concatenate([part.reshape(-1) for part in parts]).astype(dtype, copy=False)


def _cut(x: Array, like: list[Array]) -> list[Array]:
    """Views of the vector ``x`` in the shapes of ``like``, one after another."""
    edges = np.cumsum([part.size for part in like])
    return [x[edge - part.size : edge].reshape(part.shape) for edge, part in zip(edges, like, strict=True)]
