"""The README's figure: predicted, simulated and measured on one plot. Run by hand: ``python book/tools/readme_figure.py``.

Four workers on emulated hosts whose ports carry 100 Mbit/s. beta is what TCP delivers at that rate, alpha half the round
trip of two workers; nothing is fitted to what is shown.
"""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import matplotlib
import numpy as np

from labkit import Link, Simulated, launch
from labkit.collectives import naive_allreduce, ring_allreduce
from labkit.comm import Emulated
from labkit.comm.emulated import PAYLOAD
from labkit.cost import naive_time, ring_time
from labkit.show import predicted_measured, style

matplotlib.use("agg")
RATE, SIZES = 1.25e7, [3_000, 30_000, 300_000, 1_500_000]
TARGET = Path(__file__).parents[1] / "_static" / "readme.png"


def reduce(comm, way, n: int, repeats: int = 5) -> float:
    """Median seconds of one all-reduce of n float32."""
    x, spent = np.ones(n, np.float32), []
    for _ in range(repeats):
        comm.barrier()
        begun = time.perf_counter()
        way(comm, x)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


def ping(comm) -> float:
    """Median seconds from one worker to the other."""
    x, y, spent = np.ones(1), np.empty(1), []
    for _ in range(51):
        begun = time.perf_counter()
        for mine in (0, 1):
            comm.send(x, 1 - comm.rank) if comm.rank == mine else comm.recv(y, 1 - comm.rank)
        spent.append((time.perf_counter() - begun) / 2)
    return float(np.median(spent))


def main() -> None:
    import matplotlib.pyplot as plt

    link = Link(alpha=max(launch(ping, 2, world=Emulated(RATE)).results), beta=RATE * PAYLOAD)
    with Emulated(RATE).ready(4) as pool, style():
        world = Emulated(RATE, pool=pool)
        _, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
        for name, way, form, marker in (
            ("through a server", naive_allreduce, naive_time, "s"),
            ("ring", ring_allreduce, ring_time, "o"),
        ):
            runs = [launch(reduce, 4, way, n, world=world) for n in SIZES]
            model = [launch(reduce, 4, way, n, 1, world=Simulated(link)) for n in SIZES]
            series = {
                "predicted": [1e3 * float(form(4, 4 * n, link)) for n in SIZES],
                "simulated": [1e3 * run.elapsed_s for run in model],
                "measured": [1e3 * max(run.results) for run in runs],
            }
            megabytes = np.array(SIZES) * 4 / 1e6
            predicted_measured(
                megabytes, series, ax, xlabel="vector (MB)", ylabel="time (ms)", label=name, marker=marker
            )
            print(
                name, "measured / predicted", np.round(np.divide(series["measured"], series["predicted"]), 2)
            )
        ax.set(xscale="log", yscale="log")
        ax.set_title("All-reduce of four workers over 100 Mbit/s", loc="left")
        ax.legend(fontsize=9)
        ax.figure.text(0.01, -0.02, textwrap.fill(runs[0].where, 100), fontsize=8, va="top")
        plt.savefig(TARGET, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
