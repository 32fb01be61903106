"""What `make bench` has stored in book/results/bench-*.json, on book/performance.md in place of its line
`% what was measured`. Ratios, and whether a target is met, follow here from the seconds that are stored.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLACE = "% what was measured"
PARTS = {  # and the script of tests/bench/ that measures each
    "launching": "run.py",
    "all-reduce": "run.py",
    "simulation": "timing.py",
    "training": "train.py",
}
_NONE = """\
```{admonition} Not measured yet
:class: note
Nobody has run `make bench` here.
```
"""


def current(root: Path = ROOT) -> str:
    """The Markdown of every machine's file."""
    paths = sorted((root / "book" / "results").glob("bench-*.json"))
    return "\n".join(_machine(json.loads(path.read_text(encoding="utf-8"))) for path in paths) or _NONE


def _machine(stored: dict[str, Any]) -> str:
    parts = {name: stored["parts"][name] for name in PARTS if name in stored["parts"]}
    asked = [row for part in parts.values() for row in part["rows"]]
    missed = [row for row in asked if over(row) > 1]
    said = f"Targets met: {len(asked) - len(missed)} of {len(asked)}."
    if missed:
        worst = max(missed, key=over)
        said += f" Furthest from its target, at {_factor(worst)} it, is *{_text(worst['figure'])}*."
    if left := [name for name in PARTS if name not in parts]:
        said += f" Not measured on this machine: {', '.join(left)}."
    tables = "\n".join(_part(name, part, stored["machine"]) for name, part in parts.items())
    return f"## {stored['machine']}\n\n{said}\n\n{tables}"


def _part(name: str, part: dict[str, Any], machine: str) -> str:
    before, after = part["load"]
    system = part["where"].removeprefix(f"{machine}, ")
    lines = [
        f"### {name.capitalize()}\n",
        f"{part['about']}\n",
        "| figure | ratio | target | ours | beside |\n|---|---:|---|---:|---:|",
        *map(_row, part["rows"]),
        f"\n`{part['command']}`, {part['date']}; {system}; load {before:.1f} before and {after:.1f} after; "
        f"commit {part['commit']}.\n",
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    met = "met" if over(row) <= 1 else f"**missed**, {_factor(row)}"
    target = f"{ratio(row['target'])}: {met}"
    ours, beside = row["ours"], row["beside"]
    return f"| {_text(row['figure'])} | {ratio(ours / beside)} | {target} | {seconds(ours)} | {seconds(beside)} |"


def over(row: dict[str, Any]) -> float:
    """How many times its target a row's ratio is; at most 1 is met."""
    return float(row["ours"] / row["beside"] / row["target"])


def seconds(s: float) -> str:
    """Three digits of it, in the unit in which they are easiest to read: 42.1 ms, 115 s, 0.032 µs."""
    s = float(f"{s:.3g}")
    unit, size = next(((u, x) for u, x in (("s", 1.0), ("ms", 1e-3)) if s >= x), ("µs", 1e-6))
    x = s / size
    return f"{x:,.0f}\N{NO-BREAK SPACE}{unit}" if x >= 100 else f"{x:.3g}\N{NO-BREAK SPACE}{unit}"


def ratio(x: float) -> str:
    """A ratio, or where it is small its inverse, as in 1/1,500."""
    return f"{x:.2f}" if x > 0.05 else f"1/{float(f'{1 / x:.3g}'):,.0f}"


def _factor(row: dict[str, Any]) -> str:
    """How many times a target the ratio is; never so rounded that it would seem to be met."""
    times = over(row)
    said = f"{math.ceil(100 * times) / 100:.2f}" if times < 1.05 else f"{times:.2g}"
    return f"{said}\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}"


def _text(figure: str) -> str:
    figure = re.sub(r"(\d)e\+0?(\d)", r"\1e\2", figure)
    return re.sub(r"([|*_`$<\[])", r"\\\1", figure.strip())
