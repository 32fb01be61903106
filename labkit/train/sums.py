"""How a bucket is summed, and when: at once, in the background by one of labkit's own all-reduces, or by torch's.

``start(x, ended)`` begins to replace the tensor ``x`` by the sum of all workers' ``x`` and returns a function that waits
for it; until that has returned, ``x`` is not to be touched. ``ended()`` is called when the sum has been made, on whatever
thread. Sums that are under way end in the order in which they were started, and every worker starts them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from labkit.comm.base import Comm

Wait = Callable[[], Any]
#: Called when a sum has ended, with the time when it began, if known.
Ended = Callable[[float | None], None] | None


def starter(
    comm: Any, allreduce_inplace: Callable[[Comm, Tensor], Any] | None, overlap: bool
) -> Callable[[Tensor, Ended], Wait]:
    """The way to sum: labkit's ``allreduce_inplace``, or, if None, torch's own, of which labkit counts no bytes.

    overlap: the sums are made while the caller computes. labkit's own then have a thread, and the messages of ``comm`` are
    that thread's alone; autograd lets go of Python's lock while it computes, so this thread gets its turn. ValueError for
    what the simulated world cannot do: a worker has one clock there, and torch no process group.
    """
    simulated = not hasattr(comm, "group")
    if simulated and allreduce_inplace is None:
        raise ValueError("allreduce must be one of labkit.collectives in the simulated world, got None")
    if simulated and overlap:
        raise ValueError(
            "overlap needs real worker processes, and this is the simulated world: pass overlap=False"
        )
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="labkit sums")

    def summed(x: Tensor, ended: Ended) -> None:
        assert allreduce_inplace is not None
        begun = comm.now()
        allreduce_inplace(comm, x)
        if ended is not None:
            ended(begun)

    def start(x: Tensor, ended: Ended) -> Wait:
        wait: Wait
        if allreduce_inplace is None:
            work = comm.group.allreduce([x])
            if ended is not None:
                work.get_future().then(lambda _: ended(None))
            wait = partial(_wait_for, comm, work)
        elif overlap:
            wait = thread.submit(summed, x, ended).result
        else:
            wait = partial(summed, x, ended)
        if overlap:
            return wait
        wait()
        return lambda: None

    return start


def _wait_for(comm: Any, work: Any) -> None:
    """Block until torch has made the sum."""
    comm._long_wait(True)
    work.wait()
    comm._long_wait(False)


@dataclass(frozen=True)
class _Flight:
    """One bucket. Its gradients were there at ready_s; its sum was made from start_s to end_s.

    When torch begins a sum nobody hears: start_s is then when it could begin, with the one before ended.
    """

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
    flights: tuple[_Flight, ...]

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
        self._made: dict[int, tuple[float | None, float]] = {}  # a sum's begin, if known, and its end

    def forward_done(self) -> None:
        self._begin = self._now()

    def ready(self, i: int, nbytes: int) -> Callable[[float | None], None]:
        """Bucket i is complete. Returns what to call when it has been summed, with the time when that began, if known."""
        if i == 0:
            self._ready, self._made = [], {}
        self._ready.append((nbytes, self._now()))
        return lambda begun: self._made.__setitem__(i, (begun, self._now()))

    def computed(self) -> None:
        self._computed = self._now()

    def done(self) -> Trace:
        end = self._now()
        flights, free = [], 0.0
        for i, (nbytes, ready) in enumerate(self._ready):
            begun, ended = self._made.get(i, (None, end))
            start = max(ready, free) if begun is None else begun  # one sum after the other
            free = max(ended, start)
            flights.append(_Flight(nbytes, ready, start, free))
        return Trace(self._begin, self._computed, end, tuple(flights))
