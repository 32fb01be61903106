"""Processes for answers, as the grader sees them: a fork server that stands ready, and its children.

What the isolation promises, and what it does not: an answer runs in a process that was never told what is right, so
nothing that it does to itself makes a wrong answer right. Where the machine allows it (``Zygote.isolation`` says so) it sees
no other process, no network and no file but Python's and labkit's, and can start nothing. It shares the machine's kernel
and processors with the grader: a flaw of the kernel, or the time that things take, is not closed by this. Answers of
unknown origin belong on a machine that holds nothing dear.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from labkit.grade.asking import GraderFailure
from labkit.grade.child import Child
from labkit.grade.sandbox import Limits, Walls

__all__ = ["Child", "GraderFailure", "Limits", "Zygote"]

WALLS = ("namespaces", "landlock", "seccomp")
START_S = 60.0  # to start the server, the import of scipy from a cold disk included
_BOOT = (
    "import sys, json; spec = json.loads(sys.argv[1]); sys.path[:] = spec['path']; "
    "from labkit.grade.server import main; main(spec)"
)
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip


class Zygote:
    """A fork server. One answer at a time; not for use by several threads at once. Use as a context manager, or ``close()``.

    limits: what an answer may use. hide: folders that no answer may see, even if Python's packages are beneath them.
    preload: modules that answers import, if they are there: each answer would pay for the import otherwise.
    walls: those to build where the machine can; without any, limits on resources are all there is.
    Raises GraderFailure if no server can be started.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        hide: tuple[str, ...] = (),
        preload: tuple[str, ...] = ("scipy.stats",),
        walls: tuple[str, ...] = WALLS,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self._preload = preload
        self._hide, self._want_walls = _both_names(hide), walls
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        here, there = socket.socketpair()
        self._root = tempfile.mkdtemp(prefix="labkit-grade-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        show, path = _packages()
        spec = {
            "control": there.fileno(), "path": path, "preload": list(self._preload), "root": self._root, "show": show,
            "hide": list(_both_names((str(Path(__file__).with_name("sets")), *self._hide))), "walls": list(self._want_walls),
        }  # fmt: skip
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(spec)],
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
        self.walls = Walls(**self._hear()["walls"])

    @property
    def isolation(self) -> str:
        """What was on, in words."""
        return self.walls.words()

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
        except (OSError, GraderFailure) as error:
            here.close()
            os.close(output)
            raise GraderFailure(f"the fork server has ended: {error}") from error
        finally:
            line.close()
            os.close(into)
        if "pid" not in reply:
            here.close()
            os.close(output)
            raise GraderFailure(f"no process for an answer: {reply.get('error', '')}")
        pid = int(reply["pid"])
        return Child(here, output, self.limits, lambda seconds: self.code(pid, seconds))

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


def _both_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Absolute paths, also as they are without symbolic links."""
    return tuple({name for path in paths for name in (os.path.abspath(path), os.path.realpath(path))})


def _packages() -> tuple[list[str], list[str]]:
    """What an answer's file system must show, and its ``sys.path``: Python, its packages, and labkit, wherever it lies.

    A folder that labkit merely lies in is on the path last, and only labkit itself is shown of it; the current folder is not
    on it, whatever may have been planted there.
    """
    labkit = Path(__file__).resolve().parents[1]
    home, here = str(labkit.parent), os.getcwd()
    keep = [
        p
        for p in sys.path
        if p and os.path.exists(p) and os.path.realpath(p) not in (os.path.realpath(here), home)
    ]
    packages = [p for p in keep if os.path.isfile(p) or _is_python(p)]
    if _is_python(home):
        packages.append(home)
    found = str(Path(np.__file__).resolve().parents[1])
    if found not in packages:
        packages.append(found)
    show = ["/usr", sys.prefix, sys.base_prefix, sys.exec_prefix, *packages, str(labkit)]
    return show, [*packages, *([] if home in packages else [home])]


def _is_python(path: str) -> bool:
    """Whether a folder is part of Python: its library or its packages."""
    inside = any(
        path == p or path.startswith(p.rstrip("/") + "/")
        for p in (sys.base_prefix, sys.prefix, sys.exec_prefix)
    )
    return inside or os.path.basename(path) in ("site-packages", "dist-packages")
