"""``check``: what a student runs in the notebook. It answers todo, wrong or right, at once, and never raises."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labkit.comm import launch
from labkit.grade import wire
from labkit.grade.asking import CHANGED, NO_RESULT, PASS, examine
from labkit.grade.exercise import Case, Exercise, Wrong, find

_COLOURS = {"todo": "#6e6e6e", "wrong": "#b54708", "right": "#0b7a53", "for a human": "#4b5fb5"}
_SIGNS = {"todo": "○", "wrong": "✗", "right": "✓", "for a human": "✎"}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. status: ``"todo"``, ``"wrong"``, ``"right"``, or, for an answer in words, ``"for a human"``.

    points: reached, out of ``of``; for a human, none so far.
    """

    id: str
    title: str
    status: str
    points: int
    of: int
    message: str = ""

    def __str__(self) -> str:
        line = f"{_SIGNS[self.status]} {self.id} {self.title}: {self.status}, {self._worth}"
        return f"{line}\n  {self.message}" if self.message else line

    __repr__ = __str__

    @property
    def _worth(self) -> str:
        return f"{self.of} points" if self.status == "for a human" else f"{self.points} of {self.of} points"

    def _repr_html_(self) -> str:
        message = (
            f"<pre style='margin:.3em 0 0;white-space:pre-wrap'>{html.escape(self.message)}</pre>"
            if self.message
            else ""
        )
        return (
            f"<div class='labkit-verdict' style='border-left:4px solid {_COLOURS[self.status]};padding:.3em .8em'>"
            f"{_SIGNS[self.status]} <b>{html.escape(self.id)}</b> {html.escape(self.title)}: "
            f"<b>{self.status}</b>, {self._worth}{message}</div>"
        )


def check(id: str, answer: Any = None, *, seed: int = 0) -> Verdict:
    """Check one exercise.

    id: as in ``"10.3-2"``. answer: your function, or your value where the exercise asks for one; nothing where it asks
        for words, which a person reads.
    seed: of the questions; the notebook always asks the same ones.
    Returns a ``Verdict``. Raises ValueError only for an id that does not exist.

    >>> def sync_step(comm, X, y, w, eta): ...
    >>> check("10.3-1", sync_step).status
    'todo'
    """
    exercise = find(id)
    if exercise.rubric:
        asked = "".join(f"\n  {points} for: {what}" for what, points in exercise.rubric)
        return Verdict(
            id, exercise.title, "for a human", 0, exercise.points, f"a person reads your words{asked}"
        )
    return judge(exercise, answer, exercise.cases(np.random.default_rng(seed)))


def judge(exercise: Exercise, answer: Any, cases: Iterable[Case]) -> Verdict:
    """Put ``cases`` to ``answer`` one after another; the first that is wrong decides."""
    found = examine(cases, partial(_ask, exercise, answer))
    status = {PASS: "right", NO_RESULT: "todo"}.get(found.status, "wrong")
    points = exercise.points * (status == "right")
    message = found.message if status == "wrong" else ""
    return Verdict(exercise.id, exercise.title, status, points, exercise.points, message)


def summary(*verdicts: Verdict) -> Summary:
    """The points of a whole set."""
    return Summary(verdicts)


@dataclass(frozen=True)
class Summary:
    """Several verdicts, as a table."""

    verdicts: tuple[Verdict, ...]

    @property
    def points(self) -> int:
        """Points reached."""
        return sum(v.points for v in self.verdicts)

    def __str__(self) -> str:
        lines = [str(v).splitlines()[0] for v in self.verdicts]
        words = sum(v.of for v in self.verdicts if v.status == "for a human")
        more = f", and up to {words} for your words, which a person reads" if words else ""
        return "\n".join(
            [*lines, f"{self.points} of {sum(v.of for v in self.verdicts) - words} points{more}"]
        )

    __repr__ = __str__


def _ask(exercise: Exercise, answer: Any, case: Case) -> Any:
    if not exercise.function:
        return answer
    if answer is None or answer is Ellipsis:
        return None
    if not callable(answer):
        raise Wrong(
            f"pass the function itself, check({exercise.id!r}, {exercise.function}), not what it returns"
        )
    before = wire.encode(case.args, [])
    run = partial(launch, _as_rank, case.K, answer, case.args, world=case.world, timeout_s=20)
    given = run() if case.K else answer(*case.args)
    if wire.encode(case.args, []) != before:
        raise Wrong(CHANGED)
    return given


def _as_rank(comm: Any, f: Any, args: tuple) -> Any:
    return f(comm, *args[comm.rank])
