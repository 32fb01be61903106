"""A Sphinx extension: what `make bench` has stored in book/results/bench-*.json, on book/performance.md in place of its line
`% what was measured`.

A file is refused, and the book with it, where a ratio or a "met" does not follow from the numbers beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLACE = "% what was measured"
PARTS = {  # and the script of tests/bench/ that measures each
    "launching": "run.py",
    "all-reduce": "run.py",
    "prediction": "predict.py",
    "simulation": "timing.py",
    "training": "train.py",
    "grading": "grading.py",
    "what-if": "traces.py",
    "why": "why.py",
}
_PART = {"about", "command", "date", "where", "load", "commit", "rows"}
_ROW = {"figure", "ours", "beside", "ratio", "target", "met"}
_NONE = """\
```{admonition} Not measured yet
:class: note
Nobody has run `make bench` here.
```
"""


def read(path: Path) -> dict[str, Any]:
    """One machine's file. ValueError where it lacks something, or says what its own numbers do not."""
    stored = json.loads(path.read_text(encoding="utf-8"))

    def same(what: str, keys: set[str], needed: set[str]) -> None:
        if keys != needed:
            raise ValueError(f"{path.name}: {what} has {sorted(keys)} where it should have {sorted(needed)}")

    same("the file", {*stored}, {"machine", "parts"})
    same("parts", {*stored["parts"]} | {*PARTS}, {*PARTS})
    for name, part in stored["parts"].items():
        same(name, {*part}, _PART)
        for row in part["rows"]:
            same(f"a row of {name}", {*row}, _ROW)
            ratio = row["ours"] if row["beside"] is None else row["ours"] / row["beside"]
            if not math.isclose(row["ratio"], ratio, rel_tol=1e-3):
                raise ValueError(
                    f"{path.name}: {row['figure']!r} has ratio {row['ratio']}, and it is {ratio:.4g}"
                )
            if row["met"] != (None if row["target"] is None else row["ratio"] <= row["target"]):
                raise ValueError(f"{path.name}: {row['figure']!r} has met {row['met']}, and that is not so")
    return stored


def current(root: Path = ROOT) -> str:
    """The Markdown of every machine's file."""
    paths = sorted((root / "book" / "results").glob("bench-*.json"))
    return "\n".join(_machine(read(path)) for path in paths) or _NONE


def _machine(stored: dict[str, Any]) -> str:
    parts = {name: stored["parts"][name] for name in PARTS if name in stored["parts"]}
    for part in parts.values():
        part["rows"] = [
            row | {"figure": name} for row, name in zip(part["rows"], _names(part["rows"]), strict=True)
        ]
    asked = [row for part in parts.values() for row in part["rows"] if row["target"] is not None]
    missed = [row for row in asked if not row["met"]]
    said = f"Targets met: {len(asked) - len(missed)} of {len(asked)}."
    if missed:
        worst = max(missed, key=_over)
        said += f" Furthest from its target, at {_factor(worst)} it, is *{_text(worst['figure'])}*."
    if left := [name for name in PARTS if name not in parts]:
        said += f" Not measured on this machine: {', '.join(left)}."
    return f"## {stored['machine']}\n\n{said}\n\n" + "\n".join(
        _part(name, part, stored["machine"]) for name, part in parts.items()
    )


def _names(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What each figure is called, "the same" said in full."""
    last = ""
    for row in rows:
        name = re.sub(r"^the same", lambda _, last=last: last, row["figure"].strip())
        last = name.partition(" / ")[0]
        yield name


def _part(name: str, part: dict[str, Any], machine: str) -> str:
    before, after = part["load"]
    system = part["where"].removeprefix(f"{machine}, ")
    lines = [
        f"### {name[0].upper()}{name[1:]}\n",
        f"{part['about']}\n",
        "| figure | share | target |\n|---|---:|---|"
        if all(row["beside"] is None for row in part["rows"])
        else "| figure | ratio | target | ours | beside |\n|---|---:|---|---:|---:|",
        *map(_row, part["rows"]),
        f"\n`{part['command']}`, {part['date']}; {system}; load {before:.1f} before and {after:.1f} after; "
        f"commit {part['commit']}.\n",
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    share = row["beside"] is None
    ratio = _percent if share else _ratio
    missed = f"**missed**, {_factor(row)}"
    cells = [
        _text(row["figure"]),
        ratio(row["ratio"]),
        "" if row["target"] is None else f"{ratio(row['target'])}: {'met' if row['met'] else missed}",
    ]
    if not share:
        cells += [seconds(row["ours"]), seconds(row["beside"])]
    return f"| {' | '.join(cells)} |"


def seconds(s: float) -> str:
    """Three digits of it, in the unit in which they are easiest to read: 42.1 ms, 115 s, 0.032 µs."""
    s = float(f"{s:.3g}")
    unit, size = next(((u, x) for u, x in (("s", 1.0), ("ms", 1e-3)) if s >= x), ("µs", 1e-6))
    x = s / size
    return f"{x:,.0f}\N{NO-BREAK SPACE}{unit}" if x >= 100 else f"{x:.3g}\N{NO-BREAK SPACE}{unit}"


def _ratio(x: float) -> str:
    return f"{x:.2f}" if x > 0.05 else f"1/{float(f'{1 / x:.3g}'):,.0f}"


def _percent(x: float) -> str:
    return f"{100 * x:.1f}\N{NO-BREAK SPACE}%" if x >= 0.01 or not x else f"{100 * x:.2g}\N{NO-BREAK SPACE}%"


def _over(row: dict[str, Any]) -> float:
    return row["ratio"] / row["target"] if row["target"] else math.inf


def _factor(row: dict[str, Any]) -> str:
    """How many times a target the ratio is; never so rounded that it would seem to be met."""
    over = _over(row)
    said = (
        f"{math.ceil(100 * over) / 100:.2f}"
        if over < 1.05
        else f"{over:.2g}"
        if over < 100
        else "100 and more"
    )
    return f"{said}\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}"


def _text(figure: str) -> str:
    figure = re.sub(r"(\d)e\+0?(\d)", r"\1e\2", figure)
    return re.sub(r"([|*_`$<\[])", r"\\\1", figure.strip())


def fill(app: Any, docname: str, source: list[str]) -> None:
    """The place on the page that asks for it."""
    if docname == "book/performance":
        source[0] = source[0].replace(PLACE, current())


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
