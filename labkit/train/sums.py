"""How a bucket is summed: at once, in the background by one of labkit's own all-reduces, or by torch's.

``start(x)`` begins to replace the tensor ``x`` by the sum of all workers' ``x`` and returns a request; until its
``wait()`` returns, ``x`` is not to be touched. Sums that are under way end in the order in which they were started, and
every worker starts them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from torch import Tensor

from labkit.comm.base import Comm


class Started(Protocol):
    """A sum under way."""

    def wait(self) -> Any:
        """Block until the sum is there."""


Start = Callable[[Tensor], Started]


def at_once(comm: Comm, allreduce_inplace: Callable[[Comm, Tensor], Any]) -> Start:
    """Each sum is made when it is asked for; nothing overlaps."""

    def start(x: Tensor) -> Started:
        allreduce_inplace(comm, x)
        return _DONE

    return start


def in_background(comm: Comm, allreduce_inplace: Callable[[Comm, Tensor], Any]) -> Start:
    """One thread makes the sums while the caller computes: the messages of ``comm`` are then that thread's alone.

    autograd lets go of Python's lock while it computes, so this thread gets its turn. ValueError in the simulated world,
    where a worker has one clock.
    """
    if not hasattr(comm, "group"):
        raise ValueError(
            "overlap needs real worker processes, and this is the simulated world: pass overlap=False"
        )
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="labkit sums")

    def start(x: Tensor) -> Started:
        return _Submitted(thread.submit(allreduce_inplace, comm, x))

    return start


def by_torch(comm: Any) -> Start:
    """torch's own asynchronous all-reduce of the process group. labkit counts no bytes of it."""

    def start(x: Tensor) -> Started:
        return _Posted(comm, comm.group.allreduce([x]))

    return start


def starter(comm: Comm, allreduce_inplace: Callable[[Comm, Tensor], Any] | None, overlap: bool) -> Start:
    """The way to sum: labkit's ``allreduce_inplace``, in the background if ``overlap``; None: torch's own."""
    if allreduce_inplace is not None:
        return (in_background if overlap else at_once)(comm, allreduce_inplace)
    if not hasattr(comm, "group"):
        raise ValueError("allreduce must be one of labkit.collectives in the simulated world, got None")
    start = by_torch(comm)

    def start_and_wait(x: Tensor) -> Started:
        start(x).wait()
        return _DONE

    return start if overlap else start_and_wait


class _Done:
    def wait(self) -> None:
        """Nothing to wait for."""


_DONE = _Done()


class _Posted:
    def __init__(self, comm: Any, work: Any) -> None:
        self._comm, self._work = comm, work
        self.get_future = work.get_future

    def wait(self) -> None:
        """Block until torch has made the sum; meanwhile the launcher can see that this rank waits for the others."""
        self._comm._long_wait(True)
        self._work.wait()
        self._comm._long_wait(False)


class _Submitted:
    def __init__(self, future: Future) -> None:
        self._future = future

    def wait(self) -> None:
        """Block until the thread has made the sum; raises what it raised."""
        self._future.result()
