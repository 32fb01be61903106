"""Points that a person gives: read from a small CSV, kept beside the results, put into the rows.

The CSV is ``to_mark.csv`` of a report with its columns ``points`` and ``comment`` filled in; ``submission`` and ``exercise``
say which line belongs to what. A line with empty points is left waiting. Any exercise may be given points this way, also one
that the grader has judged: the person has the last word. A mark holds for the answer it was given to: if another file
comes in under the same name, the new answer waits for a human again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.grade.batch import Graded, Row
from labkit.grade.report import safe
from labkit.grade.store import write_whole

Marks = dict[tuple[str, str], "Mark"]


@dataclass(frozen=True)
class Mark:
    """points and comment that a person gave to the answer with this digest."""

    points: float
    comment: str = ""
    answer: str = ""


def read_marks(path: Path, rows: Sequence[Row]) -> Marks:
    """The marks in a CSV file, by (submission, exercise). Raises ValueError, with one sentence, if one is not possible."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        comma = (
            ";" if ";" in head and "," not in head else ","
        )  # as spreadsheets write it where 1,5 is a number
        lines = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=comma))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"marks must be a CSV file in UTF-8, but {str(path)!r} is not: {error}") from None
    needed = {"submission", "exercise", "points"}
    if not lines or not needed <= set(lines[0]):
        raise ValueError(
            f"marks must have the columns {', '.join(sorted(needed))}, as to_mark.csv has: {str(path)!r}"
        )
    known = {(safe(r.submission), e.id): (r.submission, e) for r in rows for e in r.exercises}
    marks: Marks = {}
    for number, line in enumerate(lines, 2):
        given = (line["points"] or "").strip()
        if not given:
            continue
        where = safe((line["submission"] or "").removeprefix("'")), (line["exercise"] or "").strip()
        if where not in known:
            raise ValueError(
                f"entry {number} of {path.name}: there is no exercise {where[1]!r} of submission {where[0]!r}"
            )
        submission, e = known[where]
        marks[submission, e.id] = Mark(
            _points(given, e, f"entry {number} of {path.name}"), line.get("comment") or "", _digest(e)
        )
    return marks


def _points(given: str, e: Graded, where: str) -> float:
    try:
        points = float(given.replace(",", "."))
    except ValueError:
        points = math.nan
    if not 0 <= points <= e.of:
        raise ValueError(f"{where}: points of {e.id} must be a number from 0 to {e.of}, not {given!r}")
    return points


def load_marks(folder: Path) -> Marks:
    """The marks kept in a folder of results; none if there are none."""
    try:
        stored = json.loads((folder / "marks.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {(m["submission"], m["exercise"]): Mark(m["points"], m["comment"], m["answer"]) for m in stored}


def save_marks(marks: Mapping[tuple[str, str], Mark], folder: Path) -> None:
    """Keep the marks in a folder of results."""
    stored = [
        {"submission": s, "exercise": id, "points": m.points, "comment": m.comment, "answer": m.answer}
        for (s, id), m in marks.items()
    ]
    write_whole(folder / "marks.json", json.dumps(stored, indent=1))


def with_marks(rows: Sequence[Row], marks: Mapping[tuple[str, str], Mark]) -> list[Row]:
    """The same rows, with the points that a person gave. Full points are PASS, fewer WRONG."""

    def marked(row: Row, e: Graded) -> Graded:
        mark = marks.get((row.submission, e.id))
        if mark is None or mark.answer != _digest(e):
            return e
        message = "\n".join(["marked by a person", *([mark.comment] if mark.comment else [])])
        return replace(
            e, status="PASS" if mark.points == e.of else "WRONG", points=mark.points, message=message
        )

    return [replace(r, exercises=tuple(marked(r, e) for e in r.exercises)) for r in rows]


def _digest(e: Graded) -> str:
    return hashlib.sha256(e.answer.encode()).hexdigest()[:16]
