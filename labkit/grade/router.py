"""The grader's end of a worker: does on a simulated ``Comm`` what the worker asks, and counts where no worker can write."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from labkit.comm.base import Comm
from labkit.grade.asking import Ended
from labkit.grade.child import NO_ANSWER
from labkit.grade.remote import dtype_of

MOST_MESSAGES = 100_000
MOST_S = 1e12  # on a worker's clock: some 30,000 years


class Router:
    """Serves one rank for one launch. comm: its simulated ``Comm``; most: bytes that it may send and receive in all."""

    def __init__(self, comm: Comm, most: int) -> None:
        self.comm, self.most, self.used = comm, most, 0
        self.requests: list[Any] = []
        self.meetings: list[Any] = []
        self.error: Exception | None = None

    def serve(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The reply to one question of the worker."""
        what = asked.get("what")
        do = getattr(self, f"_{what}", None) if isinstance(what, str) and what in _CALLS else None
        if do is None:
            raise Ended("NO_RESULT", NO_ANSWER)
        step = asked.get("step")
        self.comm.step = step if type(step) is int and 0 <= step < MOST_MESSAGES else 0
        try:
            return {"op": "value", "value": do(asked)}
        except Ended:
            raise
        except Exception as error:
            self.error = error
            return {
                "op": "refused",
                "type": type(error).__name__,
                "message": getattr(error, "message", str(error)),
            }

    # -- messages ---------------------------------------------------------------------------------------------

    def _isend(self, asked: dict[str, Any]) -> int:
        return self._number(self.comm.isend(self._data(asked), asked["to"]))

    def _irecv(self, asked: dict[str, Any]) -> int:
        return self._number(self.comm.irecv(self._buffer(asked), asked["source"]))

    def _wait(self, asked: dict[str, Any]) -> Any:
        number = asked["number"]
        if type(number) is not int or not 0 <= number < len(self.requests):
            raise Ended("NO_RESULT", NO_ANSWER)
        return self.requests[number].wait()

    def _send(self, asked: dict[str, Any]) -> None:
        self.comm.send(self._data(asked), asked["to"])

    def _recv(self, asked: dict[str, Any]) -> Any:
        return self.comm.recv(self._buffer(asked), asked["source"])

    def _sendrecv(self, asked: dict[str, Any]) -> Any:
        return self.comm.sendrecv(self._data(asked), asked["to"], self._buffer(asked), asked["source"])

    def _recv_any(self, asked: dict[str, Any]) -> tuple[int, Any]:
        buffer = self._buffer(asked)
        return self.comm.recv_any(buffer), buffer

    def _number(self, request: Any) -> int:
        self.requests.append(request)
        return len(self.requests) - 1

    def _data(self, asked: dict[str, Any]) -> np.ndarray:
        data = asked["data"]
        if not isinstance(data, np.ndarray):
            raise TypeError(f"data must be a numpy array, got {type(data).__name__}")
        self._use(data.nbytes)
        return data

    def _buffer(self, asked: dict[str, Any]) -> np.ndarray:
        n, dtype = self._size(asked)
        self._use(n * dtype.itemsize)
        return np.empty(n, dtype)

    def _size(self, asked: dict[str, Any]) -> tuple[int, np.dtype]:
        n, code = asked["size"][:2]
        if type(n) is not int or type(code) is not int or not 0 <= n < 2**48:
            raise Ended("NO_RESULT", NO_ANSWER)
        return n, dtype_of(code)

    def _use(self, nbytes: int) -> None:
        self.used += nbytes
        if (
            self.used > self.most
            or len(self.requests) > MOST_MESSAGES
            or self.comm.messages_sent > MOST_MESSAGES
        ):
            raise Ended("KILLED", f"rank {self.comm.rank} sent and received more than the grader carries")

    # -- the group and time -----------------------------------------------------------------------------------

    def _barrier(self, asked: dict[str, Any]) -> None:
        self.comm.barrier()

    def _meet(self, asked: dict[str, Any]) -> None:
        size = asked["size"]
        x = (
            None
            if size is None
            else np.broadcast_to(np.zeros((), self._size(asked)[1]), self._size(asked)[0])
        )
        meeting = self.comm.collective(str(asked["name"])[:80], x)
        meeting.__enter__()
        self.meetings.append(meeting)

    def _part(self, asked: dict[str, Any]) -> None:
        if self.meetings:
            self.meetings.pop().__exit__(None, None, None)

    def _now(self, asked: dict[str, Any]) -> float:
        return self.comm.now()

    def _compute(self, asked: dict[str, Any]) -> Any:
        for given in (asked["work"], asked["seconds"]):
            with contextlib.suppress(TypeError):
                if given is not None and MOST_S < float(given) < math.inf:  # a few, and the clock is there
                    raise ValueError(f"seconds must be at most {MOST_S:.0e}, got {float(given):.3g}")
        if asked["ran"]:
            return self.comm.compute(_nothing, seconds=asked["seconds"])
        return self.comm.compute(asked["work"], seconds=asked["seconds"])


def _nothing() -> None:
    """Work that the worker has done already, in its own process."""


_CALLS = (
    "isend",
    "irecv",
    "wait",
    "send",
    "recv",
    "sendrecv",
    "recv_any",
    "barrier",
    "meet",
    "part",
    "now",
    "compute",
)
