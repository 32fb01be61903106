"""One answer graded: its source goes to processes of its own, questions after it, and verdicts are made here."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np

from labkit.comm import LaunchError, Mismatch, launch
from labkit.comm.base import DTYPES, Comm, describe
from labkit.comm.errors import described
from labkit.comm.simulated import Simulated
from labkit_book.grader.results import Outcome
from labkit_book.grader.zygote import Child, Message, Zygote
from labkit_book.problems import asking
from labkit_book.problems.asking import KILLED, NO_ANSWER, NO_RESULT, Ended, GraderFailure, Raised, examine
from labkit_book.problems.exercise import Case, Exercise, Wrong

MOST_MESSAGES = 100_000
MOST_S = 1e12  # on a worker's clock: some 30,000 years
_HINTS = {
    "UnboundLocalError": "A name that a function gives a value anywhere is its own there: give it one before this line.",
    "NameError": "An answer runs by itself: put what it needs, imports too, into the same cell.",
    "ModuleNotFoundError": "The grader does not have that package: do without it.",
    "PermissionError": "An answer runs without a network, files of yours or processes of its own.",
}


def grade_one(
    exercise: Exercise, source: str, cases: Iterable[Case] | None = None, *, setup: str = "",
    cells: Sequence[tuple[int, str]] = (), name: str | None = None, zygote: Zygote, seed: int = 0,
) -> Outcome:  # fmt: skip
    """Grade one answer.

    source: the cells that make it; setup: what the released notebook imports before; cells: others that it needs, by number.
    name: what the function or the variable is called there; None: ``exercise.function``. cases: None: those that ``seed``
    draws. Returns an ``Outcome`` whatever the answer does. Raises GraderFailure where no process can be had for it.
    """
    cases = exercise.cases(np.random.default_rng(seed)) if cases is None else cases
    order: Message = {"op": "load", "setup": setup, "cells": [list(cell) for cell in cells], "source": source}
    order |= {"name": name or exercise.function, "withheld": list(exercise.withheld)}
    session = _Session(exercise, order, zygote)
    try:
        found = examine(cases, session.ask)
        printed = session.printed()
    finally:
        for child in session.children:
            child.close()
    nothing = "returned nothing: is the return missing? Or is it not done yet?"
    blank = f"{order['name']} {nothing if exercise.function else 'has not been filled in yet'}"
    message = blank if found.status == NO_RESULT and not found.message else found.message
    said = f"It printed:\n{_clip(printed, 2000)}" if printed.strip() else ""
    log = "\n".join(part for part in (f"seed {seed}", found.case, found.trace, said) if part)
    about = (exercise.id, exercise.title, found.status, found.points(exercise.points), exercise.points)
    return Outcome(*about, _clip(message, 2000), _clip(log, 8000), source)


class _Session:
    """One answer: its processes, one per rank at most, and the clock."""

    def __init__(self, exercise: Exercise, order: Message, zygote: Zygote) -> None:
        self.exercise, self.order, self.zygote = exercise, order, zygote
        self.until = time.monotonic() + zygote.limits.exercise_s
        self.children, self.notes = list[Child](), list[str]()

    def ask(self, case: Case) -> Any:
        """The answer to one question, or an exception that ``examine`` knows how to word. Raises GraderFailure."""
        try:
            if self._is_blank(max(case.K, 1)):
                return None
            if case.K:
                return self._launch(case)
            op = "call" if self.exercise.function else "value"
            order = {"op": op, "args": case.args if op == "call" else ()}
            return _value(self.children[0].converse(order, self._deadline()))
        except Exception as error:
            root = error.__cause__ or error
            if isinstance(root, (Wrong, Ended, Raised, NotImplementedError, LaunchError, GraderFailure)):
                raise
            raise GraderFailure(f"a question could not be put: {described(root)}") from error

    def printed(self) -> str:
        """What all processes printed, and notes about the cells."""
        said = list(self.notes)
        for child in self.children:
            with suppress(Ended):
                said.append(child.printed())
        return "\n".join(dict.fromkeys(text for text in said if text.strip()))

    def _deadline(self) -> float:
        return min(time.monotonic() + self.zygote.limits.case_s, self.until)

    def _is_blank(self, K: int) -> bool:
        """See to it that K processes have the answer loaded; True if there is none in it."""
        ready, limits = len(self.children), self.zygote.limits
        for _ in range(K - ready):
            self.children.append(Child(self.zygote, limits.memory_bytes // K))
        for child in self.children:  # all of them may answer at once
            child.most = limits.answer_bytes // K
        return any(self._load(child) for child in self.children[ready:])

    def _load(self, child: Child) -> bool:
        reply = child.converse(self.order, self._deadline())
        if reply["op"] != "loaded":
            raise _problem(reply)
        self.notes.append(_clip(str(reply.get("log", "")), 1000))
        if (kind := reply.get("kind")) == "absent":
            raise Ended(NO_RESULT, f"there is no {self.order['name']} after the cell has run")
        if self.exercise.function and kind == "value":
            raise Wrong(f"{self.order['name']} should be a function, but is something else")
        return kind == "blank"

    def _launch(self, case: Case) -> Any:
        # An answer's ranks are processes in any case; what they send passes through here, at a simulation's prices.
        world = "simulated" if case.world == "processes" else case.world
        if not (world == "simulated" or isinstance(world, Simulated)):
            raise GraderFailure(f"case.world must be simulated or processes to be graded, got {case.world!r}")
        until = self._deadline()

        def rank(comm: Any) -> Any:
            router = _Router(comm, self.zygote.limits.answer_bytes, case.clock)
            about = {"rank": comm.rank, "K": comm.K, "hosts": comm.hosts, "calls": router.calls}
            order = {"op": "rank", "comm": about, "args": case.args[comm.rank]}
            try:
                return _value(self.children[comm.rank].converse(order, until, most=math.inf))
            except Ended as error:
                said = f"rank {comm.rank}: {error}" if comm.K > 1 else str(error)
                raise Ended(error.status, said) from None
            except Raised as error:
                if isinstance(router.error, Mismatch) and type(error).__name__ == type(router.error).__name__:
                    router.error.own_lines = error.own_lines  # type: ignore[attr-defined]
                    raise router.error from None
                raise

        return launch(rank, case.K, world=world, timeout_s=max(until - time.monotonic(), 0.1) + 5)


class _Router:
    """What one rank may call in one launch: done on its simulated ``Comm``, and counted where no answer can write.

    most: bytes in all. clock: whether it may spend seconds of its own choice. error: the last that it was told.
    """

    def __init__(self, comm: Comm, most: int, clock: bool) -> None:
        self.comm, self.left, self.clock = comm, most, clock
        self.messages, self.meetings = 0, ExitStack()
        self.error: Exception | None = None
        own = (self.isend, self.irecv, self.recv_any, self.meet, self.part, self.compute)
        self.calls = {call.__name__: partial(self._do, call) for call in (*own, comm.barrier, comm.now)}

    def _do(self, call: Callable[..., Any], step: Any, *args: Any) -> Any:
        self.comm.step = step if type(step) is int and 0 <= step < MOST_MESSAGES else 0
        try:
            return call(*args)
        except Exception as error:
            self.error = error
            raise

    def isend(self, data: Any, to: Any) -> Callable[[Any], Any]:
        self._carry(describe(data, "data").nbytes)
        return partial(self._do, self.comm.isend(data, to).wait)

    def irecv(self, size: Any, source: Any) -> Callable[[Any], Any]:
        return partial(self._do, self.comm.irecv(self._buffer(size), source).wait)

    def recv_any(self, size: Any) -> tuple[int, Any]:
        buffer = self._buffer(size)
        return self.comm.recv_any(buffer), buffer

    def meet(self, name: Any, size: Any) -> None:
        x = None if size is None else _of_size(size)
        self.meetings.enter_context(self.comm.collective(str(name)[:80], x))

    def part(self) -> None:
        self.meetings.close()

    def compute(self, work: Any, seconds: Any) -> Any:
        ran = work == "has run"  # already, in the worker's process: here it is no work
        for given in (None if ran else work, seconds):
            if given is not None and not self.clock:
                raise ValueError(asking.NO_CLOCK)
            if isinstance(given, (int, float)) and MOST_S < given < math.inf:  # a few, and the clock is there
                raise ValueError(f"seconds must be at most {MOST_S:.0e}, got {given:.3g}")
        return self.comm.compute((lambda: None) if ran else work, seconds=seconds)

    def _buffer(self, size: Any) -> np.ndarray:
        like = _of_size(size)
        self._carry(like.nbytes)
        return np.empty(like.shape, like.dtype)

    def _carry(self, nbytes: int) -> None:
        self.left -= nbytes
        self.messages += 1
        if self.left < 0 or self.messages > MOST_MESSAGES:
            raise Ended(KILLED, f"rank {self.comm.rank} sent and received more than the grader carries")


def _of_size(size: Any) -> np.ndarray:
    """What ``describe`` has described, without taking memory for it. Raises TypeError for a dtype not numpy's."""
    n, code = size[:2]
    if type(n) is not int or type(code) is not int or not (0 <= n < 2**48 and 0 < code < len(DTYPES)):
        raise Ended(NO_RESULT, NO_ANSWER)
    return np.broadcast_to(np.zeros((), DTYPES[code]), n)


def _value(reply: Message) -> Any:
    """What was answered. Raises what a reply stands for that is no answer."""
    if reply["op"] == "answer":
        return reply.get("value")
    raise Wrong(asking.CHANGED) if reply["op"] == "changed" else _problem(reply)


def _problem(reply: Message) -> Exception:
    """The exception that a reply which is no answer stands for."""
    said, kinds = _clip(str(reply.get("message", "")), 1000), reply.get("kinds")
    if reply["op"] == "unfit":
        return Wrong(f"{asking.TOO_LARGE}: {said}")
    if reply["op"] != "raised" or not isinstance(kinds, list):
        return Ended(NO_RESULT, NO_ANSWER)
    for kind in (NotImplementedError, Wrong):
        if kind.__name__ in kinds:
            return kind(said)
    if "MemoryError" in kinds:
        return Ended(KILLED, f"it asked for more memory than there is for an answer: {said}".rstrip(": "))
    if "SystemExit" in kinds or "GeneratorExit" in kinds:
        return Ended(NO_RESULT, "it called exit before it had answered: take that out")
    name = str(kinds[0]) if kinds else ""
    error: Raised = type(name if name.isidentifier() else "Exception", (Raised,), {})(said)
    error.own_lines = _clip(str(reply.get("lines", "")), 1500)
    error.trace = _clip(str(reply.get("trace", "")), 4000)
    error.hint = next((hint for name, hint in _HINTS.items() if name in kinds), "")
    return error


def _clip(text: str, most: int) -> str:
    """No more than ``most`` characters, and none that commands a terminal or can't be written to a file."""
    text = text if len(text) <= most else text[: most - 4] + " ..."
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
