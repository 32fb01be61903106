"""What comes out of a batch: a table for the terminal, CSV and JSON for a gradebook, a page for each student.

What a student wrote is data here: CSV cells that a spreadsheet would take for a formula are disarmed, pages are escaped.

| file | what it holds |
|---|---|
| ``grades.csv`` | a line per student and problem set: points of each exercise, total, flags |
| ``exercises.csv`` | a line per exercise: status, points, message |
| ``gradebook.csv`` | a line per student, a column per set: for import into Moodle, Canvas and the like |
| ``to_mark.csv`` | what waits for a human, with the student's text, the rubric, and empty columns for points and a comment |
| ``grades.json`` | everything, the instructor's log and the seed included |
| ``feedback/`` | a page for each student |
"""

from __future__ import annotations

import csv
import io
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit.grade.batch import Row
from labkit.grade.feedback import write_pages
from labkit.grade.notebook import printable
from labkit.grade.outcome import STATUSES
from labkit.grade.store import write_whole

_SIGN = {
    "PASS": "", "WRONG": "x", "ERROR": "E", "TIMEOUT": "T", "NO_RESULT": "-", "KILLED": "K", "UNREADABLE": "U",
    "NEEDS_HUMAN": "?", "GRADER_ERROR": "!",
}  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """One line per row: points where there are any, a sign for what happened where there are none, and a legend."""
    most = max((len(r.exercises) for r in rows), default=0)
    head = ["student", "set", *(str(i) for i in range(1, most + 1)), "points", "of", ""]
    lines = [head]
    for r in rows:
        cells = [_mark(e.status, e.points) for e in r.exercises]
        remark = "; ".join([*([f"{r.status}: {r.message}"] if r.status else []), *r.flags])
        total = f"{r.points:g}" + ("+?" if r.waiting and r.exercises else "") if r.exercises else ""
        lines.append([r.student, r.set, *cells, *[""] * (most - len(cells)), total, str(r.of or ""), remark])
    widths = [max(_width(line[i]) for line in lines) for i in range(len(head) - 1)]
    text = [
        "  ".join(
            _padded(c, w, right=i >= 2) for i, (c, w) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        + (f"  {line[-1]}" if line[-1] else "")
        for line in lines
    ]
    seen = Counter(
        s for r in rows for s in ([r.status] if r.status else []) + [e.status for e in r.exercises]
    )
    legend = ", ".join(f"{_SIGN[s] or '1..'} {s} {seen[s]}" for s in STATUSES if seen[s])
    return "\n".join([*text, "", legend])


def write_reports(rows: Sequence[Row], out: Path, about: dict[str, Any]) -> None:
    """All files of the table above, into the folder ``out``. about: seed, isolation and the like, for grades.json."""
    out.mkdir(parents=True, exist_ok=True)
    most = max((len(r.exercises) for r in rows), default=0)
    numbers = [str(i) for i in range(1, most + 1)]
    grades = [["student", "set", "submission", *numbers, "total", "of", "waiting", "status", "flags"]]
    each = [
        ["student", "set", "submission", "exercise", "title", "status", "points", "of", "message", "flags"]
    ]
    for r in rows:
        points = [_points(e.status, e.points) for e in r.exercises] + [""] * (most - len(r.exercises))
        total = [f"{r.points:g}", str(r.of)] if r.exercises else ["", ""]
        waiting = str(sum(e.status == "NEEDS_HUMAN" for e in r.exercises))
        flags = "; ".join(r.flags)
        grades.append([r.student, r.set, r.submission, *points, *total, waiting, r.status or "graded", flags])
        if not r.exercises:
            each.append([r.student, r.set, r.submission, "", "", r.status, "", "", r.message, flags])
        for e in r.exercises:
            points_ = _points(e.status, e.points)
            each.append(
                [
                    r.student,
                    r.set,
                    r.submission,
                    e.id,
                    e.title,
                    e.status,
                    points_,
                    str(e.of),
                    e.message,
                    flags,
                ]
            )
    _write_csv(out / "grades.csv", grades)
    _write_csv(out / "exercises.csv", each)
    _write_csv(out / "gradebook.csv", _gradebook(rows))
    _write_csv(out / "to_mark.csv", _to_mark(rows))
    everything = {
        "about": about,
        "rows": [{**asdict(r), "points": r.points, "of": r.of} for r in rows],
    }
    write_whole(out / "grades.json", json.dumps(everything, indent=1))
    write_pages(rows, out / "feedback")


def safe(text: str) -> str:
    """A CSV cell that no spreadsheet takes for a formula: those that would be begin with an apostrophe."""
    text = printable(text)
    first = unicodedata.normalize("NFKC", text.lstrip(" \n")[:1])
    return f"'{text}" if first in ("=", "+", "-", "@", "\t", "\r") else text


def say(text: str, file: Any = None) -> None:
    """Print, also on a terminal that cannot show every character."""
    file = file or sys.stdout
    encoding = getattr(file, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), file=file, flush=True)


def _gradebook(rows: Sequence[Row]) -> list[list[str]]:
    """The best total of each student for each set; empty where nothing was handed in, "?" where a human is awaited."""
    of = {r.set: r.of for r in rows if r.set}
    cells: dict[str, dict[str, Row]] = {}
    for r in rows:
        mine = cells.setdefault(r.student, {})
        if r.set and (r.set not in mine or r.points > mine[r.set].points):
            mine[r.set] = r
    head = ["student", *(f"problem set {name} (of {points})" for name, points in of.items())]
    return [
        head,
        *([s, *(_cell(mine.get(name)) for name in of)] for s, mine in cells.items()),
    ]


def _cell(row: Row | None) -> str:
    return "" if row is None else "?" if row.waiting or row.failed else f"{row.points:g}"


def _to_mark(rows: Sequence[Row]) -> list[list[str]]:
    lines = [["submission", "student", "exercise", "of", "points", "comment", "why", "rubric", "answer"]]
    for r in rows:
        if r.status:
            lines.append([r.submission, r.student, "", "", "", "", r.message, "", ""])
        lines += [
            [r.submission, r.student, e.id, str(e.of), "", "", e.message, e.log, e.answer]
            for e in r.exercises
            if e.status == "NEEDS_HUMAN"
        ]
    return lines


def _write_csv(path: Path, lines: Iterable[Sequence[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows([safe(c) for c in line] for line in lines)
    write_whole(path, "\ufeff" + text.getvalue())  # the mark by which spreadsheets know UTF-8


def _points(status: str, points: float) -> str:
    return "?" if status in ("NEEDS_HUMAN", "GRADER_ERROR") else f"{points:g}"


def _mark(status: str, points: float) -> str:
    return f"{points:g}" if points or status == "PASS" else _SIGN[status]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space
