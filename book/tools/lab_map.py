"""The map of the labs, on book/map.md in place of its line `% map of the labs`, and under the title of
each page that has cells, how long it takes.

What a lab builds on is said here, by us; what it needs to run is read off its code, its length off its text (`shape`), and
its running time off book/run_times.json, where `make notebooks` notes it.
"""

import json
import re
from html import escape
from typing import Any

import contents
import gpu_page
import myst
import shape
from docutils import nodes

TIMES = contents.ROOT / "book" / "run_times.json"
PLACE = "% map of the labs"
#: Each lab's short name, its column in the drawing, and the labs without which it would be hard to follow.
LABS: dict[str, tuple[str, float, tuple[str, ...]]] = {
    "10_1_empirical_risk": ("A sum", 1, ()),
    "10_2_minibatch_sgd": ("Mini-batches", 0, ("10_1_empirical_risk",)),
    "10_2_critical_batch": ("Critical batch", 0, ("10_2_minibatch_sgd",)),
    "10_3_synchronous_sgd": ("Synchronous", 2, ("10_1_empirical_risk",)),
    "2_2_barriers": ("Barriers", 1, ("10_3_synchronous_sgd",)),
    "2_2_overlap": ("Overlap", 2, ("2_2_barriers",)),
    "2_2_why": ("Why not faster?", 3, ("2_2_overlap",)),
    "10_4_asynchronous_sgd": ("Asynchronous", 1, ("2_2_barriers",)),
    "10_4_without_a_lock": ("No lock", 2, ("10_4_asynchronous_sgd",)),
    "10_5_all_reduce": ("All-reduce", 4, ()),
    "10_5_network": ("On a network", 5, ("10_5_all_reduce",)),
    "10_6_stale_gradients": ("Stale gradients", 1, ("10_4_asynchronous_sgd",)),
    "10_6_race": ("The race", 1, ("10_6_stale_gradients",)),
    "10_7_fewer_bytes": ("Fewer bytes", 3, ("10_3_synchronous_sgd", "10_5_all_reduce")),
    "10_7_local_steps": ("Local steps", 4, ("10_7_fewer_bytes",)),
    "10_7_finale": ("A real model", 4, ("10_7_local_steps",)),
    "10_7_together": ("Together", 4, ("10_7_finale",)),
    "10_8_large_batches": ("Large batches", 0, ("10_2_critical_batch", "10_3_synchronous_sgd")),
    "10_8_layer_by_layer": ("Layer by layer", 0, ("10_8_large_batches",)),
    "10_9_lower_bounds": ("Lower bounds", 5, ("10_7_fewer_bytes",)),
    "10_10_choosing": ("Choosing", 2, ("10_6_stale_gradients", "10_7_fewer_bytes", "10_8_large_batches")),
    "10_10_predictions": ("How good?", 2, ("10_10_choosing",)),
    "a_sharded_training": ("Sharding", 4, ("10_3_synchronous_sgd", "10_5_all_reduce")),
    "b_failures": ("Failures", 2, ("10_3_synchronous_sgd",)),
    "b_stragglers": ("Stragglers", 3, ("b_failures",)),
}
NEEDS = {  # what a lab's code shows, and what that means
    r"torch\.nn\b|labkit\.train": "torch models",
    r"\bEmulated\b": "network namespaces, or goes on without",
    r"\bdigits\(": "scikit-learn",
    gpu_page.ON_DEVICE.pattern: "uses a GPU if there is one",
}
BOX = (74, 50)
STEP = (77, 84)
SHEET = "max-width:44rem;width:100%;margin-bottom:1.5rem"
BOLD = ' font-weight="bold" font-size="12"'
FRAME = "fill:var(--pst-color-surface,transparent);stroke:currentColor"


def places() -> dict[str, tuple[float, float]]:
    """The middle of each lab's box: its column, and a row below all that it builds on."""
    depth: dict[str, int] = {}
    for name in contents.labs():  # KeyError if nobody has said what one builds on
        depth[name] = max((depth[a] + 1 for a in LABS[name][2] if a in depth), default=0)
    x, y = (1 + size / 2 for size in BOX)
    return {name: (x + LABS[name][1] * STEP[0], y + row * STEP[1]) for name, row in depth.items()}


def drawing() -> str:
    """The graph as SVG, each box a link, readable at the width of a phone."""
    at = places()
    ends = map(max, zip(*at.values(), strict=True))
    width, height = (end + size / 2 + 1 for end, size in zip(ends, BOX, strict=True))
    builds = {name: after for name in at if (after := [a for a in LABS[name][2] if a in at])}
    short = {name: " and ".join(LABS[a][0] for a in after) for name, after in builds.items()}
    said = "; ".join(f"{LABS[name][0]} builds on {others}" for name, others in short.items())
    head = (
        f'<svg class="lab-map" role="group" viewBox="0 0 {width:g} {height:g}" style="{SHEET}" font-size="9.5" '
        f'text-anchor="middle" aria-label="Which lab builds on which, from top to bottom. {escape(said)}.">'
    )
    edges = [edge(at[a], at[name]) for name, after in builds.items() for a in after]
    return "\n".join([head, *edges, *(box(name, *place) for name, place in at.items()), "</svg>"])


def edge(above: tuple[float, float], below: tuple[float, float]) -> str:
    """A line from the foot of one box to the head of another."""
    (u, v), (x, y) = above, below
    v, y = v + BOX[1] / 2, y - BOX[1] / 2
    half = (v + y) / 2
    path = f"M{u:g} {v:g}C{u:g} {half:g} {x:g} {half:g} {x:g} {y:g}"
    return f'<path d="{path}" style="fill:none;stroke:currentColor" opacity="0.45"/>'


def box(name: str, x: float, y: float) -> str:
    """A lab: its number and, in at most two lines, its name; a link."""
    short = LABS[name][0]
    words = short.rsplit(maxsplit=1) if len(short) > 11 else [short]
    top = y + 4 - 6.5 * len(words)
    lines = "".join(
        f'<text x="{x:g}" y="{top + 13 * i:g}" fill="currentColor"{BOLD * (not i)}>{escape(line)}</text>'
        for i, line in enumerate([contents.number(name), *words])
    )
    corner = f'x="{x - BOX[0] / 2:g}" y="{y - BOX[1] / 2:g}"'
    frame = f'<rect {corner} width="{BOX[0]}" height="{BOX[1]}" rx="6" style="{FRAME}"/>'
    return f'<a href="../notebooks/{name}.html" style="color:inherit;text-decoration:none">{frame}{lines}</a>'


def noted() -> dict[str, dict[str, Any]]:
    """By page: the seconds that its cells took, and where."""
    return dict(json.loads(TIMES.read_text(encoding="utf-8")))


def table() -> str:
    """What each lab needs, as a Markdown table."""
    texts, times = contents.texts(), noted()
    lines = ["| lab | builds on | takes | run | needs, beside worker processes |", "|---|---|---|---|---|"]
    label = {name: contents.label(name, list(texts)) for name in texts}
    for name, text in texts.items():
        code, took = "\n".join(myst.codes(text)), times.get(name, {"seconds": 0.0})["seconds"]
        cells = [
            f"{{doc}}`{label[name]} {myst.title(text).partition(' ')[2]} </notebooks/{name}>`",
            ", ".join(label[a] for a in LABS[name][2] if a in label) or "–",
            f"{shape.minutes(text, took)}\N{NO-BREAK SPACE}min",
            f"{took:.0f}\N{NO-BREAK SPACE}s" if took else "not noted",
            "; ".join(what for pattern, what in NEEDS.items() if re.search(pattern, code)) or "–",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    machines = "; ".join(sorted({times[name]["where"] for name in texts if name in times}))
    said = f"Running times are those of the stored runs ({machines}); a busy machine takes longer."
    return "\n".join([*lines, "", said])


def page() -> str:
    """The map: the graph, the table, and where its times come from."""
    return f"```{{raw}} html\n{drawing()}\n```\n\n{table()}"


def say_how_long(app: Any, doctree: nodes.document) -> None:
    """Under the title of a page with cells: how long it takes."""
    folder, _, name = app.env.docname.rpartition("/")
    if folder != "notebooks":
        return
    text = (contents.ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
    seconds = noted().get(name, {}).get("seconds", 0.0)
    run = f", and {max(1, round(seconds))} seconds to run from top to bottom" if seconds else ""
    words = f"About {shape.minutes(text, seconds)} minutes with its guesses and its code{run}."
    title = next(iter(doctree.findall(nodes.title)))
    said = nodes.paragraph(text=words, classes=["labkit-minutes"])
    title.parent.insert(title.parent.index(title) + 1, said)
