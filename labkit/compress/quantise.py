"""Send every coordinate in a few bits: its sign, or one of a few levels.

Sign sends one bit a coordinate, and one scale for all, ``||x||_1 / d`` (Seide et al. 2014; Karimireddy et al. 2019), which
is as near as signs can come to x. It is biased: without error feedback it may stall (lab 10.7).

QSGD rounds every coordinate at random to one of s levels, right on average (Alistarh et al. 2017, section 3):
``|x_i| / ||x||_2`` lies between l / s and (l + 1) / s, and goes up with the probability that makes the expectation exact.
Then E ||Q(x) - x||^2 <= min(d / s^2, sqrt(d) / s) ||x||^2 (lemma 3.1). What travels is the norm and, per coordinate, one of
2 s + 1 signed levels in b = 1 + ceil(log2(s + 1)) bits (the paper's code of variable length pays where most are zero).

Symbols: s levels, b bits a code, d coordinates; with buckets, each run of ``bucket`` coordinates has a norm of its own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.checks import integer
from labkit.compress.scheme import Array, Compressor, Crossing, Rng, checked


@dataclass(frozen=True)
class Sign(Compressor):
    """d bits and one scale. Zero counts as positive, for a bit has no third value.

    >>> x = np.array([1.0, -2.0, 3.0, -2.0])
    >>> message = Sign().encode(x, np.random.default_rng(0))
    >>> Sign().decode(message, 4, x.dtype)
    array([ 2., -2.,  2., -2.])
    """

    def encode(self, x: Array, rng: Rng) -> Array:
        bits = np.packbits(checked(x) >= 0, bitorder="little")
        size = np.abs(x)
        most = size.max() or 1
        mean = most * np.mean(size / most)  # so that no sum overflows
        return np.append(np.array([mean], x.dtype).view(np.uint8), bits)

    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        scale, bits = _scales(message, 1, dtype)
        positive = np.unpackbits(bits, count=d, bitorder="little").astype(dtype)
        return scale[0] * (2 * positive - 1)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(False, itemsize + _packed_bytes(d, 1), 1)


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

    def encode(self, x: Array, rng: Rng) -> Array:
        rows, norms = self._split(checked(x))
        levels = self._levels(rows, norms)
        levels += rng.random(rows.shape, dtype=rows.dtype.type)
        np.floor(levels, out=levels)  # up with probability levels - floor(levels)
        np.minimum(levels, self.s, out=levels)  # s + u may have rounded to s + 1
        np.copysign(levels, rows, out=levels)
        levels += self.s
        codes = levels.astype(np.uint8)
        packed = _pack(codes.reshape(-1)[: len(x)], self.bits)
        return np.append(norms.view(np.uint8), packed)

    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        norms, codes = _scales(message, self._buckets(d), dtype)
        levels = _unpack(codes, self.bits, d).astype(dtype) - self.s
        return levels * np.repeat(norms / self.s, self._width(d))[:d]

    def crossing(self, d: int, itemsize: int) -> Crossing:
        norms = self._buckets(d) * itemsize
        return Crossing(False, norms + _packed_bytes(d, self.bits), 1)

    def variance(self, x: Array) -> float:
        """``E ||Q(x) - x||^2``, exactly: the sum of (norm / s)^2 p (1 - p) over the coordinates."""
        rows, norms = self._split(checked(x).astype(float))
        levels = self._levels(rows, norms)
        p = levels % 1
        return float(np.sum((norms[:, None] / self.s) ** 2 * p * (1 - p)))

    def variance_bound(self, d: int) -> float:
        """``min(d / s^2, sqrt(d) / s)``, times ||x||^2 the most that the variance can be (lemma 3.1), d that of a bucket."""
        width = self._width(d)
        return min(width / self.s**2, width**0.5 / self.s)

    def _width(self, d: int) -> int:
        return d if self.bucket is None else min(self.bucket, d)

    def _buckets(self, d: int) -> int:
        return -(-d // self._width(d))

    def _split(self, x: Array) -> tuple[Array, Array]:
        """The coordinates in rows, one a bucket (the last padded with zeros); and the rows' norms."""
        width = self._width(len(x))
        rows = np.pad(x, (0, -len(x) % width)).reshape(-1, width)
        return rows, _norms(rows)

    def _levels(self, rows: Array, norms: Array) -> Array:
        """Each ``|x_i|`` in levels, from 0 to s, before it is rounded."""
        levels = np.abs(rows) / np.where(norms > 0, norms, 1)[:, None]
        levels *= self.s
        return np.minimum(levels, self.s, out=levels)


def _norms(rows: Array) -> Array:
    """Norm of each row, rounded so that no coordinate is larger. ValueError if one is beyond the dtype."""
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    exponent = np.minimum(np.frexp(largest)[1], np.finfo(rows.dtype).maxexp - 1)
    unit = np.ldexp(rows.dtype.type(1), exponent)
    # By a power of two: exact, and no square leaves float64's range.
    scaled = rows / unit[:, None]
    squares = np.einsum("ij,ij->i", scaled, scaled, dtype=np.float64)
    exact = unit.astype(float) * np.sqrt(squares)
    with np.errstate(over="ignore"):
        norms = np.maximum(exact.astype(rows.dtype), largest)
    if not np.isfinite(norms).all():
        right = f"a norm that {rows.dtype} can hold"
        raise ValueError(f"x must have {right}, got {exact.max():g}")
    return norms


def _scales(message: Array, n: int, dtype: Any) -> tuple[Array, Array]:
    """The n scales at the head of a message, and the bytes of its codes."""
    head = n * np.dtype(dtype).itemsize
    return message[:head].copy().view(dtype), message[head:]


# -- packing: code i is in bits b i to b i + b - 1 of a stream, bit j of which is bit j % 8 of byte j // 8. Eight codes of
# b <= 8 bits fill b bytes exactly, so eight fit in one 64-bit word. np.packbits and np.unpackbits would do it in two lines,
# but take three times as long, and coding is what compression costs.


def _packed_bytes(d: int, b: int) -> int:
    """Bytes that d codes of b bits take."""
    return -(-b * d // 8)


def _pack(codes: Array, b: int) -> Array:
    """The codes (d,), whole numbers from 0 to 2^b - 1, in ceil(b d / 8) bytes. b: 1 to 8."""
    eights = np.pad(codes, (0, -len(codes) % 8)).reshape(-1, 8)
    words = np.zeros(len(eights), "<u8")
    for j in range(8):
        words |= eights[:, j].astype(np.uint64) << np.uint64(b * j)
    packed = words.view(np.uint8).reshape(-1, 8)[:, :b]
    return packed.reshape(-1)[: _packed_bytes(len(codes), b)]


def _unpack(packed: Array, b: int, d: int) -> Array:
    """The d codes of b bits inside ``packed``, (d,) uint8."""
    rows = np.pad(packed, (0, -len(packed) % b)).reshape(-1, b)
    eights = np.zeros((len(rows), 8), np.uint8)
    eights[:, :b] = rows
    words = eights.view("<u8").ravel()
    codes = np.empty_like(eights)
    lowest = np.uint64((1 << b) - 1)
    for j in range(8):
        codes[:, j] = words >> np.uint64(b * j) & lowest
    return codes.reshape(-1)[:d]
