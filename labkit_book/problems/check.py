"""``check``: what a student runs in the notebook. It answers todo, wrong or right, at once, and never raises."""

from __future__ import annotations

import html
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from labkit.comm import launch
from labkit_book.problems import asking, wire
from labkit_book.problems.catalogue import find
from labkit_book.problems.exercise import Case, Exercise, Wrong
from labkit_book.problems.withheld import taken_away

_LOOKS = {
    "todo": ("○", "#6e6e6e"),
    "wrong": ("✗", "#b54708"),
    "right": ("✓", "#0b7a53"),
    "for a human": ("✎", "#4b5fb5"),
}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. status: ``"todo"``, ``"wrong"``, ``"right"``, or, for an answer in words, ``"for a human"``.

    points: reached, out of ``of``, by halves where an answer has parts; for a human, none so far. question: the arguments
    with which it was not right, to try again as ``f(*question)``, or, where K workers answer together, a tuple of them for
    each rank. None where it was right.
    """

    id: str
    title: str
    status: str
    points: float
    of: int
    message: str = ""
    question: tuple | None = field(default=None, compare=False)

    def __str__(self) -> str:
        line = f"{_LOOKS[self.status][0]} {self.id} {self.title}: {self.status}, {self._worth}"
        return f"{line}\n  {self.message}" if self.message else line

    __repr__ = __str__

    @property
    def _worth(self) -> str:
        return f"{self.of} points" if self.status == "for a human" else f"{self.points:g} of {self.of} points"

    def _repr_html_(self) -> str:
        sign, colour = _LOOKS[self.status]
        # JupyterLab breaks lines of a <pre> anywhere, also inside a word.
        style = "margin:.3em 0 0;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word"
        message = f"<pre style='{style}'>{html.escape(self.message)}</pre>"
        message *= bool(self.message)
        return (
            f"<div class='labkit-verdict' style='border-left:4px solid {colour};padding:.3em .8em'>"
            f"{sign} <b>{html.escape(self.id)}</b> {html.escape(self.title)}: "
            f"<b>{self.status}</b>, {self._worth}{message}</div>"
        )


def check(id: str, answer: Any = None, *, seed: int = 0) -> Verdict:
    """Check one exercise.

    id: as in ``"10.3-2"``. answer: your function, or your value where the exercise asks for one; nothing where it asks
        for words, which a person reads.
    seed: of the questions; the notebook always asks the same ones.
    Returns a ``Verdict``. Raises ValueError only for an id that does not exist.

    >>> def sync_step(comm, batches, w, eta, decay, c): ...
    >>> check("10.3-1", sync_step).status
    'todo'
    """
    exercise = find(id)
    if exercise.rubric:
        asked = "".join(f"\n  {points} for: {what}" for what, points in exercise.rubric)
        message = f"a person reads your words{asked}"
        return Verdict(id, exercise.title, "for a human", 0, exercise.points, message)
    return judge(exercise, answer, exercise.cases(np.random.default_rng(seed)))


def judge(exercise: Exercise, answer: Any, cases: Iterable[Case]) -> Verdict:
    """Put ``cases`` to ``answer`` one after another; the first that is wrong decides."""
    found = asking.examine(cases, _Asked(exercise, answer).ask)
    status = {asking.PASS: "right", asking.NO_RESULT: "todo"}.get(found.status, "wrong")
    message = found.message
    if status == "todo" and not message and callable(answer):
        message = f"{exercise.function} returned nothing: is the return missing? Or is it not done yet?"
    points, question = found.points(exercise.points), found.asked.args if found.asked else None
    return Verdict(exercise.id, exercise.title, status, points, exercise.points, message, question)


def summary(*verdicts: Verdict) -> _Summary:
    """The points of a whole set."""
    return _Summary(verdicts)


@dataclass(frozen=True)
class _Summary:
    """Several verdicts, as a table."""

    verdicts: tuple[Verdict, ...]

    @property
    def points(self) -> float:
        """Points reached."""
        return sum(v.points for v in self.verdicts)

    def __str__(self) -> str:
        lines = [str(v).splitlines()[0] for v in self.verdicts]
        words = sum(v.of for v in self.verdicts if v.status == "for a human")
        more = f", and up to {words} for your words, which a person reads" if words else ""
        of = sum(v.of for v in self.verdicts) - words
        return "\n".join([*lines, f"{self.points:g} of {of} points{more}"])

    __repr__ = __str__


class _Asked:
    """An answer asked here and now, by the grader's rules: what is withheld, what travels, how long it may take."""

    def __init__(self, exercise: Exercise, answer: Any) -> None:
        self.exercise, self.answer, self.spent_s = exercise, answer, 0.0

    def ask(self, case: Case) -> Any:
        """What is answered, as it would reach the grader. Raises as ``examine`` expects."""
        try:
            if not self.exercise.function:
                return wire.as_sent(self.answer)
            if self.answer is None or self.answer is Ellipsis:
                return None
            if not callable(self.answer):
                said = f"check({self.exercise.id!r}, {self.exercise.function})"
                raise Wrong(f"pass the function itself, {said}, not what it returns")
            return self._called(case)
        except wire.Unfit as error:
            raise Wrong(f"{asking.TOO_LARGE}: {error}") from None

    def _called(self, case: Case) -> Any:
        if case.world == "processes":
            # Neither the start of processes is the answer's time, nor what it imports there.
            launch(_nothing, case.K, self.answer, world=case.world)
        before, began = wire.encode(case.args, []), time.monotonic()
        with taken_away(self.exercise.withheld), _ended_after(asking.CASE_S):
            if case.K:
                args = (self.answer, case.clock, case.args)
                given = launch(_as_rank, case.K, *args, world=case.world, timeout_s=asking.CASE_S)
                given = replace(given, results=[wire.as_sent(r) for r in given.results])
            else:
                given = wire.as_sent(self.answer(*case.args))
        took_s = time.monotonic() - began
        self.spent_s += took_s
        most = ((took_s, asking.CASE_S, "a question"), (self.spent_s, asking.EXERCISE_S, "an exercise"))
        for s, limit_s, what in most:
            if s > limit_s:
                said = f"it took {s:.0f} s, and the grader gives {what} {limit_s:.0f} s"
                raise asking.Ended(asking.TIMEOUT, said)
        if wire.encode(case.args, []) != before:
            raise Wrong(asking.CHANGED)
        return given


class _Endless(BaseException):
    """What no answer catches by `except Exception`."""


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """End what runs inside after so many seconds, where the system has timers and this is the main thread."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def end(*_: Any) -> None:
        if running:
            raise _Endless

    handler = signal.signal(signal.SIGALRM, end)
    before, began = signal.setitimer(signal.ITIMER_REAL, seconds), time.monotonic()
    try:
        yield
    except _Endless:
        said = f"it was not through after {seconds:.0f} s, and the grader gives a question no more"
        raise asking.Ended(asking.TIMEOUT, f"{said}: is there a loop without end?") from None
    finally:
        running = False
        # Somebody else's timer goes on.
        left = before[0] and max(before[0] - (time.monotonic() - began), 1e-3)
        signal.setitimer(signal.ITIMER_REAL, left, before[1])
        signal.signal(signal.SIGALRM, handler)


def _nothing(comm: Any, answer: Any) -> None:
    pass


def _as_rank(comm: Any, f: Any, clock: bool, args: tuple) -> Any:
    if not clock:
        comm.compute = partial(_compute, comm.compute)
    return f(comm, *args[comm.rank])


def _compute(compute: Any, work: Any = None, seconds: Any = None) -> Any:
    if seconds is not None or not (work is None or callable(work)):
        raise ValueError(asking.NO_CLOCK)
    return compute(work)
