"""The wire: what K workers share, a sum in flight or everyone's message to everyone, with a stopwatch.

What is summable goes round the ring (``labkit.collectives.ring``): each worker sends 2 (K - 1) / K of a message. All else is
gathered, every worker's message by every worker: (K - 1) messages each, *growing with K* where the ring's share does not.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labkit.collectives import all_gather, ring
from labkit.comm.base import Comm

Array = NDArray[Any]


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


class OverComm(Wire):
    """The wire of a worker that has a ``Comm``: ring all-reduce and ring all-gather."""

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm.K, comm.now)
        self.comm = comm

    def _sum(self, x: Array) -> Array:
        return np.asarray(ring.allreduce(self.comm, x))

    def _gather(self, message: Array) -> Array:
        return np.asarray(all_gather(self.comm, message, self.K * len(message))).reshape(self.K, -1)
