"""The simulated world: every worker on a virtual clock, in one process, deterministic.

The network is the one-port, full-duplex alpha-beta model (Hockney 1994; Thakur, Rabenseifner and Gropp 2005,
section 3): a message starts when both ends have posted it and both ports are free, and keeps the sender's outgoing and
the receiver's incoming port busy for ``alpha + nbytes / beta`` seconds.

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from labkit.comm.base import Comm, Described, deliver, describe
from labkit.comm.board import ANY, State
from labkit.comm.diagnose import blame
from labkit.comm.errors import Deadlock, Mismatch, RankError, RankTimeout, described
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING, Run
from labkit.comm.windows import Heap, Windows
from labkit.network.link import Link
from labkit.timing.laws import Fleet
from labkit.timing.timeline import Kind

COMPUTE, WAIT, COMMUNICATE = int(Kind.COMPUTE), int(Kind.WAIT), int(Kind.COMMUNICATE)
ETHERNET = Link(alpha=25e-6, beta=1.25e9)  # 10 Gbit/s


@dataclass(frozen=True)
class Simulated:
    """A simulated cluster.

    link: one ``Link`` for all pairs, or a function ``(source, to) -> Link`` for a network that isn't flat.
    law: draws the times of ``comm.compute``; None: only the seconds that the algorithm states.
    seed: of the law's draws; rank k draws from ``np.random.default_rng([seed, k])``.
    hosts: the host of each rank, for a cluster of two levels; None: one rank a host.
    inside: the ``Link`` between ranks of one host; None: the same as between hosts.

    >>> from labkit.network import Link
    >>> def hand_over(comm, x):
    ...     comm.send(x, 1) if comm.rank == 0 else comm.recv(np.empty_like(x), 0)
    >>> run = launch(hand_over, 2, np.zeros(1000), world=Simulated(Link(alpha=0.001, beta=1e6)))
    >>> round(run.elapsed_s, 6)
    0.009
    """

    link: Link | Callable[[int, int], Link] = ETHERNET
    law: Fleet | None = None
    seed: int = 0
    hosts: tuple[int, ...] | None = None
    inside: Link | None = None

    def __str__(self) -> str:
        said = str(self.link) if isinstance(self.link, Link) else "a link of its own for each pair"
        if self.hosts is not None:
            said += f", {len(set(self.hosts))} hosts ({self.inside or 'the same'} inside)"
        if self.law is not None:
            said += f", compute times {self.law}, seed {self.seed}"
        return said

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K virtual workers; see ``launch``."""
        hosts = tuple(range(K)) if self.hosts is None else tuple(self.hosts)
        if len(hosts) != K:
            raise ValueError(f"hosts must name the host of each of the {K} ranks, got {len(hosts)}: {hosts}")
        cluster = _Cluster(K, self._between(hosts))
        memory = bytearray(8 * Windows.words(K)) if self.hosts is None or len(set(hosts)) == 1 else None
        heap = Heap(alone=True)
        cluster.comms = comms = [_SimulatedComm(k, cluster, hosts) for k in range(K)]
        for c in comms:
            c._follow(self.law, self.seed)
            if memory is not None:
                c._windows = Windows(memory, K, c.rank, partial(cluster.meet, c), heap, c.collective)
        results = cluster.run(f, args, kwargs, timeout_s)
        return Run.of(results, [c._record(c.clock) for c in comms], "simulated", str(self))

    def _between(self, hosts: tuple[int, ...]) -> Callable[[int, int], Link]:
        """The link of each pair of ranks."""
        outside, inside = self.link, self.inside

        def between(source: int, to: int) -> Link:
            if inside is not None and hosts[source] == hosts[to]:
                return inside
            return outside if isinstance(outside, Link) else outside(source, to)

        return between


class _Message:
    """One end of a message: a request."""

    __slots__ = ("comm", "data", "end", "op", "peer", "posted", "size", "start")

    def __init__(self, comm: _SimulatedComm, op: int, data: Any, size: Described, peer: int) -> None:
        self.comm, self.op, self.data, self.size, self.peer = comm, op, data, size, peer
        self.posted = comm.clock
        self.start = self.end = -1.0

    def wait(self) -> Any:
        comm = self.comm
        if self.end < 0:
            others = tuple(k for k in range(comm.K) if k != comm.rank)
            comm._block(self.op, others if self.peer == ANY else (self.peer,), self)
        comm._pass(WAIT, self.start)
        comm._pass(COMMUNICATE, self.end)
        return self.data if self.op == RECEIVING else None


class _SimulatedComm(Comm):
    """A virtual worker: ``clock`` is its virtual time in seconds."""

    measured = False

    def __init__(self, rank: int, cluster: _Cluster, hosts: tuple[int, ...]) -> None:
        super().__init__(rank, cluster.K, hosts=hosts)
        self.clock = 0.0
        self._cluster = cluster
        self._state = State(RUNNING)
        self._point = 0
        self._bringing = ""

    def now(self) -> float:
        return self.clock

    def isend(self, data: Any, to: int) -> _Message:
        size, to = describe(data, "data"), self._peer(to, "to")
        self._cluster.turn(self)
        message = _Message(self, SENDING, data, size, to)
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        self._cluster.post(message, self.rank, to)
        return message

    def irecv(self, into: Any, source: int) -> _Message:
        size, source = describe(into, "into"), self._peer(source, "source")
        self._cluster.turn(self)
        message = _Message(self, RECEIVING, into, size, source)
        self._cluster.post(message, source, self.rank)
        return message

    def _recv_any(self, into: Any, size: Described) -> int:
        self._cluster.turn(self)
        message = _Message(self, RECEIVING, into, size, ANY)
        self._cluster.post_any(message, self.rank)
        message.wait()
        return message.peer

    def barrier(self) -> None:
        with self.collective("barrier"):
            self._cluster.meet(self)

    def _meet(self, name: str, size: Described | None) -> None:
        self._point += 1
        self._bringing = name if size is None else f"{name} of {size}"
        self._cluster.announce(self)

    def _part(self) -> None:
        """Nothing to announce: the scheduler sees it."""

    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any:
        value = fn() if fn is not None else None
        if seconds is not None:
            self._pass(COMPUTE, self.clock + seconds)
        return value

    def _pass(self, kind: int, until: float) -> None:
        if until > self.clock:
            self._spans.append((self.step, kind, self.clock, until))
            self.clock = until

    def _block(self, op: int, peers: tuple[int, ...], on: Any) -> None:
        self._state = State(op, peers, self._point, self._bringing, self._inside is not None)
        self._cluster.sleep(self, on)
        self._state = State(RUNNING)


class _Abandoned(BaseException):
    """Ends a worker's thread after another worker has failed; not for ``except Exception``."""


class _Cluster:
    """The scheduler and the network's ports."""

    def __init__(self, K: int, link: Callable[[int, int], Link]) -> None:
        self.K = K
        self.link = link
        self.comms: list[_SimulatedComm] = []
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

    def run(self, f: Callable[..., Any], args: tuple, kwargs: dict, timeout_s: float) -> list[Any]:
        """What ``f(comm, *args, **kwargs)`` returns on each worker. Raises RankError."""
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
            self._await(k)
            self.results[k] = f(comm, *args, **kwargs)
            comm._state = State(FINISHED, point=comm._point)
            self.left -= 1
            self._next()
        except _Abandoned:
            pass
        except Mismatch as error:
            self._fail(error)
        except BaseException as error:
            frames = error.__traceback__
            own = frames.tb_next if frames is not None and frames.tb_next is not None else frames
            trace = "".join(traceback.format_exception(type(error), error, own))
            failure = RankError(f"rank {k} raised {described(error)}", (k,), trace)
            failure.__cause__ = error
            self._fail(failure)

    def turn(self, comm: _SimulatedComm) -> None:
        """Let every worker with a smaller clock go first."""
        if self.over.is_set():
            raise _Abandoned
        if self.ready and self.ready[0] < (comm.clock, comm.rank):
            heapq.heappush(self.ready, (comm.clock, comm.rank))
            self._next()
            self._await(comm.rank)

    def sleep(self, comm: _SimulatedComm, on: Any) -> None:
        self.asleep[comm.rank] = on
        self._next()
        self._await(comm.rank)

    def _wake(self, rank: int, clock: float) -> None:
        del self.asleep[rank]
        heapq.heappush(self.ready, (clock, rank))

    def _await(self, rank: int) -> None:
        self.go[rank].acquire()
        if self.over.is_set():
            raise _Abandoned

    def _next(self) -> None:
        if self.ready:
            self.running = heapq.heappop(self.ready)[1]
            self.go[self.running].release()
        elif self.left == 0:
            self.over.set()
        else:
            self._fail(self._standstill())
            raise _Abandoned

    def _standstill(self) -> RankError:
        """Who is to blame that nobody can go on."""
        if self.disputed is not None:
            return Mismatch.at_point(self.disputed, self.points[self.disputed])
        absent = tuple(k for k in range(self.K) if k not in self.here)
        states = [c._state for c in self.comms]
        ranks, sentence = blame([replace(s, peers=absent) if s.op == MEETING else s for s in states])
        return Deadlock(sentence, ranks)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.over.set()

    def _late(self, threads: list[threading.Thread], timeout_s: float) -> None:
        k = self.running
        frame = sys._current_frames().get(threads[k].ident or 0)
        trace = "".join(traceback.format_stack(frame)) if frame else ""
        message = f"rank {k} was still running its own code at the deadline of {timeout_s:g} s"
        self._fail(RankTimeout(message, (k,), trace))

    def _end(self, threads: list[threading.Thread]) -> None:
        """Bring every thread home: sleepers wake into Abandoned, a loop in Python is interrupted."""
        self.over.set()
        for semaphore in self.go:
            semaphore.release()
        abandoned, interrupt = ctypes.py_object(_Abandoned), ctypes.pythonapi.PyThreadState_SetAsyncExc
        for t in threads:
            for _ in range(20):
                if t.ident is None:
                    break
                t.join(0.1)
                if not t.is_alive():
                    break
                interrupt(ctypes.c_ulong(t.ident), abandoned)

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
            raise Mismatch.of_message(source, to, send.size, recv.size)
        start = max(send.posted, recv.posted, self.out_free[source], self.in_free[to])
        end = start + self.link(source, to).seconds(send.size.nbytes)
        self.out_free[source] = self.in_free[to] = end
        deliver(send.data, recv.data)
        recv.peer = source
        for message in (send, recv):
            message.start, message.end = start, end
            if self.asleep.get(message.comm.rank) is message:
                self._wake(message.comm.rank, max(end, message.comm.clock))

    def announce(self, comm: _SimulatedComm) -> None:
        """Compare with those who came before. Who differs waits until all others have shown what they bring."""
        brought = self.points[comm._point]
        brought[comm.rank] = comm._bringing
        if len(set(brought.values())) > 1:
            self.disputed = min(self.disputed or comm._point, comm._point)
            self.sleep(comm, "dispute")
        elif len(brought) == self.K:
            del self.points[comm._point]

    def meet(self, comm: _SimulatedComm) -> None:
        self.here.append(comm.rank)
        if len(self.here) < self.K:
            comm._block(MEETING, (), "barrier")
            return
        last = max(c.clock for c in self.comms)
        for rank in self.here:
            self.comms[rank]._pass(WAIT, last)
            if rank != comm.rank:
                self._wake(rank, last)
        self.here = []
