"""``make bench``: the performance table. Every ratio is of medians measured side by side in one run."""

import argparse
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
from table import part

from labkit.collectives import best, doubling, halving, ring, shared
from labkit.comm import Processes, launch
from labkit.network import Sample, fit

SIZES = (1_000, 100_000, 1_000_000, 10_000_000)
WAYS = {"ring": ring, "doubling": doubling, "halving": halving}  # by messages


def bare_ring(comm, x) -> None:
    """The ring in torch's own calls, with nothing around them: what bounds ours for short vectors."""
    group, K, r, n = comm.group, comm.K, comm.rank, len(x)
    right, left = (r + 1) % K, (r - 1) % K
    part = [x[i * n // K : (i + 1) * n // K] for i in range(K)]
    inbox = [x.new_empty(len(part[(r - j - 1) % K])) for j in range(K - 1)]
    arriving = [group.recv([box], left, 0) for box in inbox]
    arriving += [group.recv([part[(r - j) % K]], left, 0) for j in range(K - 1)]
    leaving = []
    for j in range(2 * K - 2):
        outgoing = part[(r - j) % K] if j < K - 1 else part[(r + 1 - (j - K + 1)) % K]
        leaving.append(group.send([outgoing], right, 0))
        arriving[j].wait()
        if j < K - 1:
            part[(r - j - 1) % K].add_(inbox[j])
    for work in leaving:
        work.wait()


def timings(comm, n: int, repeats: int, blocks: int) -> dict[str, list[float]]:
    """Seconds per all-reduce of n float32, ``repeats`` back to back, a block of each way in turn; this rank's view."""
    import torch
    import torch.distributed as dist

    x, y = torch.ones(n), torch.empty(n)
    symmetric = torch.from_numpy(comm.windows.empty(n))
    ways = {"gloo": lambda: dist.all_reduce(x), "copy": lambda: y.copy_(x)}
    ways |= {name: partial(way.allreduce_inplace, comm, x) for name, way in WAYS.items()}
    ways["bare ring"] = partial(bare_ring, comm, x)
    ways["symmetric"] = partial(shared.allreduce_inplace, comm, symmetric)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for block in range(blocks + 1):
        for name, way in ways.items():
            x.fill_(0.0)
            symmetric.fill_(0.0)
            way()
            comm.barrier()
            begun = time.perf_counter()
            for _ in range(repeats):
                way()
            if block:
                spent[name].append((time.perf_counter() - begun) / repeats)
    return spent


def measured(K: int, n: int, launches: int) -> dict[str, float]:
    """Median seconds of each way over the launches; of each block, what the slowest rank took."""
    repeats, blocks = {1_000: (25, 20), 100_000: (20, 5), 1_000_000: (4, 4), 10_000_000: (1, 5)}[n]
    world = Processes(device="cpu", threads=1)
    medians: dict[str, list[float]] = {}
    for _ in range(launches):
        run = launch(timings, K, n, repeats, blocks, world=world, timeout_s=300)
        for name in run.results[0]:
            slowest = np.max([r[name] for r in run.results], axis=0)
            medians.setdefault(name, []).append(statistics.median(slowest))
    return {name: statistics.median(v) for name, v in medians.items()}


def allreduce_table(launches: int, rows: list) -> None:
    for K in (2, 4):
        tables = {n: measured(K, n, launches) for n in SIZES}
        for n, m in tables.items():
            of = f"n = {n:.0e}, K = {K}"
            rows.append((f"ring / bare ring, {of}", m["ring"], m["bare ring"], 1.15))
            if n >= 1_000_000:
                rows.append((f"ring / gloo, {of}", m["ring"], m["gloo"], 1.1))
            if n >= 100_000:
                rows.append(
                    (f"symmetric / gloo, {of}", m["symmetric"], m["gloo"], 0.13 if n < 1_000_000 else 0.30)
                )
            if n == 10_000_000:
                most = {2: 1.0, 4: 1.5}[K]
                rows.append((f"symmetric / copying the same bytes, {of}", m["symmetric"], m["copy"], most))
        choice(K, tables, rows)


def choice(K: int, tables: dict, rows: list) -> None:
    """Whether the fastest of those that send messages is what ``best`` names on the link fitted to all their times, or
    one of those that this link cannot tell from it."""
    forms = {name: way.time for name, way in WAYS.items()}
    found = fit([Sample(form, K, 4 * n, m[name]) for n, m in tables.items() for name, form in forms.items()])
    for n, m in tables.items():
        named = forms[best(K, 4 * n, found.link, forms)](K, 4 * n, found.link)
        names = [
            name for name, form in forms.items() if form(K, 4 * n, found.link) <= named * (1 + found.scatter)
        ]
        said = names[0] if len(names) == 1 else f"a tie: {', '.join(names)}"
        ours, fastest = min(m[name] for name in names), min(m[name] for name in forms)
        rows.append((f"best ({said}) / fastest, n = {n:.0e}, K = {K}", ours, fastest, 1.1))


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
    cold = best_of(5, lambda: launch(nothing, 4, world="processes"))
    with Processes().ready(4) as pool:
        world = Processes(pool=pool)
        launch(nothing, 4, world=world)
        warm = best_of(20, lambda: launch(nothing, 4, world=world))
    code = "import time; t = time.perf_counter(); import labkit; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    spent = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5)]
    rows += [
        ("launch of K = 4 after the first / 0.2 s", cold, 0.2, 1.0),
        ("dispatch to a warm pool of K = 4 / 10 ms", warm, 0.010, 1.0),
        ("import labkit / 0.3 s", min(spent), 0.3, 1.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=3, help="launches per figure (default 3)")
    launches = parser.parse_args().launches
    with part("launching", "What it takes to start workers, beside the seconds that it may take.") as rows:
        launching(rows)
    about = "The sum in place of n float32 by K processes, beside gloo and the floor of each way."
    with part("all-reduce", about) as rows:
        allreduce_table(launches, rows)


if __name__ == "__main__":
    main()
