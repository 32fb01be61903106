"""A scheme: how K gradients become one mean, and what a worker remembers from one step to the next.

The plainest scheme is a compressor: what travels instead of a gradient, and how to read it. One worker's vector becomes a
message, an array whose ``nbytes`` is what goes over the wire: codes are really packed, indices are really there. A message
is ``summable`` where adding up messages is adding up what they mean, so that an all-reduce can add them in flight; others
are gathered. What a compressor leaves out is lost; error feedback (here) and PowerSGD remember it. All of them talk through
a ``Wire``: what is summable goes round the ring, all else is gathered by everybody. So the same scheme runs over ``Comm`` in
any world and inside a hook of torch's DistributedDataParallel.

Symbols: K workers, g (d,) the gradient of this worker, d elements of ``itemsize`` bytes, alpha and beta of the link.
"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labkit.collectives import all_gather, ring
from labkit.collectives.base import Counts
from labkit.comm.base import Comm
from labkit.network.link import Link

Array = NDArray[Any]
Rng = np.random.Generator


class Wire(ABC):
    """What K workers share: sums and gathers, and a stopwatch.

    clock: seconds in which the wire is timed; coding is always timed by the real clock, for it always really happens.
    """

    def __init__(
        self, K: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
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
        self._before_s = self._wire_s = 0.0
        self._since = time.perf_counter()

    def stop(self) -> tuple[float, float, float]:
        """Seconds since ``start``: before and between the collectives (encode), in them, and after the last (decode)."""
        return self._before_s, self._wire_s, time.perf_counter() - self._since

    def _timed(self, collective: Callable[[Array], Array], x: Array) -> Array:
        self._before_s += time.perf_counter() - self._since
        begun = self._clock()
        out = collective(x)
        self._wire_s += self._clock() - begun
        self._since = time.perf_counter()
        return out


class OverComm(Wire):
    """The wire of a worker that has a ``Comm``: ring all-reduce and ring all-gather."""

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm.K, comm.now)
        self.comm = comm

    def _sum(self, x: Array) -> Array:
        return np.asarray(ring.allreduce(self.comm, x))

    def _gather(self, message: Array) -> Array:
        everyone = all_gather(self.comm, message, self.K * len(message))
        return np.asarray(everyone).reshape(self.K, -1)


class Rngs(NamedTuple):
    """A worker's generators: ``own`` differs from worker to worker, ``common`` is in the same state on all of them."""

    own: Rng
    common: Rng


def rngs(seed: int, rank: int) -> Rngs:
    """The generators of worker ``rank``. Every worker must be given the same seed."""
    return Rngs(
        np.random.default_rng([seed, 1 + rank]), np.random.default_rng([seed, 0])
    )


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
            raise TypeError(
                f"how must be a compressor or a scheme, as in QSGD(s=15), got {how!r}"
            )
        return how

    def start(self, d: int, dtype: Any, rngs: Rngs) -> Any:
        """A worker's memory before the first step, for gradients of d elements; None: there is none."""
        return None

    @abstractmethod
    def mean(
        self, wire: Wire, g: Array, memory: Any, rngs: Rngs
    ) -> tuple[Exchanged, Any]:
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
    def encode(self, x: Array, rng: Rng) -> Array:
        """What travels instead of ``x``, a new array of one dimension. x: (d,), d >= 1, finite, float32 or float64.

        Raises ValueError for anything else: a message made of NaN would poison every worker, and silently.
        """

    @abstractmethod
    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        """The vector (d,) of ``dtype`` that ``message`` stands for. rng: where ``common``, as ``encode`` found it."""

    @abstractmethod
    def crossing(self, d: int, itemsize: int) -> Crossing:
        """What each worker brings to the wire for d elements of ``itemsize`` bytes."""

    def nbytes(self, d: int, itemsize: int) -> int:
        """Bytes of a message for d elements of ``itemsize`` bytes."""
        _, n, size = self.crossing(d, itemsize)
        return n * size

    def mean(
        self, wire: Wire, g: Array, memory: Any, rngs: Rngs
    ) -> tuple[Exchanged, Any]:
        """Encode, cross the wire once, decode: the mean of everyone's decoded ``g``."""
        x = checked(g)
        rng = rngs.common if self.common else rngs.own
        before = copy.deepcopy(rng) if self.common else None

        def decoded(message: Array) -> Array:
            return self.decode(message, len(x), x.dtype, copy.deepcopy(before))

        message = self.encode(x, rng)
        if self.summable:
            total = decoded(wire.sum(message))
        else:
            total = np.zeros_like(x)
            for theirs in wire.gather(message):
                total += decoded(theirs)
        return Exchanged(total / wire.K, decoded(message)), None

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return [self.crossing(d, itemsize)]


@dataclass(frozen=True)
class Identity(Compressor):
    """The vector itself travels: nothing is saved, nothing is lost. With it every scheme is the plain all-reduce."""

    summable = True

    def encode(self, x: Array, rng: Rng) -> Array:
        return checked(x).copy()

    def decode(
        self, message: Array, d: int, dtype: Any, rng: Rng | None = None
    ) -> Array:
        return message.astype(dtype)

    def crossing(self, d: int, itemsize: int) -> Crossing:
        return Crossing(True, d, itemsize)


@dataclass(frozen=True)
class ErrorFeedback(Scheme):
    """What a message leaves out is added to the next gradient (Seide et al. 2014; Karimireddy et al. 2019).

        corrected = gradient + old error;   message = encode(corrected);   new error = corrected - decode(message)

    so nothing is ever lost, it only comes late. The memory is the error (d,), in units of the gradient.
    """

    compressor: Compressor

    def start(self, d: int, dtype: Any, rngs: Rngs) -> Array:
        return np.zeros(d, dtype)

    def mean(
        self, wire: Wire, g: Array, memory: Array, rngs: Rngs
    ) -> tuple[Exchanged, Array]:
        corrected = checked(g) + memory
        out, _ = self.compressor.mean(wire, corrected, None, rngs)
        return out, corrected - out.mine

    def crossings(self, d: int, itemsize: int, t: int = 0) -> list[Crossing]:
        return self.compressor.crossings(d, itemsize)


def checked(x: Any) -> Array:
    """``x`` if it can be compressed; ValueError, in one sentence, if not."""
    if not isinstance(x, np.ndarray) or x.ndim != 1 or x.size == 0:
        got = f"shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ValueError(
            f"x must be a numpy vector of at least one number, got {got}"
        )
    if x.dtype not in (np.float32, np.float64):
        raise ValueError(f"x must hold float32 or float64, got {x.dtype}")
    finite = int(np.isfinite(x).sum())
    if finite < x.size:
        got = f"NaN or infinity in {x.size - finite} of {x.size} places"
        raise ValueError(f"x must be finite to be compressed, got {got}")
    return x


def compressed_mean(
    comm: Comm, g: Array, compressor: Compressor, seed: int = 0
) -> Exchanged:
    """The mean over the workers of what their messages say, and what this worker's own says; nothing is remembered.

    g: (d,), this worker's; d, the dtype and the seed must be the same on every rank, and the bits are.
    """
    Scheme.of(compressor)
    return compressor.mean(OverComm(comm), g, None, rngs(seed, comm.rank))[0]


def sent_bytes(how: Scheme, K: int, d: int, itemsize: int, t: int = 0) -> Counts:
    """Bytes each rank sends at step t, (K,), for d elements of ``itemsize`` bytes; exact for every K and d.

    A sum of n numbers costs ``ring.bytes``, a message of n bytes that is gathered (K - 1) n.

    >>> sent_bytes(TopK(0.01), K=4, d=1000, itemsize=4)
    array([180, 180, 180, 180])
    """
    total = np.zeros(K, np.int64)
    for summed, n, size in Scheme.of(how).crossings(d, itemsize, t):
        total += (
            ring.bytes(K, n, size) if summed else all_gather.bytes(K, K * n, size)
        )
    return total


def wire_time(
    how: Scheme, K: int, d: int, itemsize: int, link: Link, t: int = 0
) -> float:
    """Seconds on the wire of step t; exact where K divides what is summed, as ``ring.time`` is.

    >>> from labkit.network import Link
    >>> link = Link(0.0, 1e6)
    >>> [round(wire_time(how, 4, 1000, 4, link), 6) for how in (Identity(), TopK(0.01))]
    [0.006, 0.00018]
    """
    total = 0.0
    for summed, n, size in Scheme.of(how).crossings(d, itemsize, t):
        total += (
            ring.time(K, n * size, link)
            if summed
            else all_gather.time(K, K * n * size, link)
        )
    return total
