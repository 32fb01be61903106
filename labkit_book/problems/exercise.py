"""What an exercise is: questions put to a student's function, and judges of the answers.

A question is data (``Case.args``) and a judge sees only the answer, so that the same exercise can be checked here in the
notebook and by a grader that keeps judges and students in different processes. A judge raises ``Wrong`` with a sentence that
says what is wrong and never what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# What an exercise asks for.
KINDS = {
    "derive": "work it out, step by step; each step is checked by its value",
    "build": "write it, often as one worker sees it",
    "measure": "measure your own machine, hand in the data and what follows from them",
    "debug": "find what is wrong with a program, from what it does",
    "puzzle": "lay out a schedule as data, and see how far from the bound it is",
    "criticise": "weigh a claim: what would decide it, and does its evidence?",
}


class Wrong(Exception):
    """The answer is wrong; the message is for the student. parts: of an answer in parts, which are right."""

    def __init__(self, message: str = "", parts: Mapping[str, bool] | None = None) -> None:
        super().__init__(message)
        self.parts = parts or {}


@dataclass(frozen=True)
class Case:
    """One question.

    args: the arguments of the student's function. If ``K`` > 0 it is run by K workers as ``f(comm, *args[rank])``,
        so ``args`` holds one tuple per rank, and the judge gets the whole ``Run``.
    judge: takes the answer, raises ``Wrong``.
    mistakes: plausible wrong answers, each as a sentence that names the misconception (never the cure) and a judge to which
        that answer would be right; where one is recognised, its sentence is what the student reads.
    label: what makes this case special, for the message ("with K = 3 workers").
    world: where the K workers live: "simulated", or "processes", where a judge may count bytes and messages but time
        nothing, for the grader carries the messages of its isolated processes itself.
    clock: whether an answer may spend seconds of its own choice, as ``comm.compute(seconds=...)``; where it may not, no
        rank can tell another anything by the time it takes.
    none: whether a bare ``None`` may be the answer here; elsewhere it means that nothing was returned.
    """

    args: tuple
    judge: Callable[[Any], None]
    K: int = 0
    label: str = ""
    world: Any = "simulated"
    clock: bool = False
    none: bool = False
    mistakes: tuple[tuple[str, Callable[[Any], None]], ...] = ()


@dataclass(frozen=True)
class Exercise:
    """One exercise of a set.

    id: as in ``"10.3-2"``. kind: what it asks for, of ``KINDS``. function: the name the student's function has in the
        notebook; "" if the answer is a value (a dict or a number), which is then judged by the single case of ``cases``.
    cases: makes the questions, from a random generator, so that a grader can ask others than the notebook does; of an answer
        in words there are none.
    objectives: which bullets of "After this lab you can" it is about, counted from 1 (through all labs of the set).
    rubric: (criterion, points) each, for an answer in words, which a person reads.
    withheld: names of labkit that are the answer, as in ``"labkit.learn.sync_sgd"`` or ``"labkit.collectives.ring.bytes"``:
        the grader's answers can't use them.
    puzzle: of a puzzle its ``Puzzle``, which can draw an answer.
    """

    id: str
    title: str
    kind: str
    points: int
    function: str
    cases: Callable[[np.random.Generator], Iterable[Case]] = lambda rng: ()
    objectives: tuple[int, ...] = ()
    rubric: tuple[tuple[str, int], ...] = ()
    withheld: tuple[str, ...] = ()
    puzzle: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind of {self.id} must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.rubric and sum(points for _, points in self.rubric) != self.points:
            raise ValueError(f"rubric of {self.id} must add up to its {self.points} points")


def once(judge: Callable[[Any], None]) -> Callable[[Any], list[Case]]:
    """The ``cases`` of an exercise whose answer is a value: one, and the same whatever the generator."""
    return lambda _: [Case((), judge)]


def number(answer: Any, what: str = "the answer") -> float:
    """The answer as one finite number, or Wrong.

    >>> number(np.float64(2.0))
    2.0
    """
    array = _plain(answer)
    if array is None:
        raise Wrong(f"{what} should be a number, but is {_kind(answer)}")
    if array.size != 1:
        raise Wrong(f"{what} should be one number, but has shape {array.shape}")
    value = float(array.reshape(()))
    if not np.isfinite(value):
        raise Wrong(f"{what} should be finite, but is {value}")
    return value


def close(
    answer: Any, expected: float, what: str = "the answer", rtol: float = 1e-9, atol: float = 0.0
) -> None:
    """Wrong unless ``answer`` is ``expected`` to ``rtol`` or ``atol``; says only if it is too large or small.

    What is in float32 is held to the digits that float32 can be expected to keep; so in ``same_array``.

    >>> try:
    ...     close(3.0, 4.0, "the step time")
    ... except Wrong as wrong:
    ...     print(wrong)
    the step time is too small: 3
    """
    value = number(answer, what)
    if abs(value - expected) > max(atol, max(rtol, _float32(answer)) * abs(expected)):
        said = f"{what} is too {'large' if value > expected else 'small'}: {value:.6g}"
        raise Wrong(said + _precision(answer, abs(value - expected) <= 1e-4 * abs(expected)))


def same_array(
    answer: Any, expected: np.ndarray, what: str = "the answer", rtol: float = 1e-9, atol: float = 0.0
) -> None:
    """Wrong unless ``answer`` has ``expected``'s shape and values; names the first element that is off."""
    if answer is None:
        raise Wrong(f"{what} is None: is the return missing?")
    array = _plain(answer)
    if array is None:
        raise Wrong(f"{what} should be an array of numbers, but is {_kind(answer)}")
    any_values = array.size or np.size(expected)  # an empty list has no columns
    if array.shape != np.shape(expected) and any_values:
        raise Wrong(f"{what} should have shape {np.shape(expected)}, but has {array.shape}")
    # From here on it is as large as we have made it.
    array, coarse = array.astype(float).reshape(np.shape(expected)), _float32(answer)
    if not np.isfinite(array).all():
        raise Wrong(f"{what} holds values that are not finite")
    least = coarse * float(np.max(np.abs(expected), initial=0.0))
    off = ~np.isclose(array, expected, rtol=max(rtol, coarse), atol=max(atol, least))
    if off.any():
        first = tuple(int(i) for i in np.argwhere(off)[0])
        where = f"element {first[0] if len(first) == 1 else first}" if first else "the value"
        raise Wrong(
            f"{what} is wrong in {int(off.sum())} of {off.size} places; first at {where}: {array[first]:.6g}"
            + _precision(answer, np.allclose(array, expected, rtol=1e-4, atol=max(atol, 1e-6)))
        )


def _plain(answer: Any) -> np.ndarray | None:
    """The answer as an array of real numbers, as large as it came. None for words, objects and complex numbers, which numpy
    would read as numbers, too.
    """
    try:
        array = np.asarray(answer.detach().cpu() if hasattr(answer, "detach") else answer)
        return array if array.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        return None


def _float32(answer: Any) -> float:
    """The relative error that is granted to an answer for being in float32."""
    array = _plain(answer)
    return 2e-5 if array is not None and array.dtype == np.float32 else 0.0


def _precision(answer: Any, near: bool) -> str:
    """A word on float32, where that is what is wrong."""
    kept = getattr(answer, "dtype", np.dtype(float))
    said = f" (nearly right: {kept} keeps few digits, compute in float64)"
    return said if near and kept.itemsize < 8 else ""


def _kind(answer: Any) -> str:
    if answer is None:
        return "None (is the return missing?)"
    if isinstance(answer, Iterator):
        return "a generator or another iterator: make it a list"
    dtype = getattr(answer, "dtype", None)
    return f"a {type(answer).__name__}" + (f" of dtype {dtype}" if dtype is not None else "")
