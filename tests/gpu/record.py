"""`make gpu`: in ten minutes, on a machine with GPUs, what cannot be known without them, in book/results/<device>.json.

The machine may be a short loan that can end at any moment. So every part runs in a process of its own, with a time limit of
its own, and ends with all that it started, and the file is written anew after each part. What a reader would miss first
comes first; the labs' cells, the quickest lab's first, get what is left of the ten minutes. The page about GPUs
(book/gpu.md) takes its numbers from these files alone. ``--rehearse FOLDER`` does the same without a GPU and writes into a
folder of your choice.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "book" / "tools")]

import cells  # noqa: E402

CELLS, ALONE = str(HERE / "cells.py"), str(HERE / "alone.py")
WHOLE_S = 585.0  # for everything, so that all is over within ten minutes
#: Words of which one is in the names of the tests that a part runs, of those marked gpu.
MESSAGES = "live_on or all_reduce or receive_first or comes_first"
MEMORY, TRAINING, CLOCK = "memory or result_on", "ddp or zero or recorder or compressed", "clock"
MACHINE_S, LAB_S = 25, 90  # for the first question, and for the cells of a lab that use a device or processes
TESTED = re.compile(r"^\S*::(\S+) (PASSED|FAILED|ERROR|SKIPPED)", re.M)
MISSING = re.compile(r"No module named '?([\w.]+)|this needs (\w+), which is not installed")


@dataclass(frozen=True)
class Part:
    """One process: what it is called, its time limit, its command, and what to add to its environment."""

    name: str
    limit_s: float
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def parts(device: str, gpus: int) -> list[Part]:
    """All but the labs' cells, in order. device: as torch names it, for the timings."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    one = {"CUDA_VISIBLE_DEVICES": first, "PRETENDED_DEVICES": "1"} if gpus > 1 else {}
    chosen = [tests("messages and all-reduces on all GPUs", 80, MESSAGES)] if gpus > 1 else []
    chosen += [
        tests("messages and all-reduces of workers that share one GPU", 60, MESSAGES, one),
        tests("memory on the GPU", 25, MEMORY),
        tests("DDP, ZeRO and the recorder", 60, TRAINING),
        tests("the GPU's clock", 20, CLOCK),
        Part("timings", 35, [sys.executable, ALONE, "timings", device]),
        tests("all other tests marked gpu", 30, f"not ({MESSAGES} or {MEMORY} or {TRAINING} or {CLOCK})"),
    ]
    return chosen


def tests(name: str, limit_s: float, words: str, env: Mapping[str, str] = MappingProxyType({})) -> Part:
    """A part that runs tests marked gpu, but those of the labs' cells, which have parts of their own."""
    found = [f for f in sorted((ROOT / "tests").rglob("test_*.py")) if f.name != "test_cells.py"]
    files = [str(f) for f in found if "mark.gpu" in f.read_text(encoding="utf-8")]
    options = ["-v", "-rs", "--tb=line", "-m", "gpu", "-k", words]
    # a lent machine may have another pytest, fewer of its plugins, and lack what conftest or one of the files imports
    options += ["-c", os.devnull, f"--rootdir={ROOT}", "--import-mode=importlib", "-p", "no:cacheprovider"]
    options += ["--noconftest", "--continue-on-collection-errors"]
    return Part(name, limit_s, [sys.executable, "-m", "pytest", *options, *files], env)


def labs() -> list[str]:
    """All labs, the shortest first and last those of which nobody knows how long they take."""
    known = json.loads((ROOT / "book" / "run_times.json").read_text())
    return sorted(cells.labs(), key=lambda name: known.get(name, {}).get("seconds", WHOLE_S))


def cells_of(device: str, left_s: Callable[[], float]) -> Iterator[Part]:
    """Each lab's cells that start processes or ask for a device, for as long as there is time."""
    for lab in labs():
        if (left := left_s()) > 5:
            yield Part(f"cells of {lab}", min(LAB_S, left), [sys.executable, CELLS, device, lab])


def run(part: Part, env: Mapping[str, str]) -> dict[str, Any]:
    """Run a part to its end, or end it at its limit with all that it started; its line of the file."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            part.command, cwd=ROOT, env={**env, **part.env}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            status = process.wait(part.limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_session(process)
        log.seek(0)
        said = log.read()
    line = {
        "part": part.name,
        "limit_s": round(part.limit_s),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    return {**line, **outcome(status, said)}


def end_session(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started, workers with process groups of their own included."""
    while family := [pid for pid in _session(process.pid) if pid != os.getpid()]:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)
    process.wait()


def _session(leader: int) -> Iterator[int]:
    """The processes of a session that are not yet dead."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state not in "ZX":
                yield int(path.parent.name)


def outcome(status: int | None, said: str) -> dict[str, Any]:
    """What became of a part. status: its exit status, None where it was ended; said: all that it wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = [each for line in lines if (each := _json(line)) is not None]
    tests = Counter(how for _, how in TESTED.findall(said))
    failed = [name for name, how in TESTED.findall(said) if how in ("FAILED", "ERROR")]
    # cells.py says of a lab what went wrong in it
    wrong = [why for each in found for why in each.values() if isinstance(why, str) and "Traceback" in why]
    line: dict[str, Any] = {"found": found} if found and not wrong else {}
    if tests:
        line["tests"] = {"passed": tests["PASSED"], "failed": failed, "skipped": tests["SKIPPED"]}
    lacks = MISSING.search(said)
    last = lines[-1] if lines else "it said nothing"
    if status is None:
        return {"ended": "at its limit", "why": f"the last it said: {last[:200]}", **line}
    if status == 0 and tests and tests["SKIPPED"] == tests.total():
        why = re.search(r"^SKIPPED \[\d+\] \S+ (.*)", said, re.M)
        return {"ended": "not run", "why": f"all tests skip here: {why[1] if why else ''}"}
    if status == 0 and not wrong:
        return {"ended": "well", **line}
    if lacks and not tests["PASSED"]:
        return {"ended": "not run", "why": f"{lacks[1] or lacks[2]} is not installed there"}
    if status == 5:  # pytest's own: nothing was chosen
        return {"ended": "not run", "why": "there is no such test"}
    why = wrong[0].strip().splitlines()[-1] if wrong else last
    return {"ended": "badly", "why": f"exit status {status}: {why[:300]}", **line}


def _json(line: str) -> dict[str, Any] | None:
    """The object that a line is, if it is one."""
    with contextlib.suppress(ValueError):
        if isinstance(each := json.loads(line), dict):
            return each
    return None


def commit() -> str:
    """Of the checkout, where this is one."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def all_of(
    chosen: Iterable[Part], env: Mapping[str, str], write: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """Run the parts one after another; ``write`` is given all lines so far after each."""
    lines: list[dict[str, Any]] = []
    for part in chosen:
        print(f"{part.name} ...", flush=True)
        lines.append(run(part, env))
        write(lines)
        ended = ", ".join(str(lines[-1][key]) for key in ("ended", "why") if key in lines[-1])
        print(f"    {lines[-1]['seconds']:.1f} s: {ended}", flush=True)
    return lines


@contextlib.contextmanager
def environment(pretended_gpus: int) -> Iterator[Mapping[str, str]]:
    """The parts' environment: this one, or one with so many pretended GPUs."""
    if pretended_gpus:
        import pretended

        with pretended.there(pretended_gpus) as env:
            yield env
    else:
        yield {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rehearse", type=Path, metavar="FOLDER", help="without a GPU, writing into FOLDER")
    parser.add_argument(
        "--pretend", type=int, default=0, metavar="K", help="rehearse on K pretended GPUs, not the CPU"
    )
    a = parser.parse_args()
    begun = time.perf_counter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and with it the part that runs

    def left_s() -> float:
        return WHOLE_S - (time.perf_counter() - begun)

    with environment(a.pretend) as env:
        asked = Part("the machine", MACHINE_S, [sys.executable, ALONE, "machine"])
        first = run(asked, env)
        if first["ended"] != "well":
            print(f"torch does not say what this machine has: {first['why']}; nothing was written.")
            return 1
        (here,) = first["found"]
        if not here["gpus"] and a.rehearse is None:
            print("make gpu needs a GPU that torch can see, and there is none here; nothing was written.")
            return 1
        folder = a.rehearse or ROOT / "book" / "results"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (re.sub(r"[^a-z0-9]+", "-", here["device"].lower()).strip("-") + ".json")
        device = ("pretend" if a.pretend else "cuda") if here["gpus"] else "cpu"
        chosen = parts(device, here["gpus"])
        head = {
            **here,
            "date": date.today().isoformat(),
            "commit": commit(),
            "planned": [p.name for p in chosen] + [f"cells of {lab}" for lab in labs()],
        }

        def write(lines: list[dict[str, Any]]) -> None:
            whole = {**head, "seconds": round(WHOLE_S - left_s()), "parts": lines}
            new = path.with_suffix(".new")
            new.write_text(json.dumps(whole, indent=1) + "\n")
            new.replace(path)

        lines = all_of(itertools.chain(chosen, cells_of(device, left_s)), env, write)
    print(f"Written: {path}, in {WHOLE_S - left_s():.0f} s")
    return int(any(line["ended"] in ("badly", "at its limit") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
