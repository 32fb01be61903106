"""A timeline as lanes: one row a worker, its spans of compute, wait and communicate along the time axis."""

from textwrap import fill
from typing import Any

import numpy as np

from labkit import extras
from labkit.checks import integer
from labkit.show.palette import COMMUNICATE, COMPUTE, INK, WAIT, WIDTH_IN, style
from labkit.timing.report import StragglerReport
from labkit.timing.timeline import Kind, Timeline

_EDGE: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.4}
_LINE = 60  # letters of a title that fit above the figure
_LOOK: dict[Kind, dict[str, Any]] = {
    Kind.COMPUTE: {"facecolor": COMPUTE, "label": "compute"},
    Kind.WAIT: {"facecolor": WAIT, "hatch": "////", "label": "wait"},
    Kind.COMMUNICATE: {
        "facecolor": COMMUNICATE,
        "hatch": "..",
        "label": "communicate",
    },
}


def lanes(timeline: Timeline, ax: Any = None, title: str = "") -> Any:
    """Draw a timeline, worker 0 on top, time in ms from the first span's start, on ``ax`` or a new figure; returns the Axes.
    title: what the run is; the source of its times follows it.
    """
    K = timeline.K
    with style():
        if ax is None:
            plt = extras.need("matplotlib.pyplot")
            _, ax = plt.subplots(figsize=(WIDTH_IN, min(8.0, 1.9 + 0.42 * K)))
        start = 1e3 * (timeline.start_s - timeline.begin_s)
        width = 1e3 * (timeline.end_s - timeline.start_s)
        spans = np.column_stack([start, width])
        for kind, look in _LOOK.items():
            look = {**_EDGE, **look}
            for rank in np.unique(timeline.rank[timeline.kind == kind]):
                row = (timeline.kind == kind) & (timeline.rank == rank)
                ax.broken_barh(spans[row], (rank - 0.4, 0.8), **look)
                look["label"] = "_"  # one entry a kind in the legend
        _ranks(ax, K)
        ax.set_xlim(0, 1e3 * timeline.elapsed_s or 1.0)
        ax.set_xlabel("time (ms)")
        origin = "measured on" if timeline.measured else "simulated:"
        said = fill(f"{origin} {timeline.where}".rstrip(": "), _LINE)
        ax.set_title(f"{title}\n{said}" if title else said, loc="left")
        engine = type(ax.figure.get_layout_engine()).__name__
        if len(ax.figure.axes) == 1 and "Constrained" in engine:  # ours to lay out
            if len(timeline.kind):
                ax.figure.legend(loc="outside lower center", ncols=3)
        elif len(timeline.kind):
            ax.legend(ncols=3)
    return ax


def late(timeline: Timeline, report: StragglerReport, steps: int = 12) -> Any:
    """The lanes of the last ``steps`` >= 1 steps, above how often each worker came last, as ``report``, the timeline's
    straggler report, says. Returns the matplotlib Figure.
    """
    plt = extras.need("matplotlib.pyplot")
    K, steps = timeline.K, min(integer("steps", steps, 1), timeline.T)
    last = timeline.start_s[timeline.step >= timeline.T - steps]
    with style():
        size = WIDTH_IN, 3.6 + 0.672 * min(K, 12)
        figure, (above, below) = plt.subplots(2, 1, figsize=size)
        lanes(timeline, ax=above, title=f"The last {steps} steps")
        above.set_xlim(left=1e3 * (last.min() - timeline.begin_s))
        above.get_legend().remove()  # it would cover a lane
        entries = above.get_legend_handles_labels()
        figure.legend(*entries, loc="outside lower center", ncols=3)
        colours = [WAIT if k in report.stragglers else COMPUTE for k in range(K)]
        below.barh(range(K), 100 * report.share, color=colours, **_EDGE)
        alike = {
            "color": INK,
            "linestyle": "--",
            "linewidth": 1,
            "label": "workers alike",
        }
        below.axvline(100 / K, **alike)
        _ranks(below, K)
        below.set_xlabel(f"steps at which the rank came last (% of {report.S})")
        below.legend()
    return figure


def _ranks(ax: Any, K: int) -> None:
    """The vertical axis is the ranks', worker 0 on top, with 16 ticks at most."""
    ax.set_yticks(range(0, K, max(1, -(-K // 16))))
    ax.set_ylim(K - 0.5, -0.5)
    ax.set_ylabel("worker (rank)")
