"""One bit a coordinate: its sign, and one scale for all (Seide et al. 2014; Bernstein et al. 2018; Karimireddy et al. 2019).

``scaled`` sends the mean ``||x||_1 / d`` too and decodes to +- that mean, which is as near as signs can come to x. It is
biased and needs error feedback (``feedback``): without, it may stall (``counterexamples``). Unscaled it is the plain
signSGD of Bernstein et al. (2018), +-1, for which there is no error to feed back that means anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, scale_bytes, scale_dtype, vector
from labkit.compress.bits import pack, packed_bytes, unpack


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
        bits = pack(vector(x) >= 0, 1)
        if not self.scaled:
            return bits
        wire = scale_dtype(x.dtype)
        size = np.abs(x).astype(wire)
        mean = size.max() * np.mean(size / (size.max() or 1))  # so that no sum overflows
        return np.concatenate([np.array([mean], dtype=wire).view(np.uint8), bits])

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        wire = scale_dtype(dtype)
        head = wire.itemsize if self.scaled else 0
        scale = message[:head].copy().view(wire)[0] if self.scaled else wire.type(1)
        return (scale * (2 * unpack(message[head:], 1, d).astype(wire) - 1)).astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(False, packed_bytes(d, 1) + (scale_bytes(itemsize) if self.scaled else 0), 1)
