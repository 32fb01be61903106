"""The virtual cluster under the simulated world: a scheduler of clocks, and a network of ports.

Workers are threads of which exactly one runs at a time: always the one with the smallest clock (ties: the smaller
rank), so that messages claim their ports in the order of virtual time and two runs of one program give the same bits.
"""

from __future__ import annotations

import ctypes
import heapq
import sys
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.comm.diagnose import FINISHED, MEETING, SENDING, State, blame, odd_ones
from labkit.comm.errors import Deadlock, Mismatch, RankError, RankTimeout
from labkit.cost.link import Link
from labkit.timing.timeline import Kind

if TYPE_CHECKING:
    from labkit.comm.simulated import SimulatedComm, _Message

WAIT = int(Kind.WAIT)


class Abandoned(BaseException):
    """Ends a worker's thread after another worker has failed; not for ``except Exception``."""


class Cluster:
    """The scheduler and the network's ports."""

    def __init__(self, K: int, link: Link | Callable[[int, int], Link]) -> None:
        self.K = K
        self.link = link
        self.comms: list[SimulatedComm] = []
        self.out_free = [0.0] * K
        self.in_free = [0.0] * K
        self.pending: dict[tuple[int, int], tuple[deque, deque]] = defaultdict(lambda: (deque(), deque()))
        self.anyone: dict[int, _Message] = {}  # per rank, its receive from anyone that nobody has met yet
        self.asleep: dict[int, Any] = {}
        self.ready = [(0.0, k) for k in range(K)]
        self.points: dict[int, dict[int, str]] = defaultdict(dict)
        self.disputed: int | None = None
        self.here: list[int] = []
        self.go = [threading.Semaphore(0) for _ in range(K)]
        self.over = threading.Event()
        self.running = 0
        self.failure: BaseException | None = None
        self.results: list[Any] = [None] * K
        self.left = K

    # -- the scheduler ----------------------------------------------------------------------------------------

    def run(
        self, comms: list[SimulatedComm], f: Callable[..., Any], args: tuple, kwargs: dict, timeout_s: float
    ) -> list[Any]:
        """What ``f(comm, *args, **kwargs)`` returns on each of the workers ``comms``. Raises RankError."""
        self.comms = comms
        threads = [
            threading.Thread(target=self._work, args=(k, f, args, kwargs), name=f"rank {k}", daemon=True)
            for k in range(self.K)
        ]
        try:
            for t in threads:
                t.start()
            self._next()
            if not self.over.wait(timeout_s):
                self._late(threads, timeout_s)
        finally:
            self._end(threads)
        if self.failure is not None:
            raise self.failure
        return self.results

    def _work(self, k: int, f: Callable[..., Any], args: tuple, kwargs: dict) -> None:
        comm = self.comms[k]
        try:
            self.go[k].acquire()
            if self.over.is_set():
                return
            self.results[k] = f(comm, *args, **kwargs)
            comm._state = State(FINISHED, point=comm._point)
            self.left -= 1
            self._next()
        except Abandoned:
            pass
        except Mismatch as error:
            self._fail(error)
        except BaseException as error:
            trace = "".join(traceback.format_exception(type(error), error, _own(error.__traceback__)))
            failure = RankError(f"rank {k} raised {type(error).__name__}: {error}", (k,), trace)
            failure.__cause__ = error
            self._fail(failure)

    def turn(self, comm: SimulatedComm) -> None:
        """Let every worker with a smaller clock go first."""
        if self.over.is_set():
            raise Abandoned
        if self.ready and self.ready[0] < (comm.clock, comm.rank):
            heapq.heappush(self.ready, (comm.clock, comm.rank))
            self._next()
            self._await(comm.rank)

    def sleep(self, comm: SimulatedComm, on: Any) -> None:
        self.asleep[comm.rank] = on
        self._next()
        self._await(comm.rank)

    def _wake(self, rank: int, clock: float) -> None:
        del self.asleep[rank]
        heapq.heappush(self.ready, (clock, rank))

    def _await(self, rank: int) -> None:
        self.go[rank].acquire()
        if self.over.is_set():
            raise Abandoned

    def _next(self) -> None:
        if self.ready:
            self.running = heapq.heappop(self.ready)[1]
            self.go[self.running].release()
        elif self.left == 0:
            self.over.set()
        else:
            if self.disputed is not None:
                ranks, sentence = odd_ones(self.disputed, self.points[self.disputed])
                self._fail(Mismatch(sentence, ranks))
            else:
                ranks, sentence = blame([c._state for c in self.comms])
                self._fail(Deadlock(sentence, ranks))
            raise Abandoned

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.over.set()

    def _late(self, threads: list[threading.Thread], timeout_s: float) -> None:
        k = self.running
        frame = sys._current_frames().get(threads[k].ident or 0)
        trace = "".join(traceback.format_stack(frame)) if frame else ""
        self._fail(
            RankTimeout(
                f"rank {k} was still running its own code at the deadline of {timeout_s:g} s", (k,), trace
            )
        )

    def _end(self, threads: list[threading.Thread]) -> None:
        """Bring every thread home: sleepers wake into Abandoned, a loop in Python is interrupted."""
        self.over.set()
        for semaphore in self.go:
            semaphore.release()
        for t in threads:
            for _ in range(20):
                if t.ident is None:
                    break
                t.join(0.1)
                if not t.is_alive():
                    break
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(t.ident), ctypes.py_object(Abandoned)
                )

    # -- the network ------------------------------------------------------------------------------------------

    def post(self, message: _Message, source: int, to: int) -> None:
        sends, recvs = self.pending[source, to]
        (sends if message.op == SENDING else recvs).append(message)
        if sends and recvs:
            self._transfer(sends.popleft(), recvs.popleft(), source, to)
        elif sends and to in self.anyone:
            self._transfer(sends.popleft(), self.anyone.pop(to), source, to)

    def post_any(self, message: _Message, to: int) -> None:
        """A receive from whoever has posted first, or will."""
        waiting = [(sends[0].posted, k) for k in range(self.K) if (sends := self.pending[k, to][0])]
        if waiting:
            source = min(waiting)[1]
            self._transfer(self.pending[source, to][0].popleft(), message, source, to)
        else:
            self.anyone[to] = message

    def _transfer(self, send: _Message, recv: _Message, source: int, to: int) -> None:
        if send.size[:2] != recv.size[:2]:
            raise Mismatch(
                f"rank {source} sends {send.size} to rank {to}, which expects {recv.size}", (source, to)
            )
        link = self.link if isinstance(self.link, Link) else self.link(source, to)
        start = max(send.posted, recv.posted, self.out_free[source], self.in_free[to])
        end = start + link.seconds(send.size.nbytes)
        self.out_free[source] = self.in_free[to] = end
        _copy(recv.data, send.data)
        recv.peer = source
        for message in (send, recv):
            message.start, message.end = start, end
            if self.asleep.get(message.comm.rank) is message:
                self._wake(message.comm.rank, max(end, message.comm.clock))

    def announce(self, comm: SimulatedComm) -> None:
        """Compare with those who came before. Who differs waits until all others have shown what they bring."""
        brought = self.points[comm._point]
        brought[comm.rank] = comm._bringing
        if len(set(brought.values())) > 1:
            self.disputed = min(self.disputed or comm._point, comm._point)
            self.sleep(comm, "dispute")
        elif len(brought) == self.K:
            del self.points[comm._point]

    def meet(self, comm: SimulatedComm) -> None:
        self.here.append(comm.rank)
        if len(self.here) == self.K:
            last = max(c.clock for c in self.comms)
            for rank in self.here:
                self.comms[rank]._pass(WAIT, last)
                if rank != comm.rank:
                    self._wake(rank, last)
            self.here = []
        else:
            self._absent()
            comm._block(MEETING, tuple(k for k in range(self.K) if k not in self.here), "barrier")

    def _absent(self) -> None:
        """Those who already wait in the barrier no longer wait for whoever has just come."""
        for rank in self.here[:-1]:
            s = self.comms[rank]._state
            peers = tuple(k for k in s.peers if k != self.here[-1])
            self.comms[rank]._state = State(s.op, peers, s.point, s.name, s.inside)


def _copy(into: Any, data: Any) -> None:
    if isinstance(into, np.ndarray):
        into[...] = np.asarray(data).reshape(into.shape)
    elif isinstance(data, np.ndarray):
        import torch

        into.copy_(torch.from_numpy(np.ascontiguousarray(data)).reshape(into.shape))
    else:
        into.copy_(data.detach().reshape(into.shape))


def _own(tb: Any) -> Any:
    """The traceback from the algorithm's first frame on."""
    return tb.tb_next if tb is not None and tb.tb_next is not None else tb
