"""How long each exercise takes: `python book/tools/effort.py` writes book/effort.md, from the sets and book/effort.toml.

A table there says of a solver who it was and when, and of each exercise: tries (checks until it was right), hints (opened),
minutes (by the clock), hard (for a student, 1 to 5) and guess (a student's minutes), both in the solver's opinion, stuck (at
what; may be left out), and solved = false where it was given up.
"""

from __future__ import annotations

import tomllib
from itertools import groupby
from typing import Any

from objectives import ROOT

from labkit_book.problems.catalogue import all_exercises, book_order
from labkit_book.problems.exercise import Exercise

PAGE, DATA = ROOT / "book" / "effort.md", ROOT / "book" / "effort.toml"
_OPENING = """\
# How long each exercise takes

No class has been timed with these exercises yet. The numbers here come from solvers that had the lab and the text of a
problem set, and nothing else: no solution, no source of a judge, nobody to ask. **They were language models.** How often
they checked until they were right, how many of the three hints they opened and how long they took by the clock is
recorded; *hard*, from 1 to 5, and a *student's minutes* are what they thought of each exercise afterwards. So compare
exercises by these numbers, and plan with a class's own once you have timed one. Where a solver got stuck the text has been
mended since.

{solvers}
"""
_HEAD = "| exercise | kind | points | hard, 1 to 5 | a student's minutes (guessed) | tries | hints | solver's minutes "
_HEAD += "| stuck at |\n"
_HEAD += "|---|---|---:|---:|---:|---:|---:|---:|---|"
_NEEDED = ("hard", "guess", "tries", "hints", "minutes")


def took(data: dict[str, Any], known: list[str]) -> dict[str, list[dict[str, Any]]]:
    """By exercise, what each solver needed. Raises ValueError for an unknown exercise or a missing number."""
    found: dict[str, list[dict[str, Any]]] = {id: [] for id in known}
    for solver in data.get("solver", ()):
        for id, line in solver["exercises"].items():
            if id not in known:
                raise ValueError(f"{solver['name']} must be about exercises that exist, got {id!r}")
            if missing := set(_NEEDED) - set(line):
                raise ValueError(f"{id} of {solver['name']} must have {min(missing)}")
            found[id].append(line)
    return found


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
    spans = [sorted(line[what] for line in lines) for what in _NEEDED]
    numbers = [f"{s[0]:g}" + (f" to {s[-1]:g}" if s[-1] > s[0] else "") if s else "–" for s in spans]
    stuck = dict.fromkeys(line["stuck"].replace("|", "&#124;") for line in lines if line.get("stuck"))
    given_up = " *(given up)*" * any(not line.get("solved", True) for line in lines)
    cells = [
        f"{e.id.split('-')[1]}. {e.title}{given_up}",
        e.kind + ", in words" * bool(e.rubric),
        str(e.points),
    ]
    return f"| {' | '.join([*cells, *numbers, '; '.join(stuck)])} |"


if __name__ == "__main__":
    PAGE.write_text(page([*all_exercises()], tomllib.loads(DATA.read_text("utf-8"))), "utf-8")
