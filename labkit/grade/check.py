"""``check``: what a student runs in the notebook. It answers todo, wrong or right, at once, and never raises."""

from __future__ import annotations

import copy
import html
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit.comm import LaunchError, RankError, launch
from labkit.grade.exercise import Case, Exercise, Wrong, find

_PACKAGE = str(Path(__file__).parents[1])
_COLOURS = {"todo": "#6e6e6e", "wrong": "#b54708", "right": "#0b7a53"}
_SIGNS = {"todo": "○", "wrong": "✗", "right": "✓"}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. status: ``"todo"``, ``"wrong"`` or ``"right"``; points out of ``of``."""

    id: str
    title: str
    status: str
    points: int
    of: int
    message: str = ""

    def __str__(self) -> str:
        line = (
            f"{_SIGNS[self.status]} {self.id} {self.title}: {self.status}, {self.points} of {self.of} points"
        )
        return f"{line}\n  {self.message}" if self.message else line

    __repr__ = __str__

    def _repr_html_(self) -> str:
        message = (
            f"<pre style='margin:.3em 0 0;white-space:pre-wrap'>{html.escape(self.message)}</pre>"
            if self.message
            else ""
        )
        return (
            f"<div class='labkit-verdict' style='border-left:4px solid {_COLOURS[self.status]};padding:.3em .8em'>"
            f"{_SIGNS[self.status]} <b>{html.escape(self.id)}</b> {html.escape(self.title)}: "
            f"<b>{self.status}</b>, {self.points} of {self.of} points{message}</div>"
        )


def check(id: str, answer: Any, *, seed: int = 0) -> Verdict:
    """Check one exercise.

    id: as in ``"10.3-2"``. answer: your function, or your value where the exercise asks for one.
    seed: of the questions; the notebook always asks the same ones.
    Returns a ``Verdict``. Raises ValueError only for an id that does not exist.
    """
    exercise = find(id)
    return judge(exercise, answer, exercise.cases(np.random.default_rng(seed)))


def judge(exercise: Exercise, answer: Any, cases: Iterable[Case]) -> Verdict:
    """Put ``cases`` to ``answer`` one after another; the first that is wrong decides."""
    status, message = "right", ""
    try:
        for case in cases:
            given = _ask(exercise, answer, case)
            if _is_blank(given):
                status = "todo"
                break
            case.judge(given)
    except NotImplementedError:
        status = "todo"
    except Wrong as error:
        status, message = "wrong", f"{error}{_with(case)}"
    except (LaunchError, RecursionError) as error:
        if isinstance(error.__cause__, NotImplementedError):
            status = "todo"
        else:
            status, message = "wrong", f"{_headline(error)}{_with(case)}{_own_lines(error)}"
    except Exception as error:
        status, message = (
            "wrong",
            f"it raised {type(error).__name__}: {error}{_with(case)}{_own_lines(error)}",
        )
    return Verdict(
        exercise.id, exercise.title, status, exercise.points * (status == "right"), exercise.points, message
    )


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
        return "\n".join([*lines, f"{self.points} of {sum(v.of for v in self.verdicts)} points"])

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
    before = copy.deepcopy(case.args)
    run = partial(launch, _as_rank, case.K, answer, case.args, world=case.world, timeout_s=20)
    given = run() if case.K else answer(*case.args)
    if not _equal(before, case.args):
        raise Wrong("your function changed one of its arguments; work on a copy")
    return given


def _as_rank(comm: Any, f: Any, args: tuple) -> Any:
    return f(comm, *args[comm.rank])


def _is_blank(given: Any) -> bool:
    if given is None or given is Ellipsis:
        return True
    if isinstance(given, dict):
        return bool(given) and any(v is None or v is Ellipsis for v in given.values())
    results = getattr(given, "results", None)
    return isinstance(results, list) and all(r is None or r is Ellipsis for r in results)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    if callable(a) or type(a).__eq__ is object.__eq__:
        return True
    return bool(np.all(a == b))


def _with(case: Case) -> str:
    return f" ({case.label})" if case.label else ""


def _headline(error: BaseException) -> str:
    return error.message if isinstance(error, RankError) else f"{type(error).__name__}: {error}"


def _own_lines(error: BaseException) -> str:
    """Where it happened in the student's own code, without the machinery in between."""
    root = error.__cause__ or error
    own = [f for f in traceback.extract_tb(root.__traceback__) if not f.filename.startswith(_PACKAGE)]
    return "".join(f"\n  line {f.lineno} of {f.name}: {f.line}" for f in own[-3:] if f.line)
