"""A scheme: how K gradients become one mean, and what a worker remembers from one step to the next.

A compressor is a map; a scheme is a habit. ``Plain`` sends what a compressor makes of the gradient and forgets the rest;
error feedback (``feedback``), Deep Gradient Compression (``dgc``) and PowerSGD (``powersgd``) remember. All of them talk
through a ``Wire``: a sum in flight, or everyone's message to everyone. So the same scheme runs over ``Comm`` in any world
and inside a hook of torch's DistributedDataParallel.

Symbols: K workers, g (d,) the gradient of this worker.
"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.compress.base import Array, Compressor, Crossing, vector


class Dice(NamedTuple):
    """A worker's generators: ``own`` differs from worker to worker, ``common`` is in the same state on all of them."""

    own: np.random.Generator
    common: np.random.Generator


def dice(seed: int, rank: int) -> Dice:
    """The generators of worker ``rank``. Every worker must be given the same seed."""
    return Dice(np.random.default_rng([seed, 1 + rank]), np.random.default_rng([seed, 0]))


class Spent(NamedTuple):
    """Seconds of one exchange: before and between its collectives, in them, and after the last."""

    encode_s: float
    wire_s: float
    decode_s: float


class Wire(ABC):
    """What K workers share: sums and gathers, and a stopwatch.

    clock: seconds in which the wire is timed; coding is always timed by the real clock, for it always really happens.
    """

    def __init__(self, K: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.K = K
        self._clock = clock
        self.start()

    @abstractmethod
    def _sum(self, x: Array) -> Array: ...

    @abstractmethod
    def _gather(self, message: Array) -> Array: ...

    def sum(self, x: Array) -> Array:
        """The sum of everyone's ``x``, the same bits on every worker; a new array."""
        return self._timed(self._sum, x)

    def gather(self, message: Array) -> Array:
        """Everyone's ``message``, all of the same length: (K, length), in order of rank."""
        return self._timed(self._gather, message)

    def start(self) -> None:
        """Start the stopwatch."""
        self._encode_s = self._wire_s = 0.0
        self._since = time.perf_counter()

    def stop(self) -> Spent:
        """Seconds since ``start``."""
        return Spent(self._encode_s, self._wire_s, time.perf_counter() - self._since)

    def _timed(self, collective: Callable[[Array], Array], x: Array) -> Array:
        self._encode_s += time.perf_counter() - self._since
        begun = self._clock()
        out = collective(x)
        self._wire_s += self._clock() - begun
        self._since = time.perf_counter()
        return out


class Exchanged(NamedTuple):
    """mean (d,): of what all workers' messages say, the same bits on every rank. mine (d,): what this worker's says."""

    mean: Array
    mine: Array


class Scheme(ABC):
    """From K gradients to one mean. ``start`` makes a worker's memory; ``mean`` takes it and returns the next one."""

    def start(self, d: int, dtype: Any, dice: Dice) -> Any:
        """A worker's memory before the first step, for gradients of d elements; None: there is none."""
        return None

    @abstractmethod
    def mean(self, wire: Wire, g: Array, memory: Any, dice: Dice) -> tuple[Exchanged, Any]:
        """One step: the mean over the workers, and the memory after it. Every worker must call it.

        g: (d,), this worker's; not changed. Raises ValueError for a gradient that can't be compressed.
        """

    @abstractmethod
    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        """What each worker brings to the wire at step t, collective by collective, for d elements of ``itemsize`` bytes."""


@dataclass(frozen=True)
class Plain(Scheme):
    """What ``compressor`` leaves out is lost. For unbiased compressors, and for seeing what becomes of the others."""

    compressor: Compressor

    def mean(self, wire: Wire, g: Array, memory: Any, dice: Dice) -> tuple[Exchanged, Any]:
        return one_round(wire, vector(g), self.compressor, dice), None

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [self.compressor.crossing(d, itemsize)]


def one_round(wire: Wire, x: Array, compressor: Compressor, dice: Dice) -> Exchanged:
    """Encode, cross the wire once, decode: the mean of everyone's decoded ``x`` (d,)."""
    rng = dice.common if compressor.common else dice.own
    before = copy.deepcopy(rng) if compressor.common else None

    def decoded(message: Array) -> Array:
        return compressor.decode(message, len(x), x.dtype, copy.deepcopy(before))

    message = compressor.encode(x, rng)
    if compressor.summable:
        total = decoded(wire.sum(message))
    else:  # float16 is added up in float32
        total = np.zeros(len(x), dtype=np.float64 if x.dtype == np.float64 else np.float32)
        for theirs in wire.gather(message):
            compressor.add_decoded_inplace(total, theirs)
    return Exchanged((total / wire.K).astype(x.dtype, copy=False), decoded(message))


def as_scheme(how: Scheme | Compressor) -> Scheme:
    """A compressor by itself is used plainly. TypeError for anything that is neither."""
    if isinstance(how, Compressor):
        return Plain(how)
    if not isinstance(how, Scheme):
        raise TypeError(f"how must be a compressor or a scheme, as in QSGD(s=15), got {how!r}")
    return how
