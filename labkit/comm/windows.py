"""Memory that every rank on the host can read and write, beside messages.

It is *symmetric*, as OpenSHMEM calls it: every rank asks for an array of the same shape, and each can reach those of
all others. For other arrays each rank has a window to show pieces of them in.

The meeting (``sync``) is a counter per rank that only its owner writes; the others spin on it, in a few microseconds where
a barrier through messages takes a hundred. Counters are never reset, or a fast rank would pass on an old one. That a
counter is seen no earlier than the data before it relies on x86's order of stores (Intel SDM vol. 3, section 9.2.2); on
other processors the meeting is a real barrier.
"""

import math
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labkit.checks import integer
from labkit.comm.errors import LaunchError

_LINE = 8  # int64 words between counters: one cache line each
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
# Yields, or seconds (a busy machine yields for milliseconds), until the wait is long, and sleeping costs nothing.
_SPINS, _SPIN_S = 2_000, 0.05


class _Heap:
    """Memory that the ranks of one host map piece by piece, in a file without a name, which ends with the last process
    that has it open. file: -1 where all ranks are in one process, and none is needed."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._pieces: dict[int, np.ndarray] = {}

    def __reduce__(self) -> Any:
        """To a process that is being started goes the open file."""
        return _received, (reduction.DupFd(self._file),)

    def reserve(self, at: int, nbytes: int) -> None:
        """See to it that there are ``nbytes`` bytes from ``at``, by one rank. LaunchError if the system has not so many."""
        if self._file < 0:
            self._pieces.setdefault(at, np.zeros(nbytes, np.uint8))
            return
        try:
            # A file that is only longer would end us when it is written.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, at, nbytes)
            else:
                os.ftruncate(
                    self._file, max(at + nbytes, os.fstat(self._file).st_size)
                )
        except OSError as error:
            asked = f"{nbytes:,} bytes of symmetric memory in {_directory()}"
            raise LaunchError(f"no room for {asked}: {error.strerror}") from None

    def map(self, at: int, nbytes: int) -> np.ndarray:
        """The ``nbytes`` bytes from ``at``, once they are reserved."""
        if self._file < 0:
            return self._pieces[at]
        return np.frombuffer(mmap.mmap(self._file, nbytes, offset=at), np.uint8)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        os.close(self._file)


def _received(file: Any) -> _Heap:
    return _Heap(file.detach())


def _directory() -> str:
    """Where files are memory, if the system has such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


class Windows:
    """This rank's view of the memory that the ranks share.

    heap: where it is. collective: the ``Comm``'s, for who calls what. barrier: a real one. waiting: told when a wait grows
    long (True) and ends (False); None: always use ``barrier``. bytes: of a window, so that all K fit in a typical cache.
    """

    def __init__(
        self,
        K: int,
        rank: int,
        heap: Any,
        collective: Callable[[str], AbstractContextManager[None]],
        barrier: Callable[[], None],
        waiting: Callable[[bool], None] | None = None,
    ) -> None:
        self.K, self.rank = K, rank
        self.bytes = max(1 << 14, min(1 << 19, (1 << 22) // K) & ~0xFFF)
        self._heap, self._collective = heap, collective
        self._barrier, self._waiting = barrier, waiting
        self._end = _pages(8 * _LINE * K)  # of what is taken of the heap
        self._counters = memoryview(heap.map(0, self._end)).cast("q")
        self._others = [k * _LINE for k in range(K) if k != rank]
        # The address of this rank's array, and the bytes of all, (K, n).
        self._taken: list[tuple[int, np.ndarray]] = []
        self._shown: np.ndarray | None = (
            None  # the windows of all, once they are needed
        )

    @staticmethod
    def heap(K: int, one_process: bool = False) -> Any:
        """Memory for the windows of K ranks, to hand to each of them; ``close()`` it. LaunchError if there is none."""
        file = -1
        if not one_process:
            file, path = tempfile.mkstemp(prefix="labkit-", dir=_directory())
            os.unlink(path)
        heap = _Heap(file)
        heap.reserve(0, _pages(8 * _LINE * K))  # for the counters
        return heap

    def empty(
        self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
    ) -> np.ndarray:
        """A new array, of zeros or of what was left there, whose place on all other ranks this one can reach.

        Every rank asks for it at the same point of the program, with the same shape and dtype. `shared` sums it, or a
        contiguous part that is the same on all ranks, where it lies; ``torch.from_numpy(x)`` is the same memory. It lasts as
        long as the launch, or the pool. LaunchError if the system has no room.

        >>> def swap(comm):
        ...     x = comm.windows.empty(3)
        ...     x[:] = comm.rank
        ...     comm.windows.sync()
        ...     return comm.windows.everyones(x)[1 - comm.rank].tolist()
        >>> launch(swap, 2).results
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
        """
        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        nbytes = (
            math.prod(integer("shape", length) for length in lengths) * kind.itemsize
        )
        with self._collective(f"symmetric memory for {lengths} {kind}"):
            everyone = self._take(nbytes)
        return everyone[self.rank, :nbytes].view(kind).reshape(lengths)

    def _take(self, nbytes: int) -> np.ndarray:
        """At least ``nbytes`` bytes more of the heap for every rank: (K, n)."""
        own = _pages(nbytes)
        if self.rank == 0:
            self._heap.reserve(self._end, self.K * own)
        self.sync()
        everyone = self._heap.map(self._end, self.K * own).reshape(self.K, own)
        self._end += self.K * own
        self._taken.append((_address(everyone[self.rank]), everyone))
        return everyone

    def everyones(self, x: np.ndarray) -> list[np.ndarray] | None:
        """The arrays of all ranks at the place of this rank's contiguous ``x``; None if it is not in symmetric memory."""
        for begin, everyone in self._taken:
            low = _address(x) - begin
            if low >= 0 and low + x.nbytes <= everyone.shape[1]:
                return [
                    one[low : low + x.nbytes].view(x.dtype).reshape(x.shape)
                    for one in everyone
                ]
        return None

    def views(self, n: int, dtype: np.dtype) -> list[np.ndarray]:
        """The first ``n`` elements of every rank's window; each writes its own, and meets, before it reads others'."""
        if self._shown is None:
            self._shown = self._take(self.bytes)
        return [window[: n * dtype.itemsize].view(dtype) for window in self._shown]

    def sync(self) -> None:
        """Go on when every rank is here; what each wrote before is seen by all after."""
        if self._waiting is None or not _ORDERED:
            self._barrier()
            return
        counters, mine = self._counters, self.rank * _LINE
        epoch = counters[mine] = counters[mine] + 1
        until, yields = time.monotonic() + _SPIN_S, 0
        for other in self._others:
            while counters[other] < epoch and yields < _SPINS:
                os.sched_yield()
                yields += 1
                if yields % 32 == 0 and time.monotonic() > until:
                    yields = _SPINS
        if yields < _SPINS:
            return
        self._waiting(True)
        while any(counters[other] < epoch for other in self._others):
            time.sleep(1e-4)
        self._waiting(False)


def _pages(nbytes: int) -> int:
    """Up to what can be mapped by itself."""
    page = mmap.ALLOCATIONGRANULARITY
    return max(page, -(-nbytes // page) * page)


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])
