"""What the labs promise and what the problem sets ask for: book/coverage.md, from the labs, the sets and the key.

python book/tools/objectives.py      write the page

An objective is a bullet under "After this lab you can". An exercise names those it is about (``Exercise.objectives``);
a mutant is a plausible mistake that its judge must catch (``tests/problems``).
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import contents  # noqa: E402

from labkit_book.problems.catalogue import exercise_set  # noqa: E402
from labkit_book.problems.exercise import KINDS, Exercise  # noqa: E402

_OPENING = """\
# What is practised where

Every lab begins with what you can do after it. This page says with which exercises you find out whether you can: the number
of the exercise in the lab's problem set, what kind of work it is, its points, and how many plausible wrong answers
(*mutants*) its judge has been shown to catch. An answer *in words* is read by a person, by a rubric. The page is generated
from the labs, the problem sets and the key; a test of this book fails if an objective has no exercise, an exercise no
objective, or if no exercise goes as deep as the objective's verb: who is to *prove* must derive, who is to *measure* must
measure.
"""

# How deep an objective's verb goes: the kinds of work of which one at least must practise it.
_ALL = frozenset(KINDS)
DEPTH = {
    verb: kinds
    for words, kinds in {
        "write, build, plug, shard, turn, accumulate": frozenset({"build", "debug"}),
        "prove, work out": frozenset({"derive"}),
        "measure, reproduce, test": frozenset({"measure", "plot", "debug"}),
        "repair, refuse, warm up, remove": frozenset({"build", "debug", "plot", "measure"}),
        "say, tell, show, recognise, read, weigh, audit, see, name": _ALL - {"build"},
        "predict, price, compute, count, find, follow, scale, put, check": _ALL,
    }.items()
    for verb in words.split(", ")
}


@dataclass(frozen=True)
class Lab:
    """name: of the file. title and objectives: as they stand in it. set: the problem set it belongs to, as ``"10.3"``."""

    name: str
    title: str
    objectives: tuple[str, ...]
    set: str


def labs(root: Path) -> list[Lab]:
    """All labs, in reading order. Raises ValueError for one without objectives."""
    return [lab(name, (root / "notebooks" / f"{name}.md").read_text()) for name in contents.labs(root)]


def lab(name: str, text: str) -> Lab:
    """The lab with this text. Raises ValueError if it does not say what one can do after it."""
    title = re.search(r"^# (.+)$", text, re.M)
    bullets = re.search(r"[Aa]fter this \w+ you can\s*\n\n((?:- .+\n(?:  .+\n)*)+)", text)
    if title is None or bullets is None:
        raise ValueError(
            f"{name} must have a title and, under 'After this lab you can', a list of objectives"
        )
    items = re.split(r"^- ", bullets[1], flags=re.M)[1:]
    return Lab(name, title[1], tuple(" ".join(i.split()).rstrip(";.") for i in items), contents.number(name))


def numbered(all_labs: list[Lab]) -> list[tuple[Lab, int, str]]:
    """(lab, number, objective) for each; numbers run on through the labs that share a problem set."""
    count: dict[str, int] = {}
    out = []
    for x in all_labs:
        for objective in x.objectives:
            count[x.set] = count.get(x.set, 0) + 1
            out.append((x, count[x.set], objective))
    return out


def verbs(objective: str) -> list[str]:
    """The verbs of ``DEPTH`` with which a clause of the objective begins.

    >>> verbs("write a worker that reduces, and check the result")
    ['write', 'check']
    """
    return re.findall(rf"(?:^|,? and |, |; )({'|'.join(DEPTH)})\b", objective)


def gaps(all_labs: list[Lab], sets: dict[str, dict[str, Exercise]]) -> list[str]:
    """What is missing, as sentences: objectives without an exercise, exercises without an objective."""
    there = {(x.set, number) for x, number, _ in numbered(all_labs)}
    met = {
        (name, number)
        for name, exercises in sets.items()
        for e in exercises.values()
        for number in e.objectives
    }
    out = [
        f"{x.name}: no exercise of set {x.set} is about objective {number}, {objective!r}"
        for x, number, objective in numbered(all_labs)
        if (x.set, number) not in met
    ]
    for exercises in sets.values():
        out += [f"exercise {e.id} is about no objective" for e in exercises.values() if not e.objectives]
    for x, number, objective in numbered(all_labs):
        kinds = {e.kind for e in sets[x.set].values() if number in e.objectives}
        out += [
            f"{x.name}: of objective {number}, {objective!r}, nobody practises to {verb!r}: that takes one of "
            f"{', '.join(sorted(DEPTH[verb]))}, and there is {', '.join(sorted(kinds)) or 'none'}"
            for verb in verbs(objective)
            if not kinds & DEPTH[verb]
        ]
    return out + [
        f"set {name} names objective {number}, which its labs do not have"
        for name, number in sorted(met - there)
    ]


def page(all_labs: list[Lab], sets: dict[str, dict[str, Exercise]], mutants: dict[str, int]) -> str:
    """The Markdown. mutants: how many there are, by the exercise's id."""
    lines = [_OPENING]
    for x in all_labs:
        lines += [
            f"\n## {x.title}\n",
            f"{{doc}}`The lab </notebooks/{x.name}>`, "
            f"{{doc}}`problem set {x.set} </notebooks/exercises/{x.set.replace('.', '_').lower()}_exercises>`\n",
            "| After it you can | exercises | points | mutants |\n|---|---|---:|---:|",
        ]
        for y, number, objective in numbered(all_labs):
            if y == x:
                asked = [e for e in sets[x.set].values() if number in e.objectives]
                which = "; ".join(
                    f"{e.id.rsplit('-', 1)[1]}. {e.title} *({e.kind}{', in words' if e.rubric else ''})*"
                    for e in asked
                )
                points, caught = sum(e.points for e in asked), sum(mutants.get(e.id, 0) for e in asked)
                lines.append(f"| {objective.replace('|', '&#124;')} | {which} | {points} | {caught or ''} |")
    exercises = [e for s in sets.values() for e in s.values()]
    words, kinds = sum(bool(e.rubric) for e in exercises), Counter(e.kind for e in exercises)
    lines += ["\n## The kinds of work\n", "| kind | what it asks | exercises |\n|---|---|---:|"]
    lines += [f"| *{kind}* | {what} | {kinds[kind]} |" for kind, what in KINDS.items()]
    lines.append(
        f"\nIn all: {len(all_labs)} labs, {sum(len(x.objectives) for x in all_labs)} objectives, {len(exercises)} exercises "
        f"({words} of them in words), {sum(e.points for e in exercises)} points, {sum(mutants.values())} mutants. "
        "An exercise that is about two objectives is listed under both.\n"
    )
    return "\n".join(lines)


def read(root: Path = ROOT) -> tuple[list[Lab], dict[str, dict[str, Exercise]], dict[str, int]]:
    """The labs, the problem sets and the number of mutants of each exercise, as they are in this repository."""
    all_labs = labs(root)
    sets = {x.set: exercise_set(x.set) for x in all_labs}
    mutants = {id: len(m) for name in sets for id, m in _key(root, name).MUTANTS.items()}
    return all_labs, sets, mutants


def _key(root: Path, name: str) -> Any:
    path = root / "tests" / "problems" / f"key_{name.replace('.', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    (ROOT / "book" / "coverage.md").write_text(page(*read()))
    missing = gaps(*read()[:2])
    print("\n".join(missing) or "book/coverage.md is written")
    sys.exit(bool(missing))
