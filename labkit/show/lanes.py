"""A timeline as lanes: one row a worker, its spans of compute, wait and communicate along the time axis."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np

from labkit.show.palette import COMMUNICATE, COMPUTE, INK, WAIT, WIDTH_IN, style
from labkit.timing.timeline import Kind, Timeline

_LINE = 60  # letters of a title that fit above the figure
_LOOK: dict[Kind, dict[str, Any]] = {
    Kind.COMPUTE: {"facecolor": COMPUTE, "label": "compute"},
    Kind.WAIT: {"facecolor": WAIT, "hatch": "////", "label": "wait"},
    Kind.COMMUNICATE: {"facecolor": COMMUNICATE, "hatch": "..", "label": "communicate"},
}


def source(measured: bool, where: str) -> str:
    """Where times come from, as titles say it: ``measured on where`` or ``simulated: where``."""
    return f"measured on {where}" if measured else f"simulated: {where}" if where else "simulated"


def lanes(timeline: Timeline, ax: Any = None, title: str = "") -> Any:
    """Draw a timeline, worker 0 on top, time in ms from the first span's start. Returns the matplotlib Axes.

    ax: Axes to draw on; without it a new figure. title: what the run is; the source of its times follows it.
    """
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(WIDTH_IN, min(8.0, 1.9 + 0.42 * timeline.K)))
        start = 1e3 * (timeline.start_s - timeline.begin_s)
        width = 1e3 * (timeline.end_s - timeline.start_s)
        for kind, look in _LOOK.items():
            chosen = timeline.kind == kind
            label = look["label"]
            for rank in np.unique(timeline.rank[chosen]):
                row = chosen & (timeline.rank == rank)
                bars = np.column_stack([start[row], width[row]])
                ax.broken_barh(
                    bars, (rank - 0.4, 0.8), edgecolor=INK, linewidth=0.4, **{**look, "label": label}
                )
                label = "_"  # one entry a kind in the legend
        every = max(1, -(-timeline.K // 16))
        ax.set_yticks(range(0, timeline.K, every))
        ax.set_ylim(timeline.K - 0.5, -0.5)
        ax.set_xlim(0, 1e3 * timeline.elapsed_s or 1.0)
        ax.set_xlabel("time (ms)")
        ax.set_ylabel("worker (rank)")
        said = fill(source(timeline.measured, timeline.where), _LINE)
        ax.set_title(f"{title}\n{said}" if title else said, loc="left")
        if len(timeline.kind):
            ax.figure.legend(loc="outside lower center", ncols=3) if _outside(ax) else ax.legend(ncols=3)
    return ax


def _outside(ax: Any) -> bool:
    """Whether the figure is ours alone to lay out: one Axes, constrained layout."""
    engine = ax.figure.get_layout_engine()
    return len(ax.figure.axes) == 1 and "Constrained" in type(engine).__name__
