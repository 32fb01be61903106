"""What `make gpu` runs in a process of its own, beside tests: python tests/gpu/alone.py machine | timings DEVICE

What is found is printed as lines of JSON, each as soon as it is known.
"""

import itertools
import json
import platform
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "tools")]

from labkit import Processes, launch, machine  # noqa: E402
from labkit.collectives import ring  # noqa: E402

SIZES = (1_000, 100_000, 10_000_000)
WIDTHS = (1024, 4096, 1024)  # of the network whose step is timed


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def this_machine() -> None:
    """The GPUs, and what computes on them."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    names = machine.gpus()
    say(device=names[0] if names else machine.cpu_name(), gpus=len(names), versions=versions)


def timings(device: str) -> None:
    """All-reduces and a training step, with as many workers as there are GPUs, or with two that share one."""
    K = max(2, len(machine.gpus()))
    world = Processes(device=None if device == machine.ACCELERATOR else device)
    for n in SIZES:
        run = launch(allreduce_seconds, K, n, 7, world=world, timeout_s=60)
        for name in run.results[0]:
            slowest = max(seconds[name] for seconds in run.results)
            say(what=f"all-reduce by {name}", n=n, K=K, seconds=slowest, where=run.where)
    run = launch(step_seconds, K, WIDTHS, 64, 10, world=world, timeout_s=60)
    layers = " to ".join(map(str, WIDTHS))
    say(what=f"step of torch's DDP, layers of {layers}", n=64, K=K, seconds=max(run.results), where=run.where)


def allreduce_seconds(comm: Any, n: int, repeats: int) -> dict[str, float]:
    """Median seconds of torch's all-reduce and of our ring on n float32 that live where this worker's tensors do."""
    import torch
    import torch.distributed as dist

    x = torch.ones(n, device=comm.device)
    ways = {"torch": lambda: dist.all_reduce(x), "our ring": lambda: ring.allreduce_inplace(comm, x)}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            x.fill_(1.0)
            spent[name].append(clocked(comm, way))
            assert (x == comm.K).all(), f"a wrong sum by {name}"
    return {name: statistics.median(times[1:]) for name, times in spent.items()}


def step_seconds(comm: Any, widths: tuple[int, ...], b: int, repeats: int) -> float:
    """Median seconds of a training step of torch's DistributedDataParallel, b examples a worker."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(comm.rank)
    layers: list[torch.nn.Module] = []
    for a, z in itertools.pairwise(widths):
        layers += [torch.nn.Linear(a, z), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(comm.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(b, widths[0]).to(comm.device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return statistics.median([clocked(comm, step) for _ in range(repeats + 2)][2:])


def clocked(comm: Any, way: Any) -> float:
    """Seconds from a common start until this worker's device is through with it."""
    import torch

    def finish() -> None:
        if comm.device != "cpu":
            torch.get_device_module(comm.device.split(":")[0]).synchronize()

    finish()
    comm.barrier()
    begun = time.perf_counter()
    way()
    finish()
    return time.perf_counter() - begun


if __name__ == "__main__":
    {"machine": this_machine, "timings": timings}[sys.argv[1]](*sys.argv[2:])
