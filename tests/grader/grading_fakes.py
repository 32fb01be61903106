"""Grading without walls, for tests of what surrounds it, and notebooks as students hand them in."""

import json
import os
import re
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from labkit_book.grader import __main__ as cli
from labkit_book.grader import batch
from labkit_book.grader.results import Outcome
from labkit_book.grader.zygote import require_walls
from labkit_book.problems import Case, Exercise, judge, same_array
from labkit_book.problems.asking import GraderFailure

ROOT = Path(__file__).parents[2]
KEY = ROOT / "tests" / "problems"
RELEASED = ROOT / "notebooks" / "exercises"


def _of_the_ring(rng):
    for K, n in ((4, 12), (3, 9)):
        sent = np.full(K, 2 * (K - 1) * n // K * 8)
        yield Case((K, n, 8), lambda given, sent=sent: same_array(given, sent))


_OWN = ("ring.bytes", "reduce_scatter.bytes", "all_gather.bytes", "reduce_scatter._sent", "all_gather._sent")
#: An exercise that one call of labkit solves, were it not withheld.
WITHHELD = tuple(f"labkit.collectives.{name}" for name in _OWN)
BYTES = Exercise("0-4", "Bytes", "build", 2, "f", _of_the_ring, withheld=WITHHELD)


def lacking() -> str:
    """Why answers cannot be walled off here, or ""."""
    try:
        require_walls()
    except GraderFailure as error:
        return str(error)
    return ""


needs_walls = pytest.mark.skipif(bool(lacking()), reason=lacking())


def graded_here(e, source, cases, *, setup, cells, name, zygote, seed):
    """Runs the answer here and now. Only for answers that we have written ourselves."""
    if "THE GRADER DIES" in source:
        os._exit(3)
    if "THE GRADER FAILS" in source:
        raise RuntimeError("out of cheese")
    if "SLOW" in source:
        time.sleep(float(os.environ.get("SLOW_S", "0")))
    space: dict = {}
    try:
        exec("\n".join([setup, *(text for _, text in cells), source]), space)
    except Exception as error:
        return Outcome(e.id, e.title, "ERROR", 0, e.points, f"{type(error).__name__}: {error}", answer=source)
    verdict = judge(e, space[name], cases)
    status = {"right": "PASS", "wrong": "WRONG", "todo": "NO_RESULT"}[verdict.status]
    return Outcome(e.id, e.title, status, verdict.points, e.points, verdict.message, "a log", source)


def without_walls(patch, selftest=lambda key, id, zygote: ()):
    """Have answers run in the grader's own processes. patch: a monkeypatch."""
    patch.setattr(batch.Graders, "zygote", lambda self, *_: nullcontext())
    patch.setattr(batch, "grade_one", graded_here)
    patch.setattr(batch, "selftest", selftest)
    patch.setattr(cli, "require_walls", lambda: None)


def in_one_process(patch):
    """Do all tasks here: most of these tests are not about processes."""
    patch.setattr(batch, "in_processes", lambda work, tasks, *_: ((t, work(t)) for t in tasks))


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
    about = {"outputs": [], "execution_count": None}
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}, **about}


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


def peak() -> int:
    """Bytes that this process has had at its most since the last ``forget``; 0 where no system says so."""
    status = Path("/proc/self/status")
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) if status.exists() else 0


def forget() -> int:
    """Let the peak begin anew; what it is now (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()
