"""What the labs promise and what the problem sets ask for: book/coverage.md, from the labs, the sets and the key.

An objective is a bullet under "After this lab you can". An exercise names those it is about (``Exercise.objectives``);
a mutant is a plausible mistake that its judge must catch (``tests/problems``).
"""

import re
import runpy
from collections import Counter
from dataclasses import dataclass

import contents

from labkit_book.problems.catalogue import exercise_set
from labkit_book.problems.exercise import KINDS, Exercise

ROOT = contents.ROOT

# How deep an objective's verb goes: the kinds of work of which one at least must practise it.
_ALL = frozenset(KINDS)
DEPTH = {
    verb: kinds
    for words, kinds in {
        "write, build, plug, shard, turn, accumulate": frozenset({"build", "debug"}),
        "prove, work out": frozenset({"derive"}),
        "measure, reproduce, test": frozenset({"measure", "debug"}),
        "repair, refuse, warm up, remove": frozenset({"build", "debug", "measure"}),
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


def lab(name: str, text: str) -> Lab:
    """The lab with this text. Raises ValueError if it does not say what one can do after it."""
    title = re.search(r"^# (.+)$", text, re.M)
    bullets = re.search(r"[Aa]fter this \w+ you can\s*\n\n((?:- .+\n(?:  .+\n)*)+)", text)
    if title is None or bullets is None:
        wanted = "a title and, under 'After this lab you can', a list of objectives"
        raise ValueError(f"{name} must have {wanted}")
    items = re.split(r"^- ", bullets[1], flags=re.M)[1:]
    return Lab(name, title[1], tuple(" ".join(i.split()).rstrip(";.") for i in items), contents.number(name))


def numbered(all_labs: list[Lab]) -> list[tuple[Lab, int, str]]:
    """(lab, number, objective) for each; numbers run on through the labs that share a problem set."""
    count, out = Counter[str](), []
    for x in all_labs:
        for objective in x.objectives:
            count[x.set] += 1
            out.append((x, count[x.set], objective))
    return out


def verbs(objective: str) -> list[str]:
    """The verbs of ``DEPTH`` with which a clause of the objective begins."""
    return re.findall(rf"(?:^|,? and |, |; )({'|'.join(DEPTH)})\b", objective)


def gaps(all_labs: list[Lab], sets: dict[str, dict[str, Exercise]]) -> list[str]:
    """What is missing, as sentences: exercises of objectives, as deep as their verbs, and objectives of exercises."""
    out, listed = [], numbered(all_labs)
    for x, number, objective in listed:
        kinds = {e.kind for e in sets[x.set].values() if number in e.objectives}
        said, there = f"{x.name}: objective {number}, {objective!r}", ", ".join(sorted(kinds))
        out += [] if kinds else [f"{said}: no exercise of set {x.set} is about it"]
        for verb in [v for v in verbs(objective) if kinds and not kinds & DEPTH[v]]:
            need = ", ".join(sorted(DEPTH[verb]))
            out += [f"{said}: nobody practises to {verb!r}: that takes one of {need}, and there is {there}"]
    known = {(x.set, number) for x, number, _ in listed}
    for name, exercises in sets.items():
        for e in exercises.values():
            out += [] if e.objectives else [f"exercise {e.id} is about no objective"]
            lost = [n for n in e.objectives if (name, n) not in known]
            out += [f"exercise {e.id} is about objective {n}, which its labs do not have" for n in lost]
    return out


def page(all_labs: list[Lab], sets: dict[str, dict[str, Exercise]], mutants: dict[str, int]) -> str:
    """What book/coverage.md lists. mutants: how many there are, by the exercise's id."""
    lines = []
    for x in all_labs:
        asked = f"problem set {x.set} </notebooks/exercises/{x.set.replace('.', '_').lower()}_exercises>"
        lines.append(f"\n## {x.title}\n\n{{doc}}`The lab </notebooks/{x.name}>`, {{doc}}`{asked}`\n")
        lines.append("| After it you can | exercises | points | mutants |\n|---|---|---:|---:|")
        for y, number, objective in numbered(all_labs):
            if y == x:
                about = [e for e in sets[x.set].values() if number in e.objectives]
                said = [(e.id.split("-")[1], e.title, e.kind, ", in words" * bool(e.rubric)) for e in about]
                which = "; ".join("{}. {} *({}{})*".format(*parts) for parts in said)
                points, caught = sum(e.points for e in about), sum(mutants.get(e.id, 0) for e in about)
                cells = (objective.replace("|", "&#124;"), which, points, caught or "")
                lines.append("| {} | {} | {} | {} |".format(*cells))
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


def read() -> tuple[list[Lab], dict[str, dict[str, Exercise]], dict[str, int]]:
    """The labs, the problem sets and the number of mutants of each exercise, as they are in this repository."""
    all_labs = [lab(name, text) for name, text in contents.texts().items()]
    sets = {x.set: exercise_set(x.set) for x in all_labs}
    keys = (ROOT / "tests" / "problems" / f"key_{name.replace('.', '_')}.py" for name in sets)
    mutants = {id: len(m) for key in keys for id, m in runpy.run_path(str(key))["MUTANTS"].items()}
    return all_labs, sets, mutants


def current() -> dict[str, str]:
    """What the page shows, by its place. Raises ValueError for a gap."""
    labs, sets, mutants = read()
    if missing := gaps(labs, sets):
        raise ValueError("; ".join(missing))
    return {"% all objectives\n": page(labs, sets, mutants)}
