"""A timeline as lanes: one row a worker, its spans of compute, wait and communicate along the time axis.

Alone (`lanes`), or its last steps above how often each worker came last (`late`).
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np

from labkit import extras
from labkit.checks import integer
from labkit.show.palette import COMMUNICATE, COMPUTE, INK, WAIT, WIDTH_IN, style
from labkit.timing.report import StragglerReport
from labkit.timing.timeline import Kind, Timeline

_LINE = 60  # letters of a title that fit above the figure
_LOOK: dict[Kind, dict[str, Any]] = {
    Kind.COMPUTE: {"facecolor": COMPUTE, "label": "compute"},
    Kind.WAIT: {"facecolor": WAIT, "hatch": "////", "label": "wait"},
    Kind.COMMUNICATE: {"facecolor": COMMUNICATE, "hatch": "..", "label": "communicate"},
}


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
        origin = "measured on" if timeline.measured else "simulated:"
        said = fill(f"{origin} {timeline.where}".rstrip(": "), _LINE)
        ax.set_title(f"{title}\n{said}" if title else said, loc="left")
        if len(timeline.kind):
            engine = ax.figure.get_layout_engine()
            alone = len(ax.figure.axes) == 1 and "Constrained" in type(engine).__name__  # ours to lay out
            ax.figure.legend(loc="outside lower center", ncols=3) if alone else ax.legend(ncols=3)
    return ax


def late(timeline: Timeline, report: StragglerReport, steps: int = 12) -> Any:
    """The lanes of the last ``steps`` steps, above how often each worker came last. Returns the matplotlib Figure.

    report: what ``straggler_report(timeline)`` says. steps: >= 1.
    """
    plt = extras.need("matplotlib.pyplot")
    K, steps = timeline.K, min(integer("steps", steps, 1), timeline.T)
    shown, points = timeline.step >= timeline.T - steps, slice(timeline.T - steps, None)
    last = Timeline(
        K, timeline.rank[shown], timeline.step[shown], timeline.kind[shown],
        timeline.start_s[shown], timeline.end_s[shown], timeline.arrivals_s[:, points],
        timeline.names[points], timeline.measured, timeline.where,
    )  # fmt: skip
    with style():
        height = 0.42 * min(K, 12)
        figure, (above, below) = plt.subplots(2, 1, figsize=(WIDTH_IN, 3.6 + 1.6 * height))
        lanes(last, ax=above, title=f"The last {steps} steps")
        above.get_legend().remove()  # it would cover a lane
        figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        colours = [WAIT if k in report.stragglers else COMPUTE for k in range(K)]
        below.barh(np.arange(K), 100 * report.share, color=colours, edgecolor=INK, linewidth=0.4)
        below.axvline(100 / K, color=INK, linestyle="--", linewidth=1, label="workers alike")
        below.set_yticks(range(0, K, max(1, -(-K // 16))))
        below.set_ylim(K - 0.5, -0.5)
        below.set_xlabel(f"steps at which the rank came last (% of {report.S})")
        below.set_ylabel("worker (rank)")
        below.legend()
    return figure
