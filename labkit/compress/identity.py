"""The trivial compressor: the vector itself travels. With it every scheme is the plain all-reduce it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, vector


@dataclass(frozen=True)
class Identity(Compressor):
    """Nothing is saved and nothing is lost."""

    summable = True

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        return vector(x).copy()

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        return message.astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(True, d, itemsize)
