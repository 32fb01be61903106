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
    with starting, _environment():
        from multiprocessing import forkserver

        forkserver.ensure_running()
    return context


_ENVIRONMENT = {
    # K workers share the cores: libraries must not start pools of threads.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # torch warns of hosts without a name, which emulated ones are; its errors reach us as exceptions.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


@contextmanager
def _environment() -> Iterator[None]:
    """What the fork server's libraries must find in the environment when they are loaded."""
    # The same modules as here, wherever they lie: the server would look into the current directory first.
    path = {"PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in (*_ENVIRONMENT, *path)}
    os.environ.update(_ENVIRONMENT | path)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
