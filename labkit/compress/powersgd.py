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
    """A matrix (n, m), by its ``place`` in the flat gradient, of which ``of`` gives a view."""

    place: slice
    n: int
    m: int

    def of(self, x: Array) -> Array:
        return x[self.place].reshape(self.n, self.m)


@dataclass(frozen=True)
class PowerSGD(Scheme):
    """Rank-``r`` approximation of matrices: of all parameters, of these ``shapes``, one after another in the gradient.

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
        Qs = []
        for part in parts:
            random = rngs.common.standard_normal((part.m, self.r))
            Qs.append(_orthogonal(random.astype(dtype)))
        return _Factors(np.zeros(d, dtype), Qs)

    def mean(
        self, wire: Wire, g: Array, memory: _Factors, rngs: Rngs
    ) -> tuple[Exchanged, _Factors]:
        x = checked(g) + memory.error if self.feedback else checked(g)
        parts, rest = self._parts(len(x))
        Ms = [part.of(x) for part in parts]
        *Ps, whole = _summed(wire, [*map(np.matmul, Ms, memory.Qs), x[rest]])
        Ps = [_orthogonal(P) for P in Ps]  # of the sum: this forgets a factor of K
        own = [M.T @ P for M, P in zip(Ms, Ps, strict=True)]
        Qs = [Q / wire.K for Q in _summed(wire, own)]
        mean, mine = np.empty_like(x), x.copy()
        mean[rest] = whole / wire.K
        for part, P, Q, local in zip(parts, Ps, Qs, own, strict=True):
            part.of(mean)[:] = P @ Q.T
            part.of(mine)[:] = P @ local.T
        error = x - mine if self.feedback else memory.error
        return Exchanged(mean, mine), _Factors(error, Qs)

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        parts, rest = self._parts(d)
        first, second = len(rest), 0
        for part in parts:
            first += self.r * part.n
            second += self.r * part.m
        return [Crossing(True, n, itemsize) for n in (first, second) if n]

    def _parts(self, d: int) -> tuple[list[_Part], Array]:
        """The matrices to factor, and the places of all other numbers."""
        sizes = [math.prod(shape) for shape in self.shapes]
        if sum(sizes) != d:
            right = f"the d = {d} elements of the gradient"
            got = f"{sum(sizes)}: {self.shapes}"
            raise ValueError(f"shapes must hold {right}, got {got}")
        parts, whole, low = [], np.ones(d, bool), 0
        for shape, size in zip(self.shapes, sizes, strict=True):
            n = shape[0] if shape else 1
            m = size // n
            if (n + m) * self.r < n * m:
                parts.append(_Part(slice(low, low + size), n, m))
                whole[low : low + size] = False
            low += size
        return parts, np.flatnonzero(whole)


def _orthogonal(A: Array) -> Array:
    """Orthonormal columns that span those of A (n, r), r <= n, by Householder's QR, which takes a zero matrix as well."""
    return np.linalg.qr(A)[0]


def _summed(wire: Wire, parts: list[Array]) -> list[Array]:
    """Each of the arrays, added up over the workers: one all-reduce for all of them, end to end."""
    if not parts:
        return []
    rest = wire.sum(np.concatenate([part.ravel() for part in parts]))
    sums = []
    for part in parts:
        own, rest = np.split(rest, [part.size])
        sums.append(own.reshape(part.shape))
    return sums
