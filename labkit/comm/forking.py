"""How worker processes are born: from torch.multiprocessing's fork server.

The server is a fresh interpreter that has imported torch but started no thread: forking a process whose OpenMP or CUDA is
running hangs. A worker forked from it is ready in a tenth of a second, where a new interpreter needs seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PRELOAD = ["torch", "torch.distributed", "torch._dynamo", "labkit.comm.worker", "labkit.comm.torch_comm"]
starting = threading.Lock()


def context() -> Any:
    import torch.multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return torch.multiprocessing.get_context("spawn")
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with starting, _one_thread():
        from multiprocessing import forkserver

        forkserver.ensure_running()
    return context


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep the fork server's libraries from starting thread pools: K workers share the cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {n: os.environ.get(n) for n in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for n, v in before.items():
            if v is None:
                os.environ.pop(n, None)
            else:
                os.environ[n] = v


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep workers from importing the caller's script again: functions travel by value, and a script without
    ``if __name__ == "__main__"`` would launch itself without end."""
    real = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
