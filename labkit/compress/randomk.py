"""Random-k: send k coordinates that all workers draw alike, so no index travels (Stich, Cordonnier and Jaggi 2018).

Every worker draws the same k places from the same generator. Then the k values can be added in flight by an all-reduce.
Unbiased if the values are scaled by d / k, which has variance (d / k - 1) ||x||^2; without, for error feedback, biased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, count_or_share, kept, vector


@dataclass(frozen=True)
class RandomK(Compressor):
    """Keep ``k`` random coordinates: a whole number of them, or a share as a float.

    unbiased: scale what is decoded by d / k. Leave it False under error feedback, which would add d / k - 1 times too much.
    """

    k: float
    unbiased: bool = False

    summable = True
    common = True

    def __post_init__(self) -> None:
        count_or_share(self.k)

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        return vector(x)[self.places(len(x), rng)]

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        if rng is None:
            raise ValueError(
                "rng must be given to decode random-k, in the state that encode found it in, got None"
            )
        x = np.zeros(d, dtype=dtype)
        x[self.places(d, rng)] = message * (d / len(message)) if self.unbiased else message
        return x

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(True, kept(self.k, d), itemsize)

    def places(self, d: int, rng: np.random.Generator) -> Array:
        """The k places, in order."""
        return np.sort(rng.choice(d, kept(self.k, d), replace=False, shuffle=False))
