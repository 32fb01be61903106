"""How long each exercise takes: `python book/tools/effort.py` writes book/effort.md, from the sets and book/effort.toml.

A table there says of a solver who it was and when, and of each exercise: tries (checks until it was right), hints (opened),
minutes, stuck (at what; may be left out), and solved = false where it was given up.
"""

from __future__ import annotations

import tomllib
from itertools import groupby
from statistics import median
from typing import Any

from objectives import ROOT

from labkit.exercises.catalogue import all_exercises, book_order
from labkit.exercises.exercise import Exercise

PAGE, DATA = ROOT / "book" / "effort.md", ROOT / "book" / "effort.toml"
_OPENING = """\
# How long each exercise takes

No class has been timed with these exercises yet. The numbers here come from solvers that had the text of a problem set and
nothing else: no lab beside it, no solution, nobody to ask. **They were language models.** How often they checked, and how
many of the three hints they opened, says which exercises are hard, and where one gets stuck. Their minutes are not a
student's: use them to compare exercises, and plan with a class's own once you have timed one.

*Difficulty* counts checks beyond the first, and hints, in the median over solvers: *easy* is none, *middle* one or two,
*hard* more; *unsolved* means that a solver gave up. A dash means that nobody has been noted yet.

{solvers}
"""
_HEAD = "| exercise | kind | points | difficulty | tries | hints | solver's minutes | stuck at |\n"
_HEAD += "|---|---|---:|---|---:|---:|---:|---|"


def took(data: dict[str, Any], known: list[str]) -> dict[str, list[dict[str, Any]]]:
    """By exercise, what each solver needed. Raises ValueError for an unknown exercise or a missing number."""
    found: dict[str, list[dict[str, Any]]] = {id: [] for id in known}
    for solver in data.get("solver", ()):
        for id, line in solver["exercises"].items():
            if id not in known:
                raise ValueError(f"{solver['name']} must be about exercises that exist, got {id!r}")
            if missing := {"tries", "hints", "minutes"} - set(line):
                raise ValueError(f"{id} of {solver['name']} must have {min(missing)}")
            found[id].append(line)
    return found


def difficulty(lines: list[dict[str, Any]]) -> str:
    """In a word, what solvers needed beyond one check."""
    if not all(line.get("solved", True) for line in lines):
        return "unsolved"
    more = median(line["tries"] - 1 + line["hints"] for line in lines)
    return "easy" if more <= 0 else "middle" if more <= 2 else "hard"


def page(exercises: list[Exercise], data: dict[str, Any]) -> str:
    """The Markdown."""
    known = sorted(exercises, key=lambda e: book_order(e.id))
    needed = took(data, [e.id for e in known])
    who = "; ".join(f"{solver['name']} ({solver['when']})" for solver in data.get("solver", ()))
    parts = [_OPENING.format(solvers=f"Solvers: {who}." if who else "Nobody has been noted yet.")]
    for name, group in groupby(known, key=lambda e: e.id.split("-")[0]):
        parts += [f"## Problem set {name}\n\n{_HEAD}", *(_line(e, needed[e.id]) for e in group), ""]
    return "\n".join(parts)


def _line(e: Exercise, lines: list[dict[str, Any]]) -> str:
    spans = [sorted(line[what] for line in lines) for what in ("tries", "hints", "minutes")]
    numbers = [f"{s[0]:g}" + (f" to {s[-1]:g}" if s[-1] > s[0] else "") if s else "–" for s in spans]
    stuck = dict.fromkeys(line["stuck"].replace("|", "&#124;") for line in lines if line.get("stuck"))
    kind, hard = e.kind + ", in words" * bool(e.rubric), difficulty(lines) if lines else "–"
    cells = [f"{e.id.split('-')[1]}. {e.title}", kind, str(e.points), hard]
    return f"| {' | '.join([*cells, *numbers, '; '.join(stuck)])} |"


if __name__ == "__main__":
    PAGE.write_text(page([*all_exercises()], tomllib.loads(DATA.read_text("utf-8"))), "utf-8")
