"""The walls around an answer: a world of its own for the fork server, and what each child gives up before it runs an answer.

The server moves once into new user, mount, pid, network, ipc and host-name namespaces (namespaces(7)): a file system that
shows only Python, its packages and labkit without the problem sets, read-only; no process outside; no network. Each child
then gets a temporary folder that only it sees, loses all capabilities, is held to resource limits, and passes a filter of
system calls (``seccomp``). Where a machine allows less, the rest is done all the same, and ``words`` says what was on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from dataclasses import dataclass

from labkit.grade import landlock, seccomp

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_BIND, _REC, _PRIVATE, _NOSUID, _NODEV, _NOEXEC = 4096, 16384, 1 << 18, 2, 4, 8
_DUMPABLE, _NO_NEW_PRIVS, _DROP, _SUBREAPER = 4, 38, 24, 36
_MOUNT_SETATTR, _RECURSIVE, _READ_ONLY = 442, 0x8000, 1
_ALSO = ("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


@dataclass(frozen=True)
class Limits:
    """What one answer may use.

    case_s, exercise_s: wall-clock seconds for one question, and for all of an exercise. cpu_s: seconds of processor time for
    each process. memory_bytes: address space of each, beyond what Python and the packages take. output_bytes: printed text.
    answer_bytes: one message of it, and all that its workers send one another. files_bytes: its temporary folder.
    threads: how many, where the system counts them (not for root).
    """

    case_s: float = 10.0
    exercise_s: float = 30.0
    cpu_s: int = 30
    memory_bytes: int = 1 << 30
    output_bytes: int = 1_000_000
    answer_bytes: int = 16_000_000
    files_bytes: int = 16_000_000
    threads: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
                raise ValueError(f"{name} must be a positive number, got {value!r}")


@dataclass(frozen=True)
class Walls:
    """Which walls stand: namespaces (``world``), a file system of its own (``files``), ``landlock``, ``seccomp``."""

    world: bool = False
    files: bool = False
    landlock: bool = False
    filter: bool = False

    def words(self) -> str:
        """What was on, in words for a report."""
        on = ["a process and a temporary folder of its own", "limits on time, memory, output and files"]
        off: list[str] = []
        how = "a file system of its own" if self.files else "Landlock"
        for there, yes, no in (
            (self.world, "no sight of other processes and no network (namespaces)", "namespaces"),
            (
                self.files or self.landlock,
                f"no sight of files but Python's and labkit's ({how})",
                "hiding files",
            ),
            (self.filter, "no new processes, signals or sockets (seccomp)", "a filter of system calls"),
        ):
            (on if there else off).append(yes if there else no)
        return "; ".join(on) + (f". This machine did not allow {', '.join(off)}" if off else "")


def enter_world(root: str, show: list[str], hide: list[str]) -> tuple[bool, bool]:
    """Move this process into namespaces, onto a file system that shows ``show``; its *children* get the new pid namespace.

    root: an empty folder, which becomes the new root; show: absolute paths; hide: paths to be covered by something empty.
    Returns whether (world, files) could be made. Must be called by a process with one thread.
    """
    if not sys.platform.startswith("linux"):
        return False, False
    uid, gid = os.geteuid(), os.getegid()
    try:
        _libc("unshare", NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS)
    except OSError:
        return False, False
    try:  # from here on the children's world is another one, whatever else fails
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
        _new_root(root, show, hide)
    except OSError:
        return True, False
    return True, True


def _new_root(root: str, show: list[str], hide: list[str]) -> None:
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    shown: list[str] = []
    for path in [*sorted({os.path.abspath(p) for p in show}), *_ALSO]:
        if os.path.exists(path) and not any(path == s or path.startswith(s.rstrip("/") + "/") for s in shown):
            _bind(path, root + path)
            shown.append(path)
    for name in ("lib", "lib64", "bin"):
        if os.path.islink(f"/{name}") and not os.path.lexists(f"{root}/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}") and not os.path.exists(f"{root}/{name}"):
            _bind(f"/{name}", f"{root}/{name}")
    for path in hide:
        if os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", _NOSUID | _NODEV | _NOEXEC, "size=4k,mode=000")
    os.makedirs(root + own_folder(show), exist_ok=True)
    _read_only(root)
    os.chdir(root)
    _libc("chroot", root.encode())
    os.chdir("/")


def own_folder(show: list[str]) -> str:
    """Where an answer's temporary folder goes: not over anything that it may read, as an environment made in /tmp."""
    return "/answer" if any(path.startswith("/tmp/") for path in show) else "/tmp"


def _bind(path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w"):
            pass
    _mount(path, target, "", _BIND | _REC)


def _read_only(path: str) -> None:
    """Make a mount and all below it read-only (mount_setattr(2), Linux 5.12)."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_MOUNT_SETATTR, -100, path.encode(), _RECURSIVE, attributes, len(attributes)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def go_first_when_memory_is_short() -> None:
    """Have the kernel end this process or its children, and not the grader, when the machine runs out of memory."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("900")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent ends, so that none can hide."""
    if sys.platform.startswith("linux"):
        _libc("prctl", _SUBREAPER, 1, 0, 0, 0)


def lock_in(
    walls: Walls, limits: Limits, folder: str, memory_bytes: int, show: tuple[list[str], list[str]]
) -> None:
    """Give up, for good, what an answer has no need of. Called by a child before it has seen the answer.

    folder: its temporary folder; memory_bytes: all the address space that it may have; show: what it may read (``visible``).
    """
    if walls.files:
        # Without the filter, workers could still meet over sockets without a name in the file system.
        _libc("unshare", NEWNS | NEWIPC | (0 if walls.filter else NEWNET))
        _mount(
            "tmpfs", folder, "tmpfs", _NOSUID | _NODEV | _NOEXEC, f"size={limits.files_bytes},nr_inodes=1000"
        )
    os.chdir(folder)
    # Elsewhere a file may be out of sight, open and without a name: then its size is all there is to limit.
    file_bytes = limits.files_bytes if walls.files else max(limits.files_bytes // 16, 1)
    # All of a user's processes count, unless these have a world of their own.
    threads = limits.threads + (0 if walls.world else 4096)
    for name, soft, hard in (
        ("RLIMIT_AS", memory_bytes, memory_bytes),
        ("RLIMIT_CPU", limits.cpu_s, limits.cpu_s + 1),
        ("RLIMIT_FSIZE", file_bytes, file_bytes),
        ("RLIMIT_NOFILE", 256, 256),
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_NPROC", threads, threads),
    ):
        # it may be lower already, or unknown to this system
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (soft, hard))
    if sys.platform.startswith("linux"):
        _libc("prctl", _DUMPABLE, 0, 0, 0, 0)
        if walls.world:
            _drop_capabilities()
        _libc("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    if walls.landlock:
        landlock.restrict(*show, folder)
    if walls.filter:
        seccomp.restrict()


def visible(show: list[str], hide: list[str]) -> tuple[list[str], list[str]]:
    """What an answer may read of this machine's own files, and which folders it may list: ``show`` without ``hide``."""
    read, listed = landlock.without(sorted({os.path.abspath(p) for p in show}), hide)
    return [*read, "/lib", "/lib64", *_ALSO], listed


def _drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(_DROP, capability, 0, 0, 0)
    header, data = struct.pack("Ii", 0x20080522, 0), bytes(24)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _libc(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )


def _libc(name: str, *args: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
