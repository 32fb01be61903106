"""The world of real processes on this machine, or of the group that torchrun started; what it shares with ``Emulated``."""

from __future__ import annotations

import os
import pickle
import time
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from labkit import checks, machine
from labkit.comm.errors import LaunchError
from labkit.comm.run import Record, Run, Site, Task
from labkit.timing.laws import Fleet

if TYPE_CHECKING:
    from labkit.comm.pool import Pool

MAX_PER_CORE = 32


@dataclass(frozen=True, kw_only=True)
class Workers(ABC):
    """Settings of worker processes, as ``Processes`` explains them."""

    law: Fleet | None = None
    seed: int = 0
    threads: int | None = None
    pool: Pool | None = None
    name: ClassVar[str]

    def ready(self, K: int) -> Pool:
        """K workers that stand ready: ``with world.ready(4) as pool``, then ``Processes(pool=pool)``."""
        self.room_for(K)
        from labkit.comm.pool import Pool  # needs what room_for has looked for

        return Pool(K, self.threads or max(1, machine.cores() // K), self._site(K))

    @staticmethod
    def room_for(K: int) -> Any:
        """torch, if it is there and this machine can host K processes; LaunchError otherwise, ValueError if K < 1."""
        try:
            torch, _ = map(import_module, ("torch", "cloudpickle"))
        except ImportError as error:
            hint = f"({error}: pip install torch cloudpickle)"
            what = f"world='processes' needs torch and cloudpickle {hint}"
            raise LaunchError(f"{what}; world='simulated' does not") from None
        dist = torch.distributed
        if not dist.is_available() or not dist.is_gloo_available():
            raise LaunchError("this torch has no gloo; world='simulated' needs none")
        cores = machine.cores()
        most = MAX_PER_CORE * cores
        if checks.integer("K", K, 1) > most:
            can = f"this machine's {cores} cores can host (at most {most})"
            raise LaunchError(
                f"K = {K} processes are more than {can}; world='simulated' takes any K"
            )
        return torch

    @abstractmethod
    def _site(self, K: int) -> Site: ...

    def run(self, task: Task, K: int, timeout_s: float) -> Run:
        """Run a task on K worker processes; see ``launch``."""
        if self.pool is not None and K != self.pool.K:
            raise ValueError(
                f"K must be {self.pool.K}, the pool's number of workers, got {K}"
            )
        with self.ready(K) if self.pool is None else nullcontext(self.pool) as pool:
            outcomes = pool.run(task, (self.law, self.seed), timeout_s)
            results = [pickle.loads(raw) for raw, _ in outcomes]
            return self._assemble(
                results, [record for _, record in outcomes], pool.site
            )

    def _assemble(self, results: list[Any], records: list[Record], site: Site) -> Run:
        on = machine.describe(tuple(site.devices))
        where = f"{on}, {site.backend}, {len(results)} {self}"
        return Run.of(results, records, self.name, where)


@dataclass(frozen=True)
class Processes(Workers):
    """Real worker processes, talking through torch.distributed.

    backend: ``"gloo"`` or ``"nccl"``; None: nccl if every rank has a GPU of its own, gloo otherwise. device: ``"cpu"`` or
    ``"cuda"``; None: the GPUs if there are any (ranks share them if need be). law, seed: compute times that ``comm.compute``
    draws and really spends. threads: torch's per worker; None: the cores divided by K, at least 1. pool: workers that stand
    ready (see ``ready``); None: fresh ones, ended with the launch.
    """

    backend: str | None = None
    device: str | None = None
    name: ClassVar[str] = "processes"

    def __str__(self) -> str:
        return "processes"

    def _site(self, K: int) -> Site:
        gpus = machine.gpu_module().device_count()
        return Site(*_choose(self.backend, self.device, K, gpus), (0,) * K)

    def run(self, task: Task, K: int, timeout_s: float) -> Run:
        """Run a task on K worker processes, or, under torchrun, as one of the K that it has started; see ``launch``."""
        if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
            return self._run_here(task, K)
        return super().run(task, K, timeout_s)

    def _run_here(self, task: Task, K: int) -> Run:
        """Run it as this rank of torchrun's group, of which every rank runs the same script, and gets the whole ``Run``.

        An exception is raised as it is: torchrun decides what becomes of the other ranks.
        """
        self.room_for(1)
        size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        if size != K:
            raise LaunchError(
                f"K must be {size}, the ranks that torchrun started, got {K}"
            )
        import torch.distributed as dist

        from labkit.comm.torch_comm import TorchComm

        here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        site = self._site(here)
        device = site.devices[int(os.environ.get("LOCAL_RANK", rank))]
        joined = TorchComm.join(site.backend, device)
        comm = TorchComm(rank, K, device)
        try:
            comm._follow(self.law, self.seed)
            comm._barrier()
            comm._origin = time.perf_counter()
            value = task.f(comm, *task.args, **task.kwargs)
            everyone = [None] * K
            outcome = value, comm._record(comm.now()), device
            dist.all_gather_object(everyone, outcome, group=comm._messages)
        finally:
            if comm._messages is not comm.group:
                dist.destroy_process_group(comm._messages)
            if joined:
                dist.destroy_process_group()
        results, records, devices = map(list, zip(*everyone, strict=True))
        return self._assemble(results, records, site._replace(devices=devices))


def _choose(
    backend: str | None, device: str | None, K: int, gpus: int
) -> tuple[str, list[str]]:
    """The backend and one device per rank, on a machine with ``gpus`` GPUs; ValueError or LaunchError."""
    from torch.distributed import Backend, is_backend_available

    gpu = machine.ACCELERATOR
    fast = Backend.default_device_backend_map[gpu]
    checks.one_of("backend", backend, ("gloo", fast, None))
    checks.one_of("device", device, ("cpu", gpu, None))
    if device == gpu and not gpus:
        cure = "leave device out to run on the CPU"
        raise LaunchError(f"device '{gpu}' needs a GPU and torch sees none; {cure}")
    if backend == fast and (gpus < K or device == "cpu"):
        have = "device is 'cpu'" if device == "cpu" else f"this machine has {gpus}"
        needs = f"backend '{fast}' needs a GPU for each of the {K} ranks"
        raise LaunchError(
            f"{needs}, but {have}; leave backend out: gloo works without"
        )
    if device == "cpu" or not gpus:
        return "gloo", ["cpu"] * K
    if backend is None:
        backend = fast if gpus >= K and is_backend_available(fast) else "gloo"
    return backend, [f"{gpu}:{k % gpus}" for k in range(K)]
