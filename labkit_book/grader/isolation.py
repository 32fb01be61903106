"""The isolation of an answer: a world of its own for the fork server, and what each child gives up before it runs an answer.

The server moves once into new user, mount, pid, network, ipc and host-name namespaces (namespaces(7)): a file system that
shows only Python, its packages and labkit without the problem sets, read-only; no process outside; no network. Each child
then gets a temporary folder that only it sees, loses all capabilities, is held to resource limits, and passes a filter of
system calls (``seccomp``). Where a machine allows less, the rest is done all the same, and ``words`` says what was on.

Tried instead: a runner of answers on bubblewrap, 71 lines; CONTRIBUTING, *How an answer is graded*, says what it lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit import checks
from labkit_book.grader import landlock, seccomp
from labkit_book.grader.landlock import libc
from labkit_book.problems import wire
from labkit_book.problems.asking import CASE_S, EXERCISE_S

NEWNS, NEWUTS, NEWIPC = 0x20000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_BIND, _REC, _PRIVATE, _NOSUID, _NODEV, _NOEXEC = 4096, 16384, 1 << 18, 2, 4, 8
_DUMPABLE, _NO_NEW_PRIVS, _DROP = 4, 38, 24
_MOUNT_SETATTR, _RECURSIVE, _READ_ONLY = 442, 0x8000, 1


@dataclass(frozen=True)
class Limits:
    """What one answer may use.

    case_s, exercise_s: wall-clock seconds for one question, and for all of an exercise. cpu_s: seconds of processor time for
    each process. memory_bytes: address space of all of them together, beyond what Python and the packages take.
    output_bytes: printed text. answer_bytes: one message of it, and all that its workers send one another. files_bytes: its
    temporary folder.
    threads: how many, where the system counts them (not for root).
    """

    case_s: float = CASE_S
    exercise_s: float = EXERCISE_S
    cpu_s: int = 30
    memory_bytes: int = 1 << 30
    output_bytes: int = 1_000_000
    answer_bytes: int = wire.MOST_BYTES
    files_bytes: int = 16_000_000
    threads: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checks.number(name, value, above=0, most=1e15)


@dataclass(frozen=True)
class Isolation:
    """What is on: namespaces (``world``), a file system of its own (``files``), ``landlock``, ``seccomp``."""

    world: bool = False
    files: bool = False
    landlock: bool = False
    filter: bool = False

    @property
    def hides_files(self) -> bool:
        """Whether an answer sees no file but Python's and labkit's."""
        return self.files or self.landlock

    def words(self) -> str:
        """What was on, in words for a report."""
        on = ["a process and a temporary folder of its own", "limits on time, memory, output and files"]
        off: list[str] = []
        how = "a file system of its own" if self.files else "Landlock"
        for there, yes, no in (
            (self.world, "no sight of other processes and no network (namespaces)", "namespaces"),
            (self.hides_files, f"no sight of files but Python's and labkit's ({how})", "hiding files"),
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
        libc("unshare", NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS)
    except OSError:
        return False, False
    try:  # from here on the children's world is another one, whatever else fails
        maps = (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"))
        for name, text in maps:
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
    for path in [*sorted({os.path.abspath(p) for p in show}), *landlock.ALSO]:
        if os.path.exists(path) and not any(map(Path(path).is_relative_to, shown)):
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
        elif os.path.exists(root + path):
            _mount(os.devnull, root + path, "", _BIND)
    os.makedirs(root + own_folder(show), exist_ok=True)
    _read_only(root)
    os.chdir(root)
    libc("chroot", root.encode())
    os.chdir("/")


def own_folder(show: list[str]) -> str:
    """Where an answer's temporary folder goes: not over anything that it may read, as an environment made in /tmp."""
    return "/answer" if any(path.startswith("/tmp/") for path in show) else "/tmp"


def _bind(path: str, target: str) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    _mount(path, target, "", _BIND | _REC)


def _read_only(path: str) -> None:
    """Make a mount and all below it read-only (mount_setattr(2), Linux 5.12)."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    libc("syscall", _MOUNT_SETATTR, -100, path.encode(), _RECURSIVE, attributes, len(attributes))


def lock_in(
    on: Isolation, limits: Limits, folder: str, memory_bytes: int, show: tuple[list[str], list[str]]
) -> None:
    """Give up, for good, what an answer has no need of. Called by a child before it has seen the answer.

    folder: its temporary folder; memory_bytes: all the address space that it may have; show: what it may read (``visible``).
    """
    if on.files:
        # Without the filter, workers could still meet over sockets without a name in the file system.
        libc("unshare", NEWNS | NEWIPC | (0 if on.filter else NEWNET))
        size = f"size={limits.files_bytes},nr_inodes=1000"
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV | _NOEXEC, size)
    os.chdir(folder)
    # Elsewhere a file may be out of sight, open and without a name: then its size is all there is to limit.
    file_bytes = limits.files_bytes if on.files else max(limits.files_bytes // 16, 1)
    # All of a user's processes count, unless these have a world of their own.
    threads = limits.threads + (0 if on.world else 4096)
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
        libc("prctl", _DUMPABLE, 0, 0, 0, 0)
        if on.world:
            _drop_capabilities()
        libc("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    if on.landlock:
        landlock.restrict(*show, folder)
    if on.filter:
        seccomp.restrict()


def _drop_capabilities() -> None:
    for capability in range(64):
        with contextlib.suppress(OSError):  # there are as many as the kernel knows
            libc("prctl", _DROP, capability, 0, 0, 0)
    libc("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    texts = [text.encode() or None for text in (source, target, kind, data)]
    libc("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])
