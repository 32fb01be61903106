"""What became of answers: the record, from which an interrupted run goes on, and the reports that are made of it.

``grades.jsonl`` gets a line for each submission as soon as it is graded, with the digest of all that made it. What a student
wrote is data in all reports: CSV cells that a spreadsheet would take for a formula are disarmed, pages are escaped.
"""

import csv
import hashlib
import json
import os
import re
import secrets
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

from labkit_book.grader.collect import Submission, Unreadable, content

#: Every status: its sign in the table and on a feedback page, and what it means, in words for the student.
STATUSES = {
    "PASS": ("✓", "right"),
    "WRONG": ("✗", "not right yet"),
    "ERROR": ("E", "your code raised an error"),
    "TIMEOUT": ("T", "your code took too long"),
    "NO_RESULT": ("-", "nothing came back"),
    "KILLED": ("K", "your code was stopped: it used too much of something"),
    "UNREADABLE": ("U", "the file could not be read as a notebook"),
    "NEEDS_HUMAN": ("?", "a person will look at this"),
    "LEFT_OUT": ("o", "not graded: nobody asked for this"),
    "GRADER_ERROR": ("!", "the grader failed; this is not your fault"),
}
_TEMPLATE = Path(__file__).with_name("feedback.html").read_text(encoding="utf-8")
_PAGE = Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE)


@dataclass(frozen=True)
class Outcome:
    """One exercise of one submission."""

    id: str
    title: str
    status: str  # one of ``STATUSES``
    points: float
    of: int  # points
    message: str = ""  # for the student
    log: str = ""  # for the instructor
    answer: str = ""  # what was taken from the notebook

    @property
    def open(self) -> bool:
        """Whether the points are still open: a person is awaited, or the grader failed."""
        return self.status in ("NEEDS_HUMAN", "GRADER_ERROR")


@dataclass(frozen=True)
class Row:
    """One submission and one problem set. set: "" where it could not be told; then ``status`` says why there is nothing."""

    student: str
    submission: str
    set: str = ""
    status: str = ""
    message: str = ""
    exercises: Sequence[Outcome] = ()
    flags: Sequence[str] = ()

    @property
    def points(self) -> tuple[float, int, int]:
        """Reached so far, where what waits for a human counts nothing yet; out of how many; how many are still open."""
        reached = sum(e.points for e in self.exercises)
        return reached, sum(e.of for e in self.exercises), sum(e.of for e in self.exercises if e.open)

    def has(self, status: str) -> bool:
        """Whether this, or one of its exercises, has that status."""
        return status in (self.status, *(e.status for e in self.exercises))


class Record:
    """``grades.jsonl`` in a folder. files, settings: all that a result depends on, submissions and labkit apart.

    seed: of the questions: the one given, else that of the run begun in this folder, else a new one, drawn by the system.
    """

    def __init__(self, folder: Path, seed: int | None, files: Iterable[Path], **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._rows = folder / "grades.jsonl", dict[str, Any]()
        begun: int | None = None
        self._path.touch()
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # empty, or the grader was stopped while it wrote this line
                said = json.loads(line)
                begun = said.get("seed", begun)
                self._rows[said.get("made")] = said.get("rows")
        # A new one has more bits than anybody can search by asking labkit for its questions.
        self.seed = seed if seed is not None else secrets.randbits(128) if begun is None else begun
        self._sha = hashlib.sha256(repr((self.seed, settings)).encode())
        packages = [Path(__file__).parents[2] / name for name in ("labkit", "labkit_book")]
        for path in sorted([*files, *(path for package in packages for path in package.rglob("*.py"))]):
            self._sha.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        self._append({"seed": self.seed, **settings})

    def load(self, s: Submission) -> list[Row]:
        """What was recorded of this very submission, if anything was."""
        rows = self._rows.get(self._made(s)) or ()
        return [Row(**row | {"exercises": [Outcome(**e) for e in row["exercises"]]}) for row in rows]

    def save(self, s: Submission, rows: Sequence[Row]) -> None:
        """Record the rows, unless the grader failed on one: that is tried again next time. Raises OSError on a full disk."""
        if not any(row.has("GRADER_ERROR") for row in rows):
            self._append({"made": self._made(s), "rows": [asdict(row) for row in rows]})

    def _made(self, s: Submission) -> str:
        sha = self._sha.copy()
        sha.update(json.dumps((s.student, s.name, s.problem)).encode())
        with suppress(Unreadable):
            sha.update(content(s.path))
        return sha.hexdigest()

    def _append(self, said: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(said)}\n")  # begins anew, whatever half a line stands there
            file.flush()
            os.fsync(file.fileno())


def table(rows: Sequence[Row]) -> str:
    """One line per row, with a sign for what happened where there are no points, and what the signs mean."""
    text = []
    for r in rows:
        reached = "{:g} of {}".format(*r.points) if r.exercises else f"{r.status}: {r.message}"
        signs = [f"{e.points:g}" if e.points else STATUSES[e.status][0] for e in r.exercises]
        text.append("  ".join([f"{r.student:<20}", f"{r.set:<5}", " ".join(signs), reached, *r.flags]))
    seen = Counter(status for r in rows for status in (r.status, *(e.status for e in r.exercises)))
    text.append(", ".join(f"{sign} {s} {seen[s]}" for s, (sign, _) in STATUSES.items() if seen[s]))
    return "\n".join(text)


def write_reports(rows: Sequence[Row], out: Path) -> None:
    """``gradebook.csv``, and a page for each student in ``feedback``, into the folder ``out``."""
    numbers = [str(i + 1) for i in range(max((len(r.exercises) for r in rows), default=0))]
    columns = ["student", "set", "submission", *numbers, "points", "of", "open", "status", "message", "flags"]
    pages = defaultdict[str, list[Row]](list)
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    # The mark, "sig", is how a spreadsheet knows UTF-8.
    with (out / "gradebook.csv").open("w", encoding="utf-8-sig", errors="replace", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for r in rows:
            line = vars(r) | {"set": r.set and f"set {r.set}", "status": r.status or "graded"}
            line |= {"flags": "; ".join(r.flags)}
            if r.exercises:
                line |= {str(i): "?" if e.open else f"{e.points:g}" for i, e in enumerate(r.exercises, 1)}
                line |= zip(("points", "of", "open"), map("{:g}".format, r.points), strict=True)
            writer.writerow({c: _safe(str(line.get(c, ""))) for c in columns})
            if r.status != "LEFT_OUT":
                pages[r.student].append(r)
    for student, theirs in pages.items():
        # No two names may be the same, also where capitals don't count, and none may lead elsewhere.
        name = re.sub(r"[^a-z0-9_-]+", "_", student)[:80]
        if name != student:
            name += f"-{hashlib.sha256(student.encode()).hexdigest()[:12]}"
        page = _PAGE.render(student=student, rows=theirs, statuses=STATUSES)
        (out / "feedback" / f"{name}.html").write_text(page, encoding="utf-8", errors="replace")


def _safe(text: str) -> str:
    """A CSV cell that no spreadsheet takes for a formula: those that would be begin with an apostrophe."""
    first = unicodedata.normalize("NFKC", text.lstrip(" \n")[:1])
    return f"'{text}" if first in ("=", "+", "-", "@", "\t", "\r") else text
