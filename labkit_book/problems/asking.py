"""How an answer is examined, and the words for what is found: the same in the notebook's check and in the grader.

The two differ in who asks: ``check`` calls the student's function, the grader sends the question to another process. Both
give ``examine`` a function that takes a case and returns what was answered, or raises.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labkit.comm.errors import LaunchError, RankError, RankTimeout, described
from labkit_book.problems.exercise import Case, Wrong

PASS, WRONG, ERROR, TIMEOUT, NO_RESULT, KILLED = "PASS", "WRONG", "ERROR", "TIMEOUT", "NO_RESULT", "KILLED"
# seconds of the wall clock that the grader gives one question, and an exercise
CASE_S, EXERCISE_S = 10.0, 30.0
TOO_LARGE = "the answer is too large to be looked at"
NO_CLOCK = "compute(seconds=...) is not asked for in this exercise: leave it out"
NO_ANSWER = "what it sent to the grader is no answer"
CHANGED = "your function changed one of its arguments; work on a copy"
_PACKAGES = str(Path(__file__).parents[2] / "labkit")  # and labkit_book, whose name begins alike


class Ended(Exception):
    """No answer came, and why. status: ``TIMEOUT``, ``NO_RESULT`` or ``KILLED``; the message is for the student."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class GraderFailure(RuntimeError):
    """The grader itself could not do its work; nothing is said about any answer."""


class Raised(Exception):
    """What an answer raised in another process; a subclass has the name of its type.

    own_lines: where, in the student's own code; trace: all of it, for the log; hint: what may help.
    """

    own_lines = ""
    trace = ""
    hint = ""


@dataclass(frozen=True)
class _Finding:
    """What was found: a status, a message for the student, and for the log which case decided and the traceback, if any.

    asked: the case itself. parts: of an answer in parts, which are right.
    """

    status: str
    message: str = ""
    case: str = ""
    trace: str = ""
    asked: Case | None = None
    parts: Mapping[str, bool] = field(default_factory=dict)

    @property
    def right(self) -> list[str]:
        """Of an answer in parts, those that are right."""
        return [name for name, is_right in self.parts.items() if is_right]

    def points(self, of: int) -> float:
        """What this is worth: all of it, or of an answer in parts those that are right, down to half a point."""
        return of if self.status == PASS else 2 * of * len(self.right) // max(len(self.parts), 1) / 2


def examine(cases: Iterable[Case], ask: Callable[[Case], Any]) -> _Finding:
    """Put ``cases`` one after another; the first that is not right decides. Raises GraderFailure, also if there are none.

    Of an answer in parts, those count that are right in every case.
    """
    number, first = 0, None
    for number, case in enumerate(cases, 1):
        found = _examined(case, number, ask)
        if found.status == PASS:
            continue
        first = first or replace(found, asked=case)
        parts = {name: is_right and found.parts.get(name, False) for name, is_right in first.parts.items()}
        first = replace(first, parts=parts)
        if not first.right:
            return first
    if not number:
        raise GraderFailure("there is no question to put, and so nothing to be right about")
    if first is None:
        return _Finding(PASS)
    return replace(first, message=f"{first.message}\n  right: {', '.join(first.right)}")


def _examined(case: Case, number: int, ask: Callable[[Case], Any]) -> _Finding:
    at = f"case {number}" + (f", {case.label}" if case.label else "")
    try:
        given = ask(case)
    except (Exception, SystemExit) as error:
        return _failed(error, case, at)
    if _is_blank(given) and not (case.none and given is None):
        if lacking := _still_empty(given):
            return _Finding(NO_RESULT, lacking, at, parts=_judged(case, given, at).parts)
        said = f"it returned nothing here: does a branch lack its return?{_with(case)}"
        return _Finding(WRONG, said, at) if number > 1 else _Finding(NO_RESULT, "", at)
    return _judged(case, given, at)


def _judged(case: Case, given: Any, at: str) -> _Finding:
    try:
        case.judge(given)
    except Wrong as error:
        said = _recognised(case, given) or str(error)
        silent = "" if "None" in said else _silent(given)
        return _Finding(WRONG, f"{said}{silent}{_with(case)}", at, parts=error.parts)
    except Exception as error:  # no judge expects every shape that an answer can have
        said = f"what it returns can't be judged ({described(error)}){_with(case)}"
        return _Finding(WRONG, said, at, _trace(error))
    return _Finding(PASS)


def _recognised(case: Case, given: Any) -> str:
    """The sentence on the mistake that this answer is, or ""."""
    for sentence, as_if in case.mistakes:
        with suppress(Exception):  # such a judge expects one answer and may stumble over any other
            as_if(given)
            return sentence
    return ""


def _is_blank(given: Any) -> bool:
    """Whether nothing was answered: None, ``...``, a dict with such values, or such results on every rank."""
    if given is None or given is Ellipsis:
        return True
    if isinstance(given, dict):
        return bool(given) and any(map(_is_empty, given.values()))
    results = getattr(given, "results", None)
    return isinstance(results, list) and all(r is None or r is Ellipsis for r in results)


def _is_empty(value: Any) -> bool:
    """Whether a value of a dict is None or ``...``, or a few of these."""
    several = isinstance(value, (list, tuple)) and len(value) > 0
    return all(map(_is_empty, value)) if several else value is None or value is Ellipsis


def _still_empty(given: Any) -> str:
    """Which values of a dict are not there yet, if others are."""
    lacking = [k for k, v in given.items() if _is_empty(v)] if isinstance(given, dict) else []
    return f"not there yet: {', '.join(map(repr, lacking))}" if 0 < len(lacking) < len(given) else ""


def _silent(given: Any) -> str:
    """Which of several ranks returned nothing, if others did not."""
    results = getattr(given, "results", None)
    nothing = [k for k, r in enumerate(results) if r is None] if isinstance(results, list) else []
    return f"; {RankError.phrase(nothing)} returned None" if nothing else ""


def _failed(error: BaseException, case: Case, at: str) -> _Finding:
    """Asking came to nothing."""
    root = error.__cause__ or error
    for failure in (error, root):
        if isinstance(failure, GraderFailure):
            raise failure
    if isinstance(root, NotImplementedError):
        return _Finding(NO_RESULT, "", at)
    if isinstance(root, (Wrong, Ended)):
        status = root.status if isinstance(root, Ended) else WRONG
        return _Finding(status, f"{root}{_with(case)}", at)
    if isinstance(error, RankError):
        said, status = error.message, ERROR if error.__cause__ is not None else WRONG
        status = TIMEOUT if isinstance(error, RankTimeout) else status
    elif isinstance(error, LaunchError):
        said, status = described(error), ERROR
    else:
        said, status = f"it raised {described(error)}", ERROR
    hint = f"\n  {root.hint}" if isinstance(root, Raised) and root.hint else ""
    return _Finding(status, f"{said}{_with(case)}{own_lines(root)}{hint}", at, _trace(error))


def _with(case: Case) -> str:
    """Which case it was."""
    return f" ({case.label})" if case.label else ""


def own_lines(root: BaseException) -> str:
    """Where it happened in the student's own code, without the machinery in between."""
    if isinstance(seen := getattr(root, "own_lines", None), str):
        return seen
    own = [f for f in traceback.extract_tb(root.__traceback__) if not f.filename.startswith(_PACKAGES)]
    return "".join(f"\n  line {f.lineno} of {f.name}: {f.line}" for f in own[-3:] if f.line)


def _trace(error: BaseException) -> str:
    root = error.__cause__ or error
    return root.trace if isinstance(root, Raised) else "".join(traceback.format_exception(error))[-4000:]
