"""Inside the walls: the fork server, and what the process of an answer does.

The server is a fresh interpreter that has met numpy and labkit and no student. It runs no answer itself. The grader orders
it to fork a process, with the answer's end of their line and the file for its output, or to end one and say how it ended.
A process is the first of a pid namespace, so what it has started ends with it. It knows questions, and nothing of what is
right. The answer may have rewritten all of this: the grader believes no more of what comes than "that is its answer".
"""

import builtins
import contextlib
import ctypes
import errno
import gc
import json
import linecache
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Iterator
from functools import partial, partialmethod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import labkit.comm.simulated  # noqa: F401 (met here, so that no answer's process has to)
from labkit.comm import errors
from labkit.comm.base import Comm, Described, describe
from labkit.comm.netns import die_with_parent
from labkit_book.grader.zygote import Limits, Message
from labkit_book.problems import asking, wire
from labkit_book.problems.check import Verdict, check
from labkit_book.problems.withheld import holder_of, replace_inplace, withhold_inplace

LIBSECCOMP = "libseccomp.so.2"
CELL_S = 3.0  # for another cell of the notebook, after which it is interrupted, as one is by hand
_UNCHECKED = Verdict("", "not checked here: the grader asks by itself", "todo", 0, 0)
_LINE = 3  # its number among an answer's open files
_NEWNS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000  # unshare(2)
_BIND, _NOSUID, _NODEV, _NOEXEC = 4096, 2, 4, 8  # mount(2)
# What no answer has a need of: processes, sockets, locks and notices seen by other ranks, memory that no limit counts,
# and what could be tried on the kernel.
_FORBIDDEN = """
    fork vfork execve execveat socket flock inotify_init inotify_init1 fanotify_init memfd_create memfd_secret
    keyctl add_key request_key unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen mount_setattr
    ptrace bpf perf_event_open userfaultfd io_uring_setup open_by_handle_at kexec_load init_module finit_module
"""
_LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1026)  # of fcntl(2): F_GETLK to F_SETLKW, F_OFD_*, F_SETLEASE, F_NOTIFY


def main(number: int) -> NoReturn:
    """The server's life. number: of the file that is the line to the grader."""
    control = socket.socket(fileno=number)
    spec = json.loads(control.recv(1 << 20))
    # The grader's own limit is not for answers.
    resource.setrlimit(resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[1:] * 2)
    for line in spec["setup"].splitlines():
        with contextlib.suppress(ImportError):  # then answers hear of it
            exec(line, {})
    for path in set(_written_in(spec["withheld"])) if spec["walls"] else ():
        _libc("mount", os.devnull.encode(), path.encode(), None, ctypes.c_ulong(_BIND), None)
    base = _address_space()
    reply: Any = "ready"
    gc.collect()
    gc.freeze()  # what is there now is shared with the children for good
    while True:
        control.sendall(json.dumps(reply).encode())
        order, fds, _, _ = socket.recv_fds(control, 4096, 2)
        if not order:
            os._exit(0)
        said = json.loads(order)
        if "end" in said:
            reply = _end(said["end"], said["grace_s"])
        else:
            reply = _fork(spec, Limits(**said["limits"]), base + said["fork"], *fds)


def _fork(spec: dict[str, Any], limits: Limits, memory: int, line: int, output: int) -> int:
    """Fork a process for an answer; its number."""
    own, walls = spec["own"], spec["walls"]
    if walls:
        ours = os.pidfd_open(os.getpid())
        _libc("unshare", _NEWPID)  # for the next that is forked,
    else:
        own = tempfile.mkdtemp(dir=own)
    pid = os.fork()
    if pid == 0:
        _begin(own, walls, limits, memory, line, output)
    if walls:
        _libc("setns", ours, _NEWPID)  # and for that one alone
        os.close(ours)
    os.close(line)
    os.close(output)
    return pid


def _end(pid: int, grace_s: float) -> tuple[int | None, float]:
    """End a process; its exit code, None if it had not ended by itself, and its seconds of processor time."""
    until = time.monotonic() + grace_s
    while not (ended := os.wait4(pid, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # what it has started where no walls are
        os.killpg(pid, signal.SIGKILL)
    by_itself, status, usage = ended
    if not by_itself:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status) if by_itself else None, usage.ru_utime + usage.ru_stime


def _written_in(names: list[str]) -> Iterator[str]:
    """The files, source and compiled, in which these names of labkit are written; their modules are imported by this."""
    for full in names:
        with contextlib.suppress(ImportError):  # what it needs is not here, for answers neither
            holder, name = holder_of(full)
            module = (holder if isinstance(holder, type) else getattr(holder, name)).__module__
            source = Path(str(sys.modules[module].__file__))
            yield from map(str, (source, *source.parent.glob(f"__pycache__/{source.stem}.*.pyc")))


def _address_space() -> int:
    """How many bytes of it this process has taken: found by limits too small for one page more (there is no /proc)."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 46
    while high - low > 1 << 20:
        middle = (low + high) // 2
        try:
            resource.setrlimit(resource.RLIMIT_AS, (middle, before[1]))
            mmap.mmap(-1, mmap.PAGESIZE).close()
            high = middle
        except (OSError, ValueError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, before)
    return high


# -- the process of an answer ----------------------------------------------------------------------------------------


def _begin(own: str, walls: bool, limits: Limits, memory: int, line: int, output: int) -> NoReturn:
    """All of its life: give up what it has no need of, then listen to the grader. own: its folder."""
    try:
        os.setsid()
        if sys.platform == "linux":
            die_with_parent()
        for fd, number in ((output, 1), (output, 2), (line, _LINE)):
            os.dup2(fd, number)
        os.closerange(_LINE + 1, 4096)
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", 1, errors="replace", closefd=False) for fd in (1, 2))
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = own
        answer = _Answer(Connection(_LINE), limits.answer_bytes)
        try:
            _lock_in(own, walls, limits, memory)
        except OSError as error:
            answer.send({"op": "not closed off", "message": str(error)})
            os._exit(1)
        answer.send({"op": "ready"})
        answer.live()
    finally:
        os._exit(70)


def _lock_in(own: str, walls: bool, limits: Limits, memory: int) -> None:
    """Held to its limits from here on; inside walls, with a folder that only it sees, no rights, no way to start others."""
    if walls:
        _libc("unshare", _NEWNS | _NEWNET | _NEWIPC)
        options = f"size={limits.files_bytes},nr_inodes=1000".encode()
        _libc("mount", b"tmpfs", own.encode(), b"tmpfs", ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC), options)
    os.chdir(own)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    threads = {"NPROC": limits.threads} if walls else {}  # elsewhere all of the user's processes would count
    most = {"AS": memory, "FSIZE": limits.files_bytes, "NOFILE": 256, **threads}
    for name, value in most.items():
        with contextlib.suppress(ValueError):  # it may be lower already
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if walls:
        _libc("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))
        _forbid()


def _forbid() -> None:
    """Take away what an answer has no need of, for good: such calls fail from now on (libseccomp). Raises OSError."""
    library = ctypes.CDLL(LIBSECCOMP)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))  # SCMP_ACT_ALLOW
    equal, masked, clone_thread, compared = 4, 7, 0x10000, struct.Struct("IIQQ")  # seccomp_rule_add(3)
    refused = [(name, b"", errno.EPERM) for name in _FORBIDDEN.split()]
    refused += [("clone3", b"", errno.ENOSYS)]  # its flags can't be seen; the C library goes on with clone
    refused += [("clone", compared.pack(0, masked, clone_thread, 0), errno.EPERM)]
    refused += [("fcntl", compared.pack(1, equal, command, 0), errno.EPERM) for command in _LOCKS]
    for name, when, code in refused:
        number = library.seccomp_syscall_resolve_name(name.encode())
        action = ctypes.c_uint32(0x00050000 | code)  # SCMP_ACT_ERRNO
        failed = library.seccomp_rule_add_array(rules, action, number, len(when) // compared.size, when)
        if failed and number != -1:  # -1: a call that this libseccomp does not know
            raise OSError(-failed, f"the filter of system calls does not take {name}")
    if failed := library.seccomp_load(rules):
        raise OSError(-failed, "the kernel takes no filter of system calls")


def _libc(name: str, *args: object) -> None:
    """Call a function of the C library. Raises OSError where it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


class _Answer:
    """An answer, loaded and then asked. line: to the grader; most: bytes in a message."""

    def __init__(self, line: Connection, most: int) -> None:
        self.line, self.most, self.lock = line, most, threading.RLock()
        self.function = lambda number: partial(self.ask, number)
        self.value: Any = None
        self.notes = list[str]()

    def live(self) -> NoReturn:
        """Answer the grader until it hangs up."""
        while True:
            order = wire.decode(self.line.recv_bytes(), self.function)
            try:
                self.send(self.load(order) if order["op"] == "load" else self.put(order), [])
            except wire.Unfit as error:
                self.send({"op": "unfit", "message": str(error)})
            except BaseException as error:
                self.send(_raised(error))

    def send(self, message: Message, functions: list[Any] | None = None) -> None:
        """Raises Unfit for what cannot travel."""
        frame = wire.encode(message, functions)
        if len(frame) > self.most:
            raise wire.Unfit(f"a message of {len(frame):,} bytes, where {self.most:,} are the most")
        self.line.send_bytes(frame)

    def ask(self, number: int, *args: Any) -> Any:
        """Call a function of the grader's. Returns what it returns, or raises what it says."""
        with self.lock:
            self.send({"op": "ask", "number": number, "args": args})
            reply = wire.decode(self.line.recv_bytes(), self.function)
        if reply["op"] == "refused":
            # One of labkit's, or Python's own.
            kind: Any = getattr(errors, reply["type"], None) or getattr(builtins, reply["type"], None)
            fits = isinstance(kind, type) and issubclass(kind, Exception)
            raise (kind if fits else RuntimeError)(reply["message"])
        return reply["value"]

    def load(self, order: Message) -> Message:
        """Run the setup, the other cells that the answer needs, and the answer's own."""
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        names, name = module.__dict__, order["name"]
        replace_inplace(check, lambda *_, **__: _UNCHECKED)
        _run(order["setup"], "<setup>", names)
        withhold_inplace(order["withheld"])
        for number, source in order["cells"]:
            self._other_cell(number, source, names)
        before = names.get(name)
        try:
            _run(order["source"], "<answer>", names)
        except Exception as error:  # as in a notebook, what the cell had defined before is there
            if name not in names or names[name] is before:
                raise
            self.notes.append(f"The cell raised {errors.described(error)}")
        value = self.value = names.get(name)
        kind = "function" if callable(value) else "blank" if value is None or value is ... else "value"
        return {"op": "loaded", "log": "\n".join(self.notes), "kind": kind if name in names else "absent"}

    def _other_cell(self, number: int, source: str, names: dict[str, Any]) -> None:
        """Run it as a notebook does: an error ends it, and what it has defined before is there."""
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, CELL_S)
        try:
            _run(source, f"<cell {number}>", names)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.notes.append(f"Cell {number} raised {errors.described(error)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def put(self, order: Message) -> Message:
        """The answer itself, where it is a value; what the function returns, also as one of K workers."""
        value, args = self.value, order["args"]
        before = wire.encode(args, [])
        if order["op"] == "rank":
            value = value(_RemoteComm(**order["comm"]), *args)
        elif order["op"] == "call":
            value = value(*args)
        return {"op": "answer" if wire.encode(args, []) == before else "changed", "value": value}


class _RemoteComm(Comm):
    """One worker's end of the group, as an answer sees it. calls: what the grader does for it (``grading._Router``)."""

    measured = False

    def __init__(self, rank: int, K: int, hosts: tuple[int, ...], calls: dict[str, Any]) -> None:
        super().__init__(rank, K, hosts=hosts)
        self._calls = calls

    def _ask(self, what: str, *args: Any) -> Any:
        return self._calls[what](self.step, *args)

    def isend(self, data: Any, to: int) -> Any:
        self.bytes_sent += describe(data, "data").nbytes
        self.messages_sent += 1
        wait = self._ask("isend", data, self._peer(to, "to"))
        return types.SimpleNamespace(wait=lambda: wait(self.step))

    def irecv(self, into: Any, source: int) -> Any:
        wait = self._ask("irecv", describe(into, "into"), self._peer(source, "source"))
        return types.SimpleNamespace(wait=lambda: self._received(into, wait(self.step)))

    def _received(self, into: Any, came: Any) -> Any:
        self._deliver(came, into)
        return into

    def _recv_any(self, into: Any, size: Described) -> int:
        source, came = self._ask("recv_any", size)
        self._deliver(came, into)
        return int(source)

    def compute(self, work: Any = None, seconds: Any = None) -> Any:
        value = work() if callable(work) else None
        self._ask("compute", "has run" if callable(work) else work, seconds)
        return value

    barrier: Any = partialmethod(_ask, "barrier")
    now: Any = partialmethod(_ask, "now")
    _meet: Any = partialmethod(_ask, "meet")
    _part: Any = partialmethod(_ask, "part")
    _spend: Any = None  # compute() asks the grader


def _run(source: str, where: str, names: dict[str, Any]) -> None:
    linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)
    exec(compile(source, where, "exec", dont_inherit=True), names)


def _raised(error: BaseException) -> Message:
    """What happened in the answer, as data."""
    own, message = asking.own_lines(error), errors.text_of(error)
    if isinstance(error, SyntaxError):
        message = errors.text_of(error.msg)
        own = f"\n  line {error.lineno}: {(error.text or '').strip()}"
    trace = "".join(traceback.format_exception(error))[-4000:]
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"op": "raised", "message": message[:1000], "kinds": kinds, "lines": own[:1500], "trace": trace}
