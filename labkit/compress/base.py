"""A compressor: what travels instead of a gradient, and how to read it.

One worker's vector becomes a message, an array whose ``nbytes`` is what goes over the wire: codes are really packed and
indices are really there. A message is ``summable`` where adding up messages is adding up what they mean, so that an
all-reduce can add them in flight; all others must be gathered, every worker's by every worker.

Symbols: x (d,) the vector, k coordinates kept, ``rng`` this worker's generator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_DTYPES = ("float16", "float32", "float64")


class Crossing(NamedTuple):
    """One collective of a step: n elements of ``itemsize`` bytes from each worker, added up in flight or gathered."""

    summed: bool
    n: int
    itemsize: int


class Compressor(ABC):
    """How to encode a vector and decode a message. Its parameters are its state: nothing is remembered between steps.

    summable: whether messages may be added in flight, ``decode(m1 + m2) == decode(m1) + decode(m2)``.
    common: whether ``rng`` must be in the same state on every worker, because all must draw the same.
    """

    summable: ClassVar[bool] = False
    common: ClassVar[bool] = False

    @abstractmethod
    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        """What travels instead of ``x``, a new array of one dimension. x: (d,), d >= 1, finite, float16, float32 or float64.

        Raises ValueError for anything else: a message made of NaN would poison every worker, and silently.
        """

    @abstractmethod
    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        """The vector (d,) of ``dtype`` that ``message`` stands for. rng: where ``common``, as ``encode`` found it."""

    @abstractmethod
    def crossing(self, d: int, itemsize: int) -> Crossing:
        """What each worker brings to the wire for d elements of ``itemsize`` bytes."""

    def nbytes(self, d: int, itemsize: int) -> int:
        """Bytes of a message for d elements of ``itemsize`` bytes."""
        _, n, size = self.crossing(d, itemsize)
        return n * size

    def add_decoded_inplace(
        self, total: Array, message: Array, rng: np.random.Generator | None = None
    ) -> None:
        """Add what ``message`` stands for to ``total`` (d,)."""
        total += self.decode(message, len(total), total.dtype, rng)


# -- at the door ------------------------------------------------------------------------------------------------------


def vector(x: Any) -> Array:
    """``x`` if it can be compressed; ValueError, in one sentence, if not."""
    if not isinstance(x, np.ndarray) or x.ndim != 1 or x.size == 0:
        what = f"shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ValueError(f"x must be a numpy vector of at least one number, got {what}")
    if x.dtype.name not in _DTYPES:
        raise ValueError(f"x must hold {', '.join(_DTYPES[:2])} or {_DTYPES[2]}, got {x.dtype}")
    if not np.isfinite(x).all():
        bad = int(np.size(x) - np.isfinite(x).sum())
        raise ValueError(
            f"x must be finite to be compressed, got NaN or infinity in {bad} of {x.size} places"
        )
    return x


def whole(value: Any, name: str, low: int, high: int | None = None) -> int:
    """``value`` as an int from ``low`` to ``high``; ValueError for anything else."""
    ok = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not ok or value < low or (high is not None and value > high):
        wanted = f"a whole number from {low} to {high}" if high is not None else f"a whole number >= {low}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return int(value)


def count_or_share(k: Any) -> None:
    """ValueError unless ``k`` is a whole number >= 1 or a share, a float above 0 and at most 1."""
    if isinstance(k, (float, np.floating)):
        if not 0 < k <= 1:
            raise ValueError(f"k must be a whole number >= 1, or a share above 0 and at most 1.0, got {k!r}")
    else:
        whole(k, "k", 1)


def kept(k: float, d: int) -> int:
    """How many of d coordinates ``k`` means: a float is a share, rounded up. ValueError if there are not as many."""
    if isinstance(k, (float, np.floating)):
        return math.ceil(float(k) * d * (1 - 1e-12))  # 0.07 * 100 is 7, whatever binary makes of it
    if k > d:
        raise ValueError(f"k must be at most the d = {d} coordinates there are, got {k!r}")
    return int(k)


def scale_dtype(dtype: Any) -> np.dtype:
    """In what a norm or a scale travels: float64 for float64, else float32 (the norm of a float16 may be beyond it)."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def scale_bytes(itemsize: int) -> int:
    """Bytes of a scale beside elements of ``itemsize`` bytes."""
    return 8 if itemsize == 8 else 4
