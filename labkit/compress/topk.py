"""Top-k: send the k coordinates that are largest in size, and where they are (Aji and Heafield 2017; Stich et al. 2018).

A message holds k indices and k values. Two workers choose different places, so messages can't be added in flight. Biased:
use it with error feedback (``feedback``). What it leaves out is at most (1 - k / d) ||x||^2 (Stich et al. 2018, appendix A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, count_or_share, kept, vector


@dataclass(frozen=True)
class TopK(Compressor):
    """Keep ``k`` coordinates: a whole number of them, or a share as a float (0.01 is one per cent, rounded up).

    >>> x = np.array([0.1, -5.0, 0.2, 3.0])
    >>> rng = np.random.default_rng(0)
    >>> compressor = TopK(2)
    >>> compressor.decode(compressor.encode(x, rng), 4, x.dtype)
    array([ 0., -5.,  0.,  3.])
    """

    k: float

    def __post_init__(self) -> None:
        count_or_share(self.k)

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        places = largest(vector(x), kept(self.k, len(x)))
        index = places.astype(index_dtype(len(x)))
        return np.concatenate([index.view(np.uint8), x[places].view(np.uint8)])

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        x = np.zeros(d, dtype=dtype)
        self.add_decoded_inplace(x, message)
        return x

    def add_decoded_inplace(
        self, total: Array, message: Array, rng: np.random.Generator | None = None
    ) -> None:
        k, index = kept(self.k, len(total)), index_dtype(len(total))
        head = k * index.itemsize
        itemsize = (len(message) - head) // k  # a sum of float16 is kept in float32
        values = message[head:].copy().view(f"f{itemsize}")
        total[message[:head].copy().view(index)] += values  # no place twice in one message

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(False, kept(self.k, d) * (index_dtype(d).itemsize + itemsize), 1)


def index_dtype(d: int) -> np.dtype:
    """The smallest unsigned integer that holds a place from 0 to d - 1, of 2 bytes at least."""
    return np.dtype(np.uint16 if d <= 1 << 16 else np.uint32 if d <= 1 << 32 else np.uint64)


def largest(x: Array, k: int) -> Array:
    """The places of the k largest ``|x|``, in order of place; among equals the first ones."""
    size = np.abs(x)
    least = np.partition(size, len(x) - k)[len(x) - k]
    above = np.flatnonzero(size > least)
    ties = np.flatnonzero(size == least)[: k - len(above)]
    return np.sort(np.concatenate([above, ties]))


def largest_by_sorting(x: Array, k: int) -> Array:
    """``largest`` as one would say it."""
    return np.sort(np.argsort(-np.abs(x), kind="stable")[:k])
