"""QSGD: round every coordinate at random to one of a few levels, right on average (Alistarh et al. 2017, section 3).

With s levels, ``|x_i| / ||x||_2`` lies between l / s and (l + 1) / s; it goes up with the probability that makes the
expectation exact, else down. Then E Q(x) = x and E ||Q(x) - x||^2 <= min(d / s^2, sqrt(d) / s) ||x||^2 (lemma 3.1). What
travels is the norm and, per coordinate, one of 2 s + 1 signed levels in b = 1 + ceil(log2(s + 1)) bits. (The paper goes on
to a code of variable length, which pays where nearly all levels are zero; here the length is fixed and so known beforehand.)

Symbols: s levels, b bits a code, d coordinates; with buckets, each run of ``bucket`` coordinates has a norm of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, scale_bytes, scale_dtype, vector, whole
from labkit.compress.bits import pack, packed_bytes, unpack


@dataclass(frozen=True)
class QSGD(Compressor):
    """Stochastic quantisation to ``s`` levels (1 to 127). s = 1 is ternary: minus, zero, plus.

    bucket: coordinates that share a norm; None: all. Smaller buckets cost a norm each and lower the variance bound to that
    of d = bucket.

    >>> QSGD(s=1).nbytes(1000, 4), QSGD(s=127).nbytes(1000, 4), Identity().nbytes(1000, 4)
    (254, 1004, 4000)
    """

    s: int
    bucket: int | None = None

    def __post_init__(self) -> None:
        whole(self.s, "s", 1, 127)
        if self.bucket is not None:
            whole(self.bucket, "bucket", 1)

    @property
    def bits(self) -> int:
        """Bits of one code: a sign and one of s + 1 levels."""
        return 1 + int(self.s).bit_length()

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        rows, norms = self._split(vector(x))
        a = np.abs(rows)  # from here on in place: a long vector is quicker to compute on than to allocate
        a /= np.where(norms > 0, norms, 1)[:, None]
        a *= self.s
        np.minimum(a, self.s, out=a)
        a += rng.random(a.shape, dtype=a.dtype.type)
        np.floor(a, out=a)  # up with probability a - floor(a)
        np.minimum(a, self.s, out=a)  # s + u may have rounded to s + 1
        np.copysign(a, rows, out=a)
        a += self.s
        codes = a.astype(np.uint8).reshape(-1)[: len(x)]
        return np.concatenate([norms.view(np.uint8), pack(codes, self.bits)])

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        buckets, wire = -(-d // self._width(d)), scale_dtype(dtype)
        head = buckets * wire.itemsize
        norms = message[:head].copy().view(wire)
        levels = unpack(message[head:], self.bits, d).astype(wire) - self.s
        return (levels * np.repeat(norms / self.s, self._width(d))[:d]).astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        buckets = -(-d // self._width(d))
        return Crossing(False, buckets * scale_bytes(itemsize) + packed_bytes(d, self.bits), 1)

    def variance(self, x: Array) -> float:
        """``E ||Q(x) - x||^2``, exactly: the sum of (norm / s)^2 p (1 - p) over the coordinates."""
        rows, norms = self._split(vector(x).astype(np.float64))
        a = self.s * np.abs(rows) / np.where(norms > 0, norms, 1)[:, None]
        p = a - np.floor(a)
        return float(np.sum((norms[:, None] / self.s) ** 2 * p * (1 - p)))

    def variance_bound(self, d: int) -> float:
        """``min(d / s^2, sqrt(d) / s)``, times ||x||^2 the most that the variance can be (lemma 3.1), d that of a bucket."""
        width = self._width(d)
        return min(width / self.s**2, width**0.5 / self.s)

    def _width(self, d: int) -> int:
        return d if self.bucket is None else min(self.bucket, d)

    def _split(self, x: Array) -> tuple[Array, Array]:
        """The coordinates in rows, one a bucket (the last padded with zeros), in the wire's dtype; and the rows' norms."""
        width, wire = self._width(len(x)), scale_dtype(x.dtype)
        if len(x) % width == 0:
            rows = x.astype(wire, copy=False).reshape(-1, width)
        else:
            rows = np.zeros((-(-len(x) // width), width), dtype=wire)
            rows.reshape(-1)[: len(x)] = x
        return rows, _norms(rows)


def _norms(rows: Array) -> Array:
    """Norm of each row, rounded so that no coordinate is larger. ValueError if one is beyond the dtype."""
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    unit = np.where(largest > 0, largest, 1)
    if largest.min() > 1e-15 and largest.max() < 1e15:
        unit = np.ones_like(unit)  # no square can leave float64's range
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    else:
        squares = np.sum((rows.astype(np.float64) / unit[:, None]) ** 2, axis=1)
    exact = unit * np.sqrt(squares)
    with np.errstate(over="ignore"):
        norms = np.maximum(exact.astype(rows.dtype), largest)
    if not np.isfinite(norms).all():
        raise ValueError(f"x must have a norm that {rows.dtype} can hold, got {exact.max():g}")
    return norms
