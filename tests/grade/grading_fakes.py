"""A core without isolation, for tests of what surrounds it, and notebooks as students hand them in."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from labkit.exercises import judge
from labkit.exercises.asking import GraderFailure
from labkit.grade import batch
from labkit.grade.outcome import Outcome
from labkit.grade.pool import Pool

ROOT = Path(__file__).parents[2]
KEY = ROOT / "tests" / "exercises"
RELEASED = ROOT / "notebooks" / "exercises"


class Core:
    """Runs the answer here and now. Only for answers that we have written ourselves."""

    def grade(self, exercise, answer, cases, seed):
        if "THE GRADER DIES" in answer.source:
            os._exit(3)
        if "THE GRADER FAILS" in answer.source:
            raise RuntimeError("out of cheese")
        if "SLOW" in answer.source:
            time.sleep(float(os.environ.get("SLOW_S", "0")))
        space: dict = {}
        try:
            exec("\n".join([answer.setup, answer.helpers, answer.source]), space)
        except Exception as error:
            return self.outcome(exercise, "ERROR", f"{type(error).__name__}: {error}")
        verdict = judge(exercise, space[answer.name], cases)
        status = {"right": "PASS", "wrong": "WRONG", "todo": "NO_RESULT"}[verdict.status]
        return self.outcome(exercise, status, verdict.message, verdict.points)

    def outcome(self, e, status, message="", points=0):
        return Outcome(e.id, e.title, status, points, e.points, message, "a log", "", 0.1, "none, a fake")

    def selftest(self, key, name):
        return []


@contextmanager
def fake(plan=None):
    yield Core()


@contextmanager
def fails_its_test(plan=None):
    core = Core()
    core.selftest = lambda key, name: [f"a mutant of {name} gets full marks"]
    yield core


@contextmanager
def does_not_open(plan=None):
    raise RuntimeError("no sandbox here")
    yield


def released(name: str) -> dict:
    """The notebook of a problem set, as it was handed out."""
    return json.loads((RELEASED / f"{name.replace('.', '_')}_exercises.ipynb").read_text())


def answered(name: str, answers: dict[str, str]) -> dict:
    """The released notebook with the source of some answer cells replaced."""
    nb = released(name)
    for id, source in answers.items():
        mine(nb, id)["source"] = source
    return nb


def mine(nb: dict, id: str) -> dict:
    """The cell that is marked with this exercise."""
    (cell,) = [c for c in nb["cells"] if f"exercise-{id}" in c["metadata"].get("tags", [])]
    return cell


def code(source: str, *tags: str) -> dict:
    return {
        "cell_type": "code",
        "source": source,
        "metadata": {"tags": list(tags)},
        "outputs": [],
        "execution_count": None,
    }


def markdown(source: str, *tags: str) -> dict:
    return {"cell_type": "markdown", "source": source, "metadata": {"tags": list(tags)}}


def write(path: Path, nb: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(nb))
    return path


SSP = """\
import numpy
def ssp_finish(X, slack):
    K, T = X.shape
    F, before = numpy.empty((K, T)), numpy.zeros(K)
    for t in range(T):
        if t > slack:
            before = np.maximum(before, F[:, t - 1 - slack].max())
        before = F[:, t] = before + X[:, t]
    return F
"""
OVERLAP = "def overlapped_step(b, a, L):\n    return max(b + a / L, b / L + a)\n"
OVERLAP_WRONG = "def overlapped_step(b, a, L):\n    return b + a\n"
BLAME = """\
def blame(arrivals):
    last = np.bincount(arrivals.argmax(axis=0), minlength=len(arrivals))
    return int(last.argmax()), float((arrivals.max(axis=0) - arrivals).sum())
"""


@contextmanager
def walled(plan):
    """The real sandbox, without the self-test, which has tests of its own and takes its time."""
    with batch.sandbox(plan) as core:
        yield SimpleNamespace(grade=core.grade, selftest=lambda key, name: [])


def in_one_process(monkeypatch):
    """Have a pool do the work itself, here: most of these tests are not about processes."""

    def work_off(self, tasks):
        try:
            answer = self._opened().__enter__() if tasks else None
        except Exception as error:
            raise GraderFailure(f"{type(error).__name__}: {error}") from None
        yield from ((i, answer(task)) for i, task in enumerate(tasks))

    monkeypatch.setattr(Pool, "work_off", work_off)
