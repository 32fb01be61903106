"""Predicted, simulated and measured on one plot: a line, hollow markers, filled markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.show.palette import MEASURED, PAPER, PREDICTED, SIMULATED, style

_KINDS = ("predicted", "simulated", "measured")


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
    where: str = "",
) -> Any:
    """Draw up to three accounts of the same figure and return the matplotlib Axes.

    x: (n,) positions. series: "predicted", "simulated", "measured" (any of them) to (n,) values, nan where
    there is none; "measured" may be (launches, n): drawn as medians with bars from least to most.
    xlabel, ylabel: with units. where: the machine that "measured" was measured on, shown in the legend.
    label, marker: tell several calls on one Axes apart. ValueError for an unknown name or a wrong length.
    """
    x = np.asarray(x)
    values = {name: np.asarray(y, dtype=np.float64) for name, y in series.items()}
    for name, y in values.items():
        if name not in _KINDS:
            raise ValueError(f"series must be among {', '.join(_KINDS)}, got {name!r}")
        if y.ndim not in ((1, 2) if name == "measured" else (1,)) or y.shape[-1:] != x.shape:
            raise ValueError(
                f"series[{name!r}] must hold one value for each of {len(x)} x, got shape {y.shape}"
            )
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        tag = f"{label}, " if label else ""
        dashes = {"o": "-", "s": "--", "^": ":", "D": "-."}.get(marker, "-")
        if "predicted" in values:
            ax.plot(x, values["predicted"], dashes, color=PREDICTED, label=f"{tag}predicted", zorder=2)
        if "simulated" in values:
            hollow = {"markerfacecolor": PAPER, "markeredgecolor": SIMULATED, "markeredgewidth": 2}
            ax.plot(
                x, values["simulated"], marker, **hollow, markersize=11, label=f"{tag}simulated", zorder=3
            )
        if "measured" in values:
            y = np.atleast_2d(values["measured"])
            middle = np.median(y, axis=0)
            bars = np.stack([middle - y.min(axis=0), y.max(axis=0) - middle]) if len(y) > 1 else None
            said = f"{tag}measured on {where}" if where else f"{tag}measured"
            ax.errorbar(
                x, middle, bars, fmt=marker, color=MEASURED, capsize=4, markersize=6, label=said, zorder=4
            )
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        if title:
            ax.set_title(title, loc="left")
        ax.grid(True)
        ax.legend()
    return ax
