"""The fork server: a fresh interpreter that has met numpy and labkit and no student, and forks a child for each answer.

It runs no answer itself. Inside a pid namespace it is process 1: nothing in there can end it, and it ends everything with
one call. The grader talks to it over a socket, one JSON line each way: ``fork`` (with a child's socket and output pipe),
``wait``, ``look``, ``sweep``. When the socket closes, because the grader is gone, it ends all that is left, and
itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from labkit.comm.netns import die_with_parent
from labkit_book.grader import landlock, seccomp
from labkit_book.grader.answering import Line, live
from labkit_book.grader.isolation import Isolation, Limits, enter_world, lock_in, own_folder
from labkit_book.problems.withheld import holder_of

# What answers import, if it is there: each of their processes would pay for the import otherwise, a second for matplotlib.
_MET = (
    "numpy", "numpy.linalg", "numpy.random", "labkit.comm", "labkit.comm.simulated", "labkit.collectives",
    "labkit_book.problems.check", "labkit.learn", "labkit.timing", "labkit.compress", "scipy.stats",
    "matplotlib.pyplot", "torch",
)  # fmt: skip
_SUBREAPER = 36
LOOK_S = 0.1  # between two looks at what answers have written to the machine's own disk
_NOT_FOR_ANSWERS = ("labkit_book.problems.sets", "labkit_book.grader.key", "labkit_book.grader.batch")


def main(control: socket.socket, spec: dict[str, Any]) -> NoReturn:
    """The server's life. control: the line to the grader. spec: what ``Zygote`` sends first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _meet()
    hide = [*spec["hide"], *_written_in(spec["withheld"])]
    for name in _NOT_FOR_ANSWERS:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.dont_write_bytecode = True
    memory = _Memory()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("900")  # where memory is short, these go first, and not the grader
    show = landlock.visible(spec["show"], hide)
    world = files = False
    if "namespaces" in spec["isolation"]:
        world, files = enter_world(spec["root"], spec["show"], hide)
    if world:
        inner = os.fork()
        if inner:  # stays outside, to end with it
            control.close()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF)
        die_with_parent()
    isolation = Isolation(
        world,
        files,
        "landlock" in spec["isolation"] and not files and landlock.version() > 0,
        "seccomp" in spec["isolation"] and seccomp.available() and _filter_works(),
    )
    if sys.platform.startswith(
        "linux"
    ):  # whose parent ends becomes this one's child, so that nobody can hide
        landlock.libc("prctl", _SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()  # what is there now is shared with the children for good
    _say(control, {"isolation": vars(isolation)})
    _Server(control, isolation, memory, show).serve()
    os._exit(0)


def _meet() -> None:
    """Import what answers import."""
    with tempfile.TemporaryDirectory(prefix="labkit-met-") as folder:
        os.environ["MPLCONFIGDIR"] = folder  # matplotlib makes a list of fonts
        for name in _MET:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    del os.environ["MPLCONFIGDIR"]


class _Server:
    """show: what answers may read and list."""

    def __init__(
        self, control: socket.socket, isolation: Isolation, space: _Memory, show: tuple[list[str], list[str]]
    ) -> None:
        self.control, self.isolation, self.space, self.show = control, isolation, space, show
        self.memory = space.taken()  # by this process, in bytes; 0 where it isn't known
        self.codes: dict[int, int | None] = {}  # how each child ended; None: it has not
        self.folders: dict[str, int] = {}  # on the machine's own disk, and whose they are
        self.most = 0  # bytes in each

    def serve(self) -> None:
        """Answer the grader until it is gone."""
        while True:
            self.control.settimeout(LOOK_S if self.folders else None)
            try:
                line, fds, _, _ = socket.recv_fds(self.control, 4096, 2)
            except TimeoutError:
                self._end_who_fills_the_disk()
                continue
            except OSError:
                line = b""
            if not line:
                self._sweep()
                return
            order = json.loads(line)
            if order["do"] == "fork":
                reply: dict[str, Any] = self._fork(fds, Limits(**order["limits"]))
            elif order["do"] == "wait":
                reply = {"code": self._wait(order["pid"], order["seconds"])}
            elif order["do"] == "look":
                reply = {"left": self._reap()}
            else:
                self._sweep()
                reply = {}
            _say(self.control, reply)

    def _fork(self, fds: list[int], limits: Limits) -> dict[str, Any]:
        line, output = fds
        on_disk = not self.isolation.files
        folder = tempfile.mkdtemp(prefix="labkit-answer-") if on_disk else own_folder(self.show[0])
        try:
            pid = os.fork()
        except OSError as error:
            return {"error": str(error)}
        if pid == 0:
            self._child(line, output, limits, folder)
        os.close(line)
        os.close(output)
        self.codes[pid] = None
        self._share_memory(limits)
        if on_disk:
            self.folders[folder], self.most = pid, limits.files_bytes
        return {"pid": pid}

    def _share_memory(self, limits: Limits) -> None:
        """Give each process of the answer an equal part of what the answer may use (Linux; elsewhere each has it all)."""
        there = [pid for pid, code in self.codes.items() if code is None]
        for pid in there if self.memory and len(there) > 1 else ():
            part = self.memory + limits.memory_bytes // len(there)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                resource.prlimit(pid, resource.RLIMIT_AS, (part, part))

    def _end_who_fills_the_disk(self) -> None:
        """Where a folder has no file system of its own, nothing but this looks at all of it."""
        for folder, pid in self.folders.items():
            if _overfull(folder, self.most) and self.codes.get(pid) is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _child(self, line: int, output: int, limits: Limits, folder: str) -> NoReturn:
        try:
            os.setsid()
            if sys.platform == "linux":
                die_with_parent()
            nothing = os.open(os.devnull, os.O_RDWR)
            moved = os.dup2(line, 100, inheritable=False)
            for fd, there in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(fd, there)
            os.closerange(3, 100)
            os.closerange(101, 4096)
            sys.stdin, sys.stdout, sys.stderr = (
                os.fdopen(fd, "r" if fd == 0 else "w", 1, closefd=False, errors="replace") for fd in range(3)
            )
            os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
            signal.signal(signal.SIGINT, signal.default_int_handler)
            talk = Line(socket.socket(fileno=moved), limits.answer_bytes)
            memory = self.memory + limits.memory_bytes if self.memory else 1 << 46
            try:
                lock_in(self.isolation, limits, folder, memory, self.show)
            except OSError as error:
                talk.send({"op": "not isolated", "message": str(error)})
                os._exit(1)
            talk.send({"op": "ready"})
            live(talk)
        except BaseException:
            os._exit(70)
        os._exit(0)

    def _reap(self) -> bool:
        """Take note of who has ended. Whether anybody is left: children, and orphans, which become this one's children."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def _wait(self, pid: int, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while True:
            self._reap()
            code = self.codes.get(pid)
            if code is not None or time.monotonic() > until:
                return code
            time.sleep(0.002)

    def _sweep(self) -> None:
        """End every process there is, and take away what they left."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if self.isolation.world:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(-1, signal.SIGKILL)
            else:
                for pid in {*(p for p, code in self.codes.items() if code is None), *_own_children()}:
                    for end in (os.killpg, os.kill):
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            end(pid, signal.SIGKILL)
            if not self._reap():
                break
            time.sleep(0.0005)
        self.codes.clear()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.folders.clear()


def _written_in(names: list[str]) -> Iterator[str]:
    """The files, source and compiled, in which these names of labkit are written; their modules are imported by this."""
    modules = set()
    for full in names:
        with contextlib.suppress(ImportError):  # what it needs is not here, for answers neither
            holder, name = holder_of(full)
            modules.add((holder if isinstance(holder, type) else getattr(holder, name)).__module__)
    for source in {Path(str(sys.modules[module].__file__)) for module in modules}:
        for path in (source, *source.parent.glob(f"__pycache__/{source.stem}.*.pyc")):
            yield from {os.path.abspath(path), os.path.realpath(path)}


def _overfull(folder: str, most: int) -> bool:
    """Whether there are more than ``most`` bytes, or 1000 files, in a folder that somebody may be writing to."""
    waiting, nbytes, files = [folder], 0, 0
    while waiting and nbytes <= most and files <= 1000:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                if files > 1000:
                    break
                with contextlib.suppress(OSError):
                    nbytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return nbytes > most or files > 1000


def _own_children() -> list[int]:
    """All processes whose parent this one is, orphans of its children's among them (Linux)."""
    mine, found = os.getpid(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as f:
                if int(f.read().rpartition(")")[2].split()[1]) == mine:
                    found.append(int(name))
    return found


def _filter_works() -> bool:
    """Whether this kernel takes the filter: tried by a child."""
    pid = os.fork()
    if pid == 0:
        try:
            seccomp.restrict()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


class _Memory:
    """How much address space this process has taken (Linux), also when it no longer sees the machine's /proc."""

    def __init__(self) -> None:
        self.proc = os.open("/proc", os.O_RDONLY) if os.path.exists("/proc/self/statm") else -1

    def taken(self) -> int:
        """Bytes; 0 where it can't be known."""
        if self.proc < 0:
            return 0
        with open(os.open("self/statm", os.O_RDONLY, dir_fd=self.proc)) as f:
            return int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _say(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")
