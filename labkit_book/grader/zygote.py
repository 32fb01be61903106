"""Walls round the answers of one submission, and the processes in there, as the grader sees them.

The walls are a sandbox by bubblewrap, round a fork server (``server``). Inside are Python, its packages and labkit without
the problem sets, read-only, and nothing else: no network, no process of the machine, no environment (bwrap(1)). An answer
runs in a process that was never told what is right, so nothing that it does to itself makes a wrong answer right.
"""

import json
import os
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from labkit.comm.errors import text_of
from labkit_book.problems import asking, wire
from labkit_book.problems.asking import KILLED, NO_ANSWER, NO_RESULT, TIMEOUT, Ended, GraderFailure

Message = dict[str, Any]
MOST_ASKED = 800_000  # bytes of what an answer puts to a judge's function
START_S = 60.0  # to start the server, the import of torch from a cold disk included
# each thread's own arena would take 64 MB of the address space that is limited
_ONE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX")
_ENVIRONMENT = dict.fromkeys(_ONE, "1") | {"LANG": "C.UTF-8", "MPLBACKEND": "agg"}
_PATH = "/usr/bin:/bin"
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_OWN = "/answer"  # an answer's temporary folder
_HOME = Path(__file__).resolve().parents[2]  # of labkit and labkit_book
_SETS = _HOME / "labkit_book" / "problems" / "sets"
# Isolated: neither the current folder, whatever may have been planted there, nor the environment counts.
_BOOT = f"import sys; sys.path.append({str(_HOME)!r}); from labkit_book.grader.server import main; main(int(sys.argv[1]))"


@dataclass(frozen=True)
class Limits:
    """What one answer may use."""

    case_s: float = asking.CASE_S  # of the clock on the wall, for one question
    exercise_s: float = asking.EXERCISE_S  # and for all of an exercise
    cpu_s: int = 30  # of processor time, for each process
    memory_bytes: int = 1 << 30  # address space beyond Python's, for all processes of a question together
    output_bytes: int = 1_000_000  # printed text
    answer_bytes: int = wire.MOST_BYTES  # one message, and all that its workers send one another
    files_bytes: int = 16_000_000  # its temporary folder
    threads: int = 256  # where the system counts them (not for root)


def require_walls() -> None:
    """Raises GraderFailure, with a sentence on what to install, where answers cannot be walled off."""
    try:
        with Zygote() as zygote:
            Child(zygote, zygote.limits.memory_bytes)
    except (GraderFailure, OSError) as error:
        said = "nothing here keeps answers from the key and everybody's work"
        do = "`apt-get install bubblewrap libseccomp2`, or give --trust if you trust everybody who handed in"
        raise GraderFailure(f"{said}: {do} ({error})") from None


class Zygote(AbstractContextManager["Zygote"]):
    """A fork server for the answers of one submission, behind walls of its own. Use as a context manager.

    hide: paths that no answer may see. setup: imports, a line each, that no process shall have to do again. withheld: names
    of labkit, in whatever exercise. trust: limits alone. Raises GraderFailure if no server can be started.
    """

    def __init__(
        self, limits: Limits | None = None, hide: Sequence[Path | str] = (), setup: str = "",
        withheld: Sequence[str] = (), trust: bool = False,
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(START_S)
        self._opened = ExitStack()
        self._errors = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        folder = tempfile.TemporaryDirectory(prefix="labkit-answers-") if trust else nullcontext(_OWN)
        own = self._opened.enter_context(folder)
        walls, env = [] if trust else _walls([_SETS, *hide]), _ENVIRONMENT | {"PATH": os.environ["PATH"]}
        with theirs:
            self._server = subprocess.Popen(
                [*walls, sys.executable, "-IB", "-c", _BOOT, str(theirs.fileno())], env=env, cwd="/",
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._errors, start_new_session=True,  # ^C is the grader's to handle
            )  # fmt: skip
        self.order({"setup": setup, "withheld": list(withheld), "own": own, "walls": not trust})

    def order(self, order: Message, *fds: int) -> Any:
        """Have the server do something; its reply. Raises GraderFailure."""
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], fds)
            return json.loads(self._control.recv(4096))
        except (OSError, ValueError):
            self._end()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-2000:]
            raise GraderFailure(f"the fork server does not answer: {said}") from None

    def _end(self) -> None:
        """End the server and all that is left behind its walls."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(10)
        self._server.kill()
        self._server.wait()

    def __exit__(self, *_: object) -> None:
        self._end()
        self._opened.close()


class Child:
    """A new process of an answer. The grader never waits for it without a deadline, and believes nothing it says.

    memory_bytes: beyond what Python takes. most: bytes that it may say at once. Raises GraderFailure.
    """

    def __init__(self, zygote: Zygote, memory_bytes: int) -> None:
        self._sock, theirs = socket.socketpair()
        self._zygote, self._line = zygote, Connection(os.dup(self._sock.fileno()))
        self._late, self._ended = False, None
        self.most = zygote.limits.answer_bytes
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 (no larger than any of its files)
        with theirs:
            order = {"fork": memory_bytes, "limits": vars(zygote.limits)}
            self.pid = zygote.order(order, theirs.fileno(), self.output.fileno())
        try:  # before it sees any answer it is closed off
            with self._until(time.monotonic() + START_S):
                said = self._exchange(b"")
        except Ended as error:
            raise GraderFailure(f"an answer's process did not come up: {error}") from None
        if said["op"] != "ready":
            raise GraderFailure(f"an answer's process could not be closed off: {said.get('message')}")

    def printed(self) -> str:
        """What it has printed so far. Raises Ended when it is too much."""
        most = self._zygote.limits.output_bytes
        if os.fstat(self.output.fileno()).st_size > most:
            raise Ended(KILLED, f"it printed more than {most:,} bytes")
        return os.pread(self.output.fileno(), most, 0).decode(errors="replace")

    def converse(self, message: Message, until: float, most: float = MOST_ASKED) -> Message:
        """Send an order and return what comes back; its functions stay here, and are called when asked for by number.

        until: the deadline, of ``time.monotonic()``. most: bytes of a call's arguments. Raises Ended.
        """
        functions = list[Callable[..., Any]]()
        frame = wire.encode(message, functions)
        with self._until(until):
            while (reply := self._exchange(frame))["op"] == "ask":
                number, args = reply.get("number"), reply.get("args")
                if type(number) is not int or not 0 <= number < len(functions) or type(args) is not tuple:
                    raise Ended(NO_RESULT, NO_ANSWER)
                try:
                    if len(wire.encode(args)) > most:
                        raise ValueError(f"at most {most:,} bytes can be given to this function")
                    # A function that it returns can be called in turn.
                    frame = wire.encode({"op": "value", "value": functions[number](*args)}, functions)
                except Ended:
                    raise
                except Exception as error:
                    said = getattr(error, "message", "") or text_of(error)
                    frame = wire.encode({"op": "refused", "type": type(error).__name__, "message": said})
        return reply

    def end(self, grace_s: float = 0.0) -> Any:
        """End it, with all that it has started; its exit code, None if it had to be killed, and its processor time."""
        self._ended = self._ended or self._zygote.order({"end": self.pid, "grace_s": grace_s})
        return self._ended

    def close(self) -> None:
        """End it, and wait until it is gone."""
        self.end()
        self._line.close()
        self._sock.close()
        self.output.close()

    @contextmanager
    def _until(self, deadline: float) -> Iterator[None]:
        """Cut the line at the deadline, of ``time.monotonic()``, also where a half of a message has come."""
        timer = threading.Timer(max(deadline - time.monotonic(), 0), self._cut)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self._late = True
        with suppress(OSError):  # closed already
            self._sock.shutdown(socket.SHUT_RDWR)

    def _exchange(self, frame: bytes) -> Message:
        """Send a frame, unless it is empty, and return the next message. Raises Ended."""
        try:
            if frame:
                self._line.send_bytes(frame)
            reply = wire.decode(self._line.recv_bytes(self.most))
        except (OSError, EOFError):
            self.printed()
            raise self._post_mortem() from None
        except ValueError as error:
            raise Ended(NO_RESULT, f"{NO_ANSWER}: {error}") from None
        self.printed()
        if not isinstance(reply, dict) or not isinstance(reply.get("op"), str):
            raise Ended(NO_RESULT, NO_ANSWER)
        return reply

    def _post_mortem(self) -> Ended:
        """Why the line is dead."""
        if self._late:
            return Ended(TIMEOUT, "it was still running at the deadline: an endless loop, or too slow")
        code, used_s = self.end(grace_s=0.5)
        if code is None:
            return Ended(NO_RESULT, "it cut its line to the grader before it had answered")
        if code >= 0:
            return Ended(NO_RESULT, "it ended its process before it answered: take out the call that exits")
        if used_s > 0.9 * self._zygote.limits.cpu_s:
            return Ended(TIMEOUT, f"it used more than {self._zygote.limits.cpu_s} s of processor time")
        if -code == signal.SIGKILL:
            return Ended(KILLED, "the system ended it: too much memory, or files")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return Ended(KILLED, f"its process was ended by {name}")


def _walls(hide: Sequence[Path | str]) -> list[str]:
    """The command that puts walls round another: Python, its packages and ours, and nothing of what is to be hidden."""
    # The fork server needs the right to give each process namespaces of its own.
    told = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-add", "CAP_SYS_ADMIN"]
    told += ["--tmpfs", _OWN, "--setenv", "HOME", _OWN, "--setenv", "TMPDIR", _OWN, "--setenv", "PATH", _PATH]
    python = sorted({sys.prefix, sys.base_prefix, *site.getsitepackages()})
    shown = [*_SYSTEM, *python, *(f"{_HOME}/{name}" for name in ("labkit", "labkit_book"))]
    told += [word for path in shown for word in ("--ro-bind-try", path, path)]
    told += [word for path in _DEVICES for word in ("--dev-bind", path, path)]
    needed = [Path(path).resolve() for path in (sys.prefix, sys.base_prefix, __file__)]
    hidden = [path for path in hide if not any(n.is_relative_to(Path(path).resolve()) for n in needed)]
    for path in sorted({name(path) for path in hidden for name in (os.path.abspath, os.path.realpath)}):
        if any(Path(path).is_relative_to(one) for one in shown) and os.path.exists(path):
            folder = ["--tmpfs", path, "--remount-ro", path]
            told += folder if os.path.isdir(path) else ["--ro-bind", os.devnull, path]
    return [*told, "--remount-ro", "/", "--chdir", "/"]
