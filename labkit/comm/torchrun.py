"""Under ``torchrun`` (or any launcher that sets RANK and WORLD_SIZE) this process *is* one of the workers.

Every rank runs the same script, so every rank calls ``launch`` and gets the whole ``Run``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from labkit.comm.board import NoBoard
from labkit.comm.errors import LaunchError
from labkit.comm.run import Run
from labkit.comm.torch_comm import TorchComm
from labkit.comm.worker import comm_record

if TYPE_CHECKING:
    from labkit.comm.processes import Processes


def run_here(world: Processes, f: Callable[..., Any], K: int, args: tuple, kwargs: dict) -> Run:
    """Run ``f`` as this rank of the group that is there (joined here if need be), and share the outcomes.

    Raises LaunchError if K is not the group's size. An exception of ``f`` is raised as it is: the launcher that
    started this process decides what becomes of the others.
    """
    from labkit.comm.processes import assemble, choose

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size != K:
        raise LaunchError(
            f"K is {K}, but the launcher that started this process made a group of {size} ranks"
        )
    local, local_size = int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    backend, devices = choose(world.backend, world.device, local_size, torch.cuda.device_count())
    device = devices[local]
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group("cpu:gloo,cuda:nccl" if backend == "nccl" else backend)
    try:
        comm = TorchComm(rank, K, device, NoBoard(K, rank))
        comm._follow(world.law, world.seed)
        dist.barrier()
        comm._origin = comm.now() + comm._origin
        value = f(comm, *args, **kwargs)
        mine = (value, comm_record(comm, comm.now()), device)
        everyone: list[Any] = [None] * K
        dist.all_gather_object(everyone, mine)
    finally:
        if joined:
            dist.destroy_process_group()
    results, records, where = zip(*everyone, strict=True)
    return assemble(list(results), list(records), tuple(where), backend)
