"""Processes for answers, as the grader sees them: a fork server that stands ready, and its children.

An answer runs in a process that was never told what is right, so nothing that it does to itself makes a wrong answer right.
What the isolation promises besides, and what not, is in the instructors' guide; ``Zygote.isolation`` says what is on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labkit_book.grader.isolation import Isolation, Limits
from labkit_book.problems import wire
from labkit_book.problems.asking import KILLED, NO_ANSWER, NO_RESULT, TIMEOUT, Ended, GraderFailure
from labkit_book.problems.catalogue import all_exercises

MEANS = ("namespaces", "landlock", "seccomp")
START_S = 60.0  # to start the server, the import of scipy from a cold disk included
# What it is to hide comes down the line and not on the command line, which every process on the machine can read.
_BOOT = (
    "import sys, json, socket; line = socket.socket(fileno=int(sys.argv[1])); "
    "spec = json.loads(line.makefile('rb').readline()); sys.path[:] = spec['path']; "
    "from labkit_book.grader.server import main; main(line, spec)"
)
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # each thread's own arena would take 64 MB of the address space that is limited
}  # fmt: skip


class Zygote:
    """A fork server. One answer at a time; not for use by several threads at once. Use as a context manager, or ``close()``.

    limits: what an answer may use. hide: folders that no answer may see, even if Python's packages are beneath them.
    means: of isolation, those to be on where the machine can; without any, limits on resources are all there is.
    Raises GraderFailure if no server can be started.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        hide: tuple[str, ...] = (),
        means: tuple[str, ...] = MEANS,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self._hide, self._means = _both_names(hide), means
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        here, there = socket.socketpair()
        self._root = tempfile.mkdtemp(prefix="labkit-grade-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        show, path = _packages()
        withheld = sorted({full for e in all_exercises() for full in e.withheld})
        sets = str(Path(__file__).parents[1] / "problems" / "sets")
        spec = {
            "path": path, "withheld": withheld, "root": self._root, "show": show,
            "hide": list(_both_names((sets, *self._hide))),
            "isolation": list(self._means),
        }  # fmt: skip
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # ^C is the grader's to handle
            )
        except OSError as error:
            raise GraderFailure(f"no process can be started for answers: {error}") from error
        finally:
            there.close()
        self._control = here
        here.settimeout(START_S)
        with contextlib.suppress(OSError):  # it has ended: what it said on its way is heard next
            here.sendall(json.dumps(spec).encode() + b"\n")
        self.isolation = Isolation(**self._hear()["isolation"])

    def fork(self) -> Child:
        """A new process for an answer. Starts the server anew if it has ended."""
        if self._server is None or self._server.poll() is not None:
            self.close()
            self._start()
        here, line = socket.socketpair()
        output, into = os.pipe()
        try:
            order = {"do": "fork", "limits": vars(self.limits)}
            socket.send_fds(self._control, [json.dumps(order).encode()], [line.fileno(), into])
            reply = self._hear()
            if "pid" not in reply:
                raise GraderFailure(reply.get("error", ""))
        except (OSError, GraderFailure) as error:
            here.close()
            os.close(output)
            raise GraderFailure(f"no process for an answer: {error}") from error
        finally:
            line.close()
            os.close(into)
        return Child(self, int(reply["pid"]), here, output)

    def code(self, pid: int, seconds: float) -> int | None:
        """How a child ended: its exit code, or minus a signal; None if it has not after ``seconds``."""
        code = self._say({"do": "wait", "pid": pid, "seconds": seconds})["code"]
        return None if code is None else int(code)

    def sweep(self) -> None:
        """End all children, and whatever they started."""
        self._say({"do": "sweep"})

    def left(self) -> bool:
        """Whether any process of an answer is there."""
        return bool(self._say({"do": "look"})["left"])

    def _say(self, order: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                self._control.sendall(json.dumps(order).encode())
                return self._hear()
            except OSError as error:
                raise GraderFailure(f"the fork server has ended: {error}") from error

    def _hear(self) -> dict[str, Any]:
        line = bytearray()
        while not line.endswith(b"\n"):
            try:
                some = self._control.recv(4096)
            except TimeoutError:
                some = b""
            if not some:
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace").strip()[-2000:]
                self.close()
                raise GraderFailure(f"the fork server does not answer{': ' if said else ''}{said}")
            line += some
        return dict(json.loads(line))

    def close(self) -> None:
        """End the server and all that is left in it."""
        if self._server is None:
            return
        server, self._server = self._server, None
        self._control.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        self._errors.close()
        with contextlib.suppress(OSError):
            os.rmdir(self._root)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class Child:
    """One process of an answer. The grader never waits for it without a deadline, and believes nothing it says.

    pid: its number inside the fork server. sock: the line to it; output: where it prints.
    """

    def __init__(self, zygote: Zygote, pid: int, sock: socket.socket, output: int) -> None:
        self._zygote, self._pid, self._sock, self._output = zygote, pid, sock, output
        self._limits = zygote.limits
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
                reply = wire.decode(self._receive(until))
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
        """Wait until it is isolated, before it sees any answer. Raises GraderFailure where that can't be done."""
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
        code = self._zygote.code(self._pid, 0.5)
        if code is None:
            return Ended(NO_RESULT, "it cut its line to the grader before it had answered")
        if code >= 0:
            said = "it ended its own process before it had answered: take out the call that exits"
            return Ended(NO_RESULT, said)
        if -code == signal.SIGXCPU:
            return Ended(TIMEOUT, f"it used more than {self._limits.cpu_s} s of processor time")
        if -code == signal.SIGXFSZ:
            return Ended(KILLED, f"it wrote a file of more than {self._limits.files_bytes:,} bytes")
        if -code == signal.SIGKILL:
            return Ended(KILLED, "the system ended it: too much memory, processor time, or files")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return Ended(KILLED, f"its process was ended by {name}")


def _both_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute paths, also as they are without symbolic links."""
    return tuple({name for path in paths for name in (os.path.abspath(path), os.path.realpath(path))})


def _packages() -> tuple[list[str], list[str]]:
    """What an answer's file system must show, and its ``sys.path``: Python, its packages and ours, wherever these lie.

    A folder that ours merely lie in is on the path last, and only they are shown of it; the current folder is not on it,
    whatever may have been planted there.
    """
    ours = Path(__file__).resolve().parents[1]
    home = str(ours.parent)
    not_kept = (os.path.realpath(os.getcwd()), home)
    keep = [p for p in sys.path if p and os.path.exists(p) and os.path.realpath(p) not in not_kept]
    packages = [p for p in keep if os.path.isfile(p) or _is_python(p)]
    if _is_python(home):
        packages.append(home)
    found = str(Path(np.__file__).resolve().parents[1])
    if found not in packages:
        packages.append(found)
    show = ["/usr", sys.prefix, sys.base_prefix, sys.exec_prefix, *packages, f"{home}/labkit", str(ours)]
    return show, [*packages, *([] if home in packages else [home])]


def _is_python(path: str) -> bool:
    """Whether a folder is part of Python: its library or its packages."""
    inside = map(Path(path).is_relative_to, (sys.base_prefix, sys.prefix, sys.exec_prefix))
    return any(inside) or os.path.basename(path) in ("site-packages", "dist-packages")
