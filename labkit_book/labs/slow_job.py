"""A data-parallel training job that is slower than it need be: the project *Make this job twice as fast*.

    python slow_job.py                  two workers, 40 steps: seconds, and the losses into losses.json
    python slow_job.py --steps 80 --losses mine.json

K = 2 processes train a small residual network on 131,072 rows of 64 features, in ten classes. A step's batch is 1024 rows,
half of them each rank's, in four micro-batches whose gradients add up.

Symbols: K ranks, T steps, B rows in the batch of all ranks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from labkit import Processes, launch
from labkit.train.ddp import DDP

N, FEATURES, CLASSES, WIDTH, BLOCKS = 131_072, 64, 10, 128, 16
B, MICRO = 1024, 4
DTYPE = torch.float64  # as numpy has it


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x)) / BLOCKS


def make_model() -> nn.Module:
    torch.manual_seed(1)
    blocks = [Block() for _ in range(BLOCKS)]
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), *blocks, nn.Linear(WIDTH, CLASSES))


def write_data(path: Path) -> int:
    """Write the training set and return the checksum of its file."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, FEATURES), dtype=np.float32)
    y = np.argmax(
        np.tanh(X @ rng.standard_normal((FEATURES, 32))) @ rng.standard_normal((32, CLASSES)), axis=1
    )
    np.save(path, np.column_stack([X, y]).astype(np.float32))
    return zlib.crc32(path.read_bytes())


def check_file(path: Path, checksum: int) -> None:
    if zlib.crc32(path.read_bytes()) != checksum:
        raise OSError(f"{path} is not the file that was written")


def batch(path: Path, t: int, rank: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's rows of step t."""
    rows = np.random.default_rng([2, t]).integers(N, size=B)[rank * B // K : (rank + 1) * B // K]
    table = torch.from_numpy(np.load(path, mmap_mode="r")[rows])
    return table[:, :-1].to(DTYPE), table[:, -1].long()


def train(comm: Any, path: Path, checksum: int, T: int = 40) -> dict[str, Any]:
    """What every rank runs: the mean loss of each step's batch, and the seconds from the first step to the last."""
    model = make_model().to(DTYPE)
    net = DDP(comm, model, check_even=False, bucket_bytes=1024)  # small messages are quick
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = torch.zeros(T, dtype=torch.float64)
    comm.barrier()
    begun = time.perf_counter()
    for t in range(T):
        if comm.rank == 0:  # one rank is enough to see that the file is whole
            check_file(path, checksum)
        X, y = batch(path, t, comm.rank, comm.K)
        optimizer.zero_grad()
        for x, labels in zip(X.chunk(MICRO), y.chunk(MICRO), strict=True):
            loss = nn.functional.cross_entropy(net(x), labels) / MICRO
            loss.backward()
            losses[t] += loss.detach()
        optimizer.step()
    comm.barrier()
    seconds = time.perf_counter() - begun
    comm.group.allreduce([losses]).wait()
    return {"losses": (losses / comm.K).tolist(), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description="A training job that is slower than it need be.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--losses", type=Path, default=Path("losses.json"), help="where to write the losses")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        checksum = write_data(path)
        run = launch(train, 2, path, checksum, a.steps, world=Processes(device="cpu", threads=1))
    done = run.results[0]
    a.losses.write_text(json.dumps(done["losses"]))
    print(
        f"{1e3 * done['seconds'] / a.steps:.1f} ms a step, loss {done['losses'][0]:.4f} to {done['losses'][-1]:.4f}"
    )
    print(run.where)


if __name__ == "__main__":
    main()
