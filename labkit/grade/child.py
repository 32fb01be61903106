"""One process of an answer, as the grader sees it: a line to it, what it prints, and how it ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from labkit.grade import wire
from labkit.grade.asking import KILLED, NO_RESULT, TIMEOUT, Ended, GraderFailure
from labkit.grade.sandbox import Limits

NO_ANSWER = "what it sent to the grader is no answer"


class Child:
    """One process of an answer. The grader never waits for it without a deadline, and believes nothing it says.

    sock: the line to it; output: where it prints. code: how it ended, after so many seconds at most.
    """

    def __init__(
        self, sock: socket.socket, output: int, limits: Limits, code: Callable[[float], int | None]
    ) -> None:
        self._sock, self._output, self._limits, self._code = sock, output, limits, code
        self._came, self._printed, self.open = bytearray(), bytearray(), True
        sock.setblocking(False)
        os.set_blocking(output, False)

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        self._drain()
        return self._printed.decode(errors="replace")

    def converse(
        self,
        message: dict[str, Any],
        serve: Callable[[dict[str, Any]], dict[str, Any]],
        until: float,
        functions: list[Any] | None = None,
    ) -> dict[str, Any]:
        """Send an order and return what comes back; questions in between are put to ``serve``. Raises Ended.

        until: the deadline, of ``time.monotonic()``. functions: collects the callables of the message, for ``serve``.
        """
        self._send(wire.encode(message, functions), until)
        while True:
            try:
                reply = wire.decode(self._receive(until), lambda _: _Elsewhere())
            except wire.Unfit as error:
                raise Ended(NO_RESULT, f"{NO_ANSWER}: {error}") from None
            if not isinstance(reply, dict) or not isinstance(reply.get("op"), str):
                raise Ended(NO_RESULT, NO_ANSWER)
            if reply["op"] != "ask":
                return reply
            try:
                frame = wire.encode(serve(reply))
            except wire.Unfit as error:
                frame = wire.encode({"op": "refused", "type": "ValueError", "message": str(error)})
            self._send(frame, until)

    def hello(self, until: float) -> None:
        """Wait until it is behind its walls, before it sees any answer. Raises GraderFailure where that can't be done."""
        try:
            said = wire.decode(self._receive(until))
        except Ended as error:
            raise GraderFailure(f"an answer's process did not come up: {error}") from None
        if said != {"op": "ready"}:
            raise GraderFailure(f"an answer's process could not be closed off: {said.get('message')}")

    def close(self) -> None:
        """Let go of the line. The process itself is ended by ``Zygote.sweep``."""
        if self.open:
            self.open = False
            self._sock.close()
            os.close(self._output)

    def _send(self, frame: bytes, until: float) -> None:
        left = memoryview(struct.pack(">Q", len(frame)) + frame)
        while left:
            self._wait(select.POLLOUT, until)
            try:
                left = left[self._sock.send(left) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._post_mortem() from None

    def _receive(self, until: float) -> bytes:
        while True:
            if len(self._came) >= 8:
                (size,) = struct.unpack_from(">Q", self._came)
                if size > self._limits.answer_bytes:
                    raise Ended(NO_RESULT, f"{NO_ANSWER}: {size:,} bytes")
                if len(self._came) >= 8 + size:
                    frame = bytes(self._came[8 : 8 + size])
                    del self._came[: 8 + size]
                    return frame
            self._wait(select.POLLIN, until)
            try:
                some = self._sock.recv(1 << 20)
            except BlockingIOError:
                continue
            except OSError:
                some = b""
            if not some:
                raise self._post_mortem()
            self._came += some

    def _wait(self, what: int, until: float) -> None:
        """Until the line is ready; meanwhile listen to what is printed."""
        poll = select.poll()
        poll.register(self._sock, what)
        poll.register(self._output, select.POLLIN)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise Ended(TIMEOUT, "it was still running at the deadline: an endless loop, or too slow")
            ready = dict(poll.poll(1000 * left))
            if self._output in ready and not self._drain():
                poll.unregister(self._output)
            if self._sock.fileno() in ready:
                return

    def _drain(self) -> bool:
        """Take what is printed. False at its end. Raises Ended when it is too much."""
        while self.open:
            try:
                some = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return True
            if not some:
                return False
            self._printed += some
            if len(self._printed) > self._limits.output_bytes:
                raise Ended(KILLED, f"it printed more than {self._limits.output_bytes:,} bytes")
        return False

    def _post_mortem(self) -> Ended:
        """Why the line is dead."""
        code = self._code(0.5)
        if code is None:
            return Ended(NO_RESULT, "it cut its line to the grader before it had answered")
        if code >= 0:
            return Ended(
                NO_RESULT, "it ended its own process before it had answered: take out the call that exits"
            )
        if -code == signal.SIGXCPU:
            return Ended(TIMEOUT, f"it used more than {self._limits.cpu_s} s of processor time")
        if -code == signal.SIGXFSZ:
            return Ended(KILLED, f"it wrote a file of more than {self._limits.files_bytes:,} bytes")
        if -code == signal.SIGKILL:
            return Ended(KILLED, "the system ended it: too much memory, processor time, or files")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return Ended(KILLED, f"its process was ended by {name}")


class _Elsewhere(wire.Foreign):
    """What a function in an answer becomes here."""

    def __call__(self, *_: Any) -> None:
        raise TypeError("this function is in the answer's process")


_Elsewhere.__name__ = "function"
