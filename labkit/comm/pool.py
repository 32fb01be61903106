"""A pool of worker processes that stand ready, and the watch over them.

Workers are forked from torch.multiprocessing's fork server: a fresh interpreter that has imported torch but started no
thread, for forking a process whose OpenMP or CUDA is running hangs. A worker is ready in a tenth of a second, where a new
interpreter needs seconds.

Whatever happens to the launcher or to a worker, none is left behind: the launcher kills them, and each ends by itself when
the launcher is gone. What travels to them is packed in ``packing.py``.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any

from labkit.comm import netns
from labkit.comm.board import Board, State
from labkit.comm.diagnose import PostMortem
from labkit.comm.errors import LaunchError, ranks_phrase
from labkit.comm.packing import pack
from labkit.comm.run import FINISHED, Record
from labkit.comm.windows import Heap, Windows
from labkit.comm.worker import START_S, Place, work

PRELOAD = ["torch", "torch.distributed", "torch._dynamo", "labkit.comm.worker", "labkit.comm.torch_comm"]
_starting = threading.Lock()
_open: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """K worker processes, joined in a torch.distributed group.

    threads: torch's, per worker. backend, devices: as ``Processes`` chose them, one device per rank.
    hosts: the host of each rank; network: the emulated network that joins them, ended with the pool; None: this host's own.
    Raises LaunchError if the workers can't be started. Use as a context manager, or ``close()``.
    """

    def __init__(
        self,
        K: int,
        threads: int,
        backend: str,
        devices: list[str],
        hosts: tuple[int, ...],
        network: netns.Network | None,
    ) -> None:
        self.K, self.closed = K, False
        self.backend, self.devices = backend, tuple(devices)
        self._hosts = hosts
        self._network = network
        self._store: Any = None
        self._heap: Heap | None = None
        self._alive: Any = None
        self._workers: list[Any] = []
        self._conns: list[Any] = []
        self._dumps: list[Any] = []
        _open.add(self)
        try:
            self._start(threads)
            self._collect("ready", START_S)
        except OSError as error:  # no disk, no memory, no file left to open
            self.close()
            raise LaunchError(f"the system refused what {K} worker processes need: {error}") from error
        except BaseException:
            self.close()
            raise

    def _start(self, threads: int) -> None:
        import torch.distributed as dist

        K, hosts, network = self.K, self._hosts, self._network
        mp = _context()
        raw = mp.RawArray("q", Board.words(K))
        self._board = Board(raw, K)
        self._post_mortem = PostMortem(K, self._board, self._workers, self._dumps)
        memory = None
        if len(set(hosts)) == 1:
            self._heap = Heap()
            memory = mp.RawArray("q", Windows.words(K)), self._heap
        if network is None:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            store, device = ("127.0.0.1", self._store.port), "lo0" if sys.platform == "darwin" else "lo"
        else:  # an emulated host can't reach this process: rank 0 keeps the store, where every port is free
            store, device = (network.address(hosts[0]), netns.STORE_PORT), "eth0"
        passed_on = ("CUDA", "NCCL", "GLOO", "TORCH", "PYTORCH")
        env = {k: v for k, v in os.environ.items() if k.startswith(passed_on)}
        env["GLOO_SOCKET_IFNAME"] = device
        alive, self._alive = mp.Pipe(duplex=False)
        # Workers need not import the caller's script again, for functions travel by value; and a script without
        # ``if __name__ == "__main__"`` would launch itself without end.
        no_script = {"__main__": types.ModuleType("__main__")}
        with _starting, _for_now(sys.modules, no_script):
            for k in range(K):
                here, there = mp.Pipe()
                dump, dumped = mp.Pipe(duplex=False)
                self._conns.append(here)
                self._dumps.append(dump)
                way, serves = (network.ways[hosts[k]], k == 0) if network else ((), False)
                place = Place(k, K, store, serves, hosts, way, self.backend, self.devices[k], threads, env)
                ends = (place, there, alive, dumped, raw, memory)
                p = mp.Process(target=work, args=ends, name=f"labkit rank {k}")
                p.start()
                self._workers.append(p)
                there.close()
                dumped.close()
        alive.close()

    # -- running ----------------------------------------------------------------------------------------------

    def run(
        self, f: Callable[..., Any], args: tuple, kwargs: dict, settings: tuple, timeout_s: float
    ) -> list[tuple[bytes, Record]]:
        """Run ``f`` on every worker; per rank its pickled result and its record. A failure closes the pool.

        settings: the world's law and seed.
        """
        if self.closed:
            raise LaunchError("this pool is closed (a worker failed or close() was called); make a new one")
        shared = self._network is None  # an emulated host has a memory of its own, as a real one would
        task = pack(f, args, kwargs, settings, shared)
        try:
            self._board.clear()
            for k, conn in enumerate(self._conns):
                try:
                    conn.send_bytes(task)
                except OSError:
                    raise self._post_mortem.death(k) from None
            return self._collect("done", timeout_s)
        except BaseException:
            self.close()
            raise

    def _collect(self, wanted: str, timeout_s: float) -> list[Any]:
        """Wait for one ``wanted`` message from every worker, watching over all of them meanwhile."""
        got: list[Any] = [None] * self.K
        missing = set(range(self.K))
        failed: dict[int, tuple] = {}
        deadline = time.monotonic() + timeout_s
        decide_at = float("inf")
        still = None
        while missing:
            now = time.monotonic()
            if now >= decide_at:
                raise self._post_mortem.failure(failed)
            if now >= deadline and wanted == "done":
                raise self._post_mortem.late(missing, timeout_s)
            if now >= deadline:
                raise LaunchError(f"{ranks_phrase(list(missing))} did not start within {timeout_s:g} s")
            ends = {self._workers[k].sentinel: k for k in missing}
            conns = {self._conns[k]: k for k in missing if k not in failed}
            heard: list[Any] = wait([*conns, *ends], min(0.05, deadline - now, max(0.0, decide_at - now)))
            for c in heard:
                if c in conns:
                    k = conns[c]
                    try:
                        kind, *rest = c.recv()
                    except (EOFError, OSError):
                        raise self._post_mortem.death(k) from None
                    if kind == "out":
                        print(f"[rank {k}] {rest[0]}")
                    elif kind == wanted:
                        got[k] = tuple(rest)
                        missing.discard(k)
                    else:
                        failed[k] = tuple(rest)
                        # A symptom of another rank's end: wait for that end to show itself.
                        decide_at = min(decide_at, time.monotonic() + (1.0 if rest[0] == "lost" else 0.02))
            for c in heard:
                if c in ends and not self._conns[ends[c]].poll():
                    raise self._post_mortem.death(ends[c])
            if wanted == "done" and not heard and not failed:
                still = self._watch(still)
        return got

    def _watch(self, before: list[State] | None) -> list[State] | None:
        """Raise if the group stands still for good: somebody stuck, nobody on the way, seen twice and unchanged."""
        states = self._board.states()
        if not any(s.stuck for s in states) or not all(s.stuck or s.op == FINISHED for s in states):
            return None
        if before != states:
            return states
        raise self._post_mortem.standstill(states)

    # -- ending -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every worker, at once and for good. Safe to call twice."""
        self.closed = True
        _open.discard(self)
        for p in self._workers:
            if p.is_alive():
                for kill in (os.killpg, os.kill) if hasattr(os, "killpg") else (os.kill,):
                    with suppress(OSError):
                        kill(p.pid, signal.SIGKILL)
        for p in self._workers:
            p.join(10)
        for conn in [*self._conns, *self._dumps, *([self._alive] if self._alive else [])]:
            conn.close()
        self._store = None
        if self._heap is not None:
            self._heap.close()
        if self._network is not None:
            self._network.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for pool in list(_open):
        pool.close()


# -- the fork server --------------------------------------------------------------------------------------


def _context() -> Any:
    import torch.multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return torch.multiprocessing.get_context("spawn")
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    # The same modules as here, wherever they lie: the server would look into the current directory first.
    path = {"PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path), "PYTHONSAFEPATH": "1"}
    with _starting, _for_now(os.environ, _ENVIRONMENT | path):
        from multiprocessing import forkserver

        forkserver.ensure_running()
    return context


#: What the fork server's libraries must find in the environment when they are loaded.
_ENVIRONMENT = {
    # K workers share the cores: libraries must not start pools of threads.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # torch warns of hosts without a name, which emulated ones are; its errors reach us as exceptions.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


@contextmanager
def _for_now(where: MutableMapping[str, Any], these: Mapping[str, Any]) -> Iterator[None]:
    """``where`` holds ``these`` inside the ``with``."""
    before = {name: where.get(name) for name in these}
    where.update(these)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                where.pop(name, None)
            else:
                where[name] = value
