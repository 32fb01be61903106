"""What `make bench` has stored in book/results/bench-*.json, on book/performance.md in place of its line
`% what was measured`. Ratios, and whether a target is met, follow here from the seconds that are stored.
"""

import json
import math
import re
from html import escape
from itertools import count, cycle
from pathlib import Path
from typing import Any

from lab_map import SHEET

ROOT = Path(__file__).resolve().parents[2]
PLACE = "% what was measured"
# and the script of tests/bench/ that measures each
PARTS = {"launching": "run.py", "all-reduce": "run.py", "simulation": "timing.py", "training": "train.py"}
COLOURS = ("currentColor", "var(--pst-color-danger, #c00)")  # met, missed
MARKS = "●▲■◆"  # of the machines, in the order of their files
LINE = """<g transform="translate(0 {y})"><text x="8" y="-8">{text}</text>
<path d="M8 0H352M{one} 0v-5" stroke="currentColor" opacity="0.4"/>
<path d="M{target} 3v-9" stroke="currentColor" stroke-width="2"/></g>"""
_NONE = "Nobody has run `make bench` here yet.\n"


def current(root: Path = ROOT) -> str:
    """The Markdown of every machine's file: a chart for each part, and the numbers, folded."""
    paths = sorted((root / "book" / "results").glob("bench-*.json"))
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    machines = "; ".join(f"{mark} {file['machine']}" for mark, file in zip(cycle(MARKS), files, strict=False))
    charts = (_chart(name, files) for name in PARTS if any(name in file["parts"] for file in files))
    return "\n".join([machines, "", *charts, *map(_machine, files)]) if files else _NONE


def _chart(name: str, files: list[dict[str, Any]]) -> str:
    """A part's figures, each a logarithmic line: what stands beside ours, the target, and ours on every machine."""
    by_figure: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for mark, file in zip(cycle(MARKS), files, strict=False):
        for row in file["parts"].get(name, {"rows": []})["rows"]:
            figure = re.sub(r" \(.*\)", "", _plain(row["figure"]))
            by_figure.setdefault(figure, []).append((mark, row))
    lowest = 0.7 * min(min(row["target"], _ratio(row)) for each in by_figure.values() for _, row in each)

    def x(r: float) -> float:
        return round(8 + 344 * math.log(min(r, 5) / lowest) / math.log(5 / lowest), 1)

    box = f'viewBox="0 0 360 {25 * len(by_figure) + 2}" style="{SHEET}" font-size="9.5" fill="currentColor"'
    lines = [f'<svg role="img" aria-label="{name}, as in the tables below" {box}>']
    for y, (figure, each) in zip(count(21, 25), by_figure.items(), strict=False):
        lines.append(LINE.format(y=y, one=x(1), target=x(each[0][1]["target"]), text=escape(figure)))
        for mark, row in each:
            style = f'style="fill:{COLOURS[over(row) > 1]}"'
            lines.append(f'<text x="{x(_ratio(row)) - 4}" y="{y + 3}" {style}>{mark}</text>')
    return "\n".join([f"## {name.capitalize()}\n\n```{{raw}} html", *lines, "</svg>\n```\n"])


def _machine(stored: dict[str, Any]) -> str:
    parts = {name: stored["parts"][name] for name in PARTS if name in stored["parts"]}
    asked = [row for part in parts.values() for row in part["rows"]]
    said = f"{stored['machine']}: {sum(over(row) <= 1 for row in asked)} of {len(asked)} targets met"
    if left := [name for name in PARTS if name not in parts]:
        said += f"; not measured: {', '.join(left)}"
    tables = "\n".join(_part(name, part, stored["machine"]) for name, part in parts.items())
    return f":::{{admonition}} {said}\n:class: dropdown\n\n{tables}\n:::\n"


def _part(name: str, part: dict[str, Any], machine: str) -> str:
    before, after = part["load"]
    system = part["where"].removeprefix(f"{machine}, ")
    about = f"**{name.capitalize()}.** {part['about']}\n"
    head = "| figure | ratio | target | ours | beside |\n|---|---:|---|---:|---:|"
    ran = f"\n`{part['command']}`, {part['date']}; {system}; load {before:.1f} before and {after:.1f} after"
    return "\n".join([about, head, *map(_row, part["rows"]), f"{ran}; commit {part['commit']}.\n"])


def _row(of: dict[str, Any]) -> str:
    target = ratio(of["target"]) + ", **missed**" * (over(of) > 1)
    return f"| {_text(of['figure'])} | {ratio(_ratio(of))} | {target} | {seconds(of['ours'])} | {seconds(of['beside'])} |"


def _ratio(row: dict[str, Any]) -> float:
    return float(row["ours"] / row["beside"])


def over(row: dict[str, Any]) -> float:
    """How many times its target a row's ratio is; at most 1 is met."""
    return _ratio(row) / float(row["target"])


def seconds(s: float) -> str:
    """Three digits of it, in the unit in which they are easiest to read: 42.1 ms, 115 s, 0.032 µs."""
    s = float(f"{s:.3g}")
    unit, size = next(((u, x) for u, x in (("s", 1.0), ("ms", 1e-3)) if s >= x), ("µs", 1e-6))
    x = s / size
    return f"{x:,.0f}\N{NO-BREAK SPACE}{unit}" if x >= 100 else f"{x:.3g}\N{NO-BREAK SPACE}{unit}"


def ratio(x: float) -> str:
    """A ratio, or where it is small its inverse, as in 1/1,500."""
    return f"{x:.2f}" if x > 0.05 else f"1/{float(f'{1 / x:.3g}'):,.0f}"


def _plain(figure: str) -> str:
    return re.sub(r"(\d)e\+0?(\d)", r"\1e\2", figure.strip())


def _text(figure: str) -> str:
    return re.sub(r"([|*_`$<\[])", r"\\\1", _plain(figure))
