"""`make gpu`: run the GPU tests and every lab on a machine with a GPU, measure, and write book/results/<device>.json.

The book's page about GPUs (book/gpu.md) has its numbers from those files alone (book/tools/gpu_page.py). Where
there is no GPU this says so and stops; ``--rehearse`` runs the same on the CPU, into a folder of your choice, to see that it
would work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "tools")]

import gpu_page  # noqa: E402

from labkit import Processes, launch, machine  # noqa: E402
from labkit.collectives import ring  # noqa: E402

SIZES = (1_000, 100_000, 10_000_000)
PARAMETERS = (1024, 4096, 1024)  # widths of the network whose step is timed


def gpu_tests() -> dict[str, int]:
    """Run the tests marked gpu; how many passed, failed, were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "gpu.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests", f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL)
        suite = next(ET.parse(report).iter("testsuite"))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped = int(suite.get("skipped", 0))
    return {"passed": int(suite.get("tests", 0)) - failed - skipped, "failed": failed, "skipped": skipped}


def lab(path: Path) -> dict[str, Any]:
    """Execute one notebook in a kernel of its own, storing nothing; seconds, and its error if it had one."""
    import jupytext
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    begun = time.perf_counter()
    try:
        NotebookClient(
            jupytext.read(path),
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
        ).execute()
    except CellExecutionError as error:
        return {
            "seconds": round(time.perf_counter() - begun, 1),
            "error": str(error).strip().splitlines()[-1],
        }
    return {"seconds": round(time.perf_counter() - begun, 1)}


def allreduce_seconds(comm: Any, n: int, repeats: int) -> dict[str, float]:
    """Median seconds of torch's all-reduce and of our ring on n float32 that live where this worker's tensors do."""
    import torch
    import torch.distributed as dist

    x = torch.ones(n, device=comm.device)
    ways = {"torch.distributed": lambda: dist.all_reduce(x), "our ring": lambda: ring.allreduce(comm, x)}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            x.fill_(1.0)
            _finish(comm.device)
            comm.barrier()
            begun = time.perf_counter()
            way()
            _finish(comm.device)
            spent[name].append(time.perf_counter() - begun)
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
    x, spent = torch.randn(b, widths[0], device=comm.device), []
    for _ in range(repeats + 2):
        _finish(comm.device)
        comm.barrier()
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        _finish(comm.device)
        spent.append(time.perf_counter() - begun)
    return statistics.median(spent[2:])


def _finish(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def measure(device: str, gpus: int) -> dict[str, Any]:
    """All-reduce and step times of as many workers as there are GPUs, or of two that share one."""
    K = max(2, gpus)
    rows, backend = [], ""
    for n in SIZES:
        run = launch(allreduce_seconds, K, n, 7, world=Processes(device=device), timeout_s=300)
        backend = "nccl" if "nccl" in run.where else "gloo"
        for name in run.results[0]:
            rows.append({"n": n, "algorithm": name, "seconds": float(np.max([r[name] for r in run.results]))})
    run = launch(step_seconds, K, PARAMETERS, 64, 10, world=Processes(device=device), timeout_s=300)
    step = {"widths": PARAMETERS, "b": 64, "seconds": float(np.max(run.results))}
    return {
        "K": K,
        "backend": backend,
        "where": run.where.removeprefix("measured: "),
        "allreduce": rows,
        "step": step,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rehearse", type=Path, metavar="FOLDER", help="on the CPU, writing into FOLDER")
    parser.add_argument("--labs", nargs="*", help="names of labs to run (default: all)")
    a = parser.parse_args()
    names = machine.gpus()
    if not names and a.rehearse is None:
        print("make gpu needs a CUDA GPU that torch can see, and there is none here; nothing was written.")
        return 1
    device = "cpu" if a.rehearse else "cuda"
    record: dict[str, Any] = {
        "device": names[0] if device == "cuda" else machine.cpu_name(),
        "gpus": len(names) if device == "cuda" else 0,
        "date": date.today().isoformat(),
        "versions": {p: version(p) for p in ("torch", "numpy", "labkit")}
        | {"python": platform.python_version()},
        "tests": gpu_tests(),
        "measured": measure(device, len(names)),
        "labs": {},
    }
    for path in sorted((ROOT / "notebooks").glob("*.md")):
        if a.labs is None or path.stem in a.labs:
            record["labs"][path.stem] = done = lab(path)
            print(f"{path.stem:32} {done['seconds']:7.1f} s  {done.get('error', 'ok')}", flush=True)
    folder = a.rehearse or ROOT / "book" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^a-z0-9]+", "-", record["device"].lower()).strip("-") + ".json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    if a.rehearse is None:
        gpu_page.write()
    print(f"Written: {path}")
    return int(record["tests"]["failed"] > 0 or any("error" in done for done in record["labs"].values()))


if __name__ == "__main__":
    sys.exit(main())
