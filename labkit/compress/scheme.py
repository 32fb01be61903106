"""A scheme: how K gradients become one mean, and what a worker remembers from one step to the next.

The plainest scheme is a compressor: what travels instead of a gradient, and how to read it. One worker's vector becomes a
message, an array whose ``nbytes`` is what goes over the wire: codes are really packed, indices are really there. A message
is ``summable`` where adding up messages is adding up what they mean, so that an all-reduce can add them in flight; all
others must be gathered, every worker's by every worker. What a compressor leaves out is lost; error feedback (here), Deep
Gradient Compression (``dgc``) and PowerSGD (``powersgd``) remember it. All of them talk through a ``Wire``, so the same
scheme runs over ``Comm`` in any world and inside a hook of torch's DistributedDataParallel.

Symbols: K workers, g (d,) the gradient of this worker, e (d,) what it remembers.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labkit.compress.wire import Array, Wire

_DTYPES = ("float16", "float32", "float64")


class Rngs(NamedTuple):
    """A worker's generators: ``own`` differs from worker to worker, ``common`` is in the same state on all of them."""

    own: np.random.Generator
    common: np.random.Generator


def rngs(seed: int, rank: int) -> Rngs:
    """The generators of worker ``rank``. Every worker must be given the same seed."""
    return Rngs(np.random.default_rng([seed, 1 + rank]), np.random.default_rng([seed, 0]))


class Crossing(NamedTuple):
    """One collective of a step: n elements of ``itemsize`` bytes from each worker, added up in flight or gathered."""

    summed: bool
    n: int
    itemsize: int


class Exchanged(NamedTuple):
    """mean (d,): of what all workers' messages say, the same bits on every rank. mine (d,): what this worker's says."""

    mean: Array
    mine: Array


class Scheme(ABC):
    """From K gradients to one mean. ``start`` makes a worker's memory; ``mean`` takes it and returns the next one."""

    @staticmethod
    def of(how: Any) -> Scheme:
        """``how``, if it is a scheme, as every compressor is; TypeError for anything else."""
        if not isinstance(how, Scheme):
            raise TypeError(f"how must be a compressor or a scheme, as in QSGD(s=15), got {how!r}")
        return how

    def start(self, d: int, dtype: Any, rngs: Rngs) -> Any:
        """A worker's memory before the first step, for gradients of d elements; None: there is none."""
        return None

    @abstractmethod
    def mean(self, wire: Wire, g: Array, memory: Any, rngs: Rngs) -> tuple[Exchanged, Any]:
        """One step: the mean over the workers, and the memory after it. Every worker must call it.

        g: (d,), this worker's; not changed. Raises ValueError for a gradient that can't be compressed.
        """

    @abstractmethod
    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        """What each worker brings to the wire at step t, collective by collective, for d elements of ``itemsize`` bytes."""


class Compressor(Scheme):
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

    def mean(self, wire: Wire, g: Array, memory: Any, rngs: Rngs) -> tuple[Exchanged, Any]:
        """Encode, cross the wire once, decode: the mean of everyone's decoded ``g``."""
        x = vector(g)
        rng = rngs.common if self.common else rngs.own
        before = copy.deepcopy(rng) if self.common else None

        def decoded(message: Array) -> Array:
            return self.decode(message, len(x), x.dtype, copy.deepcopy(before))

        message = self.encode(x, rng)
        if self.summable:
            total = decoded(wire.sum(message))
        else:  # float16 is added up in float32
            total = np.zeros(len(x), dtype=np.float64 if x.dtype == np.float64 else np.float32)
            for theirs in wire.gather(message):
                self.add_decoded_inplace(total, theirs)
        return Exchanged((total / wire.K).astype(x.dtype, copy=False), decoded(message)), None

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [self.crossing(d, itemsize)]


@dataclass(frozen=True)
class Identity(Compressor):
    """The vector itself travels: nothing is saved, nothing is lost. With it every scheme is the plain all-reduce."""

    summable = True

    def encode(self, x: Array, rng: np.random.Generator) -> Array:
        return vector(x).copy()

    def decode(self, message: Array, d: int, dtype: Any, rng: np.random.Generator | None = None) -> Array:
        return message.astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(True, d, itemsize)


@dataclass(frozen=True)
class ErrorFeedback(Scheme):
    """What a message leaves out is added to the next gradient (Seide et al. 2014; Karimireddy et al. 2019).

        corrected = gradient + old error;   message = encode(corrected);   new error = corrected - decode(message)

    so that decoded message + new error == gradient + old error: nothing is ever lost, it only comes late. For a compressor
    that sends a coordinate whole or not at all (top-k, random-k) that holds bit for bit; otherwise the subtraction rounds,
    to the nearest number there is. The memory is the error (d,), zero at the start, in units of the gradient, so that the
    learning rate may change freely.
    """

    compressor: Compressor

    def start(self, d: int, dtype: Any, rngs: Rngs) -> Array:
        return np.zeros(d, dtype=dtype)

    def mean(self, wire: Wire, g: Array, memory: Array, rngs: Rngs) -> tuple[Exchanged, Array]:
        corrected = vector(g) + memory
        out, _ = self.compressor.mean(wire, corrected, None, rngs)
        return out, corrected - out.mine

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return self.compressor.crossings(d, itemsize)


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
