"""When the buckets of one backward pass were ready, under way and summed: what overlap looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.comm.base import Comm


@dataclass(frozen=True)
class Flight:
    """One bucket. Its gradients were there at ready_s; its sum was made from start_s to end_s."""

    nbytes: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """One backward pass on one worker, seconds on the launch's clock.

    begin_s: the forward pass was over. computed_s: so was the backward computation. end_s: the last sum was there.
    flights: the buckets, in the order in which they left.
    """

    begin_s: float
    computed_s: float
    end_s: float
    flights: tuple[Flight, ...]

    @property
    def exposed_s(self) -> float:
        """Time after the computation in which there was nothing to do but wait for sums."""
        return self.end_s - self.computed_s


class Recorder:
    """Takes the times down for ``DDP(trace=True)``."""

    def __init__(self, comm: Comm) -> None:
        self._now = comm.now
        self._begin = self._computed = 0.0
        self._ready: list[tuple[int, float]] = []
        self._ends: dict[int, float] = {}
        self._made: list[tuple[float, float]] = []

    def timed(self, allreduce_inplace: Callable[[Comm, Any], Any]) -> Callable[[Comm, Any], Any]:
        """The same all-reduce, with the times of sums of buckets taken."""

        def timed_allreduce(comm: Comm, x: Any) -> None:
            begun = self._now()
            allreduce_inplace(comm, x)
            self._made.append((begun, self._now()))

        return timed_allreduce

    def forward_done(self) -> None:
        self._begin = self._now()

    def ready(self, i: int, nbytes: int) -> None:
        if i == 0:
            self._ready, self._ends = [], {}
            self._before = len(self._made)  # the sum of the examples is none of a bucket's
        self._ready.append((nbytes, self._now()))

    def flying(self, started: Any) -> None:
        future = getattr(started, "get_future", None)
        if future is not None:  # one of torch's
            i = len(self._ready) - 1
            future().then(lambda _: self._ends.__setitem__(i, self._now()))

    def computed(self) -> None:
        self._computed = self._now()

    def done(self) -> Trace:
        end = self._now()
        flights, free = [], 0.0
        for i, (nbytes, ready) in enumerate(self._ready):
            if self._made:
                start, stop = self._made[self._before + i]
            else:
                start = max(ready, free)
                stop = max(self._ends.get(i, end), start)
            free = stop
            flights.append(Flight(nbytes, ready, start, stop))
        self._made.clear()
        return Trace(self._begin, self._computed, end, tuple(flights))
