"""The simulated world: every worker on a virtual clock, in one process, deterministic.

The network is the one-port, full-duplex alpha-beta model (Hockney 1994; Thakur, Rabenseifner and Gropp 2005,
section 3): a message starts when both ends have posted it and both ports are free, and keeps the sender's outgoing and
the receiver's incoming port busy for ``alpha + nbytes / beta`` seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.comm.base import Comm, Described, describe
from labkit.comm.diagnose import ANY, RECEIVING, RUNNING, SENDING, State
from labkit.comm.run import Run, arrival_points
from labkit.comm.virtual import Cluster
from labkit.comm.windows import Windows, words
from labkit.cost.link import Link
from labkit.timing.laws import Law
from labkit.timing.timeline import Kind, Timeline

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

    >>> from labkit.cost import Link
    >>> def hand_over(comm, x):
    ...     comm.send(x, 1) if comm.rank == 0 else comm.recv(np.empty_like(x), 0)
    >>> run = launch(hand_over, 2, np.zeros(1000), world=Simulated(Link(alpha=0.001, beta=1e6)))
    >>> round(run.elapsed_s, 6)
    0.009
    """

    link: Link | Callable[[int, int], Link] = ETHERNET
    law: Law | None = None
    seed: int = 0
    hosts: tuple[int, ...] | None = None
    inside: Link | None = None

    def __str__(self) -> str:
        link = str(self.link) if isinstance(self.link, Link) else "a link of its own for each pair"
        law = "" if self.law is None else f", compute times {self.law}, seed {self.seed}"
        hosts = (
            ""
            if self.hosts is None
            else f", {len(set(self.hosts))} hosts ({self.inside or 'the same'} inside)"
        )
        return f"{link}{hosts}{law}"

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K virtual workers; see ``launch``."""
        if self.hosts is not None and len(self.hosts) != K:
            raise ValueError(
                f"hosts must name the host of each of the {K} ranks, got {len(self.hosts)}: {self.hosts}"
            )
        hosts = tuple(range(K)) if self.hosts is None else tuple(self.hosts)
        cluster = Cluster(K, self._between(hosts))
        comms = [SimulatedComm(k, cluster, hosts) for k in range(K)]
        for c in comms:
            c._follow(self.law, self.seed)
        if self.hosts is None or len(set(hosts)) == 1:
            memory = bytearray(8 * words(K))
            for c in comms:
                c._windows = Windows(memory, K, c.rank, c._meet_quietly)
        results = cluster.run(comms, f, args, kwargs, timeout_s)
        where = f"simulated: {self}"
        spans = [(c.rank, *span) for c in comms for span in c._spans]
        arrivals = arrival_points([c._arrivals for c in comms])
        timeline = Timeline.from_spans(K, spans, arrivals=arrivals, measured=False, where=str(self))
        return Run(
            results,
            timeline,
            np.array([c.bytes_sent for c in comms], dtype=np.int64),
            np.array([c.messages_sent for c in comms], dtype=np.int64),
            max(c.clock for c in comms),
            "simulated",
            where,
        )

    def _between(self, hosts: tuple[int, ...]) -> Link | Callable[[int, int], Link]:
        """The link of each pair of ranks."""
        outside, inside = self.link, self.inside
        if inside is None:
            return outside

        def between(source: int, to: int) -> Link:
            if hosts[source] == hosts[to]:
                return inside
            return outside if isinstance(outside, Link) else outside(source, to)

        return between


class _Message:
    """One end of a message: a request."""

    __slots__ = ("comm", "data", "end", "op", "peer", "posted", "size", "start", "waited")

    def __init__(self, comm: SimulatedComm, op: int, data: Any, size: Described, peer: int) -> None:
        self.comm, self.op, self.data, self.size, self.peer = comm, op, data, size, peer
        self.posted = comm.clock
        self.start = self.end = -1.0
        self.waited = False

    def wait(self) -> Any:
        comm = self.comm
        if self.end < 0:
            others = tuple(k for k in range(comm.K) if k != comm.rank)
            comm._block(self.op, others if self.peer == ANY else (self.peer,), self)
        if not self.waited:
            self.waited = True
            start = max(self.start, comm.clock)
            comm._pass(WAIT, start)
            comm._pass(COMMUNICATE, self.end)
        return self.data if self.op == RECEIVING else None


class SimulatedComm(Comm):
    """A virtual worker: ``clock`` is its virtual time in seconds."""

    measured = False

    def __init__(self, rank: int, cluster: Cluster, hosts: tuple[int, ...]) -> None:
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

    def _meet_quietly(self) -> None:
        """A meeting in shared memory: the wait, and nothing else."""
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
