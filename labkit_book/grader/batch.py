"""Many submissions: the self-test first, then every exercise of every notebook, by several graders at once.

There is a row for every submission, whatever is in it. What one grader does with one submission depends on the file, the
key, labkit and the seed, so a result once stored (``store``) is taken up again by the next run with the same four.

Symbols: a *core* runs one answer (``sandbox`` opens the one that isolates it); a *plan* is all that a grader process
must know.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from labkit.comm.errors import described
from labkit_book.grader.collect import Submission
from labkit_book.grader.grading import grade_one
from labkit_book.grader.isolation import Limits
from labkit_book.grader.key import Key, selftest
from labkit_book.grader.notebook import Cell, Unreadable, read_cells
from labkit_book.grader.outcome import Outcome, Row
from labkit_book.grader.pool import Lost, Pool
from labkit_book.grader.submission import Answer, Released, lab_of, sets_of
from labkit_book.grader.zygote import Zygote
from labkit_book.problems.asking import NO_ANSWER, GraderFailure
from labkit_book.problems.exercise import Case, Exercise


@dataclass(frozen=True)
class _Core:
    """What runs an answer: a fork server's processes."""

    zygote: Zygote

    def grade(self, exercise: Exercise, answer: Answer, cases: Iterator[Case], seed: int) -> Outcome:
        """What becomes of one answer."""
        return grade_one(exercise, answer.source, cases, setup=answer.setup, helpers=answer.helpers, name=answer.name,
                         zygote=self.zygote, seed=seed)  # fmt: skip

    def selftest(self, key: Path, id: str) -> list[str]:
        """Problems of an exercise, as sentences."""
        return selftest(key, id, self.zygote)


@dataclass(frozen=True)
class Plan:
    """key: the folder with key_*.py. notebooks: the folder with the released problem sets. sets: their names; asked: those
    to be graded.

    seed: of all questions. core: opens a core; must be found by name in another process. hide: folders that no answer
    may see. limits: what an answer may use. trust: whether to go on where nothing keeps answers from the machine's files.
    submission_s: seconds for all of one notebook.
    """

    key: Path
    notebooks: Path
    sets: tuple[str, ...]
    seed: int
    core: Callable[[Plan], AbstractContextManager[_Core]]
    asked: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    trust: bool = False
    submission_s: float = 300.0

    def met_by(self, submissions: Sequence[Submission]) -> tuple[str, ...]:
        """The sets that occur among the submissions, asked for or not."""
        books = [Released.load(name, self.notebooks) for name in self.sets]
        met: set[str] = set()
        for s in submissions:
            with suppress(Unreadable):
                met.update([] if s.problem else sets_of(read_cells(s.path), books))
        return tuple(name for name in self.sets if name in met)


class Graders(Pool):
    """Grader processes that follow the plan, ``jobs`` at a time."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        # A submission ends itself in time; a grader that is not through long after that has failed.
        limit_s = plan.submission_s + plan.limits.exercise_s + 300
        super().__init__(partial(_grader, plan), jobs, limit_s)

    def selftest(self, ids: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Yields (exercise, problems) for each: every reference gets full marks and every mutant less, by the same core."""
        for i, problems in self.work_off([("selftest", id) for id in ids]):
            yield ids[i], [problems.why] if isinstance(problems, Lost) else problems

    def grade(self, submissions: Sequence[Submission]) -> Iterator[tuple[Submission, list[Row]]]:
        """Yields each submission with its rows, as they come; every submission comes, and with at least one row."""
        for i, rows in self.work_off([("grade", s) for s in submissions]):
            s = submissions[i]
            lost = isinstance(rows, Lost)
            yield s, [Row(s.student, s.name, "", "GRADER_ERROR", rows.why)] if lost else rows


@contextmanager
def sandbox(plan: Plan) -> Iterator[_Core]:
    """The core that runs each answer in an isolated process of its own.

    Raises GraderFailure where nothing hides the machine's files from answers, unless the plan trusts them.
    """
    with Zygote(plan.limits, plan.hide) as zygote:
        if not (zygote.isolation.hides_files or plan.trust):
            raise GraderFailure(
                "this machine can hide no files from answers, which could read the key and everybody's work; "
                "grade on Linux, or give --trust if you trust everybody who handed in"
            )
        yield _Core(zygote)


@contextmanager
def _grader(plan: Plan) -> Iterator[Callable[[tuple[str, Any]], Any]]:
    """What a process of the pool opens: what answers its tasks, ``("selftest", exercise)`` and ``("grade", submission)``."""
    books = [Released.load(name, plan.notebooks) for name in plan.sets]
    # Keys are read after the core has started, which must never have held them.
    key_of = cache(partial(Key.load, plan.key))
    with plan.core(plan) as core:

        def answer(task: tuple[str, Any]) -> Any:
            kind, content = task
            if kind == "selftest":
                return core.selftest(plan.key, content)
            return _grade_submission(content, books, key_of, core, plan)

        yield answer


def _grade_submission(
    s: Submission, books: Sequence[Released], key_of: Callable[[str], Key], core: _Core, plan: Plan
) -> list[Row]:
    """The rows of one submission, one for each problem set in it that is asked for, or one that says why there is none."""
    until = time.monotonic() + plan.submission_s
    row = partial(Row, s.student, s.name)
    try:
        if s.problem:
            raise Unreadable(s.problem)
        cells = read_cells(s.path)
    except Unreadable as error:
        return [row("", "UNREADABLE", str(error))]
    names = sets_of(cells, books)
    if not names:
        if lab := lab_of(cells, plan.notebooks.resolve().parent):
            return [row("", "LEFT_OUT", f"this is the lab {lab}, not a problem set")]
        return [row("", "NEEDS_HUMAN", "no exercise of any problem set was found in this notebook")]
    wanted = [name for name in names if name in (plan.asked or names)]
    if not wanted:
        return [row("", "LEFT_OUT", f"problem set {' and '.join(names)} was not asked for")]
    flags = ("several problem sets in one notebook",) if len(wanted) > 1 else ()
    rows = []
    for book in (b for b in books if b.name in wanted):
        ask = partial(_grade_exercise, cells=cells, book=book, key=key_of(book.name), core=core, plan=plan)
        done = tuple(ask(e, until=until) for e in book.exercises.values())
        rows.append(row(book.name, exercises=done, flags=flags))
    return rows


def flag_all(rows: Sequence[Row]) -> list[Row]:
    """The same rows; where a person should have a look, each says at what. No points are taken for it.

    That is where a student has several files for one set, and where an answer was up to something.
    """
    same: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        same[row.student, row.set].append(row.submission)
    out = []
    for row in rows:
        others = [name for name in same[row.student, row.set] if name != row.submission]
        flags = [f"also handed in: {', '.join(others)}"] if row.set and others else []
        for status, words, said in (
            ("", "is what you are asked to write", "called what was to be written in"),
            ("KILLED", "", "ended by force in"),
            ("", NO_ANSWER, "sent the grader no answer but something else in"),
        ):
            ids = [e.id for e in row.exercises if words in e.message and status in ("", e.status)]
            flags += [f"{said} {', '.join(ids)}"] if ids else []
        out.append(row.flagged(*flags))
    return out


def _grade_exercise(
    e: Exercise,
    cells: Sequence[Cell],
    book: Released,
    key: Key,
    core: _Core,
    plan: Plan,
    until: float,
) -> Outcome:
    answer = book.answer(cells, e.id)
    made = partial(Outcome, e.id, e.title, points=0, of=e.points, answer=answer.source)
    if answer.blank:
        return made("NO_RESULT", message="not answered: the cell is as it was handed out")
    if e.rubric:
        told = zip(e.rubric, key.look_for.get(e.id, [""] * len(e.rubric)), strict=True)
        rubric = "\n".join(f"{points} for: {what}. {look}" for (what, points), look in told)
        return made("NEEDS_HUMAN", message=answer.note, log=rubric)
    if answer.note:
        return made("NEEDS_HUMAN", message=answer.note)
    if time.monotonic() > until:
        said = "not run: the exercises before it had taken all the time that there is for a notebook"
        return made("TIMEOUT", message=said)
    questions = key.questions(e, [plan.seed, *e.id.encode()])  # the same for every student of a run
    try:
        got = core.grade(e, answer, questions, plan.seed)
    except Exception as error:
        said = "the grader failed here; this is not your fault"
        return made("GRADER_ERROR", message=said, log=described(error))
    return replace(got, answer=answer.source)
