"""A page for each student: what was asked, what happened, how many points, where to look again.

Self-contained HTML without scripts, readable in the dark and by a screen reader; whatever a student or a judge wrote is
escaped. The page says what the judge said: nothing of the questions beyond that, nothing of the instructor's log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from labkit_book.grader.outcome import STATUSES, Outcome, Row
from labkit_book.grader.store import write_whole

_STYLE = """\
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #595959; --line: #c9c9c9; --right: #0b6e4f;
  --other: #8a3a00; --box: #f4f4f4; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #16181c; --soft: #b0b0b0; --line: #4a4d52;
  --right: #63d2a4; --other: #ffb27a; --box: #22252a; } }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin: 0; }
section.exercise { border-left: 4px solid var(--other); padding: .3rem .9rem; margin: 1rem 0; }
section.right { border-color: var(--right); }
p { margin: .3rem 0; } .soft { color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--box); padding: .5rem .7rem; margin: .4rem 0;
  font-size: .9rem; }
"""


def write_pages(rows: Sequence[Row], folder: Path) -> dict[str, Path]:
    """Write a page for each student into ``folder``; returns where each student's is."""
    folder.mkdir(parents=True, exist_ok=True)
    students: dict[str, list[Row]] = {}
    for row in rows:
        if row.status != "LEFT_OUT":
            students.setdefault(row.student, []).append(row)
    paths: dict[str, Path] = {}
    for student, theirs in students.items():
        paths[student] = folder / _file_name(student, {p.name.casefold() for p in paths.values()})
        write_whole(paths[student], _page(student, theirs))
    return paths


def _page(student: str, rows: Sequence[Row]) -> str:
    """The page of one student, HTML."""
    body = "\n".join(_row(r) for r in rows)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Feedback for {escape(student)}</title>
<style>
{_STYLE}</style>
</head>
<body>
<main>
<h1>Feedback for {escape(student)}</h1>
{body}
</main>
</body>
</html>
"""


def _row(row: Row) -> str:
    what = f"Problem set {row.set}" if row.set else "Your submission"
    flags = "".join(f"<p class='soft'>Note: {escape(f)}.</p>" for f in row.flags)
    head = f"<h2>{escape(what)}</h2>\n<p class='soft'>File: {escape(row.submission)}</p>{flags}"
    if not row.exercises:
        return f"{head}\n<p><strong>{escape(STATUSES[row.status][2])}</strong>: {escape(row.message)}</p>"
    more = f", and {row.still_open} more are still open" if row.still_open else ""
    total = f"<p><strong>{row.points:g} of {row.of} points</strong>{more}.</p>"
    return "\n".join([head, total, *(_exercise(e, row.set) for e in row.exercises)])


def _exercise(e: Outcome, name: str) -> str:
    right = e.status == "PASS"
    points = f"{e.of} points open" if e.open else f"{e.points:g} of {e.of} points"
    said = [
        e.message,
        e.answer if e.status == "NEEDS_HUMAN" else "",
    ]  # what a person is to read stands there too
    message = "".join(f"\n<pre>{escape(text)}</pre>" for text in said if text)
    where, look = f"exercise {e.id.rpartition('-')[2]} of problem set {name}", ""
    if e.status == "NO_RESULT":
        look = f"Where to begin: {where} has hints that unfold, and lab {name} has the idea."
    elif not (right or e.open):
        look = f"Where to look: run the check under {where} again, and unfold its hints; the idea is in lab {name}."
    look = look and f"\n<p class='soft'>{escape(look)}</p>"
    _, sign, meaning = STATUSES[e.status]
    return (
        f"<section class='exercise{' right' if right else ''}'>\n"
        f"<h3>{escape(e.id)} {escape(e.title)}</h3>\n"
        f"<p>{sign} {escape(meaning)}, {points} <span class='soft'>({e.status})</span></p>"
        f"{message}{look}\n</section>"
    )


def _file_name(student: str, taken: set[str]) -> str:
    plain = re.sub(r"[^\w.-]+", "_", student).encode()[:80].decode(errors="ignore").strip("._") or "student"
    if plain == student and f"{plain}.html".casefold() not in taken:
        return f"{plain}.html"
    return f"{plain}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"
