"""A real training job that survives a killed worker: small, whole, and started by torchrun like any other.

    torchrun --standalone --nproc-per-node=2 --max-restarts=2 -m labkit.train.job --directory /tmp/job

Synchronous jobs have no spare: when one worker dies, torchrun ends the others and starts all of them again, and each
start continues from the newest whole checkpoint (``checkpoint``). A step is a function of the checkpoint and its number:
batch t is drawn from ``np.random.default_rng([seed, epoch])``, so that no batch is lost or seen twice, and the job ends
with the same bits as one that nobody disturbed. Only rank 0 reads and writes checkpoints, so hosts need share no disk.

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
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit.checks import integer
from labkit.learn import digits, split
from labkit.train import checkpoint
from labkit.train.recorder import StragglerRecorder


def batch_of(t: int, N: int, B: int, seed: int) -> np.ndarray:
    """The numbers of the B examples of step t: the step's part of its epoch's own permutation; full batches only."""
    epoch, i = divmod(t, N // B)
    return np.random.default_rng([seed, epoch]).permutation(N)[i * B : (i + 1) * B]


def _model_of(seed: int, features: int = 64, classes: int = 10) -> torch.nn.Module:
    """A multi-layer perceptron, the same on every rank that gives the same seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, classes)
    )


def train(
    directory: str | os.PathLike[str],
    T: int = 60,
    every: int = 10,
    B: int = 64,
    seed: int = 7,
    kill_rank: int | None = None,
    kill_at: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Train up to step T inside an initialised process group, from the newest whole checkpoint in ``directory`` on.

    every: steps between checkpoints, >= 1. kill_rank: dies by SIGKILL before step ``kill_at[i]`` of the i-th start.
    Returns what this start did: its number, K, first step, last step, loss (None if there was no step left to do), the
    weights' SHA-256, the recorder's verdict. Raises ValueError for bad input, also when B is not between the number of
    ranks and the number of examples, or the directory's checkpoint is of another B or seed, or past step T.
    """
    rank, K = dist.get_rank(), dist.get_world_size()
    data = digits(np.random.default_rng(seed))
    X, y = (torch.from_numpy(np.ascontiguousarray(a)) for a in (data.X, data.y))
    X, y = X.to(torch.float32), y.to(torch.int64)
    for name, value, least in (("T", T, 1), ("every", every, 1), ("B", B, K)):
        integer(name, value, least)
    if len(X) < B:
        raise ValueError(f"B must be at most the {len(X)} examples there are, got {B}")
    start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    model = _model_of(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    found = [checkpoint.latest(directory) if rank == 0 else None]
    dist.broadcast_object_list(found, src=0)
    begun, state = found[0] or (0, None)
    if state is not None:
        # which batches are done depends on B and the seed
        if (state["B"], state["seed"]) != (B, seed):
            raise ValueError(
                f"directory must be a new one for another job: {directory} holds one with B = {state['B']} and seed = "
                f"{state['seed']}, got B = {B} and seed = {seed}"
            )
        if begun > T:
            raise ValueError(
                f"T must be at least the {begun} steps that the job in {directory} has done, got {T}"
            )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    loss = None
    with StragglerRecorder(model) as recorder:
        ddp = DistributedDataParallel(model)
        for t in range(begun, T):
            if rank == kill_rank and kill_at[start : start + 1] == (t,):
                os.kill(os.getpid(), signal.SIGKILL)
            mine = split(batch_of(t, len(X), B, seed), K)[rank]
            # dropout, too, is a function of the step
            torch.manual_seed(int(np.random.SeedSequence((seed, t, rank)).generate_state(1)[0]))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(ddp(X[mine]), y[mine], reduction="sum")
            (loss * (K / B)).backward()  # DDP divides by K: a mean over the batch, whatever the shares
            optimizer.step()
            if (t + 1) % every == 0 or t + 1 == T:
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    checkpoint.save(directory, t + 1, {**state, "B": B, "seed": seed})
                dist.barrier()  # a checkpoint counts when it is there
        verdict = recorder.report().verdict if T - begun > 1 else "too few steps"
    return {
        "start": start,
        "K": K,
        "first": begun,
        "last": T,
        "loss": None if loss is None else loss.item() / len(split(np.arange(B), K)[rank]),
        "sha256": _digest(model),
        "verdict": verdict,
    }


def _digest(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters' bits."""
    bits = hashlib.sha256()
    for p in model.parameters():
        bits.update(p.detach().cpu().numpy().tobytes())
    return bits.hexdigest()


def main() -> None:
    """The command line; one line of JSON from rank 0 says how it went."""
    parser = argparse.ArgumentParser(
        description="A training job that survives a killed worker; start it with torchrun."
    )
    parser.add_argument("--directory", required=True, help="where the checkpoints are")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=64, help="examples in the batch of all ranks")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kill-rank", type=int, help="a rank that dies, to see the job survive")
    parser.add_argument(
        "--kill-at", type=int, nargs="*", default=[], help="before which step, for each start"
    )
    a = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error(
            "start it with torchrun, which says who is who: torchrun --standalone --nproc-per-node=2 -m ..."
        )
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    begun = time.perf_counter()
    done = train(a.directory, a.steps, a.every, a.batch, a.seed, a.kill_rank, tuple(a.kill_at))
    if dist.get_rank() == 0:
        print(json.dumps({**done, "seconds": round(time.perf_counter() - begun, 3)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
