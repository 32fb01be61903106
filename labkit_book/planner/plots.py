"""A plan's pictures: efficiency by K, time against price with the knee, and how far measured is from predicted by bytes.

Each draws on an Axes of matplotlib's and returns it; `save` puts them into a file, the last where there is a sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.show import palette
from labkit_book.planner.plan import Plan, readable
from labkit_book.planner.row import Row


def efficiency_by_K(made: Plan, ax: Any, measured: Mapping[int, float] | None = None, name: str = "") -> Any:
    """Efficiency (of 1) of one method ("": the best) by K, a band where its rows have a range, and measured points.

    measured: K -> seconds of a step; None: those of the case, if it has any.
    """
    rows = made.of(name or made.best().name)
    K, planned = [row.K for row in rows], np.array([row.efficiency for row in rows])
    ax.plot(K, planned, color=palette.PREDICTED, label=f"{rows[0].name}, predicted")
    ranges = [row.range_s or (row.step.seconds, row.step.seconds) for row in rows]
    low, high = (planned * [row.step.seconds for row in rows] / each for each in np.array(ranges).T[::-1])
    if np.any(low < high):
        ax.fill_between(K, low, high, color=palette.PREDICTED, alpha=0.15)
    steps_s = dict(made.case.measured if measured is None else measured)
    at = [Row(made.case, rows[0].method, K) for K in steps_s]
    if at:
        real = [row.efficiency * row.step.seconds / steps_s[row.K] for row in at]
        ax.plot(list(steps_s), real, "o", color=palette.MEASURED, label="measured")
    ax.set(xlabel="workers K", ylabel="efficiency", ylim=(0, 1.05), xscale="log")
    return _finished(ax)


def time_against_price(made: Plan, ax: Any) -> Any:
    """What may be the answer: time across, price or worker-hours upwards, joined in the order of K; the knee marked."""
    unit, per = readable(made.best().time_s)
    price = made.case.price_per_worker_hour
    what, rate = ("price", price) if price else ("worker-hours", 1.0)
    for name, colour in zip(made.certain, cycle(palette.WORKERS), strict=False):
        at = np.array([(row.time_s / per, row.worker_s / 3600 * rate) for row in made.of(name)]).T
        ax.plot(*at, "o-", color=colour, markersize=4, label=name)
    knee = made.best("knee")
    ax.plot(
        knee.time_s / per, knee.worker_s / 3600 * rate, "D", color=palette.MEASURED, markersize=11, fillstyle="none",
        label=f"knee, K = {knee.K}",
    )  # fmt: skip
    ax.set(xlabel=f"time ({unit})", ylabel=what, xscale="log", yscale="log")
    return _finished(ax)


def measured_over_predicted(nbytes: ArrayLike, measured_s: ArrayLike, predicted_s: ArrayLike, ax: Any) -> Any:
    """Measured over predicted seconds of collectives by their bytes, all (n,); 1 is a prediction that holds."""
    ratio = np.asarray(measured_s, dtype=np.float64) / np.asarray(predicted_s, dtype=np.float64)
    ax.axhline(1.0, color=palette.PREDICTED)
    ax.plot(nbytes, ratio, "o", color=palette.MEASURED, label="measured over predicted")
    ax.set(xlabel="bytes", ylabel="measured / predicted", xscale="log", ylim=(0, 1.1 * max(1.0, ratio.max())))
    return _finished(ax)


def save(made: Plan, file: str) -> None:
    """Efficiency by K and time against price, into a PNG or SVG. ValueError where matplotlib lacks, or for another file."""
    path = Path(file)
    if path.suffix not in (".png", ".svg") or not path.parent.is_dir():
        raise ValueError(f"--plot must name a .png or .svg file in a folder that there is, got {file!r}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"--plot must have matplotlib to draw {file!r}: pip install matplotlib") from None
    sweep, priced = made.case.sweep, made.case.network._replace(curve=None)
    with palette.style():
        n = 3 if sweep else 2
        figure = Figure(figsize=(n * palette.WIDTH_IN, 4.5))
        axes = figure.subplots(1, n)
        efficiency_by_K(made, axes[0])
        time_against_price(made, axes[1])
        if sweep:
            K, nbytes, seconds = zip(*sweep.points, strict=True)
            told = [priced.allreduce(*each).seconds for each in zip(K, nbytes, strict=True)]
            measured_over_predicted(nbytes, seconds, told, axes[2])
        figure.savefig(path)


def _finished(ax: Any) -> Any:
    ax.grid(True)
    ax.legend()
    return ax
