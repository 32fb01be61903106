"""``make bench``: the performance table. Every ratio is of medians measured side by side in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

from labkit import machine
from labkit.collectives import ring_allreduce_inplace, textbook_ring_allreduce
from labkit.comm import Processes, Simulated, launch

SIZES = (1_000, 100_000, 1_000_000, 10_000_000)


def timings(comm, n: int, repeats: int) -> dict[str, list[float]]:
    """Seconds per all-reduce of n float32, ours and gloo's in turn; this rank's view, from one common start each."""
    import torch
    import torch.distributed as dist

    x = torch.full((n,), float(comm.rank))
    ways = {"ring": lambda: ring_allreduce_inplace(comm, x), "gloo": lambda: dist.all_reduce(x)}
    if n <= 1_000_000:
        ways["textbook"] = lambda: textbook_ring_allreduce(comm, x)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(repeats + 2):
        for name, way in ways.items():
            x.fill_(1.0)
            comm.barrier()
            begun = time.perf_counter()
            way()
            if i >= 2:
                spent[name].append(time.perf_counter() - begun)
    return spent


def allreduce_table(launches: int, rows: list) -> None:
    for K in (2, 4):
        for n in SIZES:
            repeats = 200 if n <= 1_000 else 60 if n <= 100_000 else 20 if n <= 1_000_000 else 8
            medians: dict[str, list[float]] = {}
            for _ in range(launches):
                run = launch(timings, K, n, repeats, world=Processes(device="cpu", threads=1), timeout_s=300)
                for name in run.results[0]:
                    slowest = np.max([r[name] for r in run.results], axis=0)
                    medians.setdefault(name, []).append(statistics.median(slowest))
            m = {name: statistics.median(v) for name, v in medians.items()}
            target = 0.65 if n == 1_000 else 1.0 if n >= 1_000_000 else None
            rows.append((f"ring / gloo, n = {n:.0e}, K = {K}", m["ring"], m["gloo"], target))
            if "textbook" in m:
                rows.append((f"  textbook ring / gloo, n = {n:.0e}, K = {K}", m["textbook"], m["gloo"], None))


def best_of(times: int, f) -> float:
    spent = []
    for _ in range(times):
        begun = time.perf_counter()
        f()
        spent.append(time.perf_counter() - begun)
    return min(spent)


def launching(rows: list) -> None:
    nothing = lambda comm: comm.rank  # noqa: E731
    launch(nothing, 4, world="processes")
    rows.append(
        (
            "launch of K = 4 after the first",
            best_of(5, lambda: launch(nothing, 4, world="processes")),
            0.2,
            1.0,
        )
    )
    with Processes().ready(4) as pool:
        world = Processes(pool=pool)
        launch(nothing, 4, world=world)
        rows.append(
            (
                "dispatch to a warm pool of K = 4",
                best_of(20, lambda: launch(nothing, 4, world=world)),
                0.010,
                1.0,
            )
        )
    code = "import time; t = time.perf_counter(); import labkit; print(time.perf_counter() - t)"
    spent = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(5)
    )
    rows.append(("import labkit", spent, 0.3, 1.0))


def simulation(rows: list) -> None:
    ring = lambda comm: textbook_ring_allreduce(comm, np.ones(6400))  # noqa: E731
    rows.append(
        ("simulated world, ring on K = 64", best_of(3, lambda: launch(ring, 64, world=Simulated())), 2.0, 1.0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=3, help="launches per figure (default 3)")
    launches = parser.parse_args().launches
    rows: list[tuple[str, float, float, float | None]] = []
    launching(rows)
    simulation(rows)
    allreduce_table(launches, rows)
    print(f"{machine.describe()}\n")
    print(f"{'figure':44} {'ours, ms':>10} {'beside, ms':>10} {'ratio':>7} {'target':>7}  met")
    for name, ours, peer, target in rows:
        met = "" if target is None else "yes" if ours <= target * peer else "NO"
        print(
            f"{name:44} {ours * 1e3:10.3f} {peer * 1e3:10.3f} {ours / peer:7.2f} "
            f"{'' if target is None else f'{target:.2f}':>7}  {met}"
        )


if __name__ == "__main__":
    main()
