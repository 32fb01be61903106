"""The table that the benchmarks print, and where it is kept: ``book/results/bench-<machine>.json``, a page of the book.

A row is (figure, ours, beside, target): our seconds, those of the peer, floor or limit beside it, and the ratio of the two
that is aimed at. A file holds one machine's parts, each with the command that measured it; a new run replaces its own part.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit import machine

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "book" / "results"
Row = tuple[str, float, float, float]


@contextmanager
def part(name: str, about: str) -> Iterator[list[Row]]:
    """What is measured inside, as rows, is printed, and kept as this part of the machine's file.

    about: one sentence, what the rows compare.
    """
    rows: list[Row] = []
    before = os.getloadavg()[0]
    yield rows
    load = [round(x, 2) for x in (before, os.getloadavg()[0])]
    where, _, date = machine.describe().rpartition(", ")
    print(f"\n{name}: {about}\n{where}, {date}, load {load[0]} before, {load[1]} after\n")
    show(rows)
    command = " ".join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])
    stamp = {"command": command, "date": date, "where": where, "load": load, "commit": commit()}
    keep(name, {"about": about, **stamp, "rows": [entry(*row) for row in rows]})


def entry(figure: str, ours: float, beside: float, target: float) -> dict[str, Any]:
    """A row as it is kept, its seconds to four digits."""
    return {
        "figure": figure, "ours": float(f"{ours:.4g}"), "beside": float(f"{beside:.4g}"), "target": target,
    }  # fmt: skip


def keep(name: str, measured: dict[str, Any]) -> None:
    """Put one part into the file of this machine, whose other parts stay."""
    this = f"{machine.cpu_name()}, {machine.cores()} core{'s' * (machine.cores() > 1)}"
    path = RESULTS / f"bench-{re.sub('[^a-z0-9]+', '-', this.lower()).strip('-')}.json"
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": this, "parts": parts | {name: measured}}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def commit() -> str:
    """Which sources were measured, as git names them."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!book/results")
        return git("rev-parse", "--short", "HEAD").strip() + " with changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def show(rows: Iterable[Row]) -> None:
    """Print a line for each row."""
    print(f"{'figure':72} {'ours, ms':>10} {'beside, ms':>12} {'ratio':>9} {'target':>9}  met")
    for figure, ours, beside, target in rows:
        ratio, met = ours / beside, "yes" if ours / beside <= target else "NO"
        print(f"{figure:72} {1e3 * ours:10.3f} {1e3 * beside:12.3f} {ratio:9.4f} {target:9.4f}  {met}")
