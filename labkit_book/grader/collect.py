"""Which files are submissions, and whose.

Given a folder, each entry in it is a student: a notebook (the student is its name without the ending) or a folder with
notebooks at any depth (the student is the folder's name). Given a notebook, the student is its name, unless that is a
problem set's own, as in ``10_3_exercises (1).ipynb``, or occurs twice: then it is the name of the folder it lies in.
Nothing handed in is left out: what is no notebook becomes a submission with a ``problem``. Links are not followed: they
could lead to somebody else's work.

An archive of submissions is unpacked whatever it holds: a member is written under its own name below the folder and nowhere
else; there is a bound on how many there are and how much they become; links are not made.
"""

from __future__ import annotations

import os
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from labkit_book.grader.notebook import printable

MOST_FILES, MOST_BYTES = 20_000, 4_000_000_000  # of an archive
# 10_3_exercises, 10_3_exercises (1), 10_3 (1), a_exercises, 2_2-Copy1
_GENERIC = re.compile(
    r"(\d{1,2}([_.-]\d{1,2})?|[a-z])([ _-]?exercises)?[ _-]*(\(\d+\)|copy ?\d*)?", re.IGNORECASE
)


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


def collect(
    paths: Iterable[Path | str], skip: Iterable[Path | str] = (), into: Path | None = None
) -> list[Submission]:
    """All submissions below ``paths``, notebooks, folders of them or archives, each once, in order of name.

    skip: folders to leave out, as that of the results. into: the folder below which archives are unpacked.
    Raises ValueError, with one sentence, for a path that does not exist, a folder that may not be read, and an archive that
    cannot be unpacked.
    """
    left_out = {os.path.realpath(p) for p in skip}
    given = [_unpack(Path(p), into) if into and str(p).endswith(".zip") else Path(p) for p in paths]
    stems = Counter(p.stem for p in given if p.is_file())
    found: dict[Path, Submission] = {}
    for path in given:
        root = Path(os.path.realpath(path))
        if not root.exists():
            raise ValueError(f"there is no {str(path)!r}: give notebooks, or folders of them")
        if root.is_dir():
            try:
                below = list(_of_folder(root, left_out))
            except OSError as error:
                raise ValueError(f"the folder {str(path)!r} cannot be read: {error.strerror}") from None
        else:
            alone = stems[path.stem] == 1 and not _GENERIC.fullmatch(path.stem)
            student = path.stem if alone else root.parent.name
            problem = "" if _is_notebook(root.name) else _NOT_A_NOTEBOOK
            below = [Submission(_plain(student), _plain(f"{root.parent.name}/{path.name}"), root, problem)]
        for s in below:
            found.setdefault(s.path, s)
    return list(_unique(sorted(found.values(), key=lambda s: (s.student, s.name))))


_OF_SYSTEMS = ("__macosx", "__pycache__", ".ds_store", "thumbs.db", "desktop.ini", ".venv", ".idea",
               ".vscode")  # fmt: skip
_NOT_A_NOTEBOOK = "this is not a notebook: its name does not end in .ipynb"
_LINK = "this is a link: hand in the file itself"


def _of_folder(root: Path, left_out: set[str]) -> Iterator[Submission]:
    for path in sorted(root.iterdir()):
        if _hidden(path.name) or str(path) in left_out:
            continue
        if path.is_symlink():
            yield _submission(root, path, path.stem, _LINK)
        elif path.is_dir():
            yield from _of_student(root, path, path.name, left_out)
        else:
            student = root.name if _GENERIC.fullmatch(path.stem) else path.stem
            yield _submission(root, path, student, "" if _is_notebook(path.name) else _NOT_A_NOTEBOOK)


def _of_student(root: Path, folder: Path, student: str, left_out: set[str]) -> Iterator[Submission]:
    """The notebooks of a student's folder; other files in it are data, and are left alone."""
    closed: list[OSError] = []
    found: list[tuple[Path, str]] = []
    for here, folders, files in os.walk(folder, onerror=closed.append):
        paths = [Path(here, name) for name in (*folders, *files) if not _hidden(name)]
        folders[:] = [p.name for p in paths if p.name in folders and str(p) not in left_out]
        notebooks = [p for p in paths if _is_notebook(p.name) and (p.name in files or p.is_symlink())]
        found += [(p, _LINK if p.is_symlink() else "") for p in notebooks]
    for error in closed:
        path = Path(error.filename)
        found.append((path, f"the folder {path.name!r} cannot be read: {error.strerror}"))
    for path, problem in found or [(folder, "there is no notebook in this folder")]:
        yield _submission(root, path, student, problem)


def _hidden(name: str) -> bool:
    """What systems leave in folders; a student's own file may well begin with a dot."""
    return name.startswith(("._", ".~", ".git", ".ipynb_checkpoints")) or name.lower() in _OF_SYSTEMS


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def _submission(root: Path, path: Path, student: str, problem: str) -> Submission:
    return Submission(_plain(student), _plain(path.relative_to(root).as_posix()), path, problem)


def _plain(name: str) -> str:
    """A name that can be printed and written into a file: one line, one form of each accent."""
    name = unicodedata.normalize("NFC", printable(os.fsencode(name).decode("utf-8", "replace")))
    return "".join(c if c.isprintable() else "�" for c in name) or "(no name)"


def _unique(submissions: Iterable[Submission]) -> Iterator[Submission]:
    """Submissions with names of their own, also if two given folders hold the same ones."""
    seen: Counter[str] = Counter()
    for s in submissions:
        seen[s.name] += 1
        yield s if seen[s.name] == 1 else replace(s, name=f"{s.name} #{seen[s.name]}")


def _unpack(archive: Path, into: Path) -> Path:
    """The folder below ``into`` with what the zip file holds. Raises ValueError, with one sentence, where that can't be."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = [m for m in zipped.infolist() if not m.is_dir()]
            total = sum(m.file_size for m in members)
            if len(members) > MOST_FILES or total > MOST_BYTES:
                raise ValueError(f"{len(members):,} files of {total:,} bytes are more than is unpacked")
            for m in members:
                _write(zipped, m, into / archive.stem)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError) as error:
        raise ValueError(f"the archive {str(archive)!r} cannot be unpacked: {error}") from None
    return into / archive.stem


def _write(zipped: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (member.external_attr >> 28) == 0o12:
        raise ValueError(f"{member.filename!r} would lie outside, or is a link")
    target = folder.joinpath(*path.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipped.open(member) as source, target.open("wb") as out:
        left = member.file_size  # what it says of itself; no more is written
        while left > 0 and (some := source.read(min(left, 1 << 20))):
            out.write(some)
            left -= len(some)
