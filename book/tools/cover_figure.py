"""The cover's figure and its caption: an SVG in the page itself takes the page's type and colours, light or dark.

A line is a formula, a hollow marker a simulation, a filled one a measurement; the numbers are readme_figure.py's.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from typing import Any

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 470.0, 40.0, 286.0
SHAPES: dict[str, Callable[[float, float, float], str]] = {
    "ring": lambda x, y, r: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"/>',
    "through a server": lambda x, y, r: (
        f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:g}" height="{2 * r:g}"/>'
    ),
}
# What stands beside a line, and where: at which of its points, how far right of and below it.
LABELS = {
    "through a server": ("through a server", (2, -14, -8, "end")),
    "ring": ("around a ring", (2, 6, 24, "start")),
}


def draw_cover(found: dict[str, Any]) -> str:
    """The whole figure. ``found``: "megabytes" and, for each of "ways", "predicted", "simulated", "measured" ms."""
    x = _axis([0.01, 10.0], LEFT, RIGHT)
    y = _axis([1.0, 5000.0], BOTTOM, TOP)
    parts = [*_grid(x, y)]
    for name, series in found["ways"].items():
        at = [x(mb) for mb in found["megabytes"]]
        line = "L".join(f"{a:.1f} {y(ms):.1f}" for a, ms in zip(at, series["predicted"], strict=True))
        dash = ' stroke-dasharray="7 4"' if name != "ring" else ""
        parts.append(
            f'<path d="M{line}" fill="none" stroke="var(--labkit-predicted)" stroke-width="2.2"{dash}/>'
        )
        simulated = [SHAPES[name](a, y(ms), 7.5) for a, ms in zip(at, series["simulated"], strict=True)]
        measured = [SHAPES[name](a, y(ms), 4) for a, ms in zip(at, series["measured"], strict=True)]
        style = 'fill="var(--pst-color-background)" stroke="var(--labkit-simulated)" stroke-width="2.6"'
        parts.append(f"<g {style}>{''.join(simulated)}</g>")
        parts.append(f'<g fill="var(--labkit-measured)">{"".join(measured)}</g>')
        word, (i, dx, dy, anchor) = LABELS[name]
        where = f'x="{at[i] + dx:.1f}" y="{y(series["predicted"][i]) + dy:.1f}" text-anchor="{anchor}"'
        parts.append(f'<text {where} font-weight="650">{word}</text>')
    last = {name: series["measured"][-1] for name, series in found["ways"].items()}
    megabytes, server, ring = found["megabytes"][-1], last["through a server"], last["ring"]
    label = (
        "Time of an all-reduce of four workers against the length of the vector, on logarithmic axes: two lines, the "
        "simulation's hollow markers on them, and the measured markers in the hollow ones or close above."
    )
    caption = (
        f"For {megabytes:g} MB, measured: {server:,.0f} ms through a server, {ring:,.0f} ms around a ring. Nothing is "
        f"fitted to these runs. {found['where'][0].upper()}{found['where'][1:]}."
    )
    return (
        f'<figure class="labkit-plot">\n<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}" '
        f'font-size="14" fill="currentColor">{"".join(parts)}</svg>\n<figcaption>{html.escape(caption)}</figcaption>\n'
        "</figure>\n"
    )


def _axis(span: list[float], start: float, end: float) -> Callable[[float], float]:
    low, high = map(math.log, span)
    return lambda value: start + (end - start) * (math.log(value) - low) / (high - low)


def _grid(x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    rule = 'stroke="currentColor" stroke-opacity="0.16"'
    parts = ['<text x="8" y="16" font-weight="650">Four workers add their vectors over 100 Mbit/s</text>']
    for ms, text in ((1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1000, "1 s")):
        parts.append(f'<path d="M{LEFT:g} {y(ms):.1f}H{RIGHT:g}" {rule}/>')
        parts.append(f'<text x="{LEFT - 8:g}" y="{y(ms) + 5:.1f}" text-anchor="end">{text}</text>')
    for megabytes, text in ((0.01, "10 kB"), (0.1, "100 kB"), (1, "1 MB"), (10, "10 MB")):
        anchor = "start" if megabytes == 0.01 else "end" if megabytes == 10 else "middle"
        parts.append(f'<path d="M{x(megabytes):.1f} {TOP:g}V{BOTTOM:g}" {rule}/>')
        parts.append(f'<text x="{x(megabytes):.1f}" y="{BOTTOM + 19:g}" text-anchor="{anchor}">{text}</text>')
    parts.append(
        f'<text x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 38:g}" text-anchor="middle" fill-opacity="0.8">'
        "length of the vector</text>"
    )
    return parts
