"""The what-if engine of lab 10.3 on its largest job, beside the analysis of those who published the trace.

    python tests/bench/traces.py [--theirs CLONE --python PYTHON]

Ours are the cells of the page as they stand there: read the job, find its ideal, and the slowdown by each kind of operation,
each stage and each rank. Theirs is ``analyzer/wia.py`` of a clone of github.com/ByteDance-Seed/StragglerAnalysis, run by a
PYTHON that has its requirements, with the start of the process and the reading of the trace; what else it finds is its
own. Seconds are of one process; numpy and pandas use one thread. (``make bench`` has no clone, and measures ours alone.)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np
from table import ROOT, part

LAB = ROOT / "notebooks" / "10_3_synchronous_sgd.md"
JOB, TRACE = "b", "SE"  # the lab's name of it, and theirs
LIMIT_S = 5.0


def engine() -> dict[str, Any]:
    """What the lab's cells define from *Three real jobs* to its question, with its jobs read."""
    text = LAB.read_text(encoding="utf-8")
    section = text[text.index("## Three real jobs") : text.index("my_guess_factor")]
    cells = re.findall(
        r"^```\{code-cell\}[^\n]*\n(?:---\n.*?\n---\n|:[^\n]*\n)*(.*?)^```", section, re.S | re.M
    )
    here: dict[str, Any] = {}
    lines = ["import json", "from graphlib import TopologicalSorter", "import numpy as np"]
    exec("\n".join([*lines, "from labkit_book.labs import data_file"]), here)
    for cell in cells:
        exec(cell, here)
    return here


def account(lab: dict[str, Any]) -> dict[str, float]:
    """The slowdowns of the job by whose seconds are as they were: all, a kind's, a stage's, a rank's."""
    job, slowdown = lab["Job"](JOB), lab["slowdown"]
    job.best = lab["ideal"](job.took)
    parts = {"all": slowdown(job, lambda op: True)}
    parts |= {kind: slowdown(job, lambda op, k=kind: op[0] == k) for kind in {op[0] for op in job.took}}
    parts |= {f"stage {s}": slowdown(job, lambda op, s=s: op[2] == s) for s in range(job.S)}
    return parts | {f"rank {d}": slowdown(job, lambda op, d=d: np.arange(job.D) == d) for d in range(job.D)}


def theirs(clone: Path, python: str) -> tuple[float, float]:
    """(seconds, slowdown) of the authors' program."""
    data = clone / "data"
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        subprocess.run(
            [python, "analyzer/wia.py", "--root", out, "--dump-dir", out,
             "--trace", data / f"trace-{TRACE}.parquet", "--metadata", data / f"meta-{TRACE}.yaml"],
            cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        (found,) = Path(out).glob("*.json")
        return seconds, json.loads(found.read_text())["blocking_slowdown"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--theirs", type=Path, help="a clone of the authors' repository, checked out")
    parser.add_argument("--python", default="python", help="a Python that has its requirements")
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    if args.theirs:  # where they lie here is nobody's business
        sys.argv[1:] = ["--theirs", "CLONE", "--python", "PYTHON"]
    with part(
        "what-if", "Three real jobs of lab 10.3: what the largest, of 128 GPUs, loses by what."
    ) as rows:
        before, lab = Path.cwd(), engine()
        spent = []
        for _ in range(args.times):
            began = time.perf_counter()
            parts = account(lab)
            spent.append(time.perf_counter() - began)
        os.chdir(before)
        ours = statistics.median(spent)
        rows.append((f"job of 128 GPUs, {len(parts)} slowdowns / {LIMIT_S:g} s", ours, LIMIT_S, 1.0))
        if args.theirs:
            seconds, slowdown = theirs(args.theirs.resolve(), args.python)
            rows.append(("  the same / the authors' analysis", ours, seconds, None))
            rows.append(("  slowdown, distance from theirs", abs(parts["all"] / slowdown - 1), None, 0.01))


if __name__ == "__main__":
    main()
