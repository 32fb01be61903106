"""``make bench``, training: a step of our DDP beside torch's, 10 million parameters, two processes.

Ways take turns inside one run, a few steps each (the first, with the others' data in the caches, does not count), so that
whatever else the machine does disturbs all of them alike; of a step counts what the slower rank took; per launch the median
over the steps, and the median over the launches.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from table import Row, part
from torch import nn

from labkit import Processes, launch
from labkit.train.ddp import DDP

WIDTH, LAYERS = 1024, 9  # (1024^2 + 1024) 9 + 1025 * 512 = 9,970,688 parameters
WAYS = {
    "torch": lambda comm, model: nn.parallel.DistributedDataParallel(model),
    "bucketed": lambda comm, model: DDP(comm, model),
}


def ten_million() -> nn.Module:
    """A multi-layer perceptron of about ten million parameters."""
    torch.manual_seed(0)
    layers = [m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 512))


def one_step(net, optimizer, x, y) -> float:
    """Seconds of one step."""
    begun = time.perf_counter()
    optimizer.zero_grad()
    ((net(x) - y) ** 2).mean().backward()
    optimizer.step()
    return time.perf_counter() - begun


def steps(comm, b: int, turns: int, in_a_row: int = 4) -> dict[str, list[float]]:
    """Seconds of the steps of each way with b examples on each worker; this rank's view."""
    torch.manual_seed(comm.rank)
    x, y = torch.randn(b, WIDTH), torch.randn(b, 512)
    nets = {}
    for name, wrap in WAYS.items():
        model = ten_million()
        nets[name] = wrap(comm, model), torch.optim.SGD(model.parameters(), lr=0.01)
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(turns + 1):
        for name, pair in nets.items():
            one_step(*pair, x, y)
            comm.barrier()
            took = [one_step(*pair, x, y) for _ in range(in_a_row)]
            if turn:
                spent[name] += took
    return spent


def step_rows(b: int, launches: int, turns: int) -> list[Row]:
    """Ours beside torch's, with b examples on each worker."""
    medians: dict[str, list[float]] = {}
    for _ in range(launches):
        world = Processes(device="cpu", threads=1)
        both = launch(steps, 2, b, turns, world=world, timeout_s=600).results
        for name in WAYS:
            slower = np.max([spent[name] for spent in both], axis=0)
            medians.setdefault(name, []).append(float(np.median(slower)))
    ours, theirs = (statistics.median(medians[name]) for name in ("bucketed", "torch"))
    return [(f"bucketed / torch's DDP, b = {b}", ours, theirs, 1.05)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=3, help="launches per figure (default 3)")
    parser.add_argument("--turns", type=int, default=6, help="turns of each way in a launch (default 6)")
    given = parser.parse_args()
    P = sum(p.numel() for p in ten_million().parameters())
    about = f"A training step of {P:,} parameters on two processes, b examples each, beside torch's own DDP."
    with part("training", about) as rows:
        rows += step_rows(64, given.launches, given.turns)


if __name__ == "__main__":
    main()
