"""A filter on system calls: what a process may no longer ask of the kernel, for good (seccomp(2), BPF; Linux).

It takes away what an answer has no need of: other processes (making, tracing, signalling, scheduling them), sockets
that reach out, locks and notices seen by others, a file's modes, owners and times (which Landlock does not guard), memory
that no limit counts, mounts and namespaces, and the calls that would get around the filter. Threads stay. A call taken away
fails with EPERM. Needs no privilege, and works inside containers where namespaces often don't.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

from labkit_book.grader.landlock import libc

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers by name: (x86_64, aarch64); None where the machine has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "socket": (41, 198), "flock": (73, 32), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "setpriority": (141, 140), "setrlimit": (160, 164), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "inotify_init1": (294, 26), "inotify_init": (253, None), "reboot": (169, 142),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "syslog": (103, 116),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "truncate": (76, 45), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "process_madvise": (440, 440), "process_mrelease": (448, 448),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}  # allowed to oneself
_TKILL = (200, 130)
_PRLIMIT = (302, 261)  # allowed to read
_FCNTL = (72, 25)  # without locks, and without notices
_IOCTL = (16, 29)  # without giving a descriptor's signals to somebody
_CLONE_THREAD = 0x10000
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_LOCKS = (5, 6, 7, 36, 37, 38, 1024)  # F_GETLK to F_SETLKW, F_OFD_*, F_SETLEASE
_NOTICES = (8, 10, 15, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY: any signal, to anybody
_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: the same for sockets


def available() -> bool:
    """Whether this machine can do it, as far as one can tell without doing it."""
    return sys.platform == "linux" and platform.machine() in _ARCH and sys.maxsize > 2**32


def restrict() -> None:
    """Take the calls away from this process, all its threads to come, and for good. Raises OSError where it can't be."""
    program = b"".join(_program(["x86_64", "aarch64"].index(platform.machine()), os.getpid()))
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    prog = Program(len(program) // 8, ctypes.addressof(buffer))
    libc("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc("prctl", 22, 2, ctypes.byref(prog), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def _program(machine: int, pid: int) -> list[bytes]:
    """The filter, one instruction each: load the call's number, compare, return."""

    def op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    argument = 16  # where a call's arguments lie in seccomp_data, 8 bytes each; the number is at 0

    out = [op(load, 4), op(equal, _ARCH[platform.machine()], 1), op(give, _KILL), op(load, 0)]
    if machine == 0:  # the x32 calls have numbers of their own
        out += [op(at_least, 0x40000000, 0, 1), op(give, _EPERM)]
    for numbers in _DENIED.values():
        if numbers[machine] is not None:
            out += [op(equal, numbers[machine] or 0, 0, 1), op(give, _EPERM)]
    # the flags of clone3 can't be seen; libc falls back to clone
    out += [op(equal, _CLONE3[machine], 0, 1), op(give, _ENOSYS)]
    out += [op(equal, _CLONE[machine], 0, 4), op(load, argument), op(bits, _CLONE_THREAD, 1), op(give, _EPERM),
            op(give, _ALLOW)]  # fmt: skip
    for numbers in _SIGNALS.values():
        out += [op(equal, numbers[machine], 0, 4), op(load, argument), op(equal, pid, 1), op(give, _EPERM),
                op(give, _ALLOW)]  # fmt: skip
    out += [op(equal, _TKILL[machine], 0, 1), op(give, _EPERM)]
    # prlimit64(pid, resource, new, old): new must be null
    out += [op(equal, _PRLIMIT[machine], 0, 6), op(load, argument + 16), op(equal, 0, 0, 3),
            op(load, argument + 20), op(equal, 0, 0, 1), op(give, _ALLOW), op(give, _EPERM)]  # fmt: skip
    for numbers, commands in ((_FCNTL, (*_LOCKS, *_NOTICES)), (_IOCTL, _OWNERS)):
        out += [op(equal, numbers[machine], 0, len(commands) + 3), op(load, argument + 8)]
        out += [op(equal, command, len(commands) - i) for i, command in enumerate(commands)]
        out += [op(give, _ALLOW), op(give, _EPERM)]
    return [*out, op(give, _ALLOW)]
