"""`make test`: every check, cheapest first; it stops at the first stage that fails and says which.

The notebooks' stage is nbval's: each notebook in notebooks/ and notebooks/exercises/ is executed again, as a reader has
it, with labkit from the wheel and nothing of the checkout (reader.py), from a copy under _build/ that has its covered
answers in sight, and every stored text (text/plain, text/html, streams) must come out again to the letter. What nbval
does not compare, by itself or by our choice: png and jpeg images (two machines' fonts differ by a pixel; that the figure
is drawn without an error is what counts), ids of widgets, and the cells tagged `nbval-ignore-output` (they hold measured
times). A notebook stripped of its outputs would pass nbval unseen, hence the stage `pairs`, which also knows the outputs
nbval does not compare by their hash.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=8", "--durations-min=5"]
WITHOUT = ["-p", "no:nbval"]  # its imports take every process four seconds, and only notebooks need them
# Three at a time, in the order given: on two cores, since tests often wait; a fourth collects for longer than it gains.
SEVERAL = ["--no-loadscope-reorder", "--dist", "loadfile", "-n", "3"]
UNMARKED = "not browser and not alone and not weekly"  # tests without a stage of their own
COPIES = Path("_build", "uncovered")  # of the notebooks, made by their tool
READER = Path("_build", "reader")  # the environment in which they run
# pytest's timeout is for what can't be interrupted.
NBVAL = [*PYTEST, "--nbval", "--nbval-cell-timeout=300", "--timeout=360"]
NBVAL += ["--nbval-sanitize-with=tests/nbval.cfg", "-p", "no:cacheprovider", "-p", "tests.kernels"]


def files() -> list[str]:
    """All files of tests."""
    return sorted(str(f.relative_to(ROOT)) for f in (ROOT / "tests").rglob("test_*.py"))


def marked(mark: str) -> list[str]:
    """The files of tests that write this mark: to collect the others takes longer than some stages do."""
    return [f for f in files() if f"mark.{mark}" in (ROOT / f).read_text(encoding="utf-8")]


def long_first() -> list[str]:
    """All files of tests, those that start processes first: they take longest, and all workers shall end together."""
    long = set(marked("processes"))
    return sorted(files(), key=lambda f: f not in long)


def notebooks() -> list[str]:
    """The copies of all notebooks: those that nobody has timed, then the longest first, so that all workers end together."""
    times = json.loads((ROOT / "book" / "run_times.json").read_text(encoding="utf-8"))
    folders = (ROOT / "notebooks", ROOT / "notebooks" / "exercises")  # JupyterLab's copies have no .md
    found = sorted(f for folder in folders for f in folder.glob("*.ipynb") if f.with_suffix(".md").exists())
    found.sort(key=lambda f: -times.get(f.stem, {"seconds": float("inf")})["seconds"])
    return [str(COPIES / f.relative_to(ROOT / "notebooks")) for f in found]


STAGES: list[tuple[str, list[str]]] = [
    ("lint", [sys.executable, "-m", "ruff", "check", "-q", "."]),
    ("format", [sys.executable, "-m", "ruff", "format", "-q", "--check", "."]),
    ("schemas", [sys.executable, "tests/schemas.py"]),
    ("house", [sys.executable, "tests/house.py"]),
    ("house", [sys.executable, "tests/reached.py"]),
    ("house", [sys.executable, "book/tools/shape.py"]),
    ("pairs", [sys.executable, "book/tools/notebooks.py", "check"]),
    ("types", [sys.executable, "-m", "mypy"]),
    ("tests", [*PYTEST, *WITHOUT, *SEVERAL, *long_first(), "-m", UNMARKED]),
    ("book", [sys.executable, "book/tools/build.py"]),
    ("alone", [*PYTEST, *WITHOUT, *marked("alone"), "-m", "alone and not weekly"]),
    ("notebooks", [sys.executable, "tests/reader.py", str(READER)]),
    ("notebooks", [*NBVAL, "--nbval-kernel-name=reader", *SEVERAL, *notebooks()]),
    ("browser", [*PYTEST, *WITHOUT, *SEVERAL, *marked("browser"), "-m", "browser and not weekly"]),
]
WEEKLY = [*PYTEST, *WITHOUT, "--timeout=1800", *marked("weekly"), "-m"]
ONLY_WHEN_NAMED = [
    ("weekly", [*WEEKLY, "weekly and alone"]),
    # Several of one file, too, at a time, but mostly neighbours: what they share is made once.
    ("weekly", [*WEEKLY, "weekly and not alone", "-n", "4", "--dist", "worksteal"]),
]
BESIDE = {"mypy", "book/tools/build.py", "tests/reader.py"}  # one core's work: begun with the first stage
KINDS = ("failed", "passed", "skipped", "error")


def count(report: Path) -> Counter[str]:
    """How many tests passed, failed, were skipped, in a JUnit report; none if there is no report."""
    outcomes = {"failure": "failed", "error": "error", "skipped": "skipped"}
    cases = ET.parse(report).iter("testcase") if report.exists() else ()
    return Counter(next((outcomes[c.tag] for c in case if c.tag in outcomes), "passed") for case in cases)


def closing_line(total: Counter[str], seconds: float) -> str:
    """The last line, in pytest's words."""
    counts = ", ".join(f"{total[kind]} {kind}" for kind in KINDS if total[kind]) or "no tests ran"
    return f" {counts} in {seconds:.2f}s ".center(80, "=")


def process(name: str, command: list[str], report: Path) -> dict[str, Any]:
    """What subprocess.run needs for a stage. report: where pytest writes what happened."""
    env = {**os.environ, "LABKIT_BOOK_MUST_EXIST": "1", "MPLBACKEND": os.environ.get("MPLBACKEND", "agg")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # pytest would prepare every file of tests anew in every process
    if "--nbval" in command:
        del env["MPLBACKEND"]  # the kernel chooses its own: inline
        subprocess.run([sys.executable, "book/tools/notebooks.py", "uncover", COPIES], cwd=ROOT, check=True)
        env["JUPYTER_PATH"] = str(ROOT / READER / "share" / "jupyter")
    if "pytest" in command:
        command = [*command, f"--junitxml={report}"]
    return {"args": command, "cwd": ROOT, "env": env, "stdin": subprocess.DEVNULL}


@contextlib.contextmanager
def beside(stages: list[tuple[str, list[str]]], folder: Path) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """The processes of the stages that run beside the others. folder: where each writes, in a file of its number."""
    early = {}
    try:
        for n, (name, command) in enumerate(stages):
            if BESIDE.intersection(command):
                with (folder / str(n)).open("wb") as out:
                    its_own = {**process(name, command, folder), "start_new_session": True}
                    early[n] = subprocess.Popen(**its_own, stdout=out, stderr=out)
        yield early
    finally:
        for running in (each for each in early.values() if each.poll() is None):
            os.killpg(running.pid, signal.SIGKILL)


def end(*_: object) -> None:
    """Asked to end (SIGTERM): nothing that was started runs on."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    sys.exit(1)


def main(names: list[str]) -> int:
    """Run the stages of these names, those of every day, or ("all") these and the weekly ones; the exit status."""
    signal.signal(signal.SIGTERM, end)
    known = [name for name, _ in STAGES + ONLY_WHEN_NAMED]
    names = known if names == ["all"] else names
    if "weekly" in names:
        os.environ["LABKIT_NEW_EXAMPLES"] = "1"  # for hypothesis, see conftest.py
    if wrong := ", ".join(sorted(set(names) - set(known))):
        print(f"STAGES must be of {', '.join(known)}, got {wrong}")
        return 2
    stages = [stage for stage in STAGES + ONLY_WHEN_NAMED if stage[0] in names] if names else STAGES
    began, total, table, failed = time.perf_counter(), Counter[str](), [], ""
    with tempfile.TemporaryDirectory() as reports, beside(stages, Path(reports)) as early:
        for n, (name, command) in enumerate(stages):
            print(f"\n--- {name}", flush=True)
            stage_began, report = time.perf_counter(), Path(reports) / f"{name}.xml"
            if n in early:
                status = early[n].wait()
                print(Path(reports, str(n)).read_text(encoding="utf-8"), end="")
            else:
                status = subprocess.run(**process(name, command, report)).returncode
            total += count(report) if "pytest" in command else Counter({"failed" if status else "passed": 1})
            ended = f"{time.perf_counter() - stage_began:7.1f} s  {'FAILED' if status else 'ok'}"
            table.append(f"{name:<10} {ended}")
            if status:
                failed = name
                break
    print("\n--- stages\n" + "\n".join(table))
    if failed:
        left = [name for name, _ in stages[len(table) :]]
        rest = f"; not run: {', '.join(left)}" if left else ""
        print(f"make test stopped at its stage '{failed}'{rest}")
    print(closing_line(total, time.perf_counter() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
