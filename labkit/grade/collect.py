"""Which files are submissions, and whose.

Given a folder, each entry in it is a student: a notebook (the student is its name without the ending) or a folder with
notebooks at any depth (the student is the folder's name). Given a notebook, the student is its name, unless that is a
problem set's own, as in ``10_3_exercises (1).ipynb``, or occurs twice: then it is the name of the folder it lies in. Nothing
handed in is left out: what is no notebook becomes a submission with a ``problem``. Links are not followed: they could lead
to somebody else's work.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.grade.notebook import printable

# 10_3_exercises, 10_3_exercises (1), 10_3 (1), 11, 2_2-Copy1
_GENERIC = re.compile(r"\d{1,2}([_.-]\d{1,2})?([ _-]?exercises)?[ _-]*(\(\d+\)|copy ?\d*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Submission:
    """One file that somebody handed in.

    student: whose. name: how reports call this file, unique among all. path: where it lies.
    problem: "" or why it can't be a notebook at all.
    """

    student: str
    name: str
    path: Path
    problem: str = ""


def collect(paths: Iterable[Path | str], skip: Iterable[Path | str] = ()) -> list[Submission]:
    """All submissions below ``paths``, notebooks or folders of them, each once, in order of name.

    skip: folders to leave out, as that of the results.
    Raises ValueError, with one sentence, for a path that does not exist, and for a folder that may not be read.
    """
    left_out = {os.path.realpath(p) for p in skip}
    given = [Path(p) for p in paths]
    for path in given:
        if not os.path.exists(path):
            raise ValueError(f"there is no {str(path)!r}: give notebooks, or folders of them")
    stems = Counter(p.stem for p in given if p.is_file())
    found: dict[Path, Submission] = {}
    for path in given:
        root = Path(os.path.realpath(path))
        if root.is_dir():
            try:
                for s in _of_folder(root, left_out):
                    found.setdefault(s.path, s)
            except OSError as error:
                raise ValueError(f"the folder {str(path)!r} cannot be read: {error.strerror}") from None
        else:
            alone = stems[path.stem] == 1 and not _GENERIC.fullmatch(path.stem)
            student = path.stem if alone else root.parent.name
            problem = "" if _is_notebook(root.name) else _NOT_A_NOTEBOOK
            found.setdefault(
                root, Submission(_plain(student), _plain(f"{root.parent.name}/{path.name}"), root, problem)
            )
    return _unique(sorted(found.values(), key=lambda s: (s.student, s.name)))


_NOT_A_NOTEBOOK = "this is not a notebook: its name does not end in .ipynb"
_LINK = "this is a link: hand in the file itself"


def _of_folder(root: Path, left_out: set[str]) -> Iterator[Submission]:
    for entry in _entries(root):
        path = root / entry.name
        if entry.is_symlink():
            yield _submission(root, path, path.stem, _LINK)
        elif entry.is_dir():
            if str(path) not in left_out:
                yield from _of_student(root, path, left_out)
        else:
            student = root.name if _GENERIC.fullmatch(path.stem) else path.stem
            yield _submission(root, path, student, "" if _is_notebook(path.name) else _NOT_A_NOTEBOOK)


def _of_student(root: Path, folder: Path, left_out: set[str]) -> Iterator[Submission]:
    """The notebooks of a student's folder; other files in it are data, and are left alone."""
    waiting, several, problem = [folder], False, "there is no notebook in this folder"
    while waiting:
        here = waiting.pop()
        try:
            entries = _entries(here)
        except OSError as error:
            problem = f"the folder {here.name!r} cannot be read: {error.strerror}"
            if here != folder:
                several = True
                yield _submission(root, here, folder.name, problem)
            continue
        for entry in entries:
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                if str(path) not in left_out:
                    waiting.append(path)
            elif _is_notebook(entry.name):
                several = True
                yield _submission(root, path, folder.name, _LINK if entry.is_symlink() else "")
    if not several:
        yield _submission(root, folder, folder.name, problem)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((e for e in entries if not _hidden(e.name)), key=lambda e: e.name)


def _hidden(name: str) -> bool:
    return (name.startswith(".") and name.lower() != ".ipynb") or name in ("__MACOSX", "__pycache__")


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def _submission(root: Path, path: Path, student: str, problem: str) -> Submission:
    return Submission(_plain(student), _plain(path.relative_to(root).as_posix()), path, problem)


def _plain(name: str) -> str:
    """A name that can be printed and written into a file: one line, one form of each accent."""
    name = unicodedata.normalize("NFC", printable(os.fsencode(name).decode("utf-8", "replace")))
    return "".join(c if c.isprintable() else "�" for c in name) or "(no name)"


def _unique(submissions: list[Submission]) -> list[Submission]:
    """Submissions with names of their own, also if two given folders hold the same ones."""
    seen: Counter[str] = Counter()
    out = []
    for s in submissions:
        seen[s.name] += 1
        name = s.name if seen[s.name] == 1 else f"{s.name} #{seen[s.name]}"
        out.append(Submission(s.student, name, s.path, s.problem))
    return out
