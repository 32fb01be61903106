"""Checkpoints that are whole or not there: atomic, checksummed, and the one before is kept.

A checkpoint is written beside its final name, brought to the disk and only then renamed (``rename`` replaces a file in
one step; POSIX.1-2017, rename), so that a job killed at any moment leaves the old one, the new one or both, and never
half of one under a good name. What a rename cannot protect from (a disk that lies, a copy cut short, a flipped bit)
the checksum in the file shows: such a file is refused, and the one before it used.

A file is one line of JSON (format, step, bytes, SHA-256) and then ``torch.save``'s bytes; the checksum is of all the rest.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from labkit.checks import integer

_FORMAT = "labkit checkpoint 1"
_NAME = re.compile(r"step-(\d{12})\.ckpt")
_DRAFT = "step-*.ckpt.*.draft"


class CorruptCheckpoint(ValueError):
    """A file that is not a whole checkpoint. The message says which and why."""


def save(directory: str | os.PathLike[str], step: int, state: Any, keep: int = 2) -> Path:
    """Write ``state`` as the checkpoint of ``step`` and return its path; older ones beyond ``keep`` are removed.

    Checkpoints of later steps, as a job may find that went back behind damaged ones, are left as they are.
    directory: made if it isn't there. step: from 0 to 10^12 - 1. state: what ``torch.save`` takes and ``torch.load``
    loads without running code (tensors, numbers, strings and containers of them; refused otherwise). keep: >= 1, how
    many to keep; 2, so that there is one before the last. One process of a job saves (rank 0), or each into a directory
    of its own.
    Raises ValueError for bad input and OSError (a full disk) with everything as it was before.
    """
    step, keep = integer("step", step), integer("keep", keep, least=1)
    if step >= 10**12:
        raise ValueError(f"step must be below 10**12, got {step}")
    payload = _bytes_of(state)
    head = _head(step, len(payload), _digest(step, payload))
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:012d}.ckpt"
    draft = folder / f"{path.name}.{os.getpid()}.draft"
    try:
        with draft.open("wb") as file:
            file.write(head + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(folder)
    for old in [p for p in saved(folder) if p.name <= path.name][:-keep]:
        old.unlink(missing_ok=True)
    for leftover in folder.glob(_DRAFT):  # of a job that was killed while it wrote
        leftover.unlink(missing_ok=True)
    return path


def saved(directory: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints in a directory, the oldest first; none if there is no such directory."""
    folder = Path(directory)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> tuple[int, Any]:
    """``(step, state)`` of one checkpoint. Raises CorruptCheckpoint if any byte of it is not what was saved."""
    raw = Path(path).read_bytes()
    line, newline, payload = raw.partition(b"\n")
    try:
        head = json.loads(line)
        expected, size, step = head["sha256"], head["bytes"], head["step"]
        if line != _head(step, size, expected) or type(size) is not int:
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise CorruptCheckpoint(f"{path} is not a checkpoint: its first line is not one of ours") from None
    if not newline or len(payload) != size:
        raise CorruptCheckpoint(f"{path} holds {len(payload):,} bytes of the {size:,} that were saved")
    if _digest(step, payload) != expected:
        raise CorruptCheckpoint(f"{path} has changed since it was saved: its checksum does not agree")
    state = torch.load(io.BytesIO(payload), map_location=map_location, weights_only=True)
    return step, state


def latest(directory: str | os.PathLike[str], map_location: Any = "cpu") -> tuple[int, Any] | None:
    """``(step, state)`` of the newest checkpoint that is whole; None if there is none.

    Each one that is not is passed over with a warning that names it.
    """
    for path in reversed(saved(directory)):
        try:
            return load(path, map_location)
        except CorruptCheckpoint as error:
            warnings.warn(f"{error}; the checkpoint before it is used", stacklevel=2)
    return None


def _bytes_of(state: Any) -> memoryview:
    """``torch.save``'s bytes; ValueError if they could not be loaded again."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    try:
        torch.load(
            buffer, map_location="meta", weights_only=True
        )  # reads what things are, and no tensor's data
    except pickle.UnpicklingError as error:
        what = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            "state must hold tensors, numbers, strings and containers of them, so that it loads without running code, "
            f"got {what[1] if what else type(state).__name__}"
        ) from None
    return buffer.getbuffer()


def _head(step: Any, size: Any, digest: Any) -> bytes:
    return json.dumps({"format": _FORMAT, "step": step, "bytes": size, "sha256": digest}).encode()


def _digest(step: int, payload: Any) -> str:
    digest = hashlib.sha256(_head(step, len(payload), ""))
    digest.update(payload)
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    """Bring a folder's list of names to the disk, where the system lets us."""
    if hasattr(os, "O_DIRECTORY"):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
                raise
        finally:
            os.close(number)
