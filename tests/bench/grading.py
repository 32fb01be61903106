"""``make bench``: a class of 100, graded. Submissions are made from a key: right, mistaken, untouched, crashing, looping."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from table import Row, part

from labkit_book.grader.key import Key
from labkit_book.grader.submission import Released

ROOT = Path(__file__).parents[2]
KEY, NOTEBOOKS = ROOT / "tests" / "problems", ROOT / "notebooks" / "exercises"
TARGET_S = 240.0
CRASHES = (
    "raise RuntimeError('no')",
    "import os\nos._exit(0)",
    "while True: pass",
    "x = 'x' * 10**13",
    "def def",
)


def source(name: str, book: Released, id: str, answer: object) -> str:
    """Code that gives the exercise's name this answer of the key: the key without judges, as a student's one cell."""
    stub, kept = book.stubs[id], []
    withheld = book.exercises[id].withheld
    for node in ast.parse((KEY / f"key_{name.replace('.', '_')}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom):  # what the judges use, and what an answer may not
            theirs = str(node.module).startswith(("labkit_book.problems", "labkit_book.grader"))
            node.names = [a for a in node.names if not theirs and f"{node.module}.{a.name}" not in withheld]
        if not isinstance(node, ast.ImportFrom) or node.names:
            kept.append(ast.unparse(node))
    text = "\n".join(k for k in kept if not re.match(r"HIDDEN|LOOK_FOR", k))
    return f"{text}\n{stub.name} = {answer}\n"


def notebook(name: str, book: Released, rng: np.random.Generator) -> tuple[dict, set[str]]:
    """One student's notebook, and which answers in it are right.

    Most are; some are a mistake of the key, some untouched, and now and then there is a disaster.
    """
    right = set()
    nb = json.loads((NOTEBOOKS / f"{name.replace('.', '_')}_exercises.ipynb").read_text())
    key = Key.load(KEY, name)
    for id, e in book.exercises.items():
        (cell,) = [c for c in nb["cells"] if f"exercise-{id}" in c["metadata"].get("tags", [])]
        fate = rng.random()
        if e.rubric:
            cell["source"] = "Everybody waits."
        elif fate < 0.5:
            cell["source"] = source(name, book, id, f"SOLUTIONS[{id!r}]")
            right.add(id)
        elif fate < 0.85:
            cell["source"] = source(name, book, id, f"MUTANTS[{id!r}][{rng.integers(len(key.mutants[id]))}]")
        elif fate < 0.95:
            continue
        else:
            cell["source"] = "".join([*cell["source"], "\n", str(rng.choice(CRASHES))])
    return nb, right


def graded(name: str, n: int, jobs: int) -> list[Row]:
    """A class of n, graded, and the answers to which the grade is not what it should be: they are named."""
    book, rng = Released.load(name, NOTEBOOKS), np.random.default_rng(8)
    expected: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            nb, right = notebook(name, book, rng)
            whole, text = i % 33 > 0, json.dumps(nb)
            path = Path(folder) / "class" / f"student{i:03}.ipynb"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text if whole else text[: len(text) // 2])
            expected[path.stem] = right if whole else set()
        where = [str(path.parent), "--key", str(KEY), "--out", str(Path(folder) / "out")]
        command = [sys.executable, "-m", "labkit_book.grader", *where, "--jobs", str(jobs)]
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - began
        rows = json.loads((Path(folder) / "out" / "grades.json").read_text())["rows"]
    passed = {r["student"]: {e["id"] for e in r["exercises"] if e["status"] == "PASS"} for r in rows}
    off = [f"{s} {id}" for s in expected for id in sorted(expected[s] ^ passed[s])]
    print(f"every right answer passes and no other: {'NO, see ' + ', '.join(off[:9]) if off else 'yes'}")
    limit = TARGET_S * n / 100
    return [
        (f"{n} submissions of set {name}, {jobs} at a time / {limit:.0f} s", seconds, limit, 1.0),
        ("answers graded wrongly, of all", len(off) / (n * len(book.exercises)), None, 0.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--set", default="10.5", choices=Key.sets(KEY))
    parser.add_argument("-n", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    about = "A class graded, the grader's test of itself included, beside the seconds that it may take."
    with part("grading", about) as rows:
        rows += graded(args.set, args.n, args.jobs)


if __name__ == "__main__":
    main()
