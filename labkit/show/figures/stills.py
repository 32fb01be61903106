"""A figure where no browser is: its numbers, its words and its picture, from the very script that a page runs.

A small JavaScript engine (QuickJS, ``pip install quickjs-ng``) runs the figure's own ``compute``, ``describe`` and ``draw``;
``still.js`` stands in for the document that they draw into. So a figure is computed, drawn and put in words once, in one
language. Each function raises ImportError where the engine is missing.

Why this engine: quickjs-ng is 2.5 MB to download and draws in 8 ms; mini-racer (V8) is 22 MB, and 82 MB unpacked. It knows
no locales, which ``still.js`` makes up for.
"""

from __future__ import annotations

import importlib
import json
from functools import cache
from typing import Any

from labkit.show.figures.sources import HERE, script, style


def compute(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """What the figure computes, as JSON can say it: None for what is infinite."""
    numbers: dict[str, Any] = _call(name, f"labkitFigures[{json.dumps(name)}].compute", state)
    return numbers


def picture(name: str, state: dict[str, Any]) -> tuple[str, str]:
    """What the figure shows: as an SVG document, and the same in words."""
    svg, words = _call(name, f"(state) => still({json.dumps(name)}, state, {json.dumps(_style())})", state)
    return svg, words


def number_line(unit: str, guess: float, truth: float, colour: str) -> str:
    """A guess beside the truth, as SVG: what a page of the book draws. ImportError without an engine."""
    asked = ", ".join(map(json.dumps, (unit, guess, truth, colour)))
    return str(_context(None).eval(f"String(labkitNumberLine.draw({asked}))"))


def _call(name: str, function: str, state: dict[str, Any]) -> Any:
    return json.loads(_context(name).eval(f"JSON.stringify(({function})({json.dumps(state)}))"))


def _style() -> str:
    """Of the style sheet what a drawing needs: the palette on light ground, text, axes."""
    rules = style().splitlines()
    light = next(rule for rule in rules if rule.startswith(".lk {"))
    parts = [rule for rule in rules if rule.startswith((".lk-text", ".lk-axis", ".lk-grid"))]
    ground = "svg { background: var(--lk-paper); font-family: system-ui, sans-serif; }"
    return "\n".join([light.replace(".lk", "svg", 1), ground, *parts])


@cache
def _context(name: str | None) -> Any:
    """An engine that knows the figure, or the number line."""
    context = importlib.import_module("quickjs").Context()
    context.eval((HERE / "still.js").read_text(encoding="utf-8"))
    context.eval(script(name) if name else (HERE.parent / "number_line.js").read_text(encoding="utf-8"))
    return context
