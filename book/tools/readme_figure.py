"""The README's figure: one all-reduce, predicted, simulated and measured. Run by hand: ``python book/tools/readme_figure.py``.

alpha and beta are fitted to two-worker round trips on this machine; what the four workers then take is not fitted.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib
import numpy as np

from labkit import Link, Processes, Simulated, launch
from labkit.collectives import ring_allreduce_inplace
from labkit.cost import ring_time
from labkit.show import predicted_measured, style

matplotlib.use("agg")
SIZES = [1_000, 10_000, 100_000, 1_000_000, 4_000_000]
TARGET = Path(__file__).parents[1] / "_static" / "readme.png"


def ping(comm, n: int) -> float:
    """Median seconds of one exchange of n float32 between two workers."""
    x, y, spent = np.ones(n, np.float32), np.empty(n, np.float32), []
    for _ in range(21):
        comm.barrier()
        begun = time.perf_counter()
        comm.sendrecv(x, 1 - comm.rank, y, 1 - comm.rank)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


def reduce(comm, n: int) -> float:
    """Median seconds of one ring all-reduce of n float32."""
    x, spent = np.ones(n, np.float32), []
    for _ in range(15):
        comm.barrier()
        begun = time.perf_counter()
        ring_allreduce_inplace(comm, x)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


def main() -> None:
    pings = {n: max(launch(ping, 2, n, world=Processes(device="cpu")).results) for n in (1_000, 1_000_000)}
    beta = 4 * (1_000_000 - 1_000) / (pings[1_000_000] - pings[1_000])
    link = Link(alpha=pings[1_000] - 4_000 / beta, beta=beta)
    real = [launch(reduce, 4, n, world=Processes(device="cpu")) for n in SIZES]

    def once(comm, n: int) -> None:
        ring_allreduce_inplace(comm, np.ones(n, np.float32))

    with style():
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
        series = {
            "predicted": [float(ring_time(4, 4 * n, link)) for n in SIZES],
            "simulated": [launch(once, 4, n, world=Simulated(link)).elapsed_s for n in SIZES],
            "measured": [max(r.results) for r in real],
        }
        predicted_measured(
            [4 * n for n in SIZES], series, ax, xlabel="bytes in the vector", ylabel="time, ms",
            title=f"Ring all-reduce, 4 workers; link fitted with 2: {link}", where=real[0].where,
        )  # fmt: skip
        plt.savefig(TARGET, dpi=150)
    print(f"{TARGET}: {link}; measured / predicted {np.round(np.divide(series['measured'], series['predicted']), 2)}")


if __name__ == "__main__":
    main()
