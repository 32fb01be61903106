"""Send k of d coordinates: the largest, or some that all workers draw alike.

Top-k sends the k coordinates that are largest in size, and where they are (Aji and Heafield 2017; Stich et al. 2018). Two
workers choose different places, so messages can't be added in flight. Biased: use it with error feedback. What it leaves out
is at most (1 - k / d) ||x||^2 (Stich et al. 2018, appendix A).

Random-k sends the values at k places that all workers draw alike, so no index travels and an all-reduce can add them. It is
unbiased if the values are scaled by d / k, which has variance (d / k - 1) ||x||^2; without, for error feedback, biased.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.checks import integer
from labkit.compress.scheme import Array, Compressor, Crossing, Rng, checked


@dataclass(frozen=True)
class _Some(Compressor):
    k: float

    def __post_init__(self) -> None:
        if not isinstance(self.k, float):
            integer("k", self.k, 1)
        elif not 0 < self.k <= 1:
            right = "a whole number >= 1, or a share above 0 and at most 1.0"
            raise ValueError(f"k must be {right}, got {self.k!r}")

    def kept(self, d: int) -> int:
        """How many of d coordinates are sent. ValueError if there are not as many."""
        if isinstance(self.k, float):
            # 0.07 * 100 is 7, whatever binary makes of it.
            return math.ceil(self.k * d * (1 - 1e-12))
        if self.k > d:
            right = f"at most the d = {d} coordinates there are"
            raise ValueError(f"k must be {right}, got {self.k!r}")
        return int(self.k)


@dataclass(frozen=True)
class TopK(_Some):
    """Keep the ``k`` largest: a whole number of them, or a share as a float (0.01 is one per cent, rounded up).

    >>> x = np.array([0.1, -5.0, 0.2, 3.0])
    >>> rng = np.random.default_rng(0)
    >>> compressor = TopK(2)
    >>> compressor.decode(compressor.encode(x, rng), 4, x.dtype)
    array([ 0., -5.,  0.,  3.])
    """

    def encode(self, x: Array, rng: Rng) -> Array:
        places = _largest(checked(x), self.kept(len(x)))
        index = places.astype(_index_dtype(len(x)))
        return np.append(index.view(np.uint8), x[places].view(np.uint8))

    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        index = _index_dtype(d)
        head = self.kept(d) * index.itemsize
        places = message[:head].copy().view(index)
        x = np.zeros(d, dtype)
        x[places] = message[head:].copy().view(dtype)
        return x

    def crossing(self, d: int, itemsize: int) -> Crossing:
        one = _index_dtype(d).itemsize + itemsize
        return Crossing(False, self.kept(d) * one, 1)


@dataclass(frozen=True)
class RandomK(_Some):
    """Keep ``k`` random coordinates: a whole number of them, or a share as a float.

    unbiased: scale what is decoded by d / k. Leave it False under error feedback, which would add d / k - 1 times too much.
    """

    unbiased: bool = False

    summable = True
    common = True

    def encode(self, x: Array, rng: Rng) -> Array:
        return checked(x)[self.places(len(x), rng)]

    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        if rng is None:
            raise ValueError(
                "rng must be given to decode random-k, as encode found it, got None"
            )
        x = np.zeros(d, dtype)
        x[self.places(d, rng)] = message
        if self.unbiased:
            x *= d / len(message)
        return x

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(True, self.kept(d), itemsize)

    def places(self, d: int, rng: Rng) -> Array:
        """The k places, in order."""
        return np.sort(rng.choice(d, self.kept(d), replace=False, shuffle=False))


def _index_dtype(d: int) -> np.dtype:
    """The smallest unsigned integer that holds a place from 0 to d - 1, of 2 bytes at least."""
    return np.promote_types(np.uint16, np.min_scalar_type(d - 1))


def _largest(x: Array, k: int) -> Array:
    """The places of the k largest ``|x|``, in order of place; among equals the first ones."""
    size = np.abs(x)
    least = np.partition(size, len(x) - k)[len(x) - k]
    above = np.flatnonzero(size > least)
    ties = np.flatnonzero(size == least)[: k - len(above)]
    return np.union1d(above, ties)
