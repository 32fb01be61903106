"""The simulated world: every worker on a virtual clock, in one process, deterministic.

The network is the one-port, full-duplex alpha-beta model (Hockney 1994; Thakur, Rabenseifner and Gropp 2005,
section 3): a message starts when both ends have posted it and both ports are free, and keeps them busy to its end.
Every worker is a thread, since torch keeps per thread what a backward pass is doing. Exactly one runs at a time: always the
one with the smallest clock (ties: the smaller rank), so that messages claim their ports in the order of virtual time, and
two runs of one program give the same bits. Handing over takes some ten microseconds.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any

from labkit.comm.base import Comm, Described, describe, hosts_of
from labkit.comm.board import ANY, State
from labkit.comm.diagnose import blame
from labkit.comm.errors import (
    Deadlock,
    LaunchError,
    Mismatch,
    RankError,
    RankTimeout,
    described,
)
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING, Run, Task
from labkit.comm.windows import Windows
from labkit.network.link import Link
from labkit.timing.laws import Fleet
from labkit.timing.timeline import Kind

COMPUTE, WAIT, COMMUNICATE = int(Kind.COMPUTE), int(Kind.WAIT), int(Kind.COMMUNICATE)
ETHERNET = Link(alpha=25e-6, beta=1.25e9)  # 10 Gbit/s


@dataclass(frozen=True)
class Simulated:
    """A simulated cluster.

    link: one ``Link`` for all pairs, or a function ``(source, to) -> Link``. law: draws the times of ``comm.compute``; None:
    only the seconds that the algorithm states. seed: rank k draws from ``np.random.default_rng([seed, k])``. hosts: the host
    of each rank; None: one rank a host. inside: the ``Link`` between ranks of one host; None: the same.

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
        said = (
            str(self.link)
            if isinstance(self.link, Link)
            else "a link of its own for each pair"
        )
        if self.hosts is not None:
            said += (
                f", {len(set(self.hosts))} hosts ({self.inside or 'the same'} inside)"
            )
        if self.law is not None:
            said += f", compute times {self.law}, seed {self.seed}"
        return said

    def between(self, source: int, to: int) -> Link:
        """The link on which ``source`` sends to ``to``."""
        if (
            self.inside is not None
            and self.hosts is not None
            and self.hosts[source] == self.hosts[to]
        ):
            return self.inside
        return self.link if isinstance(self.link, Link) else self.link(source, to)

    def run(self, task: Task, K: int, timeout_s: float) -> Run:
        """Run a task on K virtual workers; see ``launch``."""
        cluster = _Cluster(K, self, hosts_of(self.hosts, K))
        for comm in cluster.comms:
            comm._follow(self.law, self.seed)
        results = cluster.run(task, timeout_s)
        records = [comm._record(comm.clock) for comm in cluster.comms]
        return Run.of(results, records, "simulated", str(self))


class _Message:
    """One end of a message: a request."""

    __slots__ = ("comm", "data", "end", "op", "peer", "posted", "size", "start")

    def __init__(
        self, comm: _SimulatedComm, op: int, data: Any, peer: int, name: str
    ) -> None:
        self.size = describe(data, name)
        self.comm, self.op, self.data, self.peer = comm, op, data, peer
        self.posted = comm.clock
        self.start = self.end = -1.0  # until the other end is there
        comm._cluster.turn(comm)
        comm._cluster.post(self)

    def wait(self) -> Any:
        comm = self.comm
        if self.end < 0.0:
            comm._cluster.sleep(comm, self)
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
        self._thread: threading.Thread | None = None  # once it has begun
        self._go = threading.Lock()  # taken, unless it is this worker's turn
        self._go.acquire()
        # What it is asleep on: a message, MEETING, DISPUTE; at last FINISHED.
        self._on: Any = None
        self._point = 0
        self._bringing = ""
        self._out_free = self._in_free = 0.0  # when its ports will be

    def now(self) -> float:
        return self.clock

    def isend(self, data: Any, to: int) -> _Message:
        message = _Message(self, SENDING, data, self._peer(to, "to"), "data")
        self.bytes_sent += message.size.nbytes
        self.messages_sent += 1
        return message

    def irecv(self, into: Any, source: int) -> _Message:
        return _Message(self, RECEIVING, into, self._peer(source, "source"), "into")

    def _recv_any(self, into: Any, size: Described) -> int:
        message = _Message(self, RECEIVING, into, ANY, "into")
        message.wait()
        return message.peer

    def barrier(self) -> None:
        with self.collective("barrier"):
            self._cluster.meet(self)

    @property
    def windows(self) -> Windows:
        alone = (
            self._cluster.world.hosts is None
        )  # nobody has said that they live apart
        if self._windows is None and (alone or len(set(self.hosts)) == 1):
            cluster, meet = self._cluster, partial(self._cluster.meet, self)
            self._windows = Windows(
                self.K, self.rank, cluster.heap, self.collective, meet
            )
        return super().windows

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

    def _doing(self, absent: tuple[int, ...]) -> State:
        """For the diagnosis; absent: who is missing in the barrier."""
        on = self._on
        if on == FINISHED:
            return State(FINISHED, point=self._point)
        if on is None or on is DISPUTE:
            return State(RUNNING)
        op, peers = MEETING, absent
        if isinstance(on, _Message):
            op, peers = on.op, (on.peer,)
        if peers == (ANY,):
            peers = tuple(k for k in range(self.K) if k != self.rank)
        return State(op, peers, self._point, self._bringing, self._inside is not None)


DISPUTE = object()


class _Abandoned(BaseException):
    """Ends a worker after another one has failed; not for ``except Exception``."""


def _bring_home(thread: threading.Thread, go: threading.Lock) -> None:
    if go.locked():
        go.release()
    for _ in range(20):
        thread.join(0.1)
        if not thread.is_alive():
            return
        ident, abandoned = (
            ctypes.c_ulong(thread.ident or 0),
            ctypes.py_object(_Abandoned),
        )
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, abandoned)


class _Cluster:
    """The scheduler and the network."""

    def __init__(self, K: int, world: Simulated, hosts: tuple[int, ...]) -> None:
        self.K, self.world = K, world
        self.comms = [_SimulatedComm(k, self, hosts) for k in range(K)]
        self.heap = Windows.heap(K, one_process=True)
        # Who can go on, and when on its clock: a heap.
        self.ready = [(0.0, k) for k in range(K)]
        self.running = 0
        # What one end has posted and the other not yet, by sender and receiver; the receives from anyone, by receiver.
        self.waiting: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self.anyone: dict[int, _Message] = {}
        self.here: list[int] = []  # in the barrier
        # What the ranks brought to each synchronisation point that not all have reached, and where they disagree.
        self.points: dict[int, dict[int, str]] = {}
        self.disputed: set[int] = set()
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self.results: list[Any] = [None] * K

    def run(self, task: Task, timeout_s: float) -> list[Any]:
        """What the task returns on each worker. Raises RankError."""
        self.context = copy_context()
        self.task = task
        try:
            self._hand_on()
            if not self.over.wait(timeout_s):
                self._late(timeout_s)
        finally:
            self._end()
        if self.failure is not None:
            raise self.failure
        return self.results

    def _work(self, comm: _SimulatedComm) -> None:
        """All of a worker's life."""
        k, (f, args, kwargs) = comm.rank, self.task
        try:
            if not self.over.is_set():
                self.results[k] = f(comm, *args, **kwargs)
                comm._on = FINISHED
                self._hand_on()
        except _Abandoned:
            pass
        except Mismatch as error:
            self._fail(error)
        except BaseException as error:
            own = error.__traceback__ and error.__traceback__.tb_next
            trace = "".join(traceback.format_exception(type(error), error, own))
            failure = RankError(f"rank {k} raised {described(error)}", (k,), trace)
            failure.__cause__ = error
            self._fail(failure)

    def turn(self, comm: _SimulatedComm) -> None:
        """Let every worker with a smaller clock go first."""
        self.wake(comm, comm.clock)
        self._yield(comm)

    def sleep(self, comm: _SimulatedComm, on: Any) -> None:
        """Until somebody has woken it."""
        comm._on = on
        self._yield(comm)

    def wake(self, comm: _SimulatedComm, clock: float) -> None:
        comm._on = None
        heappush(self.ready, (max(clock, comm.clock), comm.rank))

    def _yield(self, comm: _SimulatedComm) -> None:
        """From ``comm`` to whose turn it is. Returns when it is this one's."""
        self._hand_on()
        if not self.over.is_set():
            comm._go.acquire()
        if self.over.is_set():
            raise _Abandoned

    def _hand_on(self) -> None:
        """To the next worker; if there is none, it is all over."""
        if self.over.is_set():
            return
        if not self.ready:
            finished = all(comm._on == FINISHED for comm in self.comms)
            self._fail(None if finished else self._standstill())
            return
        _, self.running = heappop(self.ready)
        comm = self.comms[self.running]
        if comm._thread is not None:
            comm._go.release()
            return
        # A copy of the launcher's context: numpy's errstate, for one, is what it was there.
        run = partial(self.context.copy().run, self._work, comm)
        comm._thread = threading.Thread(
            target=run, name=f"rank {comm.rank}", daemon=True
        )
        try:
            comm._thread.start()
        except RuntimeError as error:
            comm._thread = None
            self._fail(
                LaunchError(
                    f"the system has no thread left for rank {comm.rank} of {self.K}: {error}"
                )
            )

    def _standstill(self) -> RankError:
        """Who is to blame that nobody can go on."""
        if self.disputed:
            point = min(self.disputed)
            return Mismatch.at_point(point, self.points[point])
        absent = tuple(k for k in range(self.K) if k not in self.here)
        ranks, sentence = blame([comm._doing(absent) for comm in self.comms])
        return Deadlock(sentence, ranks)

    def _fail(self, error: BaseException | None) -> None:
        """It is over; error: and has failed, if it had not before."""
        if self.failure is None:
            self.failure = error
        self.over.set()

    def _late(self, timeout_s: float) -> None:
        comm = self.comms[self.running]
        frame = (
            sys._current_frames().get(comm._thread.ident or 0)
            if comm._thread
            else None
        )
        trace = "".join(traceback.format_stack(frame)) if frame else ""
        message = f"rank {comm.rank} was still running its own code at the deadline of {timeout_s:g} s"
        self._fail(RankTimeout(message, (comm.rank,), trace))

    def _end(self) -> None:
        """Bring every worker home, one after another: sleepers wake into Abandoned, a loop in Python is interrupted."""
        self.over.set()
        for comm in self.comms:
            if comm._thread is not None:
                _bring_home(comm._thread, comm._go)

    def post(self, message: _Message) -> None:
        """One end of a message is there."""
        other = self._other_end(message)
        if other is None:
            return
        send, recv = (message, other) if message.op == SENDING else (other, message)
        self._transfer(send, recv)
        if other.comm._on is other:
            self.wake(other.comm, other.end)

    def _other_end(self, message: _Message) -> _Message | None:
        """The other end, if it has been posted; else ``message`` is kept until it is."""
        rank = message.comm.rank
        if message.peer == ANY:
            message.peer = self._first_to(rank)
        if message.peer == ANY:
            self.anyone[rank] = message
            return None
        sending, peer = message.op == SENDING, message.peer
        queue = self.waiting[(rank, peer) if sending else (peer, rank)]
        if queue and queue[0].op != message.op:
            return queue.popleft()
        if sending and peer in self.anyone:
            recv = self.anyone.pop(peer)
            recv.peer = rank
            return recv
        queue.append(message)
        return None

    def _first_to(self, rank: int) -> int:
        """Whose message to ``rank`` was posted first of those that wait; ANY if there is none."""
        queues = [self.waiting.get((k, rank)) for k in range(self.K)]
        posted = [
            queue[0].posted if queue and queue[0].op == SENDING else inf
            for queue in queues
        ]
        first = min(posted)
        return ANY if first == inf else posted.index(first)

    def _transfer(self, send: _Message, recv: _Message) -> None:
        """A message of which both ends are there: when it comes and goes, and what it carries."""
        size, source, to = send.size, send.comm, recv.comm
        if size != recv.size:
            self.failure = Mismatch.of_message(source.rank, to.rank, size, recv.size)
            raise self.failure  # whoever may catch it
        start = max(send.posted, recv.posted, source._out_free, to._in_free)
        end = start + self.world.between(source.rank, to.rank).seconds(size.nbytes)
        source._out_free = to._in_free = end
        send.start = recv.start = start
        send.end = recv.end = end
        source._deliver(send.data, recv.data)

    def announce(self, comm: _SimulatedComm) -> None:
        """Compare with those who came before. Who differs waits until all others have shown what they bring."""
        brought = self.points.setdefault(comm._point, {})
        brought[comm.rank] = comm._bringing
        if comm._bringing != next(iter(brought.values())):
            self.disputed.add(comm._point)
        if comm._point in self.disputed:
            self.sleep(comm, DISPUTE)
        elif len(brought) == self.K:
            del self.points[comm._point]

    def meet(self, comm: _SimulatedComm) -> None:
        """The barrier, which ends with the last."""
        self.here.append(comm.rank)
        if len(self.here) < self.K:
            self.sleep(comm, MEETING)
            return
        last = max(c.clock for c in self.comms)
        for rank in self.here:
            self.comms[rank]._pass(WAIT, last)
            if rank != comm.rank:
                self.wake(self.comms[rank], last)
        self.here = []
