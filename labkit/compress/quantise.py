"""Send every coordinate in a few bits: its sign, or one of a few levels.

Sign sends one bit a coordinate, and one scale for all (Seide et al. 2014; Bernstein et al. 2018; Karimireddy et al. 2019):
the mean ``||x||_1 / d``, and decodes to +- that mean, which is as near as signs can come to x. It is biased and needs error
feedback: without, it may stall (lab 10.7). Unscaled it is the plain signSGD of Bernstein et al. (2018), +-1, for which there
is no error to feed back that means anything.

QSGD rounds every coordinate at random to one of a few levels, right on average (Alistarh et al. 2017, section 3). With s
levels, ``|x_i| / ||x||_2`` lies between l / s and (l + 1) / s; it goes up with the probability that makes the expectation
exact, else down. Then E Q(x) = x and E ||Q(x) - x||^2 <= min(d / s^2, sqrt(d) / s) ||x||^2 (lemma 3.1). What travels is the
norm and, per coordinate, one of 2 s + 1 signed levels in b = 1 + ceil(log2(s + 1)) bits. (The paper goes on to a code of
variable length, which pays where nearly all levels are zero; here the length is fixed and so known beforehand.)

Symbols: s levels, b bits a code, d coordinates; with buckets, each run of ``bucket`` coordinates has a norm of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.checks import integer
from labkit.compress.scheme import Compressor, Crossing, vector
from labkit.compress.wire import Array


@dataclass(frozen=True)
class Sign(Compressor):
    """d bits, and one scale unless ``scaled`` is False. Zero counts as positive, for a bit has no third value.

    >>> x = np.array([1.0, -2.0, 3.0, -2.0])
    >>> message = Sign().encode(x, np.random.default_rng(0))
    >>> Sign().decode(message, 4, x.dtype)
    array([ 2., -2.,  2., -2.])
    """

    scaled: bool = True

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        bits = _pack(vector(x) >= 0, 1)
        if not self.scaled:
            return bits
        wire = _scale_dtype(x.dtype)
        size = np.abs(x).astype(wire)
        mean = size.max() * np.mean(size / (size.max() or 1))  # so that no sum overflows
        return np.concatenate([np.array([mean], dtype=wire).view(np.uint8), bits])

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        wire = _scale_dtype(dtype)
        head = wire.itemsize if self.scaled else 0
        scale = message[:head].copy().view(wire)[0] if self.scaled else wire.type(1)
        return (scale * (2 * _unpack(message[head:], 1, d).astype(wire) - 1)).astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(False, _packed_bytes(d, 1) + (_scale_bytes(itemsize) if self.scaled else 0), 1)


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
        integer("s", self.s, 1, 127)
        if self.bucket is not None:
            integer("bucket", self.bucket, 1)

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
        return np.concatenate([norms.view(np.uint8), _pack(codes, self.bits)])

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        buckets, wire = -(-d // self._width(d)), _scale_dtype(dtype)
        head = buckets * wire.itemsize
        norms = message[:head].copy().view(wire)
        levels = _unpack(message[head:], self.bits, d).astype(wire) - self.s
        return (levels * np.repeat(norms / self.s, self._width(d))[:d]).astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        buckets = -(-d // self._width(d))
        return Crossing(False, buckets * _scale_bytes(itemsize) + _packed_bytes(d, self.bits), 1)

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
        width, wire = self._width(len(x)), _scale_dtype(x.dtype)
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


def _scale_dtype(dtype: Any) -> np.dtype:
    """In what a norm or a scale travels: float64 for float64, else float32 (the norm of a float16 may be beyond it)."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def _scale_bytes(itemsize: int) -> int:
    """Bytes of a scale beside elements of ``itemsize`` bytes."""
    return 8 if itemsize == 8 else 4


# -- packing: code i is in bits b i to b i + b - 1 of a stream, bit j of which is bit j % 8 of byte j // 8. Eight codes of
# b <= 8 bits fill b bytes exactly, so eight fit in one 64-bit word. np.unpackbits and np.packbits do it in two lines, but
# take 4 times as long to pack a million codes and 12 times as long to unpack them.


def _packed_bytes(d: int, b: int) -> int:
    """Bytes that d codes of b bits take."""
    return -(-b * d // 8)


def _pack(codes: Array, b: int) -> Array:
    """The codes (d,), whole numbers from 0 to 2^b - 1, in ceil(b d / 8) bytes. b: 1 to 8."""
    d = len(codes)
    if b == 8:
        return codes.astype(np.uint8)
    if b == 1:
        return np.packbits(codes.astype(np.uint8), bitorder="little")
    eights = np.zeros((-(-d // 8), 8), dtype=np.uint8)
    eights.reshape(-1)[:d] = codes
    words = np.zeros(len(eights), dtype="<u8")
    for j in range(8):
        words |= eights[:, j].astype(np.uint64) << np.uint64(b * j)
    return np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, :b]).reshape(-1)[: _packed_bytes(d, b)]


def _unpack(packed: Array, b: int, d: int) -> Array:
    """The d codes of b bits inside ``packed``, (d,) uint8. ValueError if ``packed`` has another length."""
    if packed.dtype != np.uint8 or packed.shape != (_packed_bytes(d, b),):
        raise ValueError(
            f"message must hold {_packed_bytes(d, b)} bytes for {d} codes of {b} bits, got {packed.size} {packed.dtype}"
        )
    if b == 8:
        return packed.copy()
    if b == 1:
        return np.unpackbits(packed, count=d, bitorder="little")
    eights = np.zeros((-(-d // 8), 8), dtype=np.uint8)
    rows = np.zeros(len(eights) * b, dtype=np.uint8)
    rows[: len(packed)] = packed
    eights[:, :b] = rows.reshape(-1, b)
    words = eights.view("<u8").reshape(-1)
    codes = np.empty((len(words), 8), dtype=np.uint8)
    for j in range(8):
        codes[:, j] = words >> np.uint64(b * j) & np.uint64((1 << b) - 1)
    return codes.reshape(-1)[:d]
