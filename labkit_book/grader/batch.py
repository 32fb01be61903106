"""Many submissions, each in a process that is forked from this one, with all that it has loaded.

It may die, hang or want more memory than there is for it: then its submission's row says so, and no other is lost with it.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from multiprocessing.connection import wait
from pathlib import Path
from resource import RLIMIT_DATA, getpagesize, getrlimit, setrlimit
from typing import Any

from labkit.comm.errors import described
from labkit.comm.netns import die_with_parent
from labkit_book.grader.collect import Cell, Submission, Unreadable
from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key, selftest
from labkit_book.grader.results import Outcome, Row
from labkit_book.grader.submission import Released, sets_of
from labkit_book.grader.zygote import Limits, Zygote
from labkit_book.problems.asking import GraderFailure
from labkit_book.problems.exercise import Exercise

SUBMISSION_S = 300.0  # for all of one notebook; a grader that is not through long after that has failed
MEMORY_BYTES = 150_000_000  # that a process of the grader may take beyond the 150 MB with which it begins


@dataclass(frozen=True)
class Plan:
    """What is to be graded, and how."""

    key: Path  # the folder with key_*.py
    notebooks: Path  # the folder with the released problem sets
    sets: tuple[str, ...]  # their names
    seed: int  # of all questions
    hide: tuple[Path, ...] = ()  # that no answer may see
    limits: Limits = field(default_factory=Limits)
    trust: bool = False  # to do without walls


class Graders:
    """What grades by a plan, ``jobs`` submissions at a time."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan, self.jobs = plan, jobs
        self.books = {name: Released.load(name, plan.notebooks) for name in plan.sets}

    @cached_property
    def keys(self) -> dict[str, Key]:
        """Of every set: read once, before the processes are forked, which then have them. Raises GraderFailure."""
        keys = {}
        for name in self.books:
            try:
                keys[name] = Key.load(self.plan.key, name)
            except Exception as error:
                said = f"the key of {name} in {self.plan.key} can't be read: {described(error)}"
                raise GraderFailure(said) from error
        return keys

    def only(self, submissions: Sequence[Submission]) -> None:
        """Know, from here on, no other sets than those that occur among the submissions."""
        found = in_processes(self._sets_in, submissions, self.jobs)
        met = {name for _, names in found if not isinstance(names, Lost) for name in names}
        self.books = {name: book for name, book in self.books.items() if name in met}
        for line in "\n".join(book.setup for book in self.books.values()).splitlines():
            with suppress(ImportError):
                exec(line, {})  # what the judges need too, as torch: imported here once
        _ = self.keys

    def selftest(self) -> Iterator[str]:
        """Yields what is wrong: every reference must get full marks and every mutant less."""
        ids = [id for book in self.books.values() for id in book.exercises]
        for id, problems in in_processes(self._tested, ids, self.jobs):
            yield from [f"{id}: {problems}"] if isinstance(problems, Lost) else problems

    def grade(self, submissions: Sequence[Submission]) -> Iterator[tuple[Submission, list[Row]]]:
        """Yields each submission with its rows, as they come; every submission comes, and with at least one row."""
        for s, rows in in_processes(self.rows, submissions, self.jobs):
            yield s, [Row(s.student, s.name, "", "GRADER_ERROR", rows)] if isinstance(rows, Lost) else rows

    def _sets_in(self, s: Submission) -> list[str]:
        with suppress(Unreadable):
            return sets_of(s.cells(), self.books)
        return []

    def _tested(self, id: str) -> list[str]:
        name = id.rpartition("-")[0]
        with self.zygote([self.books[name]]) as zygote:
            return list(selftest(self.keys[name], id, zygote))

    def zygote(self, books: Sequence[Released], more: str = "") -> Zygote:
        """A fork server for answers to these sets. more: what else they import."""
        setup = "\n".join([*(book.setup for book in books), more])
        withheld = {name for book in books for e in book.exercises.values() for name in e.withheld}
        return Zygote(self.plan.limits, self.plan.hide, setup, sorted(withheld), self.plan.trust)

    def rows(self, s: Submission) -> list[Row]:
        """Of one submission, one for each problem set in it, or one that says why there is none."""
        row = partial(Row, s.student, s.name)
        try:
            cells = s.cells()
        except Unreadable as error:
            return [row("", "UNREADABLE", str(error))]
        names = sets_of(cells, self.books)
        if not names and (self.plan.notebooks.resolve().parent / s.path.name).exists():
            return [row("", "LEFT_OUT", "by its name this is a lab, not a problem set")]
        if not names:
            return [row("", "NEEDS_HUMAN", "no exercise of any problem set was found in this notebook")]
        flags = ["several problem sets in one notebook"] if len(names) > 1 else []
        books, until = [self.books[name] for name in names], time.monotonic() + SUBMISSION_S
        torch = "import torch" * any("torch" in c.source for c in cells)
        with ExitStack() as opened:
            # Started with the first answer that there is.
            zygote = cache(lambda: opened.enter_context(self.zygote(books, torch)))
            graded = partial(self._exercise, cells=cells, zygote=zygote, until=until)
            done = {b.name: [graded(e, b) for e in b.exercises.values()] for b in books}
        return [row(name, exercises=done[name], flags=flags) for name in names]

    def _exercise(self, e: Exercise, book: Released, cells: list[Cell], zygote: Any, until: float) -> Outcome:
        """What became of one exercise of a notebook. until: when the notebook has had its time."""
        answer = book.answer(cells, e.id)
        made = partial(Outcome, e.id, e.title, points=0, of=e.points, answer=answer.source)
        if answer.blank:
            return made("NO_RESULT", message="not answered: the cell is as it was handed out")
        if e.rubric or answer.note:
            return made("NEEDS_HUMAN", message=answer.note)
        if time.monotonic() > until:
            return made("TIMEOUT", message="not run: the exercises before it took all of the notebook's time")
        # The same for every student of a run.
        questions = self.keys[book.name].questions(e, [self.plan.seed, *e.id.encode()])
        taken: dict[str, Any] = {"setup": answer.setup, "cells": answer.cells, "name": answer.name}
        try:
            return grade_one(e, answer.source, questions, **taken, zygote=zygote(), seed=self.plan.seed)
        except Exception as error:
            return made("GRADER_ERROR", log=described(error))


def flag_all(rows: Sequence[Row]) -> list[Row]:
    """The same rows; where a student has several files for one set, each says so."""
    files = Counter((row.student, row.set) for row in rows if row.set)
    said = [(f"one of {n} files for this set",) * (n > 1) for n in (files[r.student, r.set] for r in rows)]
    return [replace(row, flags=(*row.flags, *more)) for row, more in zip(rows, said, strict=True)]


class Lost(str):
    """Why there is no answer to a task."""


def in_processes(
    work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int, limit_s: float = 2 * SUBMISSION_S
) -> Iterator[tuple[Any, Any]]:
    """Yields (task, ``work(task)`` or Lost) as they come. jobs: at a time; limit_s: seconds for each."""
    context, waiting = multiprocessing.get_context("fork"), list(tasks)[::-1]
    running: dict[Any, tuple[Any, Any, float]] = {}  # by its pipe: the task, the process, and until when
    # Python loses a ^C in the middle of a fork, and in a finalizer, so none is let in but where we wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task, (pipe, theirs) = waiting.pop(), context.Pipe(duplex=False)
                process = context.Process(target=_main, args=(work, task, theirs, os.getpid()), daemon=True)
                process.start()
                theirs.close()
                running[pipe] = task, process, time.monotonic() + limit_s
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            ready = wait(list(running), timeout=1.0)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            late = [pipe for pipe, (_, _, until) in running.items() if time.monotonic() > until]
            for pipe in {*ready, *late}:
                task, process, _ = running.pop(pipe)
                yield task, _ended(pipe, process)
    finally:
        for pipe, (_, process, _) in running.items():
            _ended(pipe, process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _ended(pipe: Any, process: Any) -> Any:
    """End a process; what it has sent, Lost if nothing has come."""
    try:
        return pipe.recv() if pipe.poll() else Lost("its grader was not through in time")
    except (EOFError, OSError):
        process.join(5)
        return Lost(f"its grader died (exit code {process.exitcode})")
    finally:
        process.kill()
        process.join()
        pipe.close()


def _main(work: Callable[[Any], Any], task: Any, pipe: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the one that waits
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if sys.platform == "linux":
        die_with_parent()
        if os.getppid() != parent:  # it had ended before that
            return
        threading.stack_size(1 << 20)  # a simulated worker's thread would take eight times as much
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        _, hard = getrlimit(RLIMIT_DATA)  # which the fork server goes back to
        setrlimit(RLIMIT_DATA, (pages * getpagesize() + MEMORY_BYTES, hard))  # beyond it, a MemoryError
    try:
        result = work(task)
    except Exception:
        result = Lost(traceback.format_exc(limit=-4))
    with suppress(BrokenPipeError):
        pipe.send(result)
