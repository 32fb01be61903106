"""Many submissions: the self-test first, then every exercise of every notebook, by several graders at once.

There is a row for every submission, whatever is in it. What one grader does with one submission depends on the file, the
key, labkit and the seed, so a result once stored (``store``) is taken up again by the next run with the same four.

Symbols: a *core* runs one answer (``sandbox`` is the one that isolates it); a *plan* is all that a grader process must know.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from labkit.grade.collect import Submission
from labkit.grade.crew import Crew, Lost
from labkit.grade.exercise import Exercise
from labkit.grade.grading import grade_one
from labkit.grade.notebook import Cell, Unreadable, read_cells
from labkit.grade.selftest import key_path, load_key, selftest
from labkit.grade.submission import Answer, Released, find_answer, released, sets_of, where_defined
from labkit.grade.zygote import Zygote


@dataclass(frozen=True)
class Graded:
    """One exercise of one submission.

    answer: what was taken from the notebook. log: for the instructor; where a person is to judge, what to look for.
    """

    id: str
    title: str
    status: str
    points: float
    of: int
    message: str = ""
    log: str = ""
    answer: str = ""
    seconds: float = 0.0
    isolation: str = ""


@dataclass(frozen=True)
class Row:
    """One submission and one problem set. set: "" where it could not be told; then ``status`` says why there is nothing."""

    student: str
    submission: str
    set: str = ""
    status: str = ""
    message: str = ""
    exercises: tuple[Graded, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points reached so far; what waits for a human counts nothing yet."""
        return sum(e.points for e in self.exercises)

    @property
    def of(self) -> int:
        """Points there are."""
        return sum(e.of for e in self.exercises)

    @property
    def waiting(self) -> bool:
        """Whether a human has to look at this."""
        return "NEEDS_HUMAN" in (self.status, *(e.status for e in self.exercises))

    @property
    def failed(self) -> bool:
        """Whether the grader itself failed here."""
        return "GRADER_ERROR" in (self.status, *(e.status for e in self.exercises))


class Core(Protocol):
    """What runs an answer."""

    def grade(self, exercise: Exercise, answer: Answer, cases: Any, seed: int) -> Any:
        """Returns status, points, message, log, seconds and isolation as attributes."""

    def selftest(self, key: Path, name: str) -> list[str]:
        """Problems of set ``name``, as sentences."""


@dataclass(frozen=True)
class Plan:
    """key: the folder with key_*.py. notebooks: the folder with the released problem sets. sets: their names.

    seed: of all questions. core: opens a ``Core``, from the folders that no answer may see; must be found by name in
    another process. hide: those folders.
    """

    key: Path
    notebooks: Path
    sets: tuple[str, ...]
    seed: int
    core: Callable[[tuple[str, ...]], AbstractContextManager[Core]]
    hide: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    """What only the instructor has of a set: hidden cases, and what to look for in answers in words, by exercise."""

    hidden: Mapping[str, Any]
    look_for: Mapping[str, Sequence[str]]

    @classmethod
    def load(cls, folder: Path, name: str) -> Key:
        """From key_*.py in ``folder``."""
        module = load_key(key_path(folder, name))
        return cls(getattr(module, "HIDDEN", {}), getattr(module, "LOOK_FOR", {}))


def key_sets(key: Path) -> tuple[str, ...]:
    """The names of all sets that have a key in this folder. Raises ValueError if there is none."""
    names = [p.stem.removeprefix("key_").replace("_", ".") for p in key.glob("key_*.py")]
    if not names:
        raise ValueError(f"key must be a folder with key_*.py, as tests/exercises, not {str(key)!r}")
    return tuple(sorted(names, key=lambda n: [int(part) for part in n.split(".") if part.isdigit()]))


def which_sets(submissions: Sequence[Submission], plan: Plan) -> tuple[str, ...]:
    """The sets that occur among the submissions: those the self-test has to cover."""
    books = [released(name, plan.notebooks) for name in plan.sets]
    met = {name for s in submissions for name in _sets_in(s, books)}
    return tuple(name for name in plan.sets if name in met)


def graders(plan: Plan, jobs: int) -> Crew:
    """Grader processes that follow the plan, ``jobs`` at a time."""
    return Crew(partial(_grader, plan), jobs)


def self_test(names: Sequence[str], crew: Crew) -> Iterator[tuple[str, list[str]]]:
    """Yields (set, problems) for each: every reference gets full marks and every mutant less, by the same core."""
    for i, problems in crew.work_off([("selftest", name) for name in names]):
        yield names[i], [problems.why] if isinstance(problems, Lost) else problems


def grade_all(submissions: Sequence[Submission], crew: Crew) -> Iterator[tuple[Submission, list[Row]]]:
    """Yields each submission with its rows, as they come; every submission comes, and with at least one row."""
    for i, rows in crew.work_off([("grade", s) for s in submissions]):
        s = submissions[i]
        yield s, [Row(s.student, s.name, "", "GRADER_ERROR", rows.why)] if isinstance(rows, Lost) else rows


def grade_one_submission(
    s: Submission, books: Sequence[tuple[Released, Key]], core: Core, seed: int
) -> list[Row]:
    """The rows of one submission, one for each problem set in it, or one that says why there is none."""
    try:
        if s.problem:
            raise Unreadable(s.problem)
        cells = read_cells(s.path)
    except Unreadable as error:
        return [Row(s.student, s.name, "", "UNREADABLE", str(error))]
    names = sets_of(cells, [book for book, _ in books])
    if not names:
        why = "no exercise of any problem set was found in this notebook"
        return [Row(s.student, s.name, "", "NEEDS_HUMAN", why)]
    flags = ("several problem sets in one notebook",) if len(names) > 1 else ()
    rows = []
    for book, key in books:
        if book.name in names:
            done = tuple(_grade_exercise(e, cells, book, key, core, seed) for e in book.exercises.values())
            rows.append(Row(s.student, s.name, book.name, exercises=done, flags=flags))
    return rows


def flag_duplicates(rows: Sequence[Row]) -> list[Row]:
    """The same rows; where a student has several for one set, each says so."""
    same: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        same[row.student, row.set].append(row.submission)

    def flagged(row: Row) -> Row:
        others = [name for name in same[row.student, row.set] if name != row.submission]
        flag = f"also handed in: {', '.join(others)}"
        return replace(row, flags=(*row.flags, flag)) if row.set and others else row

    return [flagged(row) for row in rows]


def questions(exercise: Exercise, hidden: Any, seed: int) -> Iterator[Any]:
    """The cases of an exercise, hidden ones last; the same for every student of a run."""
    rng = np.random.default_rng([seed, *exercise.id.encode()])
    return chain(exercise.cases(rng), hidden(rng) if hidden else ())


@contextmanager
def sandbox(hide: tuple[str, ...] = ()) -> Iterator[Core]:
    """The core that runs each answer in a sandboxed process of its own. hide: folders that no answer may see."""
    with Zygote(hide=hide) as zygote:
        yield _Sandbox(zygote)


@dataclass(frozen=True)
class _Sandbox:
    zygote: Any

    def grade(self, exercise: Exercise, answer: Answer, cases: Any, seed: int) -> Any:
        return grade_one(
            exercise,
            answer.source,
            cases,
            setup=answer.setup,
            name=answer.name,
            zygote=self.zygote,
            seed=seed,
        )

    def selftest(self, key: Path, name: str) -> list[str]:
        return selftest(key, [name], self.zygote)


@contextmanager
def _grader(plan: Plan) -> Iterator[Callable[[Any], Any]]:
    books = [released(name, plan.notebooks) for name in plan.sets]
    keys: list[Key] = []  # read after the core has started, which must never have held them
    with plan.core(plan.hide) as core:

        def answer(task: tuple[str, Any]) -> Any:
            kind, content = task
            if kind == "selftest":
                return core.selftest(plan.key, content)
            if not keys:
                keys.extend(Key.load(plan.key, name) for name in plan.sets)
            return grade_one_submission(content, list(zip(books, keys, strict=True)), core, plan.seed)

        yield answer


def _sets_in(s: Submission, books: Sequence[Released]) -> list[str]:
    try:
        return [] if s.problem else sets_of(read_cells(s.path), books)
    except Unreadable:
        return []


def _grade_exercise(
    e: Exercise, cells: Sequence[Cell], book: Released, key: Key, core: Core, seed: int
) -> Graded:
    answer = find_answer(cells, e.id, book)
    row = partial(Graded, e.id, e.title, answer=answer.source)
    if answer.blank:
        return row("NO_RESULT", 0, e.points, "not answered: the cell is as it was handed out")
    if e.rubric:
        told = key.look_for.get(e.id, [""] * len(e.rubric))
        rubric = [
            f"{points} for: {what}. {look}" for (what, points), look in zip(e.rubric, told, strict=True)
        ]
        return row("NEEDS_HUMAN", 0, e.points, answer.note, "\n".join(rubric))
    if answer.note:
        return row("NEEDS_HUMAN", 0, e.points, answer.note)
    try:
        got = core.grade(e, answer, questions(e, key.hidden.get(e.id), seed), seed)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        return row("GRADER_ERROR", 0, e.points, "the grader failed here; this is not your fault", why)
    message = got.message
    missing = re.search(r"name '(\w+)' is not defined", message) if got.status == "ERROR" else None
    if missing and (number := where_defined(cells, missing[1])):
        message += (
            f"\n{missing[1]} is defined in cell {number}, outside the answer: move it into the marked cell"
        )
    return row(
        got.status, got.points, e.points, message, got.log, seconds=got.seconds, isolation=got.isolation
    )
