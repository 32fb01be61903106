"""A notebook file as a list of cells, or one sentence that says why it cannot be read.

Whatever lies in a student's folder is opened here and nowhere else: a pipe that would block, a hundred megabytes of outputs,
half a file, nested brackets without end. The format is nbformat 4 (https://nbformat.readthedocs.io); outputs are ignored.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 32_000_000
MAX_CODE = 500_000  # characters; a problem set has less than a tenth of that
MAX_CELLS = 1000


class Unreadable(Exception):
    """This submission is not a notebook that can be graded; the message says why, in one sentence."""


@dataclass(frozen=True)
class Cell:
    """kind: ``"code"``, ``"markdown"`` or ``"raw"``. tags: of the cell's metadata. number: of the cell, from 1."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()
    number: int = 0


def read_cells(path: Path | str) -> list[Cell]:
    """The cells of the notebook at ``path``, in order. Raises Unreadable, and nothing else."""
    return _parse_cells(content(path))


def _parse_cells(data: bytes) -> list[Cell]:
    """The cells of a notebook's bytes. Raises Unreadable, and nothing else."""
    try:
        nb = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("the file is not text (UTF-8), so it is no notebook") from None
    except json.JSONDecodeError as error:
        what = "ends in the middle" if error.pos >= len(data) - 1 else "is not JSON"
        raise Unreadable(f"the file {what} (line {error.lineno}): was the upload complete?") from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("the file is JSON that no notebook program writes") from None
    if not isinstance(nb, dict) or "nbformat" not in nb:
        raise Unreadable("the file is JSON, but not a notebook")
    if nb["nbformat"] != 4:
        raise Unreadable(
            f"the notebook has format {str(nb['nbformat'])[:10]}; open it in a current Jupyter and save it, for format 4"
        )
    if not isinstance(nb.get("cells"), list):
        raise Unreadable("the notebook has no list of cells")
    if not nb["cells"]:
        raise Unreadable("the notebook has no cells")
    if len(nb["cells"]) > MAX_CELLS:
        raise Unreadable(f"the notebook has {len(nb['cells']):,} cells, more than {MAX_CELLS:,}")
    cells = [_cell(c, i) for i, c in enumerate(nb["cells"], 1)]
    code = sum(len(c.source) for c in cells if c.kind == "code")
    if code > MAX_CODE:
        raise Unreadable(f"the notebook has {code:,} characters of code, more than {MAX_CODE:,}")
    return cells


def content(path: Path | str) -> bytes:
    """What is in a file that somebody handed in. Raises Unreadable, and nothing else."""
    try:
        # Non-blocking, so that a named pipe does not wait for a writer; and no link is followed.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise Unreadable(f"the file cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable("this is a folder, not a notebook")
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("this is not an ordinary file")
        if status.st_size > MAX_BYTES:
            size = f"{status.st_size / 1e6:.0f} MB, more than {MAX_BYTES / 1e6:.0f} MB"
            raise Unreadable(f"the file has {size}: clear its outputs and hand it in again")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if not data.strip():
        raise Unreadable("the file is empty")
    return data


def _cell(cell: Any, number: int) -> Cell:
    source = cell.get("source") if isinstance(cell, dict) else None
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str) or not isinstance(cell.get("cell_type"), str):
        raise Unreadable(f"cell {number} of the notebook is damaged")
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    tags = [t for t in tags if isinstance(t, str)] if isinstance(tags, list) else []
    return Cell(cell["cell_type"], printable(source), tuple(tags), number)


def printable(text: str) -> str:
    """``text`` without what no file in UTF-8 can hold (halves of characters, bytes of a strange file name)."""
    return text.encode("utf-8", "replace").decode("utf-8")
