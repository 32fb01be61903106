"""Shared memory beside messages: a window of memory per rank that every rank on the host can read and write.

Two halves a window: while one is being read the other may be written, so one meeting per use is enough to be safe. The
meeting (``sync``) is a counter per rank that only its owner writes; the others spin on it, yielding the core, in a few
microseconds where a barrier through messages takes a hundred. The counters are never reset: restarting an epoch at zero
lets a fast rank pass on a stale one. That a counter is seen no earlier than the data before it relies on x86's order of
stores (Intel SDM vol. 3, section 9.2.2); on other processors the meeting is a real barrier.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LINE = 8  # int64 words between counters: one cache line each
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
_SPINS = 2_000  # then the wait is long, and sleeping costs nothing


class Windows:
    """This rank's view of all windows.

    barrier: a real one. waiting: told when a wait grows long (True) and ends (False); None: always use ``barrier``.
    half: bytes of half a window. views(n, dtype): where all ranks show n elements next. sync(): meet all ranks.
    """

    def __init__(
        self,
        raw: Any,
        K: int,
        rank: int,
        barrier: Callable[[], None],
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
        spins = 0
        for other in self._others:
            while counters[other] < epoch:
                spins += 1
                if spins < _SPINS:
                    os.sched_yield()
                else:
                    if spins == _SPINS:
                        waiting(True)
                    time.sleep(1e-4)
        if spins >= _SPINS:
            waiting(False)
