"""Files out of sight without a file system of one's own: Landlock (landlock(7), Linux 5.13), which needs no privilege.

Where a machine refuses namespaces, as containers and some distributions do, a process can still give up for good all files
but those it lists: some to read, one folder to write in.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every processor
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVS = 1, 1, 38
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
ALSO = ("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many rights to files each version knows; 5 and later: 16


def version() -> int:
    """Which Landlock this kernel has; 0: none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, 0, _VERSION)))


def restrict(read: list[str], listed: list[str], write: str) -> None:
    """Give up, for good, all files but those beneath ``read``, and ``write`` (for everything). Raises OSError.

    listed: folders beneath which names may be seen, but no contents.
    """
    abi = version()
    everything = (1 << _RIGHTS[min(abi, 5)]) - 1 if abi else 0
    net, scope = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)  # no TCP; no abstract sockets, no signals
    attributes = struct.pack("QQQ", everything, net, scope)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    rules = libc("syscall", _CREATE, attributes, len(attributes), 0)
    try:
        for path in read:
            _allow(rules, path, _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE)
        for path in listed:
            _allow(rules, path, _READ_DIR)
        _allow(rules, write, everything)
        libc("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
        libc("syscall", _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def visible(show: list[str], hide: list[str]) -> tuple[list[str], list[str]]:
    """What an answer may read of this machine's own files, and which folders it may list: ``show`` without ``hide``."""
    read, listed = _without(sorted({os.path.abspath(p) for p in show}), hide)
    return [*read, "/lib", "/lib64", *ALSO], listed


def _without(paths: list[str], hidden: list[str]) -> tuple[list[str], list[str]]:
    """What of ``paths`` lies outside ``hidden``, and the folders cut up for it: a rule holds for all that lies beneath."""
    whole, cut = list[str](), list[str]()
    for path in paths:
        inside = [h for h in hidden if Path(h).is_relative_to(path)]
        if not inside:
            whole.append(path)
        elif path not in inside and os.path.isdir(path):
            beneath = _without([os.path.join(path, name) for name in sorted(os.listdir(path))], inside)
            whole += beneath[0]
            cut += [path, *beneath[1]]
    return whole, cut


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no rule
    try:
        libc("syscall", _ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, beneath), 0)
    finally:
        os.close(beneath)


def libc(name: str, *args: object) -> int:
    """What the function of the C library returns. Raises OSError where it fails."""
    done = getattr(ctypes.CDLL(None, use_errno=True), name)(*args)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(done)
