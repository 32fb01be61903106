"""The simulated world: every worker on a virtual clock, in one process, deterministic.

The network is the one-port, full-duplex alpha-beta model (Hockney 1994; Thakur, Rabenseifner and Gropp 2005,
section 3): a message starts when both ends have posted it and both ports are free, and keeps the sender's outgoing and
the receiver's incoming port busy for ``alpha + nbytes / beta`` seconds.

Workers are greenlets, of which exactly one runs at a time: always the one with the smallest clock (ties: the smaller
rank), so that messages claim their ports in the order of virtual time and two runs of one program give the same bits.
All share one thread, in which handing over costs about a microsecond; but torch keeps its state of mind (inside a
backward pass, without gradients) per thread, so where torch is loaded up to ``MOST_THREADS`` workers have one each.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from labkit.comm.base import Comm, Described, deliver, describe
from labkit.comm.board import ANY, State
from labkit.comm.diagnose import blame
from labkit.comm.errors import Deadlock, Mismatch, RankError, RankTimeout, described
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING, Record, Run
from labkit.comm.windows import Heap, Windows
from labkit.network.link import Link
from labkit.timing.laws import Fleet
from labkit.timing.timeline import Kind

COMPUTE, WAIT, COMMUNICATE = int(Kind.COMPUTE), int(Kind.WAIT), int(Kind.COMMUNICATE)
ETHERNET = Link(alpha=25e-6, beta=1.25e9)  # 10 Gbit/s
MOST_THREADS = 256


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
        cluster = _Cluster(K, self, hosts)
        for c in cluster.comms:
            c._follow(self.law, self.seed)
        results = cluster.run(f, args, kwargs, timeout_s)
        return Run.of(results, [c._record(c.clock) for c in cluster.comms], "simulated", str(self))


class _Message:
    """One end of a message: a request."""

    __slots__ = ("comm", "data", "end", "op", "peer", "posted", "size", "start")
    start: float

    def __init__(self, comm: _SimulatedComm, op: int, data: Any, size: Described, peer: int) -> None:
        self.comm = comm
        self.op = op
        self.data = data
        self.size = size
        self.peer = peer
        self.posted = comm.clock
        self.end = -1.0  # the other end is not there yet, and there is no start

    def wait(self) -> Any:
        comm = self.comm
        if self.end < 0.0:
            comm._cluster.sleep(comm, self)
        if self.end > comm.clock:
            comm._talk(self.start, self.end)
        return self.data if self.op == RECEIVING else None


class _Pair:
    """A sender and a receiver: what one of them has posted and the other not yet.

    dtype, n, size: the array they last described. seconds(nbytes): what a message costs.
    """

    __slots__ = ("dtype", "n", "recvs", "seconds", "sends", "size", "source", "to")

    def __init__(self, source: _SimulatedComm, to: _SimulatedComm, seconds: Callable[[int], float]) -> None:
        self.source, self.to, self.seconds = source, to, seconds
        self.sends: deque[_Message] = deque()
        self.recvs: deque[_Message] = deque()
        self.dtype: Any = None
        self.n = -1
        self.size: Described

    def describe(self, data: Any, name: str) -> Described:
        size = describe(data, name)
        if type(data) is np.ndarray:
            self.dtype, self.n, self.size = data.dtype, size.n, size
        return size


class _SimulatedComm(Comm):
    """A virtual worker: ``clock`` is its virtual time in seconds."""

    measured = False

    def __init__(self, rank: int, cluster: _Cluster, hosts: tuple[int, ...]) -> None:
        super().__init__(rank, cluster.K, hosts=hosts)
        self.clock = 0.0
        self._cluster = cluster
        self._ready = cluster.ready
        self._home: Any = None  # the ``_Home`` where it lives, once it does
        self._switch: Callable[[], Any]
        self._on: Any = None  # what it is asleep on: a message, MEETING, a dispute; at last FINISHED
        self._point = 0
        self._bringing = ""
        self._out_free = self._in_free = 0.0  # when its ports will be
        self._into: dict[int, _Pair] = {}  # by the other's rank: pairs in which it sends
        self._from: dict[int, _Pair] = {}  # and in which it receives
        self._anyone: _Message | None = None  # its receive from anyone that nobody has met yet
        # A span begins where the one before it ends: their ends, and what they are, 4 step + kind.
        self._ends, self._whats = array("d"), array("q")

    def now(self) -> float:
        return self.clock

    def isend(self, data: Any, to: int) -> _Message:
        pair = self._into.get(to) if type(to) is int else None
        if pair is None:
            describe(data, "data")
            pair = self._cluster.pair(self.rank, self._peer(to, "to"))
        if type(data) is np.ndarray and data.dtype is pair.dtype and data.size == pair.n:
            size = pair.size
        else:
            size = pair.describe(data, "data")
        if (ready := self._ready) and ready[0] < (self.clock, self.rank):
            self._cluster.turn(self)
        message = _Message(self, SENDING, data, size, to)
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        if pair.recvs:
            recv = pair.recvs.popleft()
        elif (recv := pair.to._anyone) is None:  # type: ignore[assignment]
            pair.sends.append(message)
            return message
        else:
            pair.to._anyone, recv.peer = None, self.rank
        self._cluster.transfer(pair, message, recv, recv)
        return message

    def irecv(self, into: Any, source: int) -> _Message:
        pair = self._from.get(source) if type(source) is int else None
        if pair is None:
            describe(into, "into")
            pair = self._cluster.pair(self._peer(source, "source"), self.rank)
        if type(into) is np.ndarray and into.dtype is pair.dtype and into.size == pair.n:
            size = pair.size
        else:
            size = pair.describe(into, "into")
        if (ready := self._ready) and ready[0] < (self.clock, self.rank):
            self._cluster.turn(self)
        message = _Message(self, RECEIVING, into, size, source)
        if pair.sends:
            send = pair.sends.popleft()
            self._cluster.transfer(pair, send, message, send)
        else:
            pair.recvs.append(message)
        return message

    def sendrecv(self, data: Any, to: int, into: Any, source: int) -> Any:
        incoming = self.irecv(into, source)
        outgoing = self.isend(data, to)
        if incoming.end < 0.0:
            self._cluster.sleep(self, incoming)
        if incoming.end > self.clock:
            self._talk(incoming.start, incoming.end)
        if outgoing.end < 0.0:
            self._cluster.sleep(self, outgoing)
        if outgoing.end > self.clock:
            self._talk(outgoing.start, outgoing.end)
        return into

    def _recv_any(self, into: Any, size: Described) -> int:
        """From whoever has posted first, or will."""
        self._cluster.turn(self)
        message = _Message(self, RECEIVING, into, size, ANY)
        waiting = [(pair.sends[0].posted, k) for k, pair in self._from.items() if pair.sends]
        if waiting:
            pair = self._from[min(waiting)[1]]
            message.peer, send = pair.source.rank, pair.sends.popleft()
            self._cluster.transfer(pair, send, message, send)
        else:
            self._anyone = message
        message.wait()
        return message.peer

    def barrier(self) -> None:
        with self.collective("barrier"):
            self._cluster.meet(self)

    @property
    def windows(self) -> Windows:
        if self._windows is None and (memory := self._cluster.memory()) is not None:
            meet = partial(self._cluster.meet, self)
            self._windows = Windows(memory, self.K, self.rank, meet, self._cluster.heap, self.collective)
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
            self._whats.append(4 * self.step + kind)
            self._ends.append(until)
            self.clock = until

    def _talk(self, start: float, end: float) -> None:
        """Be there at the end of a message that lies ahead."""
        what, ends = 4 * self.step, self._ends
        if start > self.clock:
            self._whats.append(what + WAIT)
            ends.append(start)
        if end > start:
            self._whats.append(what + COMMUNICATE)
            ends.append(end)
        self.clock = end

    def _doing(self, absent: tuple[int, ...]) -> State:
        """For the diagnosis; absent: who is missing in the barrier."""
        on, peers = self._on, absent
        if on == FINISHED:
            return State(FINISHED, point=self._point)
        if on is None or on is DISPUTE:
            return State(RUNNING)
        if on != MEETING:
            on, peers = on.op, (on.peer,)
            if peers == (ANY,):
                peers = tuple(k for k in range(self.K) if k != self.rank)
        return State(on, peers, self._point, self._bringing, self._inside is not None)

    def _record(self, ended_s: float) -> Record:
        ends, whats = np.array(self._ends), np.array(self._whats)
        spans = np.stack([whats >> 2, whats & 3, np.append(0.0, ends[:-1])[: len(ends)], ends], axis=1)
        return super()._record(ended_s)._replace(spans=spans)


DISPUTE = object()


class _Abandoned(BaseException):
    """Ends a worker after another one has failed; not for ``except Exception``."""


class _Home:
    """A thread, and the workers that live in it. Its own greenlet, the hub, lets them begin and calls other homes."""

    def __init__(self, cluster: _Cluster, name: str) -> None:
        self.cluster = cluster
        self.go = threading.Semaphore(0)
        self.target: int | None = None  # who is to go on here
        self.lives: list[greenlet] = []
        self.hub: greenlet
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()

    def begin(self, comm: _SimulatedComm) -> Any:
        """Let a worker begin; called by the hub."""
        life = greenlet(self.cluster.job, self.hub)
        life.gr_context = self.cluster.context.copy()
        comm._switch = life.switch
        self.lives.append(life)
        return life.switch(comm)

    def call(self, k: int) -> None:
        """Let worker k, who lives here, go on; the caller's own home then has to wait."""
        self.target = k
        self.go.release()

    def _live(self) -> None:
        self.hub = getcurrent()
        try:
            self.go.acquire()
            k = self.target
            while k is not None and not self.cluster.ended:
                comm = self.cluster.comms[k]
                home = comm._home or self.cluster.settle(comm)
                if home is self:
                    k = comm._switch()
                else:
                    home.call(k)
                    self.go.acquire()
                    k = self.target
        except _Abandoned:
            pass
        except BaseException as error:  # the machine has no thread left for a home
            self.cluster.fail(error)
        finally:
            while self.lives:
                with suppress(BaseException):
                    while self.lives:
                        if life := self.lives.pop():  # it has begun, and not ended
                            life.throw(_Abandoned)


class _Cluster:
    """The scheduler and the network."""

    def __init__(self, K: int, world: Simulated, hosts: tuple[int, ...]) -> None:
        self.K, self.world, self.hosts = K, world, hosts
        self.ready = [
            (0.0, k) for k in range(K)
        ]  # a heap; once all is over, its top sends everyone to ``turn``
        self.comms = [_SimulatedComm(k, self, hosts) for k in range(K)]
        self.seconds: dict[int, Callable[[int], float]] = {}  # that messages take, by link
        self.points: dict[int, dict[int, str]] = {}
        self.disputed: set[int] = set()
        self.here: list[int] = []
        self.homes: list[_Home] = []
        self.over, self.ended = threading.Event(), False
        self.modules = sys.modules
        self.running = 0
        self.failure: BaseException | None = None
        self.results: list[Any] = [None] * K
        self.left = K
        self._memory: bytearray | None = None
        self.heap = Heap(alone=True)

    # -- the scheduler ----------------------------------------------------------------------------------------

    def run(self, f: Callable[..., Any], args: tuple, kwargs: dict, timeout_s: float) -> list[Any]:
        """What ``f(comm, *args, **kwargs)`` returns on each worker. Raises RankError."""
        self.job, self.context = partial(self._work, f, args, kwargs), copy_context()
        try:
            heappop(self.ready)
            self.settle(self.comms[0]).call(0)
            if not self.over.wait(timeout_s):
                self._late(timeout_s)
        finally:
            self._end()
        if self.failure is not None:
            raise self.failure
        return self.results

    def _work(self, f: Callable[..., Any], args: tuple, kwargs: dict, comm: _SimulatedComm) -> int | None:
        """All of a worker's life; returns who is next, None for nobody."""
        k = comm.rank
        try:
            self.results[k] = f(comm, *args, **kwargs)
            comm._on = FINISHED
            self.left -= 1
            return self.next()
        except _Abandoned:
            pass
        except Mismatch as error:
            self.fail(error)
        except BaseException as error:
            frames = error.__traceback__
            own = frames.tb_next if frames is not None and frames.tb_next is not None else frames
            trace = "".join(traceback.format_exception(type(error), error, own))
            failure = RankError(f"rank {k} raised {described(error)}", (k,), trace)
            failure.__cause__ = error
            self.fail(failure)
        return None

    def settle(self, comm: _SimulatedComm) -> _Home:
        """Give a worker that has not begun its home."""
        own = "torch" in sys.modules and self.K <= MOST_THREADS
        if own or not self.homes:
            self.homes.append(_Home(self, f"rank {comm.rank}" if own else "simulated ranks"))
        comm._home = home = self.homes[-1 if own else 0]
        comm._switch = partial(home.begin, comm)
        return home

    def turn(self, comm: _SimulatedComm) -> None:
        """Let every worker with a smaller clock go first."""
        if self.ended:
            raise _Abandoned
        ready, mine = self.ready, (comm.clock, comm.rank)
        if ready and ready[0] < mine:
            self.running = heapreplace(ready, mine)[1]
            self._hand_over(comm)

    def sleep(self, comm: _SimulatedComm, on: Any) -> None:
        """Until somebody has woken it."""
        comm._on = on
        if self.ready:
            self.running = heappop(self.ready)[1]
        else:
            self.next()
        self._hand_over(comm)

    def wake(self, comm: _SimulatedComm, clock: float) -> None:
        comm._on = None
        heappush(self.ready, (clock if clock > comm.clock else comm.clock, comm.rank))

    def next(self) -> int | None:
        """Who is to go on; None if it is all over."""
        if self.ended:
            return None
        if self.ready:
            self.running = heappop(self.ready)[1]
            return self.running
        if self.left:
            self.fail(self._standstill())
        self.end()
        return None

    def _hand_over(self, comm: _SimulatedComm) -> None:
        """From ``comm`` to the worker that is now ``running``. Returns when it is this one's turn again."""
        if self.ended:
            raise _Abandoned
        other, home = self.comms[self.running], comm._home
        if "torch" in self.modules and len(home.lives) > 1 and _inside_autograd():
            text = (
                f"rank {comm.rank} waits for others inside a backward pass or without gradients, which is a state of "
                f"its thread, and shares that with other ranks: import torch before the launch, and let K be at most "
                f"{MOST_THREADS}"
            )
            self.fail(RankError(text, (comm.rank,)))
            raise _Abandoned
        if other._home is home:
            other._switch()
        else:
            home.hub.switch(self.running)
        if self.ended:
            raise _Abandoned

    def _standstill(self) -> RankError:
        """Who is to blame that nobody can go on."""
        if self.disputed:
            point = min(self.disputed)
            return Mismatch.at_point(point, self.points[point])
        absent = tuple(k for k in range(self.K) if k not in self.here)
        ranks, sentence = blame([c._doing(absent) for c in self.comms])
        return Deadlock(sentence, ranks)

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.end()

    def end(self) -> None:
        self.ended = True
        self.ready[:] = [(-1.0, -1)]
        self.over.set()

    def _late(self, timeout_s: float) -> None:
        comm = self.comms[self.running]
        frame = sys._current_frames().get(comm._home.thread.ident or 0) if comm._home else None
        trace = "".join(traceback.format_stack(frame)) if frame else ""
        message = f"rank {comm.rank} was still running its own code at the deadline of {timeout_s:g} s"
        self.fail(RankTimeout(message, (comm.rank,), trace))

    def _end(self) -> None:
        """Bring every worker home: sleepers wake into Abandoned, a loop in Python is interrupted."""
        self.end()
        for home in self.homes:
            home.go.release()
        abandoned, interrupt = ctypes.py_object(_Abandoned), ctypes.pythonapi.PyThreadState_SetAsyncExc
        for home in self.homes:
            for _ in range(20):
                left = len(home.lives)
                home.thread.join(0.1)
                if not home.thread.is_alive():
                    break
                if left == len(home.lives):
                    interrupt(ctypes.c_ulong(home.thread.ident or 0), abandoned)

    # -- the network ------------------------------------------------------------------------------------------

    def pair(self, source: int, to: int) -> _Pair:
        """The two that a message goes between, made where they meet first."""
        one, other, world = self.comms[source], self.comms[to], self.world
        if to not in one._into:
            link = world.link
            if world.inside is not None and self.hosts[source] == self.hosts[to]:
                link = world.inside
            if isinstance(link, Link):
                seconds = self.seconds.setdefault(id(link), cache(link.seconds))
            else:
                between = link
                seconds = lambda nbytes: between(source, to).seconds(nbytes)  # noqa: E731
            one._into[to] = other._from[source] = _Pair(one, other, seconds)
        return one._into[to]

    def transfer(self, pair: _Pair, send: _Message, recv: _Message, first: _Message) -> None:
        """A message of which both ends are there: when it comes and goes, and what it carries. first: the end that was."""
        size, source, to = send.size, pair.source, pair.to
        if size is not recv.size and size[:2] != recv.size[:2]:
            raise Mismatch.of_message(source.rank, to.rank, size, recv.size)
        start = send.posted
        if recv.posted > start:
            start = recv.posted
        if source._out_free > start:
            start = source._out_free
        if to._in_free > start:
            start = to._in_free
        end = start + pair.seconds(size.nbytes)
        source._out_free = to._in_free = send.end = recv.end = end
        send.start = recv.start = start
        deliver(send.data, recv.data)
        comm = first.comm
        if comm._on is first:
            self.wake(comm, end)

    def memory(self) -> bytearray | None:
        """For the windows of all ranks, made when the first of them asks; None where they don't share a host."""
        if self._memory is None and (self.world.hosts is None or len(set(self.hosts)) == 1):
            self._memory = bytearray(8 * Windows.words(self.K))
        return self._memory

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


def _inside_autograd() -> bool:
    """Whether this thread is in a state of torch's that another worker must not find."""
    torch = sys.modules["torch"]
    try:
        return torch._C._current_graph_task_id() != -1 or not torch.is_grad_enabled()
    except AttributeError:  # it is being imported
        return False
