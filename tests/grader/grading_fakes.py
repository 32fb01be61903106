"""A core without isolation, for tests of what surrounds it, and notebooks as students hand them in."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

from labkit_book.grader import batch
from labkit_book.grader.outcome import Outcome
from labkit_book.grader.pool import Pool
from labkit_book.problems import judge
from labkit_book.problems.asking import GraderFailure

ROOT = Path(__file__).parents[2]
KEY = ROOT / "tests" / "problems"
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
        return Outcome(e.id, e.title, status, points, e.points, message, "a log", "", "none, a fake")

    def selftest(self, key, id):
        return []


@contextmanager
def fake(plan=None):
    yield Core()


@contextmanager
def fails_its_test(plan=None):
    core = Core()
    core.selftest = lambda key, id: [f"a mutant of {id} gets full marks"]
    yield core


@contextmanager
def does_not_open(plan=None):
    raise RuntimeError("no sandbox here")
    yield


def released(name: str) -> dict:
    """The notebook of a problem set, as it was handed out."""
    return json.loads((RELEASED / f"{name.replace('.', '_').lower()}_exercises.ipynb").read_text())


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
def ssp_worker(comm, work_s, slack):
    finished = {k: 0.0 for k in range(comm.K) if k != comm.rank}
    F, sent, news = [], [], np.empty(1)
    for t, seconds in enumerate(work_s):
        while any(n < t - slack for n in finished.values()):
            before = comm.recv_any(news)
            finished[before] = news[0]
        comm.compute(seconds=seconds)
        F.append(comm.now())
        last = t + 1 == len(work_s)
        sent += [comm.isend(np.full(1, np.inf if last else t + 1.0), k) for k in finished]
    while any(n < np.inf for n in finished.values()):
        before = comm.recv_any(news)
        finished[before] = news[0]
    for request in sent:
        request.wait()
    return F
"""
OVERLAP = """\
def overlapped_step(p, a, L, m, h):
    l = np.arange(1, L + 1)
    beyond = max(a - p, 0.0)
    chains = l * p / L + h * (l > m) + (L - l + 1) * a / L
    steps = {"chains": chains, "beyond": beyond, "rest": (a - beyond) / L, "forgiven": m * beyond / L}
    return {**steps, "late": max(h - m * beyond / L, 0.0)}
"""
OVERLAP_WRONG = OVERLAP.replace("(L - l + 1) * a", "a")
BLAME = """\
def blame(arrivals):
    import math
    K, S = arrivals.shape
    last = arrivals.argmax(axis=0)
    times = np.bincount(last, minlength=K)
    more = range(int(times.max()), S + 1)
    p = math.fsum(math.comb(S, n) * (1 / K) ** n * (1 - 1 / K) ** (S - n) for n in more)
    late = np.diff(np.sort(arrivals, axis=0)[-2:], axis=0)[0]
    rank = int(times.argmax())
    return {"rank": rank, "chance": min(1.0, K * p), "saved_s": float(late[last == rank].sum())}
"""


@contextmanager
def walled(plan):
    """The real sandbox, without the self-test, which has tests of its own and takes its time."""
    with batch.sandbox(plan) as core:
        yield SimpleNamespace(grade=core.grade, selftest=lambda key, id: [])


def peak() -> int:
    """Bytes that this process has had at its most since the last ``forget``; 0 where no system says so."""
    status = Path("/proc/self/status")
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) if status.exists() else 0


def forget() -> int:
    """Let the peak begin anew; what it is now (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def in_one_process(monkeypatch):
    """Have a pool do the work itself, here: most of these tests are not about processes."""

    def work_off(self, tasks):
        try:
            answer = self._opened().__enter__() if tasks else None
        except Exception as error:
            raise GraderFailure(f"{type(error).__name__}: {error}") from None
        yield from ((i, answer(task)) for i, task in enumerate(tasks))

    monkeypatch.setattr(Pool, "work_off", work_off)
