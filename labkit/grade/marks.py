"""Points that a person gives: read from a small CSV, kept beside the results, put into the rows.

The CSV is ``to_mark.csv`` of a report with its columns ``points`` and ``comment`` filled in; ``submission`` and ``exercise``
say which line belongs to what. A line with empty points is left waiting. Any exercise may be given points this way, also one
that the grader has judged: the person has the last word. A file that could not be read, or in which nothing was found, gets
points as a whole: its line has no exercise, and the person fills in the ``set``. A mark holds for the answer it was given
to: if another file comes in under the same name, the new answer waits for a human again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labkit.exercises.catalogue import exercise_set
from labkit.grade.outcome import Outcome, Row
from labkit.grade.report import safe
from labkit.grade.roster import read_csv
from labkit.grade.store import write_whole


@dataclass(frozen=True)
class _Mark:
    """points and comment given to the answer with this digest. exercise: "" for a file as a whole, of ``set``."""

    submission: str
    exercise: str
    points: float
    comment: str = ""
    answer: str = ""
    set: str = ""


@dataclass(frozen=True)
class Marks:
    """The marks of a run, each for one answer."""

    all: tuple[_Mark, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> Marks:
        """Those kept in a folder of results; none if there are none."""
        path = folder / "marks.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return cls(tuple(_Mark(**m) for m in kept))

    def save(self, folder: Path) -> Marks:
        """Keep these in a folder of results, beside those of other answers; returns all that are there."""
        kept = {(m.submission, m.exercise): m for m in (*Marks.load(folder).all, *self.all)}
        write_whole(folder / "marks.json", json.dumps([asdict(m) for m in kept.values()], indent=1))
        return Marks(tuple(kept.values()))

    def into(self, rows: Iterable[Row]) -> list[Row]:
        """The same rows, with the points that a person gave."""
        by = {(m.submission, m.exercise, m.answer): m for m in self.all}

        def marked(row: Row, e: Outcome) -> Outcome:
            mark = by.get((row.submission, e.id, _digest(e.answer)))
            return replace(e, status="MARKED", points=mark.points, message=mark.comment) if mark else e

        def whole(row: Row) -> Row:
            mark = by.get((row.submission, "", _digest(row.message))) if row.status else None
            if mark is None:
                return replace(row, exercises=tuple(marked(row, e) for e in row.exercises))
            of = _of_set(mark.set, row.submission)
            given = Outcome("", "the file as a whole", "MARKED", mark.points, of, mark.comment)
            return replace(row, set=mark.set, status="", message="", exercises=(given,))

        return [whole(r) for r in rows]

    @classmethod
    def read(cls, path: Path, rows: Sequence[Row]) -> Marks:
        """The marks in a CSV file. Raises ValueError, with one sentence, if one is not possible."""
        columns, lines = read_csv("marks", path)
        needed = {"submission", "exercise", "points"}
        if not lines or not needed <= set(columns):
            names = ", ".join(sorted(needed))
            raise ValueError(f"marks must have the columns {names}, as to_mark.csv has: {str(path)!r}")
        known = {(safe(r.submission), e.id): (r.submission, e) for r in rows for e in r.exercises}
        whole = {safe(r.submission): r for r in rows if r.status}
        marks = []
        for number, line in enumerate(lines, 2):
            given, id = line["points"].strip(), line["exercise"].strip().removeprefix("exercise ")
            if not given:
                continue
            entry, comment = f"entry {number} of {path.name}", line.get("comment", "")
            file = safe(line["submission"].removeprefix("'"))
            if not id and file in whole:
                row, name = whole[file], line.get("set", "").strip().removeprefix("set ")
                points = _points(given, "the file as a whole", _of_set(name, entry), entry)
                marks.append(_Mark(row.submission, "", points, comment, _digest(row.message), name))
            elif (file, id) in known:
                submission, e = known[file, id]
                points = _points(given, id, e.of, entry)
                marks.append(_Mark(submission, id, points, comment, _digest(e.answer)))
            else:
                raise ValueError(f"{entry}: there is no exercise {id!r} of submission {file!r}")
        return cls(tuple(marks))


def _of_set(name: str, where: str) -> int:
    """The points of a whole set."""
    if not name:
        needs = "a file marked as a whole needs its problem set, as 10.3, in a column 'set'"
        raise ValueError(f"{where}: {needs}")
    try:
        return sum(e.points for e in exercise_set(name).values())
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _points(given: str, what: str, of: int, where: str) -> float:
    try:
        points = float(given.replace(",", "."))
    except ValueError:
        points = math.nan
    if not 0 <= points <= of:
        raise ValueError(f"{where}: points of {what} must be a number from 0 to {of}, not {given!r}")
    return points


def _digest(answer: str) -> str:
    return hashlib.sha256(answer.encode()).hexdigest()[:16]
