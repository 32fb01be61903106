"""The figure of the cover and the README: predicted, simulated, measured. By hand: ``python book/tools/cover_figure.py``.

Four workers on emulated hosts whose ports carry 100 Mbit/s. beta is what TCP delivers at that rate, alpha half the round
trip of two workers; nothing is fitted to what is shown. What was measured is stored in book/_static/cover.json, and with
``--draw`` drawn again into readme.png.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from labkit import Link, Simulated, launch
from labkit.collectives import measure_link, naive, ring
from labkit.comm import Emulated
from labkit.comm.emulated import PAYLOAD
from labkit.show import predicted_measured, style

RATE, SIZES, REPEATS = 1.25e7, [3_000, 30_000, 300_000, 1_500_000], [61, 41, 11, 7]
STATIC = Path(__file__).parents[1] / "_static"
NUMBERS = STATIC / "cover.json"
WAYS = (("through a server", naive.allreduce, naive.time, "s"), ("ring", ring.allreduce, ring.time, "o"))


def reduce(comm, way, n: int, repeats: int) -> float:
    """Median seconds of one all-reduce of n float32."""
    x, spent = np.ones(n, np.float32), []
    for _ in range(repeats):
        comm.barrier()
        begun = time.perf_counter()
        way(comm, x)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


def measure() -> dict[str, Any]:
    """Milliseconds of each way at each size, predicted, simulated and measured; and where."""
    link = Link(measure_link(world=Emulated(RATE)).message.link.alpha, RATE * PAYLOAD)
    found: dict[str, Any] = {"megabytes": [4 * n / 1e6 for n in SIZES], "ways": {}}
    with Emulated(RATE).ready(4) as pool:
        world = Emulated(RATE, pool=pool)
        for name, way, form, _ in WAYS:
            runs = [launch(reduce, 4, way, n, r, world=world) for n, r in zip(SIZES, REPEATS, strict=True)]
            model = [launch(reduce, 4, way, n, 1, world=Simulated(link)) for n in SIZES]
            series = {
                "predicted": [1e3 * float(form(4, 4 * n, link)) for n in SIZES],
                "simulated": [1e3 * run.elapsed_s for run in model],
                "measured": [1e3 * max(run.results) for run in runs],
            }
            found["ways"][name] = {kind: [float(f"{ms:.4g}") for ms in y] for kind, y in series.items()}
    return found | {"where": runs[0].where, "alpha_s": link.alpha, "rate": RATE}


def draw(found: dict[str, Any]) -> Any:
    """The figure of what was measured; white, dark ink: the page inverts it in the dark."""
    with style():
        figure, ax = plt.subplots(figsize=(4.9, 3.7), layout="constrained")
        for name, _, _, marker in WAYS:
            x, series = np.array(found["megabytes"]), found["ways"][name]
            labels = {"xlabel": "length of the vector", "ylabel": "time", "label": name}
            predicted_measured(x, series, ax, marker=marker, **labels)
        ax.set(xscale="log", yscale="log", ylim=(1, 3e4))  # room for the legend
        ax.legend(fontsize=10, loc="upper left")
        ax.set_xticks((0.01, 0.1, 1, 10), ("10 kB", "100 kB", "1 MB", "10 MB"))
        ax.set_yticks((1, 10, 100, 1000), ("1 ms", "10 ms", "100 ms", "1 s"))
        ax.minorticks_off()
        ax.set_title("Four workers add vectors at 100 Mbit/s", loc="left")
    return figure


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        NUMBERS.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    draw(json.loads(NUMBERS.read_text(encoding="utf-8"))).savefig(STATIC / "readme.png", dpi=200)
