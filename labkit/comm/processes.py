"""The world of real processes on this machine, or of the group that torchrun started; what it shares with ``Emulated``."""

from __future__ import annotations

import importlib
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from labkit import checks, machine
from labkit.comm.errors import LaunchError
from labkit.comm.run import Record, Run
from labkit.timing.laws import Fleet

if TYPE_CHECKING:
    from labkit.comm.netns import Network
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
        """K workers that stand ready for many short launches: ``with world.ready(4) as pool: ...``, then
        ``launch(f, 4, world=Processes(pool=pool))``."""
        site = self._site(K, _gpus(K))
        from labkit.comm.pool import Pool  # needs what room_for has looked for

        return Pool(K, self.threads or max(1, machine.cores() // K), *site)

    @abstractmethod
    def _site(self, K: int, gpus: int) -> tuple[str, list[str], tuple[int, ...], Network | None]:
        """Where K workers are to live: backend, one device per rank, hosts and network, as ``Pool`` takes them."""

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K worker processes; see ``launch``."""
        if self.pool is not None and K != self.pool.K:
            raise ValueError(f"K must be {self.pool.K}, the number of workers in the pool, got {K}")
        with self.ready(K) if self.pool is None else nullcontext(self.pool) as pool:
            outcomes = pool.run(f, args, kwargs, (self.law, self.seed), timeout_s)
            results = [pickle.loads(raw) for raw, _ in outcomes]
            return self._assemble(results, [record for _, record in outcomes], pool.devices, pool.backend)

    def _assemble(
        self, results: list[Any], records: list[Record], devices: tuple[str, ...], backend: str
    ) -> Run:
        where = f"{machine.describe(devices)}, {backend}, {len(results)} processes{self._joined_by()}"
        return Run.of(results, records, self.name, where)

    def _joined_by(self) -> str:
        """What to add to the name of the machine."""
        return ""


@dataclass(frozen=True)
class Processes(Workers):
    """Real worker processes, talking through torch.distributed.

    backend: ``"gloo"`` or ``"nccl"``; None: nccl if every rank has a GPU of its own, gloo otherwise.
    device: ``"cpu"`` or ``"cuda"``; None: the GPUs if there are any (ranks share them if need be).
    law, seed: compute times that ``comm.compute`` draws and really spends, as in ``Simulated``.
    threads: torch's threads per worker; None: the cores divided by K, at least 1.
    pool: workers that stand ready (see ``ready``); None: fresh ones, ended with the launch.
    """

    backend: str | None = None
    device: str | None = None
    name: ClassVar[str] = "processes"

    def _site(self, K: int, gpus: int) -> tuple[str, list[str], tuple[int, ...], None]:
        return *_choose(self.backend, self.device, K, gpus), (0,) * K, None

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K worker processes, or, under torchrun, as one of the K that it has started; see ``launch``."""
        if not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
            return super().run(f, K, args, kwargs, timeout_s)
        gpus, size = _gpus(1), int(os.environ["WORLD_SIZE"])
        if size != K:
            raise LaunchError(
                f"K is {K}, but the launcher that started this process made a group of {size} ranks"
            )
        here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        backend, devices = _choose(self.backend, self.device, here, gpus)
        from labkit.comm.worker import run_here

        results, records, used = run_here(f, K, args, kwargs, self.law, self.seed, backend, devices)
        return self._assemble(results, records, used, backend)


def _choose(backend: str | None, device: str | None, K: int, gpus: int) -> tuple[str, list[str]]:
    """The backend and one device per rank, for K ranks on a machine with ``gpus`` GPUs.

    Raises ValueError for an unknown name, LaunchError for what the machine can't do.
    """
    from torch.distributed import Backend, is_backend_available

    gpu, fast = machine.ACCELERATOR, Backend.default_device_backend_map[machine.ACCELERATOR]
    if backend not in (None, "gloo", fast):
        raise ValueError(f"backend must be 'gloo', '{fast}' or None, got {backend!r}")
    if device not in (None, "cpu", gpu):
        raise ValueError(f"device must be 'cpu', '{gpu}' or None, got {device!r}")
    if device == gpu and not gpus:
        raise LaunchError(
            f"device '{gpu}' needs a GPU and torch sees none; leave device out to run on the CPU"
        )
    if backend == fast and (gpus < K or device == "cpu"):
        have = "device is 'cpu'" if device == "cpu" else f"this machine has {gpus}"
        raise LaunchError(
            f"backend '{fast}' needs a GPU for each of the {K} ranks, but {have}; "
            f"leave backend out (gloo works without a GPU, and with one that ranks share)"
        )
    if device == "cpu" or not gpus:
        return "gloo", ["cpu"] * K
    usable = gpus >= K and is_backend_available(fast)
    return backend or (fast if usable else "gloo"), [f"{gpu}:{k % gpus}" for k in range(K)]


def _gpus(K: int) -> int:
    """How many GPUs there are for K processes; LaunchError if this machine can't host so many."""
    room_for(K)
    return int(machine.gpu_module().device_count())


def room_for(K: int) -> Any:
    """torch, if it is there and this machine can host K processes; LaunchError otherwise, ValueError if K < 1."""
    missing = []
    for name in "torch", "cloudpickle":
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append((error.name or name).split(".")[0])
    if missing:
        raise LaunchError(
            f"world='processes' needs {' and '.join(missing)}, not installed here (pip install 'labkit[torch]', or "
            f"just {' '.join(missing)}); world='simulated' does not"
        )
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise LaunchError(
            "this build of torch has no torch.distributed with gloo; world='simulated' works without"
        )
    cores = machine.cores()
    if checks.integer("K", K, 1) > MAX_PER_CORE * cores:
        raise LaunchError(
            f"K = {K} processes are more than this machine's {cores} cores can host "
            f"(at most {MAX_PER_CORE * cores}); world='simulated' takes any K"
        )
    return torch
