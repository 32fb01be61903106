"""What comes out of a batch: a table for the terminal, CSV and JSON for a gradebook, a page for each student.

What a student wrote is data here: CSV cells that a spreadsheet would take for a formula are disarmed, pages are escaped.
All files are written from one table of marks, a line (``_entry``) for each exercise of each submission.

| file | what it holds |
|---|---|
| ``grades.csv`` | a line per student and problem set: points of each exercise, total, flags |
| ``exercises.csv`` | a line per exercise: status, points, message |
| ``gradebook.csv`` | a line per student, a column per set |
| ``upload.csv`` | the roster, if there is one, with a column per set: for Moodle, Canvas and the like to take back |
| ``statistics.csv``, ``.png`` | of each exercise how it went |
| ``alike.csv`` | pairs of answers that are nearly the same, for a person to look at |
| ``to_mark.csv`` | what waits for a human, with the student's text, the rubric, and empty columns for points and a comment |
| ``grades.json`` | everything, the instructor's log and the seed included |
| ``feedback/`` | a page for each student; ``feedback.zip``: the same, named as Moodle and Canvas take them in bulk |
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from labkit.exercises.catalogue import book_order
from labkit.grade.alike import alike
from labkit.grade.feedback import write_pages
from labkit.grade.notebook import printable
from labkit.grade.outcome import STATUSES, Outcome, Row
from labkit.grade.roster import Roster, feedback_name
from labkit.grade.store import write_whole

_EXERCISES = "student,set,submission,exercise,title,status,points,of,message,flags"
_TO_MARK = "submission,student,set,exercise,of,points,comment,why,rubric,answer"
_STATISTICS = "exercise,title,handed in,answered,right,mean points,of,median s,message met most"
_ALIKE = "exercise,student,other,alike,submission,other submission"


def table(rows: Sequence[Row]) -> str:
    """One line per row: points where there are any, a sign for what happened where there are none, and a legend.

    What was left out is counted, and has no line.
    """
    shown = [r for r in rows if r.status != "LEFT_OUT"]
    most = max((len(r.exercises) for r in shown), default=0)
    lines = [["student", "set", *map(str, range(1, most + 1)), "points", "of", ""]]
    for r in shown:
        cells = [
            f"{e.points:g}" if e.points or e.status in ("PASS", "MARKED") else STATUSES[e.status][0]
            for e in r.exercises
        ]
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


def write_reports(
    rows: Sequence[Row], out: Path, about: dict[str, Any], roster: Roster | None = None
) -> None:
    """All files of the table above, into the folder ``out``. about: seed, isolation and the like, for grades.json."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = [str(i + 1) for i in range(max((len(r.exercises) for r in rows), default=0))]
    entries = [(r, e, _entry(r, e)) for r in rows for e in r.exercises or (None,)]
    grades = []
    for r in rows:
        line = _entry(r, None) | {"waiting": sum(e.status == "NEEDS_HUMAN" for e in r.exercises)}
        line |= dict(zip(numbers, map(_points, r.exercises), strict=False)) | {"status": r.status or "graded"}
        grades.append(line | ({"total": f"{r.points:g}", "of": r.of} if r.exercises else {}))
    waiting = [
        line | {"points": "", "why": line["message"], "rubric": e.log if e else "", "answer": e.answer if e else ""}
        for r, e, line in entries
        if (e.status == "NEEDS_HUMAN" if e else r.status not in ("", "LEFT_OUT"))
    ]  # fmt: skip
    columns = ["student", "set", "submission", *numbers, "total", "of", "waiting", "status", "flags"]
    _write_csv(out / "grades.csv", columns, grades)
    _write_csv(out / "exercises.csv", _EXERCISES.split(","), [line for *_, line in entries])
    _write_csv(out / "to_mark.csv", _TO_MARK.split(","), waiting)
    sets, book = _gradebook(rows)
    names = {name: f"problem set {name} (of {of})" for name, of in sets.items()}
    students = [
        {"student": s} | {names[name]: cell for name, cell in mine.items()} for s, mine in book.items()
    ]
    _write_csv(out / "gradebook.csv", ["student", *names.values()], students)
    if roster:
        _write_csv(out / "upload.csv", *roster.filled_in(sets, book))
    judged = [e for r in rows for e in r.exercises if e.id]  # files marked as a whole have no id
    every: dict[str, list[Outcome]] = defaultdict(list)
    for e in sorted(judged, key=lambda e: book_order(e.id)):
        every[e.id].append(e)
    _write_csv(out / "statistics.csv", _STATISTICS.split(","), map(_statistics, every.values()))
    _draw(every, out / "statistics.png")
    _write_csv(out / "alike.csv", _ALIKE.split(","), alike(rows))
    everything = {"about": about, "rows": [{**asdict(r), "points": r.points, "of": r.of} for r in rows]}
    write_whole(out / "grades.json", json.dumps(everything, indent=1))
    _write_zip(write_pages(rows, out / "feedback"), rows, out / "feedback.zip")


def safe(text: str) -> str:
    """A CSV cell that no spreadsheet takes for a formula: those that would be begin with an apostrophe."""
    text = printable(text)
    first = unicodedata.normalize("NFKC", text.lstrip(" \n")[:1])
    return f"'{text}" if first in ("=", "+", "-", "@", "\t", "\r") else text


def _entry(r: Row, e: Outcome | None) -> dict[str, Any]:
    """All that is known of an exercise of a submission, or of a submission as a whole.

    Sets and exercises have words before them, so that a spreadsheet takes them neither for dates (2-1) nor numbers (10.10).
    """
    line = {"student": r.student, "submission": r.submission, "set": f"set {r.set}" if r.set else "",
            "status": r.status, "message": r.message, "flags": "; ".join(r.flags)}  # fmt: skip
    if e is None:
        return line
    return line | {"exercise": f"exercise {e.id}" if e.id else "", "title": e.title, "status": e.status,
                   "points": _points(e), "of": e.of, "message": e.message}  # fmt: skip


def _points(e: Outcome) -> str:
    return "?" if e.open else f"{e.points:g}"


def _gradebook(rows: Sequence[Row]) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """The sets that somebody has worked on, in the book's order, and their points; and what each student has for each.

    That is the best total; empty where nothing was handed in, "?" where a human is awaited. A file that cannot be told to
    belong to a set may belong to any: until somebody has marked it, no cell of that student is empty.
    """
    given = {r.set for r in rows if any(e.status != "NO_RESULT" for e in r.exercises)} - {""}
    sets = {name: max(r.of for r in rows if r.set == name) for name in sorted(given, key=book_order)}
    unclear = {r.student for r in rows if r.status not in ("", "LEFT_OUT")}
    best: dict[str, dict[str, Row]] = {r.student: {} for r in rows}
    for r in sorted(rows, key=lambda r: r.points):
        if r.exercises:
            best[r.student][r.set] = r

    def cell(student: str, r: Row | None) -> str:
        if r is None:
            return "?" if student in unclear else ""
        return "?" if r.waiting or r.failed else f"{r.points:g}"

    return sets, {s: {name: cell(s, mine.get(name)) for name in sets} for s, mine in best.items()}


def _statistics(every: Sequence[Outcome]) -> dict[str, Any]:
    """Of one exercise how many answered it, how many are right, mean points, seconds, and the message met most."""
    answered = [e for e in every if e.status != "NO_RESULT"]
    said = Counter(
        e.message.splitlines()[0].partition(" (")[0] for e in answered if e.message and e.points < e.of
    )
    return {
        "exercise": f"exercise {every[0].id}", "title": every[0].title, "handed in": len(every), "answered": len(answered),
        "right": sum(e.points == e.of for e in every), "mean points": f"{fmean(e.points for e in every):.2f}",
        "of": every[0].of, "median s": f"{median([e.seconds for e in answered] or [0.0]):.1f}",
        "message met most": "".join(f"{message} ({times} times)" for message, times in said.most_common(1)),
    }  # fmt: skip


_COLOURS = {
    "right": "#0b7a53",
    "waiting for a person": "#4b5fb5",
    "not right": "#b54708",
    "not answered": "#c9c9c9",
}


def _kind(e: Outcome) -> str:
    if e.open:
        return "waiting for a person"
    return "right" if e.points == e.of else "not answered" if e.status == "NO_RESULT" else "not right"


def _draw(every: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """A bar for each exercise: right, waiting for a person, not right, not answered. Nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    found = {id: Counter(map(_kind, outcomes)) for id, outcomes in every.items()}
    figure = Figure(figsize=(7, 0.9 + 0.32 * len(found)), layout="constrained")
    axes = figure.subplots()
    left = [0] * len(found)
    for kind, colour in _COLOURS.items():
        counts = [seen[kind] for seen in found.values()]
        axes.barh([*found], counts, left=left, color=colour, label=kind)
        left = [a + b for a, b in zip(left, counts, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="submissions", title="How the exercises went")
    below = (0.5, -0.12 - 0.3 / max(len(found), 1))
    axes.legend(loc="upper center", bbox_to_anchor=below, ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


def _write_zip(pages: dict[str, Path], rows: Sequence[Row], path: Path) -> None:
    """The pages under the names by which the systems know what was handed in; no file where none has such a name."""
    named = {feedback_name(r.submission): r.student for r in rows if r.student in pages}
    named.pop("", None)
    path.unlink(missing_ok=True)
    if named:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, student in named.items():
                zipped.write(pages[student], name)


def _write_csv(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> None:
    """Of each line these columns, for a spreadsheet; the mark at the beginning is how it knows UTF-8."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([safe(c) for c in columns])
    writer.writerows([safe(str(line.get(c, ""))) for c in columns] for line in lines)
    write_whole(path, "\ufeff" + text.getvalue())


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)
