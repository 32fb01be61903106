"""One palette and one style for every figure.

The colours are Okabe & Ito's (*Color Universal Design*, 2008); those that stand together stay apart for readers with any of
the common colour-vision deficiencies. Hatching, dashes and marker fill say the same a second time. Figures have a white
ground and dark ink of their own, for dark pages, and letters of at least 11 points on 6.4 inches, for phones.
"""

from contextlib import AbstractContextManager
from typing import Any

from labkit import extras

INK = "#1A1A1A"
PAPER = "#FFFFFF"
COMPUTE = "#0072B2"  # blue
WAIT = "#E69F00"  # orange, always hatched
COMMUNICATE = "#56B4E9"  # sky blue, dotted
PREDICTED = INK  # closed form: a line
SIMULATED = "#CC79A7"  # reddish purple, hollow markers
MEASURED = "#D55E00"  # vermillion, filled markers
GUESS = "#009E73"  # bluish green, dashed line

#: Colours of data: the same on light and on dark ground.
DATA_COLOURS = ("COMPUTE", "WAIT", "COMMUNICATE", "SIMULATED", "MEASURED", "GUESS")
#: One for each of up to eight workers, where a number beside it says the same.
WORKERS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#999999",
)
#: What an interactive figure is drawn in, by the name of its CSS variable (--lk-ink ...), on either ground.
LIGHT = {
    "ink": INK, "paper": PAPER, "muted": "#595F66", "line": "#D3D7DB", "raised": "#F4F6F8",
    "track": "#C6CCD2", "handle": "#2E4A62", "focus": "#005FCC", "predicted": INK,
}  # fmt: skip
DARK = {
    "ink": "#E8EBEE", "paper": "#14181E", "muted": "#AAB3BC", "line": "#3A424C", "raised": "#222932",
    "track": "#4A5561", "handle": "#C3D3E2", "focus": "#8AC0FF", "predicted": "#E8EBEE",
}  # fmt: skip

WIDTH_IN = 6.4

RC: dict[str, Any] = {
    "figure.figsize": (WIDTH_IN, 4.0), "figure.dpi": 100, "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True, "savefig.facecolor": PAPER, "savefig.transparent": False,
    "axes.facecolor": PAPER, "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.titlesize": 13, "axes.labelsize": 12, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False,
    "font.size": 12, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "xtick.labelsize": 11, "ytick.labelsize": 11,
    "legend.fontsize": 11, "legend.frameon": False, "legend.labelcolor": INK,
    "grid.color": "#D9D9D9", "lines.linewidth": 2.0, "lines.markersize": 8, "hatch.linewidth": 0.8,
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """Context in which matplotlib draws in the house style: ``with style(): ...``."""
    return extras.need("matplotlib").rc_context(RC)


def use_style() -> None:
    """Draw everything from here on in the house style; for a notebook's first cell."""
    extras.need("matplotlib").rcParams.update(RC)
