"""Error feedback: what a message leaves out is added to the next gradient (Seide et al. 2014; Karimireddy et al. 2019).

    corrected = gradient + old error;   message = encode(corrected);   new error = corrected - decode(message)

so that decoded message + new error == gradient + old error: nothing is ever lost, it only comes late. How exactly? For a
compressor that sends a coordinate whole or not at all (top-k, random-k), every coordinate is in the message or in the error
and the equation holds bit for bit. Otherwise the subtraction rounds, to the nearest number there is: ``residue`` says by how
much, without error itself. Errors are kept in units of the gradient, so the learning rate may change freely.

Symbols: g (d,) the gradient, e (d,) the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, vector
from labkit.compress.scheme import Dice, Exchanged, Scheme, Wire, one_round


@dataclass(frozen=True)
class ErrorFeedback(Scheme):
    """``compressor`` with error feedback. The memory is the error, (d,), zero at the start."""

    compressor: Compressor

    def start(self, d: int, dtype: Any, dice: Dice) -> Array:
        return np.zeros(d, dtype=dtype)

    def mean(self, wire: Wire, g: Array, memory: Array, dice: Dice) -> tuple[Exchanged, Array]:
        corrected = vector(g) + memory
        out = one_round(wire, corrected, self.compressor, dice)
        return out, corrected - out.mine

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [self.compressor.crossing(d, itemsize)]


def residue(a: Array, b: Array) -> tuple[Array, Array]:
    """``(s, r)`` with s = a + b as rounded and s + r == a + b exactly, barring overflow: Knuth's TwoSum (1998, 4.2.2).

    a, b: (d,) of the same floating dtype.
    """
    s = a + b
    from_b = s - a
    return s, (a - (s - from_b)) + (b - from_b)
