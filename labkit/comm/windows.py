"""Shared memory beside messages: a window of memory per rank that every rank on the host can read and write.

And *symmetric* memory, as OpenSHMEM calls it: every rank asks for an array of the same shape, and each can reach those of
all others, so that what lies there is summed without a copy.

Two halves a window: while one is being read the other may be written, so one meeting per use is enough to be safe. The
meeting (``sync``) is a counter per rank that only its owner writes; the others spin on it, yielding the core, in a few
microseconds where a barrier through messages takes a hundred. The counters are never reset: restarting an epoch at zero
lets a fast rank pass on a stale one. That a counter is seen no earlier than the data before it relies on x86's order of
stores (Intel SDM vol. 3, section 9.2.2); on other processors the meeting is a real barrier.
"""

from __future__ import annotations

import math
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labkit.checks import integer
from labkit.comm.errors import LaunchError

LINE = 8  # int64 words between counters: one cache line each
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
# Yields, or seconds (a busy machine yields for milliseconds), until the wait is long, and sleeping costs nothing.
_SPINS, _SPIN_S = 2_000, 0.05


class Heap:
    """Memory of any size that the ranks of one host map piece by piece, in a file without a name: it ends with the last
    process that has it open. alone: the ranks are in one process, and no file is needed."""

    def __init__(self, alone: bool = False) -> None:
        self._pieces: dict[int, np.ndarray] = {}
        self._file = -1
        if not alone:
            self._file, path = tempfile.mkstemp(prefix="labkit-", dir=_directory())
            os.unlink(path)

    @classmethod
    def _of(cls, file: Any) -> Heap:
        heap = cls(alone=True)
        heap._file = file.detach()
        return heap

    def __reduce__(self) -> Any:
        """To a process that is being started goes the open file."""
        return Heap._of, (reduction.DupFd(self._file),)

    def reserve(self, at: int, nbytes: int) -> None:
        """See to it that there are ``nbytes`` bytes from ``at``, by one rank. LaunchError if the system has not so many."""
        if self._file < 0:
            self._pieces.setdefault(at, np.zeros(nbytes, np.uint8))
            return
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(
                    self._file, at, nbytes
                )  # a file that is only longer would end us when it is written
            else:
                os.ftruncate(self._file, max(at + nbytes, os.fstat(self._file).st_size))
        except OSError as error:
            raise LaunchError(
                f"no room for {nbytes:,} bytes of symmetric memory in {_directory()}: {error.strerror}"
            ) from None

    def map(self, at: int, nbytes: int) -> np.ndarray:
        """The ``nbytes`` bytes from ``at``, once they are reserved."""
        if self._file < 0:
            return self._pieces[at]
        return np.frombuffer(mmap.mmap(self._file, nbytes, offset=at), np.uint8)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1


def _directory() -> str:
    """Where files are memory, if the system has such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


class Windows:
    """This rank's view of all windows.

    barrier: a real one. heap: for symmetric memory. collective: the ``Comm``'s, for who calls what. waiting: told when a
    wait grows long (True) and ends (False); None: always use ``barrier``.
    half: bytes of half a window. views(n, dtype): where all ranks show n elements next. sync(): meet all ranks.
    """

    def __init__(
        self,
        raw: Any,
        K: int,
        rank: int,
        barrier: Callable[[], None],
        heap: Heap,
        collective: Callable[[str], AbstractContextManager[None]],
        waiting: Callable[[bool], None] | None = None,
    ) -> None:
        self.K, self.rank, self.half = K, rank, self.half_bytes(K)
        view = memoryview(raw).cast("B")
        self._counters = view[: 8 * K * LINE].cast("q")
        self._mine = rank * LINE
        self._others = [k * LINE for k in range(K) if k != rank]
        data = np.frombuffer(view, np.uint8, offset=8 * K * LINE)
        self._halves = data.reshape(K, 2, self.half)
        self._barrier, self._waiting = barrier, waiting
        self._uses = 0
        self._views: dict[tuple[int, np.dtype], list[list[np.ndarray]]] = {}
        self._heap, self._collective = heap, collective
        self._end = 0  # of what is taken of the heap
        self._taken: list[
            tuple[int, np.ndarray]
        ] = []  # address of this rank's array, and the bytes of all, (K, n)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
        """A new array (of zeros or of what was left there) whose place on all other ranks this one can reach.

        Every rank asks for it at the same point of the program, with the same shape and dtype. `shared` sums it, or any
        contiguous part of it that is the same on all ranks, where it lies; ``torch.from_numpy(x)`` is the same memory. It
        lasts as long as the launch, or the pool. Raises LaunchError if the system has no room for it.

        >>> from labkit import launch
        >>> def swap(comm):
        ...     x = comm.windows.empty(3)
        ...     x[:] = comm.rank
        ...     comm.windows.sync()
        ...     return comm.windows.everyones(x)[1 - comm.rank].tolist()
        >>> launch(swap, 2).results
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for length in shape:
            integer("shape", length)
        kind = np.dtype(dtype)
        nbytes = max(1, math.prod(shape) * kind.itemsize)
        own = -(-nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        with self._collective(f"symmetric memory for {shape} {kind}"):
            if self.rank == 0:
                self._heap.reserve(self._end, self.K * own)
            self.sync()
            everyone = self._heap.map(self._end, self.K * own).reshape(self.K, own)
        self._end += self.K * own
        self._taken.append((_address(everyone[self.rank]), everyone))
        return everyone[self.rank, : math.prod(shape) * kind.itemsize].view(kind).reshape(shape)

    def everyones(self, x: np.ndarray) -> list[np.ndarray] | None:
        """The arrays of all ranks at the place of this rank's contiguous ``x``; None if it is not in symmetric memory."""
        if self._taken:
            at = _address(x)
            for begin, everyone in self._taken:
                low = at - begin
                if low >= 0 and low + x.nbytes <= everyone.shape[1]:
                    return [one[low : low + x.nbytes].view(x.dtype).reshape(x.shape) for one in everyone]
        return None

    @staticmethod
    def half_bytes(K: int) -> int:
        """Bytes of half a window: as much as keeps all K of them in a typical last-level cache."""
        return max(1 << 14, min(1 << 19, (1 << 22) // K) & ~0xFFF)

    @staticmethod
    def words(K: int) -> int:
        """How many int64 the windows of K ranks and their counters take."""
        return K * LINE + K * 2 * Windows.half_bytes(K) // 8

    def views(self, n: int, dtype: np.dtype) -> list[np.ndarray]:
        """The first ``n`` elements of every rank's window, in the half that nobody can be reading any more."""
        self._uses += 1
        views = self._views.get((n, dtype))
        if views is None:
            if len(self._views) > 64:
                self._views.clear()
            size = n * dtype.itemsize
            views = [[window[p, :size].view(dtype) for window in self._halves] for p in range(2)]
            self._views[n, dtype] = views
        return views[self._uses & 1]

    def sync(self) -> None:
        """Go on when every rank is here; what each wrote before is seen by all after."""
        counters = self._counters
        epoch = counters[self._mine] = counters[self._mine] + 1
        waiting = self._waiting
        if waiting is None or not _ORDERED:
            self._barrier()
            return
        spins, began = 0, time.monotonic()
        for other in self._others:
            while counters[other] < epoch:
                spins += 1
                if not spins & 31 and time.monotonic() - began > _SPIN_S:
                    spins = max(spins, _SPINS)
                if spins < _SPINS:
                    os.sched_yield()
                else:
                    if spins == _SPINS:
                        waiting(True)
                    time.sleep(1e-4)
        if spins >= _SPINS:
            waiting(False)


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])
