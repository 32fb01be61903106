"""The fault table: what a launch says of each thing that can go wrong, and after how long. ``python tests/bench/faults.py``.

The tests behind it are in tests/comm/test_faults.py; this prints the sentences a user reads.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np

from labkit import Processes, launch
from labkit.collectives import ring


def raises(comm):
    if comm.rank == 2:
        raise KeyError("no such shard")
    comm.barrier()


def killed(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def leaves(comm):
    if comm.rank == 0:
        os._exit(0)


def loops(comm):
    while comm.rank == 1:
        pass
    comm.barrier()


def skips(comm):
    if comm.rank != 2:
        ring.allreduce(comm, np.ones(8))


def skips_torchs(comm):
    import torch
    import torch.distributed as dist

    if comm.rank != 1:
        dist.all_reduce(torch.ones(4))


def other_shape(comm):
    ring.allreduce(comm, np.ones(101 if comm.rank == 3 else 100))


def other_dtype(comm):
    ring.allreduce(comm, np.ones(100, np.float32 if comm.rank == 3 else np.float64))


def all_send_first(comm):
    comm.send(np.ones(1000), (comm.rank + 1) % comm.K)
    comm.recv(np.empty(1000), (comm.rank - 1) % comm.K)


def unpicklable(comm):
    return threading.Lock()


FAULTS = [
    ("a rank raises", raises, 4, {}),
    ("a rank is killed", killed, 4, {}),
    ("a rank exits 0 without a result", leaves, 4, {}),
    ("a rank loops", loops, 4, {}),
    ("a rank skips a collective", skips, 4, {}),
    ("a rank skips torch's own all_reduce", skips_torchs, 3, {}),
    ("one rank has another shape", other_shape, 4, {}),
    ("one rank has another dtype", other_dtype, 4, {}),
    ("everybody sends first", all_send_first, 3, {}),
    ("a result that cannot travel", unpicklable, 2, {}),
    ("K = 0", raises, 0, {}),
    ("K = 100,000", raises, 100_000, {}),
    ("nccl with too few GPUs", raises, 4, {"world": Processes(backend="nccl")}),
    ("an argument that cannot travel", lambda comm, lock: 0, 2, {"lock": threading.Lock()}),
]


def main() -> None:
    launch(lambda comm: 0, 2, world="processes")  # the fork server starts once
    for name, f, K, more in FAULTS:
        begun = time.perf_counter()
        try:
            launch(f, K, **{"world": "processes", "timeout_s": 2.0, **more})
            said = "NO ERROR"
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        print(f"{name} ({time.perf_counter() - begun:.2f} s)\n    {said}")


if __name__ == "__main__":
    main()
