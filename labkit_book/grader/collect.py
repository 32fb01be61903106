"""Which files are submissions, whose, and what is in them.

Each entry of a folder is a student: a notebook, called like the student, or a folder with notebooks at any depth. One with
a problem set's own name, as ``10_3_exercises (1).ipynb``, is of the student after whom its folder is called. Nothing handed
in is left out. Links are not followed: they could lead to somebody else's work. Files are opened here and nowhere else.
"""

import json
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MOST_OF_STUDENT = 20  # files
MAX_BYTES = 32_000_000  # of a notebook
MAX_CODE = 500_000  # characters of it; a problem set has less than a tenth of that
MAX_CELLS = 1000
# 10_3_exercises, 10_3_exercises (1), 10_3 (1), a_exercises, 2_2-Copy1
_GENERIC = re.compile(r"(?i)(\d{1,2}([_.-]\d{1,2})?|[a-z])([ _-]?exercises)?[ _-]*(\(\d+\)|copy ?\d*)?")
_OF_SYSTEMS = ("._", ".~", ".git", ".ipynb_checkpoints", ".ds_store", ".venv", ".idea", ".vscode")


class Unreadable(ValueError):
    """This submission is not a notebook that can be graded; the message says why, in one sentence."""


class Submission(NamedTuple):
    """One file that was handed in. name: unique among all, for reports. problem: "" or why it can't be a notebook."""

    student: str
    name: str
    path: Path
    problem: str = ""

    def cells(self) -> "list[Cell]":
        """What is in it. Raises Unreadable, and nothing else."""
        if self.problem:
            raise Unreadable(self.problem)
        return read_cells(self.path)


class Cell(NamedTuple):
    """One cell of a notebook."""

    kind: str  # "code", "markdown" or "raw"
    source: str
    tags: tuple[str, ...] = ()  # of its metadata
    number: int = 0  # from 1

    @property
    def plain(self) -> str:
        """Its source without blanks at the ends, by which cells are compared."""
        return "\n".join(line.rstrip() for line in self.source.strip().splitlines())


def collect(paths: Iterable[Path | str], skip: Path) -> list[Submission]:
    """All submissions below ``paths``, notebooks or folders of them, each once, in order of name.

    skip: a folder to leave out, that of the results. Raises ValueError for a path that does not exist or can't be read.
    """
    found: dict[Path, Submission] = {}
    for root in map(os.path.realpath, paths):
        try:
            entries = sorted(os.listdir(root)) if os.path.isdir(root) else [""]
            os.stat(root)
        except OSError as error:
            raise ValueError(f"{root!r} cannot be read: {error.strerror}") from None
        for entry in [Path(root, name) for name in entries]:
            if not _hidden(entry.name) and entry != skip.resolve():
                found |= {s.path: s for s in _of_entry(entry) if s.path not in found}
    return list(_counted(sorted(found.values(), key=lambda s: (s.student, s.name))))


def _of_entry(entry: Path) -> Iterator[Submission]:
    """The submissions of an entry of a folder; what lies in a student's folder beside notebooks is left alone."""
    student, found, problem = entry.name, list[Path](), ""
    if entry.is_dir() and not entry.is_symlink():
        for here, folders, files in os.walk(entry):
            folders[:] = [f for f in folders if not _hidden(f)]
            found += [Path(here, f) for f in files if f.lower().endswith(".ipynb") and not _hidden(f)]
        problem = "" if found else "there is no notebook in this folder that can be read"
    else:
        student = entry.parent.name if _GENERIC.fullmatch(entry.stem) else entry.stem
        if entry.suffix.lower() != ".ipynb":
            problem = "this is not a notebook: its name does not end in .ipynb"
    for path in found or [entry]:
        said = "this is a link: hand in the file itself" if path.is_symlink() else problem
        yield Submission(_plain(student), _plain(path.relative_to(entry.parent).as_posix()), path, said)


def _hidden(name: str) -> bool:
    """What systems leave in folders; a student's own file may well begin with a dot."""
    name = name.lower()
    return name.startswith(_OF_SYSTEMS) or name in ("__macosx", "__pycache__", "thumbs.db", "desktop.ini")


def _plain(name: str) -> str:
    """A name that can be printed and written into a file: one line, one form of each accent."""
    name = unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))
    return "".join(c if c.isprintable() else "�" for c in name) or "(no name)"


def _counted(submissions: Iterable[Submission]) -> Iterator[Submission]:
    """The first files of each student, each by a name of its own; one submission more stands for the rest, and says so."""
    files, names = Counter[str](), Counter[str]()
    for s in submissions:
        files[s.student] += 1
        names[s.name] += 1
        if names[s.name] > 1:  # of two folders that were given
            s = s._replace(name=f"{s.name} #{names[s.name]}")
        if files[s.student] <= MOST_OF_STUDENT:
            yield s
        elif files[s.student] == MOST_OF_STUDENT + 1:
            yield s._replace(problem=f"only the first {MOST_OF_STUDENT} files of a student are looked at")


def read_cells(path: Path | str) -> list[Cell]:
    """The cells of the notebook at ``path``, in order. Raises Unreadable, and nothing else."""
    data = content(path)
    try:
        nb = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"the file is no JSON ({type(error).__name__}): was the upload complete?") from None
    if not isinstance(nb, dict) or nb.get("nbformat") != 4:
        raise Unreadable("the file is no notebook of format 4: open it in a current Jupyter and save it")
    cells = nb.get("cells")
    if not isinstance(cells, list) or not 0 < len(cells) <= MAX_CELLS:
        raise Unreadable(f"the notebook has no cells, or more than {MAX_CELLS:,}")
    read = []
    for number, cell in enumerate(cells, 1):
        try:
            kind, source = str(cell["cell_type"]), "".join(cell["source"])
            tags = tuple(tag for tag in cell.get("metadata", {}).get("tags", ()) if isinstance(tag, str))
        except (AttributeError, KeyError, TypeError):
            raise Unreadable(f"cell {number} of the notebook is damaged") from None
        # Halves of characters can stand in JSON, and in no file in UTF-8.
        read.append(Cell(kind, source.encode("utf-8", "replace").decode("utf-8"), tags, number))
    code = sum(len(c.source) for c in read if c.kind == "code")
    if code > MAX_CODE:
        raise Unreadable(f"the notebook has {code:,} characters of code, more than {MAX_CODE:,}")
    return read


def content(path: Path | str) -> bytes:
    """What is in a file that somebody handed in. Raises Unreadable, and nothing else."""
    try:
        # Non-blocking, so that a named pipe does not wait for a writer; and no link is followed.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Unreadable("this is not an ordinary file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Unreadable(f"the file has over {MAX_BYTES // 10**6} MB: clear its outputs and hand it in again")
    if not data.strip():
        raise Unreadable("the file is empty")
    return data
