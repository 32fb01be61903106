"""``Comm``: who talks. All that a distributed algorithm may know.

An algorithm is a function ``f(comm, ...)`` as *one* worker runs it; a world is a subclass of ``Comm``. Messages follow MPI's
synchronous sends (MPI 4.0, section 3.4: ``MPI_Ssend``): a ``send`` returns when the receiver has the data, in the
simulation as in gloo. Symbols: K workers, ``rank`` in 0..K-1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from labkit import checks
from labkit.comm.errors import LaunchError
from labkit.comm.run import Record

if TYPE_CHECKING:
    from labkit.comm.windows import Windows
    from labkit.timing.laws import Fleet

#: What may travel, by name; a dtype's place in this list is its code on the wire.
DTYPES = [
    "none", "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint8", "bool", "complex64", "complex128", "uint16", "uint32", "uint64",
]  # fmt: skip
_code_of: dict[Any, tuple[int, int]] = {}  # and the bytes of an element


class Request(Protocol):
    """A message under way. ``wait()`` blocks until it is done; the buffer is the library's until then."""

    def wait(self) -> Any:
        """Block until the message is complete; returns the receive buffer (None for a send)."""


class Described(NamedTuple):
    """An array as the other end sees it."""

    n: int
    dtype: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.n} {DTYPES[self.dtype]}"


def is_torch(data: Any) -> bool:
    """Whether ``data`` is a torch tensor, asked without importing torch."""
    kind = type(data)
    return kind.__module__.split(".", 1)[0] == "torch" and hasattr(kind, "data_ptr")


def describe(data: Any, name: str) -> Described:
    """Number of elements, dtype code and bytes of a numpy array or torch tensor; TypeError for anything else."""
    if isinstance(data, np.ndarray):
        n = data.size
    elif is_torch(data):
        n = data.numel()
    else:
        got = f"got {type(data).__name__}; wrap a number as np.array([x])"
        raise TypeError(f"{name} must be a numpy array or a torch tensor, {got}")
    code, itemsize = _code_of.get(data.dtype) or _learn(data.dtype, name)
    return Described(n, code, n * itemsize)


def _learn(dtype: Any, name: str) -> tuple[int, int]:
    """Code and item size of a dtype not met before."""
    label = str(dtype).removeprefix("torch.")
    if label not in DTYPES[1:]:
        raise TypeError(
            f"{name} must hold numbers that can travel as bytes, got {dtype}"
        )
    _code_of[dtype] = DTYPES.index(label), dtype.itemsize
    return _code_of[dtype]


def hosts_of(given: tuple[int, ...] | None, K: int) -> tuple[int, ...]:
    """The host of each rank, where nobody has said otherwise one a rank."""
    hosts = tuple(range(K)) if given is None else tuple(given)
    if len(hosts) != K:
        raise ValueError(
            f"hosts must name the host of each of the {K} ranks, got {hosts}"
        )
    return hosts


class Comm(ABC):
    """One worker's end of the group.

    rank, K: this worker's number and the number of workers. hosts: (K,) the host each rank lives on, numbered from 0; all 0
    where there is only one. device: where its torch tensors should live. bytes_sent, messages_sent: payload that this worker
    has sent so far. step: the number of the current one. measured: whether ``now()`` is a real clock.

    >>> def from_the_left(comm):
    ...     inbox = np.empty(1)
    ...     right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    ...     return float(comm.sendrecv(np.array([10.0 * comm.rank]), right, inbox, left)[0])
    >>> launch(from_the_left, 3).results
    [20.0, 0.0, 10.0]
    """

    measured = True

    def __init__(
        self,
        rank: int,
        K: int,
        device: str = "cpu",
        hosts: tuple[int, ...] | None = None,
    ) -> None:
        self.rank = rank
        self.K = K
        self.hosts = (0,) * K if hosts is None else hosts
        self.device = device
        self.bytes_sent = 0
        self.messages_sent = 0
        self.step = 0
        self._spans: list[Any] = []
        self._arrivals: list[Any] = []
        self._log: list[Any] = []
        self._inside: str | None = None
        self._times: Iterator[float] | None = None
        self._windows: Windows | None = None

    @abstractmethod
    def isend(self, data: Any, to: int) -> Request:
        """Start sending ``data`` to rank ``to``; do not change ``data`` before ``wait()`` has returned."""

    @abstractmethod
    def irecv(self, into: Any, source: int) -> Request:
        """Start receiving from rank ``source`` into the caller's buffer ``into``, overwritten by ``wait()``."""

    def send(self, data: Any, to: int) -> None:
        """Send and wait until rank ``to`` has received (a rendezvous)."""
        self.isend(data, to).wait()

    def recv(self, into: Any, source: int) -> Any:
        """Receive from rank ``source`` into ``into`` (same number of elements and dtype as sent); returns ``into``."""
        return self.irecv(into, source).wait()

    def recv_any(self, into: Any) -> int:
        """Receive from whichever rank sends first (MPI's ANY_SOURCE) into ``into``; returns that rank. ValueError for K = 1.

        Everybody who may come sends as many elements of the same dtype, and none of them has an ``irecv`` of this rank's
        open. In the simulation the message posted first comes first (together: the smaller rank).

        >>> def count(comm):
        ...     if comm.rank == 0:
        ...         return sorted(comm.recv_any(np.empty(1)) for _ in range(comm.K - 1))
        ...     comm.send(np.array([1.0]), 0)
        >>> launch(count, 4).results[0]
        [1, 2, 3]
        """
        if self.K == 1:
            raise ValueError("recv_any needs another rank to receive from, but K = 1")
        return self._recv_any(into, describe(into, "into"))

    @abstractmethod
    def _recv_any(self, into: Any, size: Described) -> int: ...

    def sendrecv(self, data: Any, to: int, into: Any, source: int) -> Any:
        """Send and receive at once, so that a ring of workers cannot deadlock; returns ``into``."""
        incoming = self.irecv(into, source)
        outgoing = self.isend(data, to)
        incoming.wait()
        outgoing.wait()
        return into

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every worker is here. Costs nothing but the wait in the simulation."""

    @contextmanager
    def collective(self, name: str, x: Any = None) -> Iterator[None]:
        """Mark a synchronisation point that every worker must reach with as many elements of the same dtype.

        The arrival is recorded on the timeline. Points inside another one are part of it and not recorded.
        """
        if self._inside is not None:
            yield
            return
        size = None if x is None else describe(x, "x")
        self._arrivals.append((name, self.now()))
        self._meet(name, size)
        self._inside = name
        try:
            yield
        finally:
            self._inside = None
            self._part()

    @abstractmethod
    def _meet(self, name: str, size: Described | None) -> None:
        """Announce arrival at the next synchronisation point; Mismatch if another rank is at a different one."""

    @abstractmethod
    def _part(self) -> None:
        """Announce that this rank is through the synchronisation point."""

    @property
    def windows(self) -> Windows:
        """Memory that all ranks share, on one host. Raises LaunchError where there is none."""
        if self._windows is None:
            why = "the launcher that started this process made none"
            if (hosts := len(set(self.hosts))) > 1:
                why = f"these ranks live on {hosts} hosts"
            raise LaunchError(
                f"shared memory needs ranks that share a host, but {why}; use messages"
            )
        return self._windows

    @abstractmethod
    def now(self) -> float:
        """Seconds since the launch began: virtual in a simulation, the wall clock otherwise."""

    def compute(
        self,
        work: float | Callable[[], Any] | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Compute, and put it on the timeline.

        work: seconds to spend, or a function to run (its value is returned). seconds: how long the function counts for.
        Without it the world's law draws; without a law the simulation counts 0 s, and real processes whatever the function
        takes.

        >>> launch(lambda comm: comm.compute(lambda: comm.rank + 1, seconds=0.5), 2).results
        [1, 2]
        """
        fn = work if callable(work) else None
        if work is not fn:
            if seconds is not None:
                raise ValueError("work must be a function where seconds= is given")
            seconds = work  # type: ignore[assignment]
        if seconds is None and self._times is not None:
            seconds = next(self._times)
        if seconds is not None:
            checks.number("seconds", seconds, least=0)
        elif fn is None:
            raise ValueError(
                "compute() needs seconds, a function, or a world with a law"
            )
        return self._spend(fn, seconds)

    @abstractmethod
    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any: ...

    def steps(self, T: int) -> Iterator[int]:
        """``for t in comm.steps(T)``: 0..T-1, numbering the steps on the timeline."""
        for t in range(T):
            self.step = t
            yield t

    def _peer(self, peer: int, name: str) -> int:
        if (
            type(peer) is bool
            or not isinstance(peer, Integral)
            or not 0 <= peer < self.K
        ):
            raise ValueError(
                f"{name} must be a rank from 0 to {self.K - 1}, got {peer!r}"
            )
        if peer == self.rank:
            raise ValueError(
                f"{name} must be another rank, got this worker's own, {peer}"
            )
        return int(peer)

    @staticmethod
    def _deliver(data: Any, into: Any) -> None:
        """Copy what was sent to the receiver's buffer, which has as many elements of the same dtype."""
        if isinstance(into, np.ndarray):
            into[...] = np.asarray(data).reshape(into.shape)
        elif isinstance(data, np.ndarray):
            import torch

            into.copy_(
                torch.from_numpy(np.ascontiguousarray(data)).reshape(into.shape)
            )
        else:
            into.detach().copy_(data.detach().reshape(into.shape))

    def _follow(self, law: Fleet | None, seed: int) -> None:
        self._times = None if law is None else law.stream(self.rank, seed)

    def _record(self, ended_s: float) -> Record:
        """What the launcher needs of this worker to make a ``Run``."""
        sent = self.bytes_sent, self.messages_sent
        return Record(self._spans, self._arrivals, self._log, *sent, ended_s)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} rank {self.rank} of {self.K} on {self.device}>"
        )
