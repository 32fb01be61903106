"""What comes out of a batch: a table for the terminal, a CSV for a gradebook, a page for each student, and the whole record.

What a student wrote is data here: CSV cells that a spreadsheet would take for a formula are disarmed, pages are escaped.

| file | what it holds |
|---|---|
| ``gradebook.csv`` | a line for each problem set of each submission, or for a submission in which none was found |
| ``feedback/`` | a page for each student |
| ``grades.json`` | everything, the answers, the instructor's log and the seed included |

| column of ``gradebook.csv`` | |
|---|---|
| ``student``, ``submission`` | whose, and which file |
| ``set`` | the problem set, as ``set 10.10``, which no spreadsheet takes for a number; empty where none was found |
| ``1``, ``2``, ... | points of each exercise; ``?`` where a person is awaited, or the grader failed |
| ``points``, ``of`` | those reached, of how many |
| ``open`` | points of the exercises that say ``?`` |
| ``status`` | ``graded``, or why there is nothing to grade |
| ``message``, ``flags`` | why, in words; what a person should look at |
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit_book.grader.feedback import write_pages
from labkit_book.grader.notebook import printable
from labkit_book.grader.outcome import STATUSES, Row
from labkit_book.grader.store import write_whole


def table(rows: Sequence[Row]) -> str:
    """One line per row: points where there are any, a sign for what happened where there are none, and a legend.

    What was left out is counted, and has no line.
    """
    shown = [r for r in rows if r.status != "LEFT_OUT"]
    most = max((len(r.exercises) for r in shown), default=0)
    lines = [["student", "set", *map(str, range(1, most + 1)), "points", "of", ""]]
    for r in shown:
        cells = [f"{e.points:g}" if e.status == "PASS" else STATUSES[e.status][0] for e in r.exercises]
        total = [f"{r.points:g}" + "+?" * r.waiting, str(r.of)] if r.exercises else ["", ""]
        remark = "; ".join([*([f"{r.status}: {r.message}"] if r.status else []), *r.flags])
        lines.append([r.student, r.set, *cells, *[""] * (most - len(cells)), *total, remark])
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    text = []
    for *cells, remark in lines:
        spaces = [" " * (w - _width(c)) for c, w in zip(cells, widths, strict=False)]
        line = "  ".join(
            c + s if i < 2 else s + c for i, (c, s) in enumerate(zip(cells, spaces, strict=True))
        )
        text.append(line.rstrip() + (f"  {remark}" if remark else ""))
    seen = Counter(s for r in shown for s in (r.status, *(e.status for e in r.exercises)))
    text += ["", ", ".join(f"{sign or '1..'} {s} {seen[s]}" for s, (sign, *_) in STATUSES.items() if seen[s])]
    if left_out := len(rows) - len(shown):
        text.append(f"{left_out} files were left out: labs, and problem sets that were not asked for")
    return "\n".join(text)


def write_reports(rows: Sequence[Row], out: Path, about: dict[str, Any]) -> None:
    """All files of the table above, into the folder ``out``. about: seed, isolation and the like, for grades.json."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = [str(i + 1) for i in range(max((len(r.exercises) for r in rows), default=0))]
    columns = ["student", "set", "submission", *numbers, "points", "of", "open", "status", "message", "flags"]
    _write_csv(out / "gradebook.csv", columns, map(_line, rows))
    everything = {"about": about, "rows": [{**asdict(r), "points": r.points, "of": r.of} for r in rows]}
    write_whole(out / "grades.json", json.dumps(everything, indent=1))
    write_pages(rows, out / "feedback")


def _line(r: Row) -> dict[str, Any]:
    """The line of a submission in the gradebook, by column."""
    line = {"student": r.student, "submission": r.submission, "set": f"set {r.set}" if r.set else "",
            "status": r.status or "graded", "message": r.message, "flags": "; ".join(r.flags)}  # fmt: skip
    if not r.exercises:
        return line
    for i, e in enumerate(r.exercises, 1):
        line[str(i)] = "?" if e.open else f"{e.points:g}"
    return line | {"points": f"{r.points:g}", "of": r.of, "open": r.still_open}


def safe(text: str) -> str:
    """A CSV cell that no spreadsheet takes for a formula: those that would be begin with an apostrophe.

    >>> safe("=1+1"), safe("a=b")
    ("'=1+1", 'a=b')
    """
    text = printable(text)
    first = unicodedata.normalize("NFKC", text.lstrip(" \n")[:1])
    return f"'{text}" if first in ("=", "+", "-", "@", "\t", "\r") else text


def _write_csv(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> None:
    """Of each line these columns, for a spreadsheet; the mark at the beginning is how it knows UTF-8."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([safe(c) for c in columns])
    writer.writerows([safe(str(line.get(c, ""))) for c in columns] for line in lines)
    write_whole(path, "\ufeff" + text.getvalue())


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)
