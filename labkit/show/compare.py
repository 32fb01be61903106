"""Predicted, simulated and measured on one plot: a line, hollow markers, filled markers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit import extras
from labkit.checks import one_of
from labkit.show.palette import MEASURED, PAPER, PREDICTED, SIMULATED, style

_DASHES = {"o": "-", "s": "--", "^": ":", "D": "-."}


def predicted_measured(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    ax: Any = None,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    label: str = "",
    marker: str = "o",
) -> Any:
    """Draw up to three accounts of the same figure and return the matplotlib Axes.

    x: (n,) positions. series: "predicted", "simulated", "measured" (any of them) to (n,) values, nan where there is none;
    "measured" may be (launches, n): drawn as medians with bars from least to most. label, marker: tell several calls apart.
    """
    x = np.asarray(x)
    with style():
        if ax is None:
            ax = extras.need("matplotlib.pyplot").subplots()[1]
        for name, values in series.items():
            one_of("series", name, _DRAWN)
            y = np.asarray(values, float)
            _DRAWN[name](
                ax, x, y, marker, label=f"{label}, {name}" if label else name
            )
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if title:
            ax.set_title(title, loc="left")
        ax.grid(True)
        ax.legend()
    return ax


def _line(ax: Any, x: Any, y: Any, marker: str, label: str) -> None:
    ax.plot(x, y, _DASHES.get(marker, "-"), color=PREDICTED, label=label, zorder=2)


def _hollow(ax: Any, x: Any, y: Any, marker: str, label: str) -> None:
    look = {"mfc": PAPER, "mec": SIMULATED, "mew": 2, "ms": 11}
    ax.plot(x, y, marker, label=label, zorder=3, **look)


def _filled(ax: Any, x: Any, y: Any, marker: str, label: str) -> None:
    y = np.atleast_2d(y)
    middle = np.median(y, axis=0)
    bars = [middle - y.min(axis=0), y.max(axis=0) - middle] if len(y) > 1 else None
    look = {"fmt": marker, "color": MEASURED, "capsize": 4, "ms": 6}
    ax.errorbar(x, middle, bars, label=label, zorder=4, **look)


_DRAWN = {"predicted": _line, "simulated": _hollow, "measured": _filled}
