"""A Sphinx extension: the map of the labs, on book/map.md in place of its line `% map of the labs`, and under the title of
each page that has cells, how long it takes.

What a lab builds on is said here, by us; what it needs to run is read off its code, its length off its text (prose and
unfolded code, 200 words a minute), and its running time off book/run_times.json, where `make notebooks` notes it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import contents
import gpu_page
import myst
import subject
from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]
PLACE = "% map of the labs"
#: Each lab's short name, its column in the drawing, and the labs without which it would be hard to follow.
LABS: dict[str, tuple[str, float, tuple[str, ...]]] = {
    "10_1_empirical_risk": ("A sum", 0.4, ()),
    "10_2_minibatch_sgd": ("Mini-batches", 0, ("10_1_empirical_risk",)),
    "10_3_synchronous_sgd": ("Synchronous", 1.75, ("10_1_empirical_risk",)),
    "2_2_barriers": ("Barriers", 0, ("10_3_synchronous_sgd",)),
    "2_2_overlap": ("Overlap", 1.97, ("2_2_barriers",)),
    "2_2_why": ("Why not faster?", 1.97, ("2_2_overlap",)),
    "10_4_asynchronous_sgd": ("Asynchronous", 0, ("2_2_barriers",)),
    "10_5_all_reduce": ("All-reduce", 3.6, ()),
    "10_5_network": ("On a network", 4.6, ("10_5_all_reduce",)),
    "10_6_stale_gradients": ("Stale gradients", 0, ("10_4_asynchronous_sgd",)),
    "10_7_fewer_bytes": ("Fewer bytes", 2.97, ("10_3_synchronous_sgd", "10_5_all_reduce")),
    "10_7_local_steps": ("Local steps", 4.4, ("10_7_fewer_bytes",)),
    "10_7_finale": ("A real model", 4.4, ("10_7_local_steps",)),
    "10_8_large_batches": ("Large batches", 1, ("10_2_minibatch_sgd", "10_3_synchronous_sgd")),
    "10_9_lower_bounds": ("Lower bounds", 3.38, ("10_7_fewer_bytes",)),
    "10_10_choosing": ("Choosing", 1, ("10_6_stale_gradients", "10_7_fewer_bytes", "10_8_large_batches")),
    "a_sharded_training": ("Sharding", 4.1, ("10_3_synchronous_sgd", "10_5_all_reduce")),
    "b_failures": ("Failures", 1.98, ("10_3_synchronous_sgd",)),
}
WORDS_A_MINUTE = 200
NEEDS = {  # what a lab's code shows, and what that means
    r"torch\.nn\b|labkit\.train": "torch models",
    r"\bEmulated\b": "network namespaces, or goes on without",
    r"\bdigits\(": "scikit-learn",
    gpu_page.ON_DEVICE.pattern: "uses a GPU if there is one",
}
BOX = (74, 50)
STEP = (77, 84)
SHEET = "max-width:44rem;width:100%;margin-bottom:1.5rem"
FRAME = "fill:var(--pst-color-surface,transparent);stroke:currentColor"


@dataclass(frozen=True)
class Lab:
    """One lab as the map shows it. minutes: of reading; seconds: of running, where: on what (None: nobody noted it)."""

    name: str
    number: str
    short: str
    column: float
    title: str
    after: tuple[str, ...]
    needs: tuple[str, ...]
    minutes: int
    seconds: float | None
    where: str | None


def read(root: Path = ROOT) -> list[Lab]:
    """Every lab from its text, in the book's order. KeyError if nobody has said what one builds on."""
    labs, times = contents.labs(root), _times(root)
    return [_lab(name, contents.label(name, labs), _text(name, root), times.get(name, {})) for name in labs]


def _text(name: str, root: Path) -> str:
    return (root / "notebooks" / f"{name}.md").read_text(encoding="utf-8")


def _times(root: Path) -> dict[str, dict[str, Any]]:
    """By page: the seconds that its cells took, and where. Empty where nobody has noted any."""
    path = root / "book" / "run_times.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _lab(name: str, label: str, text: str, took: dict[str, Any]) -> Lab:
    short, column, after = LABS[name]
    body = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.MULTILINE | re.DOTALL)
    code = "\n".join(myst.codes(body))
    title = re.search(r"^# (?:[\d.A-Z]+ )?(.+)$", body, re.MULTILINE)
    return Lab(
        name, label, short, column, title[1].split(":")[0] if title else name, after,
        tuple(what for pattern, what in NEEDS.items() if re.search(pattern, code, re.MULTILINE)),
        minutes(text), took.get("seconds"), took.get("where"),
    )  # fmt: skip


def minutes(text: str) -> int:
    """To read a page with cells."""
    shown = [cell["code"] for cell in myst.CELL.finditer(text) if not subject.FOLDED.search(cell["head"])]
    prose = re.sub(r"\A---\n(?s:.*?)^---\n|^:\w+:.*\n|^:::.*\n", "", myst.CELL.sub("", text), flags=re.M)
    words = len(prose.split()) + len(" ".join(shown).split())
    return math.ceil(words / WORDS_A_MINUTE)


def depths(labs: list[Lab]) -> dict[str, int]:
    """How many labs must be read one after another before each; of labs in a reading order."""
    found: dict[str, int] = {}
    for lab in labs:
        found[lab.name] = max((found[a] + 1 for a in lab.after if a in found), default=0)
    return found


def places(labs: list[Lab]) -> dict[str, tuple[float, float]]:
    """The middle of each lab's box: its column, and a row for each depth."""
    depth = depths(labs)
    return {
        lab.name: (1 + BOX[0] / 2 + lab.column * STEP[0], 1 + BOX[1] / 2 + depth[lab.name] * STEP[1])
        for lab in labs
    }


def drawing(labs: list[Lab]) -> str:
    """The graph as SVG, each box a link, readable at the width of a phone."""
    at = places(labs)
    width = max(x for x, _ in at.values()) + BOX[0] / 2 + 1
    height = max(y for _, y in at.values()) + BOX[1] / 2 + 1
    said = "; ".join(
        f"{lab.short} builds on {' and '.join(LABS[a][0] for a in lab.after)}" for lab in labs if lab.after
    )
    out = [
        f'<svg class="lab-map" role="group" viewBox="0 0 {width:g} {height:g}" style="{SHEET}" font-size="9.5" '
        f'text-anchor="middle" aria-label="Which lab builds on which, from top to bottom. {escape(said)}.">'
    ]
    out += [edge(at[a], at[lab.name]) for lab in labs for a in lab.after if a in at]
    out += [box(lab, *at[lab.name]) for lab in labs]
    return "\n".join([*out, "</svg>"])


def edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    """A line from the foot of one box to the head of another."""
    (u, v), (x, y) = above, below
    v, y = v + BOX[1] / 2, y - BOX[1] / 2
    half = (v + y) / 2
    path = f"M{u:g} {v:g}C{u:g} {half:g} {x:g} {half:g} {x:g} {y:g}"
    return f'<path d="{path}" style="fill:none;stroke:currentColor" opacity="0.45"/>'


def box(lab: Lab, x: float, y: float) -> str:
    """A lab: its number and, in at most two lines, its name; a link."""
    words = lab.short.rsplit(maxsplit=1) if len(lab.short) > 11 else [lab.short]
    number, first = contents.number(lab.name), y + 4 - 6.5 * len(words)
    lines = [
        f'<text x="{x:g}" y="{first:g}" fill="currentColor" font-weight="bold" font-size="12">{number}</text>'
    ]
    lines += [
        f'<text x="{x:g}" y="{first + 13 * (i + 1):g}" fill="currentColor">{escape(word)}</text>'
        for i, word in enumerate(words)
    ]
    left, top = x - BOX[0] / 2, y - BOX[1] / 2
    frame = f'<rect x="{left:g}" y="{top:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" style="{FRAME}"/>'
    return f'<a href="../notebooks/{lab.name}.html" style="color:inherit;text-decoration:none">{frame}{"".join(lines)}</a>'


def table(labs: list[Lab]) -> str:
    """What each lab needs, as a Markdown table."""
    lines = ["| lab | builds on | read | run | needs, beside worker processes |", "|---|---|---|---|---|"]
    number = {lab.name: lab.number for lab in labs}
    for lab in labs:
        after = ", ".join(number[a] for a in lab.after if a in number) or "–"
        run = "not noted" if lab.seconds is None else f"{lab.seconds:.0f}\N{NO-BREAK SPACE}s"
        read_in = f"{lab.minutes}\N{NO-BREAK SPACE}min"
        lines.append(
            f"| {{doc}}`{lab.number} {lab.title} </notebooks/{lab.name}>` | {after} | {read_in} | {run} | "
            f"{'; '.join(lab.needs) or '–'} |"
        )
    return "\n".join(lines)


def where(labs: list[Lab]) -> str:
    """On what machines the running times were noted."""
    machines = sorted({lab.where for lab in labs if lab.where is not None})
    if not machines:
        return "No running time has been noted yet."
    return f"Running times are those of the stored runs ({'; '.join(machines)}); a busy machine takes longer."


def page(root: Path = ROOT) -> str:
    """The map: the graph, the table, and where its times come from."""
    labs = read(root)
    return f"```{{raw}} html\n{drawing(labs)}\n```\n\n{table(labs)}\n\n{where(labs)}"


def fill(app: Any, name: str, source: list[str]) -> None:
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, page(Path(app.confdir)))


def say_how_long(app: Any, doctree: nodes.document) -> None:
    """Under the title of a page with cells: how long it takes."""
    folder, _, name = app.env.docname.rpartition("/")
    if folder != "notebooks":
        return
    root = Path(app.confdir)
    seconds = _times(root).get(name, {}).get("seconds")
    run = "" if seconds is None else f", and {max(1, round(seconds))} seconds to run from top to bottom"
    said = nodes.paragraph(
        text=f"About {minutes(_text(name, root))} minutes at {WORDS_A_MINUTE} words a minute{run}.",
        classes=["labkit-minutes"],
    )
    title = next(iter(doctree.findall(nodes.title)))
    title.parent.insert(title.parent.index(title) + 1, said)


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", fill)
    app.connect("doctree-read", say_how_long)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
