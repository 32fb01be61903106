"""A number as a reader says it, and a small number line: a guess beside the truth.

The page's script (book/_static/predict.js) does the same in the browser: a test holds the two together.
"""

from __future__ import annotations

import html
import math
from decimal import Decimal

from labkit.show.palette import GUESS

FAR = 20.0  # positive numbers further apart than this stand on a logarithmic line
WIDTH, MARGIN = 400.0, 14.0  # of the drawing, in its own units


def digits(x: float) -> float:
    """``x`` as it is shown and stored: whole numbers as they are, others with four significant digits."""
    x = float(x)
    return x if x.is_integer() and abs(x) < 1e15 else float(f"{x:.4g}")


def amount(x: float, unit: str = "") -> str:
    """``x`` in words: 0.4167, 1470, 263,412, 1e-15; with its unit, if it has one."""
    x = digits(x)
    if x != 0 and not 1e-4 <= abs(x) < 1e15:
        mantissa, exponent = f"{x:.3e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        text = f"{Decimal(repr(x)).normalize():,f}" if abs(x) >= 1e4 else f"{Decimal(repr(x)).normalize():f}"
        text = "0" if x == 0 else text
    return f"{text} {unit}".rstrip()


def ends(guess: float, truth: float) -> tuple[float, float, bool]:
    """(left, right, logarithmic): the line on which ``guess`` and ``truth`` are drawn."""
    small, large = min(guess, truth), max(guess, truth)
    if small > 0 and large / small > FAR:
        return small / 2, large * 2, True
    left, right = min(small, 0.0), max(large, 0.0)
    room = 0.15 * (right - left) or 1.0
    return left - room * (left < 0), right + room * (right > 0 or left == 0), False


def place(x: float, line: tuple[float, float, bool]) -> float:
    """Where ``x`` stands on the line: 0 is its left end, 1 its right one."""
    left, right, logarithmic = line
    if logarithmic:
        return (math.log(x) - math.log(left)) / (math.log(right) - math.log(left))
    return (x - left) / (right - left)


def svg(guess: float, truth: float, unit: str) -> str:
    """The line as an SVG element: the guess above it, the truth below. It takes the page's colour of text."""
    line = ends(guess, truth)
    said, is_ = f"your guess {amount(guess, unit)}", f"it is {amount(truth, unit)}"
    ink, at = 'stroke="currentColor" fill="none"', {}
    for name, x in (("guess", guess), ("truth", truth)):
        at[name] = MARGIN + (WIDTH - 2 * MARGIN) * place(x, line)
    zero = MARGIN + (WIDTH - 2 * MARGIN) * place(0, line) if not line[2] else None
    parts = [f'<path d="M0 46H{WIDTH:g}" {ink} opacity="0.6"/>']
    if zero is not None:
        parts.append(f'<path d="M{zero:.1f} 42v8" {ink} opacity="0.6"/>')
        if abs(at["truth"] - zero) > 60:
            parts.append(f'<text x="{zero:.1f}" y="66" text-anchor="middle" font-size="11">0</text>')
    parts += [
        f'<path d="M{at["truth"]:.1f} 36v20" {ink} stroke-width="4"/>',
        f'<path d="M{at["guess"]:.1f} 46l-7 -9l7 -9l7 9z" fill="{GUESS}" stroke="currentColor"/>',
        _words(at["guess"], 18, said),
        _words(at["truth"], 76, is_),
    ]
    if line[2]:
        parts.append(f'<text x="{WIDTH:g}" y="94" text-anchor="end" font-size="11">logarithmic scale</text>')
    height = 98 if line[2] else 84
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height}" width="100%" style="max-width:{WIDTH:g}px" role="img" '
        f'aria-label="{html.escape(said)}; {html.escape(is_)}" font-size="14" fill="currentColor">'
        + "".join(parts)
        + "</svg>"
    )


def _words(x: float, y: float, text: str) -> str:
    """Text that stays inside the drawing."""
    anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
    return f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{html.escape(text)}</text>'
