"""A worker's ``Comm`` in a process of its own: every message goes through the grader, which counts it.

The other end is ``router``: there a simulated worker does what this one asks, on the grader's own cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from labkit.comm.base import DTYPES, Comm, Described, describe, is_torch
from labkit.comm.errors import LaunchError


class Asks(Protocol):
    """Something that takes a question to the grader."""

    def ask(self, message: dict[str, Any]) -> Any:
        """Send, wait, and return the answer's value."""


class RemoteComm(Comm):
    """One worker's end of the group, as an answer sees it."""

    measured = False

    def __init__(self, line: Asks, rank: int, K: int, hosts: tuple[int, ...]) -> None:
        super().__init__(rank, K, hosts=hosts)
        self._line = line

    def _ask(self, what: str, **message: Any) -> Any:
        return self._line.ask({"what": what, "step": self.step, **message})

    # -- messages ---------------------------------------------------------------------------------------------

    def isend(self, data: Any, to: int) -> _Request:
        return _Request(self, self._ask("isend", data=self._out(data), to=self._peer(to, "to")))

    def irecv(self, into: Any, source: int) -> _Request:
        size = describe(into, "into")
        return _Request(self, self._ask("irecv", size=size, source=self._peer(source, "source")), into)

    def send(self, data: Any, to: int) -> None:
        self._ask("send", data=self._out(data), to=self._peer(to, "to"))

    def recv(self, into: Any, source: int) -> Any:
        size = describe(into, "into")
        return _fill(into, self._ask("recv", size=size, source=self._peer(source, "source")))

    def sendrecv(self, data: Any, to: int, into: Any, source: int) -> Any:
        size = describe(into, "into")
        source = self._peer(source, "source")
        came = self._ask("sendrecv", data=self._out(data), to=self._peer(to, "to"), size=size, source=source)
        return _fill(into, came)

    def _recv_any(self, into: Any, size: Described) -> int:
        source, came = self._ask("recv_any", size=size)
        _fill(into, came)
        return int(source)

    def _out(self, data: Any) -> np.ndarray:
        size = describe(data, "data")
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        return np.ascontiguousarray(data.detach().cpu().numpy() if is_torch(data) else data)

    # -- the group and time -----------------------------------------------------------------------------------

    def barrier(self) -> None:
        self._ask("barrier")

    @property
    def windows(self) -> Any:
        raise LaunchError("workers share no memory in the grader; use messages instead")

    def now(self) -> float:
        return float(self._ask("now"))

    def _meet(self, name: str, size: Described | None) -> None:
        self._ask("meet", name=name, size=size)

    def _part(self) -> None:
        self._ask("part")

    def compute(self, work: Any = None, seconds: Any = None) -> Any:
        if not callable(work):
            return self._ask("compute", work=work, seconds=seconds, ran=False)
        value = work()
        self._ask("compute", work=None, seconds=seconds, ran=True)
        return value

    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any:
        raise NotImplementedError("compute() asks the grader")


class _Request:
    """A message under way, known to the grader by its number."""

    def __init__(self, comm: RemoteComm, number: int, into: Any = None) -> None:
        self._comm, self._number, self._into = comm, number, into

    def wait(self) -> Any:
        came = self._comm._ask("wait", number=self._number)
        return None if self._into is None else _fill(self._into, came)


def _fill(into: Any, came: Any) -> Any:
    if is_torch(into):
        import torch

        into.copy_(torch.from_numpy(np.asarray(came)).reshape(into.shape))
    elif came is not None:
        into[...] = np.asarray(came).reshape(into.shape)
    return into


def dtype_of(code: int) -> np.dtype:
    """The numpy dtype of a code of ``describe``. Raises ValueError where numpy has none."""
    name = DTYPES[code] if 0 < code < len(DTYPES) else "none"
    if name in ("none", "bfloat16"):
        raise ValueError(f"data of dtype {name} cannot travel between the grader's workers; use float32")
    return np.dtype(name)
