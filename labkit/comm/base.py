"""``Comm``: who talks. All that a distributed algorithm may know.

An algorithm is a function ``f(comm, ...)`` as *one* worker runs it. The same text runs in every world; a world is
a subclass of ``Comm``. Message passing follows MPI's point-to-point semantics with synchronous sends
(MPI 4.0, section 3.4: ``MPI_Ssend``): a ``send`` returns when the receiver has the data, in the simulation as in gloo.

Symbols: K workers, ``rank`` in 0..K-1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
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
    "none", "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "uint16", "uint32", "uint64",
]  # fmt: skip
_code_of: dict[Any, tuple[int, int]] = {}
_sizes: dict[tuple[Any, int], Described] = {}  # of numpy arrays met before


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
    return _is_tensor(type(data))  # type: ignore[arg-type]


@cache
def _is_tensor(kind: type) -> bool:
    return kind.__module__.split(".", 1)[0] == "torch" and hasattr(kind, "data_ptr")


def describe(data: Any, name: str) -> Described:
    """Number of elements, dtype code and bytes of a numpy array or torch tensor; TypeError for anything else."""
    if type(data) is np.ndarray and (known := _sizes.get((data.dtype, data.size))) is not None:
        return known
    n = data.size if isinstance(data, np.ndarray) else data.numel() if is_torch(data) else None
    if n is None:
        raise TypeError(
            f"{name} must be a numpy array or a torch tensor, got {type(data).__name__}; wrap a number as np.array([x])"
        )
    code, itemsize = _code_of.get(data.dtype) or _learn(data.dtype, name)
    size = Described(n, code, n * itemsize)
    if isinstance(data, np.ndarray):
        if len(_sizes) > 1000:
            _sizes.clear()
        _sizes[data.dtype, n] = size
    return size


def _learn(dtype: Any, name: str) -> tuple[int, int]:
    """Code and item size of a dtype not met before."""
    label = dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")
    if label not in DTYPES[1:] or not getattr(dtype, "isnative", True):
        raise TypeError(f"{name} must hold numbers that can travel as bytes, got dtype {dtype}")
    _code_of[dtype] = DTYPES.index(label), dtype.itemsize
    return _code_of[dtype]


def deliver(data: Any, into: Any) -> None:
    """Copy what was sent to the receiver's buffer, which has as many elements of the same dtype."""
    if type(data) is type(into) is np.ndarray and data.ndim == into.ndim == 1:
        into[...] = data
    elif isinstance(into, np.ndarray):
        into[...] = np.asarray(data).reshape(into.shape)
    elif isinstance(data, np.ndarray):
        import torch

        into.copy_(torch.from_numpy(np.ascontiguousarray(data)).reshape(into.shape))
    else:
        into.detach().copy_(data.detach().reshape(into.shape))


class _Meeting:
    """A synchronisation point, as a context. (A class: a generator would cost a short all-reduce a per cent.)"""

    __slots__ = ("comm", "name", "x")

    def __init__(self, comm: Comm, name: str, x: Any) -> None:
        self.comm, self.name, self.x = comm, name, x

    def __enter__(self) -> None:
        comm = self.comm
        size = None if self.x is None else describe(self.x, "x")
        comm._arrivals.append((self.name, comm.now()))
        comm._meet(self.name, size)
        comm._inside = self.name

    def __exit__(self, *_: Any) -> None:
        self.comm._inside = None
        self.comm._part()


NOTHING = nullcontext()


class Comm(ABC):
    """One worker's end of the group.

    rank, K: this worker's number and the number of workers.
    hosts: (K,) the host each rank lives on, numbered from 0; all 0 where there is only one.
    device: where its torch tensors should live (``"cpu"``, ``"cuda:0"``).
    bytes_sent, messages_sent: payload that this worker has sent so far.
    step: the number of the current step (see ``steps``).
    measured: whether ``now()`` is a real clock; False in a simulation.

    >>> def from_the_left(comm):
    ...     inbox = np.empty(1)
    ...     right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    ...     return float(comm.sendrecv(np.array([10.0 * comm.rank]), right, inbox, left)[0])
    >>> launch(from_the_left, 3).results
    [20.0, 0.0, 10.0]
    """

    measured = True

    def __init__(self, rank: int, K: int, device: str = "cpu", hosts: tuple[int, ...] | None = None) -> None:
        self.rank = rank
        self.K = K
        self.hosts = (0,) * K if hosts is None else hosts
        self.device = device
        self.bytes_sent = 0
        self.messages_sent = 0
        self.step = 0
        self._spans: list[tuple[int, int, float, float]] = []
        self._arrivals: list[tuple[str, float]] = []
        self._inside: str | None = None
        self._times: Iterator[float] | None = None
        self._windows: Windows | None = None

    # -- messages ---------------------------------------------------------------------------------------------

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
        """Receive from whichever rank sends first (MPI's ANY_SOURCE) into ``into``; returns that rank.

        Everybody who may come sends as many elements of the same dtype, and none of them has an ``irecv`` of this
        rank's open. In the simulation the message posted first comes first (together: the smaller rank).
        Raises ValueError if there is no other rank.

        >>> def count(comm):
        ...     if comm.rank:
        ...         comm.send(np.array([1.0]), 0)
        ...         return None
        ...     return sorted(comm.recv_any(np.empty(1)) for _ in range(comm.K - 1))
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

    # -- the group --------------------------------------------------------------------------------------------

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every worker is here. Costs nothing but the wait in the simulation."""

    @property
    def windows(self) -> Windows:
        """Memory that all ranks share, on one host. Raises LaunchError where there is none."""
        if self._windows is None:
            why = "the launcher that started this process made none"
            if (hosts := len(set(self.hosts))) > 1:
                why = f"these ranks live on {hosts} hosts"
            raise LaunchError(f"shared memory needs ranks that share a host, but {why}; use messages instead")
        return self._windows

    @abstractmethod
    def now(self) -> float:
        """Seconds since the launch began: virtual in a simulation, the wall clock otherwise."""

    @abstractmethod
    def _meet(self, name: str, size: Described | None) -> None:
        """Announce arrival at the next synchronisation point; Mismatch if another rank is at a different one."""

    def collective(self, name: str, x: Any = None) -> AbstractContextManager[None]:
        """Mark a synchronisation point that every worker must reach with as many elements of the same dtype.

        The arrival is recorded on the timeline. Points inside another one are part of it and not recorded.
        """
        return NOTHING if self._inside is not None else _Meeting(self, name, x)

    @abstractmethod
    def _part(self) -> None:
        """Announce that this rank is through the synchronisation point."""

    # -- time -------------------------------------------------------------------------------------------------

    def compute(self, work: float | Callable[[], Any] | None = None, seconds: float | None = None) -> Any:
        """Compute, and put it on the timeline.

        work: seconds to spend, or a function without arguments to run (its value is returned).
        seconds: how long the function counts for. Without it the world's law of compute times draws; without a law
            the simulation counts 0 s and real processes whatever the function takes.
        Raises ValueError for a negative or non-finite time, or if there is nothing to tell how long.

        >>> launch(lambda comm: comm.compute(lambda: comm.rank + 1, seconds=0.5), 2).results
        [1, 2]
        """
        fn = work if callable(work) else None
        if fn is None and work is not None:
            if seconds is not None:
                raise ValueError("seconds is given twice: work must be a function when seconds= is used")
            seconds = work  # type: ignore[assignment]
        if seconds is None and self._times is not None:
            seconds = next(self._times)
        if seconds is None and fn is None:
            raise ValueError("compute() needs seconds, a function, or a world with a law of compute times")
        if seconds is not None:
            seconds = checks.number("seconds", seconds, least=0)
        return self._spend(fn, seconds)

    @abstractmethod
    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any: ...

    def steps(self, T: int) -> Iterator[int]:
        """``for t in comm.steps(T)``: 0..T-1, numbering the steps on the timeline."""
        for t in range(T):
            self.step = t
            yield t

    # -- at the door ------------------------------------------------------------------------------------------

    def _peer(self, peer: int, name: str) -> int:
        if isinstance(peer, bool) or not isinstance(peer, (int, np.integer)) or not 0 <= peer < self.K:
            raise ValueError(f"{name} must be a rank from 0 to {self.K - 1}, got {peer!r}")
        if peer == self.rank:
            raise ValueError(f"{name} must be another rank, got this worker's own rank {peer}")
        return int(peer)

    def _follow(self, law: Fleet | None, seed: int) -> None:
        self._times = None if law is None else law.stream(self.rank, seed)

    def _record(self, ended_s: float) -> Record:
        """What the launcher needs of this worker to make a ``Run``."""
        return Record(self._spans, self._arrivals, [], self.bytes_sent, self.messages_sent, ended_s)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rank {self.rank} of {self.K} on {self.device}>"
