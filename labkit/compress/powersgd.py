"""PowerSGD: send a matrix as the product of two thin ones, which can be added in flight (Vogels et al. 2019, algorithm 1).

A gradient matrix M (n, m) is approximated by P Q^T with P (n, r), Q (m, r): one step of subspace iteration, begun where the
last step's ended ("warm start").

    P = M Q;   all-reduce P;   orthogonalise P;   Q = M^T P;   all-reduce Q;   the mean is P (mean Q)^T

Both products are linear in M, so summing them over the workers is the product of the summed matrix: two all-reduces of
(n + m) r numbers in place of one of n m. Error feedback is part of the method (algorithm 2). Vectors (biases), and matrices
where (n + m) r is not below n m, travel whole: so does any matrix whose rank is below r.

Symbols: r the rank of the approximation, n rows, m columns.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import integer
from labkit.compress.scheme import (
    Array,
    Crossing,
    Exchanged,
    Rngs,
    Scheme,
    Wire,
    checked,
)


class _Factors(NamedTuple):
    """A worker's memory: the error (d,), and for each matrix that is factored the last Q (m, r), the same on all workers."""

    error: Array
    Qs: list[Array]


class _Part(NamedTuple):
    """A matrix of n rows and m columns, and its ``place`` in the flat gradient."""

    place: slice
    n: int
    m: int


@dataclass(frozen=True)
class PowerSGD(Scheme):
    """Rank-``r`` approximation of the matrices of these ``shapes``, of all parameters, one after another in the flat
    gradient.

    Sides beyond the second are flattened into it. feedback: whether there is an error memory.
    """

    shapes: tuple[tuple[int, ...], ...]
    r: int = 2
    feedback: bool = True

    def __post_init__(self) -> None:
        integer("r", self.r, 1)
        object.__setattr__(self, "shapes", tuple(map(tuple, self.shapes)))

    def start(self, d: int, dtype: Any, rngs: Rngs) -> _Factors:
        """No error yet, and a random orthonormal Q for each matrix, drawn alike by all workers."""
        parts, _ = self._parts(d)
        random = [
            rngs.common.standard_normal((p.m, self.r)).astype(dtype) for p in parts
        ]
        return _Factors(np.zeros(d, dtype=dtype), [_orthogonal(Q) for Q in random])

    def mean(
        self, wire: Wire, g: Array, memory: _Factors, rngs: Rngs
    ) -> tuple[Exchanged, _Factors]:
        x = checked(g) + memory.error if self.feedback else checked(g)
        parts, rest = self._parts(len(x))
        Ms = [x[p.place].reshape(p.n, p.m) for p in parts]
        Ps = [M @ Q for M, Q in zip(Ms, memory.Qs, strict=True)]
        *Ps, whole = _summed(wire, [*Ps, x[rest]])
        Ps = [_orthogonal(P) for P in Ps]  # of the sum: this forgets a factor of K
        own = [M.T @ P for M, P in zip(Ms, Ps, strict=True)]
        Qs = [Q / wire.K for Q in _summed(wire, own)] if own else []
        mean, mine = np.empty_like(x), np.empty_like(x)
        mean[rest] = whole / wire.K
        mine[rest] = x[rest]
        for p, P, Q, local in zip(parts, Ps, Qs, own, strict=True):
            mean[p.place] = (P @ Q.T).reshape(-1)
            mine[p.place] = (P @ local.T).reshape(-1)
        error = x - mine if self.feedback else memory.error
        return Exchanged(mean, mine), _Factors(error, Qs)

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        parts, rest = self._parts(d)
        first = self.r * sum(p.n for p in parts) + len(rest)
        second = self.r * sum(p.m for p in parts)
        return [Crossing(True, n, itemsize) for n in (first, second) if n]

    def _parts(self, d: int) -> tuple[list[_Part], Array]:
        """The matrices to factor, and the places of all other numbers."""
        sizes = [math.prod(shape) for shape in self.shapes]
        if sum(sizes) != d:
            right = f"the d = {d} elements of the gradient"
            raise ValueError(
                f"shapes must hold {right}, got {sum(sizes)}: {self.shapes}"
            )
        parts, whole, low = [], np.ones(d, dtype=bool), 0
        for shape, size in zip(self.shapes, sizes, strict=True):
            n = shape[0] if shape else 1
            m = size // n
            if (n + m) * self.r < n * m:
                parts.append(_Part(slice(low, low + size), n, m))
                whole[low : low + size] = False
            low += size
        return parts, np.flatnonzero(whole)


def _orthogonal(A: Array) -> Array:
    """Orthonormal columns that span those of A (n, r), r <= n, by Householder's QR: defined for a zero matrix as well."""
    return np.linalg.qr(A)[0]


def _summed(wire: Wire, parts: list[Array]) -> list[Array]:
    """Each of the arrays, added up over the workers: one all-reduce for all of them, end to end."""
    total = wire.sum(np.concatenate([part.reshape(-1) for part in parts]))
    edges = np.cumsum([part.size for part in parts])[:-1]
    return [
        piece.reshape(part.shape)
        for piece, part in zip(np.split(total, edges), parts, strict=True)
    ]
