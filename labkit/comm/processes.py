"""The world of real processes on this machine, or of the group that torchrun started."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit import machine
from labkit.comm.diagnose import RECEIVING, SENDING
from labkit.comm.errors import LaunchError
from labkit.comm.run import Run, arrival_points
from labkit.timing.laws import Law
from labkit.timing.timeline import Kind, Timeline

if TYPE_CHECKING:
    from labkit.comm.emulated import Emulated
    from labkit.comm.pool import Pool

MAX_PER_CORE = 32


@dataclass(frozen=True)
class Processes:
    """Real worker processes, talking through torch.distributed.

    backend: ``"gloo"`` or ``"nccl"``; None: nccl if every rank has a GPU of its own, gloo otherwise.
    device: ``"cpu"`` or ``"cuda"``; None: the GPUs if there are any (ranks share them if need be).
    law, seed: compute times that ``comm.compute`` draws and really spends, as in ``Simulated``.
    threads: torch's threads per worker; None: the cores divided by K, at least 1.
    pool: workers that stand ready (see ``ready``); None: fresh ones, ended with the launch.
    watch: record every message and check that its ends agree. False is for timing short messages: it saves a few
        microseconds each, and a mistake may then hang until the deadline.
    """

    backend: str | None = None
    device: str | None = None
    law: Law | None = None
    seed: int = 0
    threads: int | None = None
    pool: Pool | None = None
    watch: bool = True

    def ready(self, K: int) -> Pool:
        """K workers that stand ready for many short launches: ``with world.ready(4) as pool: ...``, then
        ``launch(f, 4, world=Processes(pool=pool))``."""
        torch = room_for(K)
        from labkit.comm.pool import Pool

        gpus = torch.cuda.device_count()
        backend, devices = choose(self.backend, self.device, K, gpus)
        return Pool(K, backend, devices, worker_threads(self.threads, K))

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K worker processes; see ``launch``."""
        _torch()
        if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
            from labkit.comm.torchrun import run_here

            return run_here(self, f, K, args, kwargs)
        if self.pool is not None:
            return run_on(self.pool, f, K, args, kwargs, self, timeout_s)
        with self.ready(K) as pool:
            return run_on(pool, f, K, args, kwargs, self, timeout_s)


def room_for(K: int) -> Any:
    """torch, if it is there and this machine can host K processes; LaunchError otherwise, ValueError if K < 1."""
    torch = _torch()
    if isinstance(K, bool) or not isinstance(K, (int, np.integer)) or K < 1:
        raise ValueError(f"K must be at least 1 worker, got {K!r}")
    most = MAX_PER_CORE * machine.cores()
    if most < K:
        raise LaunchError(
            f"K = {K} processes are more than this machine's {machine.cores()} cores can host "
            f"(at most {most}); world='simulated' takes any K"
        )
    return torch


def worker_threads(asked: int | None, K: int) -> int:
    """torch's threads per worker: as asked, or the cores divided by K."""
    return asked or max(1, machine.cores() // K)


def run_on(
    pool: Pool,
    f: Callable[..., Any],
    K: int,
    args: tuple,
    kwargs: dict,
    world: Processes | Emulated,
    timeout_s: float,
) -> Run:
    """Run ``f`` on the workers of a pool, with the world's law of compute times."""
    if K != pool.K:
        raise ValueError(f"K must be {pool.K}, the number of workers in the pool, got {K}")
    outcomes = pool.run(f, args, kwargs, world, timeout_s)
    results = [pickle.loads(raw) for raw, _ in outcomes]
    records = [record for _, record in outcomes]
    if isinstance(world, Processes):
        return assemble(results, records, pool.devices, pool.backend)
    return assemble(results, records, pool.devices, pool.backend, "emulated", f", {world}")


def choose(backend: str | None, device: str | None, K: int, gpus: int) -> tuple[str, list[str]]:
    """The backend and one device per rank, for K ranks on a machine with ``gpus`` GPUs.

    Raises ValueError for an unknown name, LaunchError for what the machine can't do.
    """
    if backend not in (None, "gloo", "nccl"):
        raise ValueError(f"backend must be 'gloo', 'nccl' or None, got {backend!r}")
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda' or None, got {device!r}")
    if device == "cuda" and not gpus:
        raise LaunchError("device 'cuda' needs a GPU and torch sees none; leave device out to run on the CPU")
    if backend == "nccl" and (gpus < K or device == "cpu"):
        have = "device is 'cpu'" if device == "cpu" else f"this machine has {gpus}"
        raise LaunchError(
            f"backend 'nccl' needs a GPU for each of the {K} ranks, but {have}; "
            f"leave backend out (gloo works without a GPU, and with one that ranks share)"
        )
    if device == "cpu" or not gpus:
        return "gloo", ["cpu"] * K
    return backend or ("nccl" if gpus >= K else "gloo"), [f"cuda:{k % gpus}" for k in range(K)]


def assemble(
    results: list[Any],
    records: list[dict],
    devices: tuple[str, ...],
    backend: str,
    world: str = "processes",
    network: str = "",
) -> Run:
    """One ``Run`` of what the workers recorded."""
    K = len(results)
    where = f"{machine.describe(devices)}, {backend}, {K} processes{network}"
    spans = [(k, *span) for k, r in enumerate(records) for span in r["spans"]] + _message_spans(records)
    arrivals = arrival_points([r["arrivals"] for r in records])
    timeline = Timeline.from_spans(K, spans, arrivals=arrivals, measured=True, where=where)
    return Run(
        results,
        timeline,
        np.array([r["bytes_sent"] for r in records], dtype=np.int64),
        np.array([r["messages_sent"] for r in records], dtype=np.int64),
        max(r["ended_s"] for r in records),
        world,
        f"measured: {where}",
    )


def _message_spans(records: list[dict]) -> list[tuple[int, int, int, float, float]]:
    """Split each wait for a message at the moment when both ends had posted it: waiting before, communicating after."""
    posts: dict[tuple[int, int, int], deque[float]] = defaultdict(deque)
    for k, r in enumerate(records):
        for op, peer, posted, *_ in r["log"]:
            posts[op, k, peer].append(posted - r["origin"])
    spans = []
    for k, r in enumerate(records):
        seen: dict[tuple[int, int], int] = defaultdict(int)
        for op, peer, _, begun, ended, step in r["log"]:
            begun, ended = begun - r["origin"], ended - r["origin"]
            other = posts[SENDING + RECEIVING - op, peer, k]
            i = seen[op, peer]
            seen[op, peer] += 1
            both = min(max(other[i] if i < len(other) else begun, begun), ended)
            spans.append((k, step, int(Kind.WAIT), begun, both))
            spans.append((k, step, int(Kind.COMMUNICATE), both, ended))
    return [s for s in spans if s[4] > s[3]]


def _torch() -> Any:
    try:
        import cloudpickle  # noqa: F401
        import torch
        import torch.distributed as dist
    except ImportError as error:
        missing = (error.name or "torch").split(".")[0]
        raise LaunchError(
            f"world='processes' needs {missing}, which is not installed (pip install 'labkit[torch]', or just "
            f"{missing}); world='simulated' does not"
        ) from None
    if not dist.is_available() or not dist.is_gloo_available():
        raise LaunchError(
            "this build of torch has no torch.distributed with gloo; world='simulated' works without"
        )
    return torch
