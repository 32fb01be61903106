"""Checkpoints that are whole or not there: atomic, checksummed, and the one before is kept.

A checkpoint is written beside its final name, brought to the disk and only then renamed (``rename`` replaces a file in
one step; POSIX.1-2017, rename), so that a job killed at any moment leaves the old one, the new one or both, and never
half of one under a good name. What a rename cannot protect from (a disk that lies, a copy cut short, a flipped bit)
the checksum in the file shows: such a file is refused, and the one before it used.

A file is one line of JSON (format, step, bytes, SHA-256) and then ``torch.save``'s bytes; the checksum is of all the rest.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_FORMAT = "labkit checkpoint 1"


class CorruptCheckpoint(ValueError):
    """A file that is not a whole checkpoint. The message says which and why."""


def save(directory: str | os.PathLike[str], step: int, state: Any) -> Path:
    """Write ``state`` as the checkpoint of ``step`` and return its path; of older ones the last is kept.

    Checkpoints of later steps, as a job may find that went back behind damaged ones, are left as they are.
    directory: made if it isn't there. state: tensors, numbers, strings and containers of them; what ``torch.load`` would
    not load without running code is refused (``pickle.UnpicklingError``). One process of a job saves (rank 0).
    After an error (a full disk) everything is as it was before.
    """
    payload = _bytes_of(state)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:012d}.ckpt"
    draft = folder / f"{path.name}.{os.getpid()}.draft"
    try:
        with draft.open("wb") as file:
            file.writelines([_head(step, payload), b"\n", payload])
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(folder)
    older = [p for p in saved(folder) if p.name <= path.name][:-2]
    leftover = folder.glob("step-*.ckpt.*.draft")  # of a job that was killed while it wrote
    for each in [*older, *leftover]:
        each.unlink(missing_ok=True)
    return path


def saved(directory: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints in a directory, the oldest first; none if there is no such directory."""
    return sorted(Path(directory).glob(f"step-{'[0-9]' * 12}.ckpt"))


def load(path: str | os.PathLike[str]) -> tuple[int, Any]:
    """``(step, state)`` of one checkpoint. Raises CorruptCheckpoint if any byte of it is not what was saved."""
    line, _, payload = Path(path).read_bytes().partition(b"\n")
    try:
        step, size = (int(json.loads(line)[key]) for key in ("step", "bytes"))
    except (ValueError, TypeError, KeyError):
        raise CorruptCheckpoint(f"{path} is not a checkpoint: its first line is not one of ours") from None
    if len(payload) != size:
        raise CorruptCheckpoint(f"{path} holds {len(payload):,} bytes of the {size:,} that were saved")
    if line != _head(step, payload):
        raise CorruptCheckpoint(f"{path} has changed since it was saved: its checksum does not agree")
    return step, torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def latest(directory: str | os.PathLike[str]) -> tuple[int, Any] | None:
    """``(step, state)`` of the newest checkpoint that is whole; None if there is none.

    Each one that is not is passed over with a warning that names it.
    """
    for path in reversed(saved(directory)):
        try:
            return load(path)
        except CorruptCheckpoint as error:
            warnings.warn(f"{error}; the checkpoint before it is used", stacklevel=2)
    return None


def _bytes_of(state: Any) -> memoryview:
    """``torch.save``'s bytes, if they can be loaded again."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    torch.load(buffer, map_location="meta", weights_only=True)  # reads what things are, and no tensor's data
    return buffer.getbuffer()


def _head(step: int, payload: Any) -> bytes:
    """The first line."""
    head = {"format": _FORMAT, "step": step, "bytes": len(payload), "sha256": ""}
    digest = hashlib.sha256(json.dumps(head).encode())
    digest.update(payload)
    return json.dumps(head | {"sha256": digest.hexdigest()}).encode()


def _sync(folder: Path) -> None:
    """Bring a folder's list of names to the disk, where the system lets us."""
    with suppress(OSError):  # some network file systems cannot
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
