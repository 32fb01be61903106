"""One answer graded: its source goes to a process of its own, questions after it, and verdicts are made here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from labkit.comm import LaunchError, Mismatch, launch
from labkit.comm.errors import described, text_of
from labkit.comm.simulated import Simulated
from labkit_book.grader.outcome import Outcome
from labkit_book.grader.remote import Router
from labkit_book.grader.zygote import START_S, Child, Zygote
from labkit_book.problems import wire
from labkit_book.problems.asking import (
    CHANGED,
    KILLED,
    NO_ANSWER,
    NO_RESULT,
    PASS,
    TOO_LARGE,
    Ended,
    GraderFailure,
    Raised,
    examine,
)
from labkit_book.problems.exercise import Case, Exercise, Wrong

_MOST_SOURCE = 1_000_000  # characters
_Serve = Callable[[dict[str, Any]], dict[str, Any]]


def grade_one(
    exercise: Exercise,
    source: str,
    cases: Iterable[Case] | None = None,
    *,
    setup: str = "",
    helpers: str = "",
    name: str | None = None,
    zygote: Zygote,
    seed: int = 0,
) -> Outcome:
    """Grade one answer.

    source: the cells that make it, as text; setup: what the released notebook imports before; helpers: what it uses from
        other cells. name: what the function or the variable is called there; None: ``exercise.function``.
    cases: the questions; None: those that ``seed`` draws.
    Returns an ``Outcome`` whatever the answer does. Raises ValueError for a name that is none, GraderFailure where no
    process can be had for it.
    """
    name = exercise.function if name is None else name
    if not name.isidentifier():
        raise ValueError(f"name must be what the answer is called in its cell, got {name!r}")
    cases = exercise.cases(np.random.default_rng(seed)) if cases is None else cases
    order = {"op": "load", "setup": setup, "helpers": helpers, "source": source, "name": name,
             "withheld": list(exercise.withheld)}  # fmt: skip
    session = _Session(exercise, order, name, zygote)
    try:
        found = examine(cases, session.ask)
        printed = session.printed()
    finally:
        session.end()
    message = session.blank() if found.status == NO_RESULT and not found.message else found.message
    said = f"It printed:\n{_clip(printed, 2000)}" if printed.strip() else ""
    log = "\n".join(part for part in (f"seed {seed}", found.case, found.trace, said) if part)
    points = exercise.points * (found.status == PASS)
    return Outcome(
        exercise.id, exercise.title, found.status, points, exercise.points, _clip(message, 2000), _clip(log, 8000),
        isolation=zygote.isolation.words(),
    )  # fmt: skip


class _Session:
    """One answer: its processes, one per rank at most, and the clock."""

    def __init__(self, exercise: Exercise, order: dict[str, Any], name: str, zygote: Zygote) -> None:
        self.exercise, self.order, self.name, self.zygote = exercise, order, name, zygote
        self.until = time.monotonic() + zygote.limits.exercise_s
        self.children: list[Child] = []
        self.stub, self.notes = False, list[str]()

    def ask(self, case: Case) -> Any:
        """The answer to one question, or an exception that ``examine`` knows how to word. Raises GraderFailure."""
        try:
            if self._loaded(max(case.K, 1)):
                return None
            if not self.exercise.function:
                return self._put(0, {"op": "value", "args": ()}, _no_questions, self._deadline())
            return self._launch(case) if case.K else self._call(case)
        except Exception as error:
            root = error.__cause__ or error
            if isinstance(root, (Wrong, Ended, Raised, NotImplementedError, LaunchError, GraderFailure)):
                raise
            raise GraderFailure(f"a question could not be put: {described(root)}") from error

    def blank(self) -> str:
        """Why there is nothing to judge, in words for the student."""
        if self.stub:
            return "not done yet: the function is still as it was handed out"
        if not self.exercise.function:
            return f"{self.name} has not been filled in yet"
        return f"{self.name} returned nothing: is the return missing?"

    def printed(self) -> str:
        """What all processes printed, and notes about the cell."""
        said = list(self.notes)
        for child in self.children:
            try:
                text = child.printed
            except Ended:
                text = ""
            if text.strip() and text not in said:
                said.append(text)
        return "\n".join(said)

    def end(self) -> None:
        """End every process of this answer."""
        for child in self.children:
            child.close()
        self.zygote.sweep()

    def _deadline(self) -> float:
        return min(time.monotonic() + self.zygote.limits.case_s, self.until)

    def _loaded(self, K: int) -> bool:
        """See to it that K processes have the answer loaded; True if it is blank."""
        if len(self.order["source"]) + len(self.order["helpers"]) > _MOST_SOURCE:
            raise _before_any_case(Wrong(f"the cell is longer than {_MOST_SOURCE:,} characters"))
        ready = len(self.children)
        for _ in range(K - ready):
            self.children.append(self.zygote.fork())
        for child in self.children[ready:]:
            child.hello(time.monotonic() + START_S)
            reply = child.converse(self.order, _no_questions, self._deadline())
            if reply["op"] == "absent":
                raise Ended(NO_RESULT, f"there is no {self.name} after the cell has run")
            if reply["op"] != "loaded":
                raise _before_any_case(_problem(reply))
            self.stub = reply.get("stub") is True
            note = reply.get("log")
            if isinstance(note, str) and note and note not in self.notes:
                self.notes.append(_clip(note, 1000))
            if reply.get("blank") is True:
                return True
            if self.exercise.function and reply.get("callable") is not True:
                raise Wrong(f"{self.name} should be a function, but is something else")
        return False

    def _call(self, case: Case) -> Any:
        functions: list[Any] = []

        def serve(asked: dict[str, Any]) -> dict[str, Any]:
            number, args = asked.get("number"), asked.get("args")
            if asked.get("what") != "function" or not isinstance(args, tuple):
                raise Ended(NO_RESULT, NO_ANSWER)
            if type(number) is not int or not 0 <= number < len(functions):
                raise Ended(NO_RESULT, NO_ANSWER)
            try:
                return {"op": "value", "value": functions[number](*args)}
            except Exception as error:
                return {"op": "refused", "type": type(error).__name__, "message": text_of(error)}

        return self._put(0, {"op": "call", "args": case.args}, serve, self._deadline(), functions)

    def _launch(self, case: Case) -> Any:
        # An answer's ranks are processes in any case; what they send passes through here, at a simulation's prices.
        world = "simulated" if case.world == "processes" else case.world
        if not (world == "simulated" or isinstance(world, Simulated)):
            raise GraderFailure(f"case.world must be simulated or processes to be graded, got {case.world!r}")
        until, changed = self._deadline(), list[int]()

        def rank(comm: Any) -> Any:
            router = Router(comm, self.zygote.limits.answer_bytes, case.clock)
            order = {"op": "rank", "rank": comm.rank, "K": comm.K, "hosts": list(comm.hosts),
                     "args": case.args[comm.rank]}  # fmt: skip
            try:
                return self._put(comm.rank, order, router.serve, until)
            except _Changed as error:  # the others may still wait for this one
                changed.append(comm.rank)
                return error.value
            except Ended as error:
                said = f"rank {comm.rank}: {error}" if comm.K > 1 else str(error)
                raise Ended(error.status, said) from None
            except Raised as error:
                if isinstance(router.error, Mismatch) and type(error).__name__ == type(router.error).__name__:
                    router.error.own_lines = error.own_lines  # type: ignore[attr-defined]
                    raise router.error from None
                raise

        run = launch(rank, case.K, world=world, timeout_s=max(until - time.monotonic(), 0.1) + 5)
        if changed:
            raise Wrong(CHANGED)
        return run

    def _put(
        self,
        rank: int,
        order: dict[str, Any],
        serve: _Serve,
        until: float,
        functions: list[Any] | None = None,
    ) -> Any:
        """Put one question to one process; returns its answer. Raises _Changed if its arguments came back otherwise."""
        reply = self.children[rank].converse(order, serve, until, functions)
        if reply["op"] != "answer":
            raise _problem(reply)
        try:
            before = wire.encode(order["args"], []) == wire.encode(reply.get("after"), [])
        except wire.Unfit:
            before = False
        if not before:
            raise _Changed(reply.get("value"))
        return reply.get("value")


class _Changed(Wrong):
    """An answer changed its arguments, and returned ``value``."""

    def __init__(self, value: Any) -> None:
        super().__init__(CHANGED)
        self.value = value


def _before_any_case(problem: Exception) -> Exception:
    """The same, said without the case that was to be put."""
    problem.before_any_case = True  # type: ignore[attr-defined]
    return problem


def _problem(reply: dict[str, Any]) -> Exception:
    """The exception that a reply which is no answer stands for."""
    said = _clip(str(reply.get("message", "")), 1000)
    if reply["op"] == "unfit":
        return Wrong(f"{TOO_LARGE}: {said}")
    if reply["op"] != "raised":
        return Ended(NO_RESULT, NO_ANSWER)
    kind, name = reply.get("kind"), str(reply.get("type", ""))
    if kind == "todo":
        return NotImplementedError(said)
    if kind == "memory":
        return Ended(KILLED, f"it asked for more memory than there is for an answer: {said}".rstrip(": "))
    if kind == "exit":
        return Ended(NO_RESULT, "it called exit before it had answered: take that out")
    if kind == "withheld":
        return Wrong(said)
    error: Raised = type(name if name.isidentifier() else "Exception", (Raised,), {})(said)
    error.own_lines = _clip(str(reply.get("lines", "")), 1500)
    error.trace = _clip(str(reply.get("trace", "")), 4000)
    error.hint = _HINTS.get(str(kind), "")
    return error


_HINTS = {
    "unbound": "A name that a function gives a value anywhere is its own there: give it one before this line.",
    "name": "An answer runs by itself: put what it needs, imports too, into the same cell.",
    "module": "The grader does not have that package: do without it.",
    "refused": "An answer runs without a network, files of yours or processes of its own.",
}


def _no_questions(asked: dict[str, Any]) -> dict[str, Any]:
    raise Ended(NO_RESULT, NO_ANSWER)


def _clip(text: str, most: int) -> str:
    """No more than ``most`` characters, and none that commands a terminal or can't be written to a file."""
    text = text if len(text) <= most else text[: most - 4] + " ..."
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
