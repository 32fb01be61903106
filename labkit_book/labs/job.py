"""A real training job that survives a killed worker: small, whole, and started by torchrun like any other.

    torchrun --standalone --nproc-per-node=2 --max-restarts=2 -m labkit_book.labs.job --directory /tmp/job

Synchronous jobs have no spare: when one worker dies, torchrun ends the others and starts all of them again, and each
start continues from the newest whole checkpoint (``checkpoint``). A step is a function of the checkpoint and its number, so
the job ends with the same bits as one that nobody disturbed. Only rank 0 reads and writes: hosts need share no disk.

It learns scikit-learn's handwritten digits with torch's DistributedDataParallel and AdamW; every rank takes its share of
each batch. To see it survive, let a rank kill itself: ``--kill-rank 1 --kill-at 17 31``, one step for each start.

Symbols: K ranks, T steps, B examples in the batch of all ranks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit.learn import digits, split
from labkit_book.labs import checkpoint


def batch_of(t: int, N: int, B: int, seed: int) -> np.ndarray:
    """The numbers of the B examples of step t: the step's part of its epoch's own permutation; full batches only."""
    epoch, i = divmod(t, N // B)
    return np.random.default_rng([seed, epoch]).permutation(N)[i * B : (i + 1) * B]


def train(
    directory: str | os.PathLike[str], T: int = 60, every: int = 10, B: int = 64, seed: int = 7,
    kill_rank: int | None = None, kill_at: Sequence[int] = (),
) -> dict[str, Any]:  # fmt: skip
    """Train up to step T inside an initialised process group, from the newest whole checkpoint in ``directory`` on.

    every: steps between checkpoints. kill_rank: dies by SIGKILL before step ``kill_at[i]`` of the i-th start.
    Returns what this start did: its number, K, first step, last step, and the weights' SHA-256.
    """
    rank, K = dist.get_rank(), dist.get_world_size()
    start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    data = digits(np.random.default_rng(seed))
    X, y = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y, dtype=torch.int64)
    torch.manual_seed(seed)  # the same model on every rank
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 10)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begun = _resume(directory, model, optimizer)
    ends = kill_at[start] if rank == kill_rank and start < len(kill_at) else None
    ddp = DistributedDataParallel(model)
    for t in range(begun, T):
        if t == ends:
            os.kill(os.getpid(), signal.SIGKILL)
        mine = split(batch_of(t, len(X), B, seed), K)[rank]
        # dropout, too, is a function of the step
        torch.manual_seed(int(np.random.SeedSequence((seed, t, rank)).generate_state(1)[0]))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(X[mine]), y[mine], reduction="sum")
        (loss * K / B).backward()  # DDP divides by K: a mean over the batch, whatever the shares
        optimizer.step()
        if (t + 1) % every == 0 or t + 1 == T:
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                checkpoint.save(directory, t + 1, state)
            dist.barrier()  # a checkpoint counts when it is there
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return {"start": start, "K": K, "first": begun, "last": T, "sha256": hashlib.sha256(bits).hexdigest()}


def _resume(directory: Any, model: Any, optimizer: Any) -> int:
    """Go on from the newest whole checkpoint, if there is one; the first step to do."""
    found = [checkpoint.latest(directory) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    begun, state = found[0]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return begun


def main() -> None:
    """The command line; one line of JSON from rank 0 says how it went."""
    parser = argparse.ArgumentParser(
        description="A job that survives a killed worker; start it with torchrun."
    )
    parser.add_argument("--directory", required=True, help="where the checkpoints are")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--kill-rank", type=int, help="a rank that dies, to see the job survive")
    parser.add_argument("--kill-at", type=int, nargs="*", default=[], help="before which step, by start")
    a = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    done = train(a.directory, a.steps, a.every, kill_rank=a.kill_rank, kill_at=a.kill_at)
    if dist.get_rank() == 0:
        print(json.dumps(done), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
