"""``Comm`` for a worker in a process of its own: every message goes through the grader, which counts it.

``RemoteComm`` is what the answer sees; it asks. ``Router`` is the grader's end: it does on a simulated worker's ``Comm``
what is asked, and counts where no answer can write. A question has the name of an operation, ``what``, and its arguments.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.comm.base import DTYPES, Comm, Described, describe, is_torch
from labkit.comm.errors import text_of
from labkit_book.problems.asking import KILLED, NO_ANSWER, NO_CLOCK, NO_RESULT, Ended

MOST_MESSAGES = 100_000
MOST_S = 1e12  # on a worker's clock: some 30,000 years
_CALLS = ("isend", "irecv", "wait", "recv_any", "barrier", "meet", "part", "now", "compute")


class RemoteComm(Comm):
    """One worker's end of the group, as an answer sees it. ask: takes a question to the grader, and returns its reply."""

    measured = False

    def __init__(
        self, ask: Callable[[dict[str, Any]], Any], rank: int, K: int, hosts: tuple[int, ...]
    ) -> None:
        super().__init__(rank, K, hosts=hosts)
        self._line = ask

    def _ask(self, what: str, **message: Any) -> Any:
        return self._line({"what": what, "step": self.step, **message})

    # -- messages ---------------------------------------------------------------------------------------------

    def isend(self, data: Any, to: int) -> _Request:
        return _Request(self, self._ask("isend", data=self._out(data), to=self._peer(to, "to")))

    def irecv(self, into: Any, source: int) -> _Request:
        size = describe(into, "into")
        return _Request(self, self._ask("irecv", size=size, source=self._peer(source, "source")), into)

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


class Router:
    """Serves one rank for one launch. comm: its simulated ``Comm``; most: bytes that it may send and receive in all.

    clock: whether it may spend seconds of its own choice.
    """

    def __init__(self, comm: Comm, most: int, clock: bool) -> None:
        self.comm, self.most, self.used, self.clock = comm, most, 0, clock
        self.requests: list[Any] = []
        self.meetings: list[Any] = []
        self.error: Exception | None = None

    def serve(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The reply to one question of the worker."""
        what, step = asked.pop("what", None), asked.pop("step", None)
        if not isinstance(what, str) or what not in _CALLS:
            raise Ended(NO_RESULT, NO_ANSWER)
        del asked["op"]
        self.comm.step = step if type(step) is int and 0 <= step < MOST_MESSAGES else 0
        try:
            call = getattr(self, f"_{what}", None) or getattr(self.comm, what)
            return {"op": "value", "value": call(**asked)}
        except Ended:
            raise
        except Exception as error:
            self.error = error
            message = getattr(error, "message", "") or text_of(error)
            return {"op": "refused", "type": type(error).__name__, "message": message}

    # -- messages ---------------------------------------------------------------------------------------------

    def _isend(self, data: Any, to: Any) -> int:
        return self._number(self.comm.isend(self._data(data), to))

    def _irecv(self, size: Any, source: Any) -> int:
        return self._number(self.comm.irecv(self._buffer(size), source))

    def _wait(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self.requests):
            raise Ended(NO_RESULT, NO_ANSWER)
        return self.requests[number].wait()

    def _recv_any(self, size: Any) -> tuple[int, Any]:
        buffer = self._buffer(size)
        return self.comm.recv_any(buffer), buffer

    def _number(self, request: Any) -> int:
        self.requests.append(request)
        return len(self.requests) - 1

    def _data(self, data: Any) -> np.ndarray:
        if not isinstance(data, np.ndarray):
            raise TypeError(f"data must be a numpy array, got {type(data).__name__}")
        self._use(data.nbytes)
        return data

    def _buffer(self, size: Any) -> np.ndarray:
        n, dtype = _n_and_dtype(size)
        self._use(n * dtype.itemsize)
        return np.empty(n, dtype)

    def _use(self, nbytes: int) -> None:
        self.used += nbytes
        messages = max(len(self.requests), self.comm.messages_sent)
        if self.used > self.most or messages > MOST_MESSAGES:
            raise Ended(KILLED, f"rank {self.comm.rank} sent and received more than the grader carries")

    # -- the group and time -----------------------------------------------------------------------------------

    def _meet(self, name: Any, size: Any) -> None:
        x = None
        if size is not None:
            n, dtype = _n_and_dtype(size)
            x = np.broadcast_to(np.zeros((), dtype), n)
        meeting = self.comm.collective(str(name)[:80], x)
        meeting.__enter__()
        self.meetings.append(meeting)

    def _part(self) -> None:
        if self.meetings:
            self.meetings.pop().__exit__(None, None, None)

    def _compute(self, work: Any, seconds: Any, ran: Any) -> Any:
        for given in (work, seconds):
            if given is not None and not self.clock:
                raise ValueError(NO_CLOCK)
            with contextlib.suppress(TypeError):
                if given is not None and MOST_S < float(given) < math.inf:  # a few, and the clock is there
                    raise ValueError(f"seconds must be at most {MOST_S:.0e}, got {float(given):.3g}")
        # what has run already, in the worker's process, is no work here
        return self.comm.compute((lambda: None) if ran else work, seconds=seconds)


def _n_and_dtype(size: Any) -> tuple[int, np.dtype]:
    """What ``describe`` says of a buffer: elements and numpy dtype. Raises ValueError where numpy has none."""
    n, code = size[:2]
    if type(n) is not int or type(code) is not int or not 0 <= n < 2**48:
        raise Ended(NO_RESULT, NO_ANSWER)
    name = DTYPES[code] if 0 < code < len(DTYPES) else "none"
    if name in ("none", "bfloat16"):
        raise ValueError(f"data of dtype {name} cannot travel between the grader's workers; use float32")
    return n, np.dtype(name)
