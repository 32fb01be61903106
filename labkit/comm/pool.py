"""A pool of worker processes that stand ready, and the watch over them.

Whatever happens to the launcher or to a worker, none is left behind: the launcher kills them, and each ends by itself when
the launcher is gone. What travels to them is packed in ``packing.py``.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from labkit.comm import netns, windows
from labkit.comm.board import Board, words
from labkit.comm.diagnose import standstill
from labkit.comm.errors import LaunchError
from labkit.comm.forking import context, no_main_module, starting
from labkit.comm.packing import pack
from labkit.comm.postmortem import Coroner
from labkit.comm.worker import Place, main

if TYPE_CHECKING:
    from labkit.comm.emulated import Emulated, Network
    from labkit.comm.processes import Processes

START_S = 120.0  # to start workers, the import of torch on a cold disk included
_open: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """K worker processes, joined in a torch.distributed group.

    backend, devices: as ``Processes`` chose them, one device per rank; threads: torch's, per worker.
    hosts: the host of each rank; network: the emulated network that joins them, ended with the pool; None: this host's own.
    Raises LaunchError if the workers can't be started. Use as a context manager, or ``close()``.
    """

    def __init__(
        self,
        K: int,
        backend: str,
        devices: list[str],
        threads: int,
        hosts: tuple[int, ...] | None = None,
        network: Network | None = None,
    ) -> None:
        self.K, self.closed = K, False
        self.backend, self.devices = backend, tuple(devices)
        self._hosts = (0,) * K if hosts is None else hosts
        self._network = network
        self._store: Any = None
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
        mp = context()
        self._raw = mp.RawArray("q", words(K))
        self._board = Board(self._raw, K)
        self._coroner = Coroner(K, self._board, self._workers, self._dumps)
        memory = mp.RawArray("q", windows.words(K)) if len(set(hosts)) == 1 else None
        if network is None:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            store, device = ("127.0.0.1", self._store.port), "lo0" if sys.platform == "darwin" else "lo"
        else:  # an emulated host can't reach this process: rank 0 keeps the store, where every port is free
            store, device = (netns.address(hosts[0]), netns.STORE_PORT), "eth0"
        env = {
            k: v for k, v in os.environ.items() if k.startswith(("CUDA", "NCCL", "GLOO", "TORCH", "PYTORCH"))
        }
        env["GLOO_SOCKET_IFNAME"] = device
        alive, self._alive = mp.Pipe(duplex=False)
        with starting, no_main_module():
            for k in range(K):
                here, there = mp.Pipe()
                dump, dumped = mp.Pipe(duplex=False)
                self._conns.append(here)
                self._dumps.append(dump)
                pid, user = (network.pids[hosts[k]], network.user) if network else (0, False)
                serves = network is not None and k == 0
                where = (pid, user, self.backend, self.devices[k])
                place = Place(k, K, store, serves, hosts, *where, threads, START_S, env)
                p = mp.Process(
                    target=main,
                    args=(place, there, alive, dumped, self._raw, memory),
                    name=f"labkit rank {k}",
                )
                p.start()
                self._workers.append(p)
                there.close()
                dumped.close()
        alive.close()

    # -- running ----------------------------------------------------------------------------------------------

    def run(
        self, f: Callable[..., Any], args: tuple, kwargs: dict, world: Processes | Emulated, timeout_s: float
    ) -> list[tuple[bytes, dict]]:
        """Run ``f`` on every worker; per rank its pickled result and its record. A failure closes the pool."""
        if self.closed:
            raise LaunchError("this pool is closed (a worker failed or close() was called); make a new one")
        shared = self._network is None  # an emulated host has a memory of its own, as a real one would
        task = pack(f, args, kwargs, (world.law, world.seed, world.watch), shared)
        try:
            self._board.clear()
            for k, conn in enumerate(self._conns):
                try:
                    conn.send_bytes(task)
                except OSError:
                    raise self._coroner.death(k) from None
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
                raise self._coroner.failure(failed)
            if now >= deadline:
                failure = self._coroner.late if wanted == "done" else self._coroner.no_start
                raise failure(missing, timeout_s)
            ends = {self._workers[k].sentinel: k for k in missing}
            conns = {self._conns[k]: k for k in missing if k not in failed}
            heard: list[Any] = wait(
                [*conns, *ends], timeout=min(0.05, deadline - now, max(0.0, decide_at - now))
            )
            for c in heard:
                if c in conns:
                    k = conns[c]
                    try:
                        kind, *rest = c.recv()
                    except (EOFError, OSError):
                        raise self._coroner.death(k) from None
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
                    raise self._coroner.death(ends[c])
            if wanted == "done" and not heard and not failed:
                still = self._watch(still)
        return got

    def _watch(self, before: Any) -> Any:
        """Raise if the group stands still for good: seen twice, unchanged, with nobody on the way."""
        states = self._board.states()
        if not standstill(states):
            return None
        if before != states:
            return states
        raise self._coroner.standstill(states)

    # -- ending -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every worker, at once and for good. Safe to call twice."""
        self.closed = True
        _open.discard(self)
        for p in self._workers:
            if p.is_alive():
                for kill in (os.killpg, os.kill) if hasattr(os, "killpg") else (os.kill,):
                    try:
                        kill(p.pid, signal.SIGKILL)
                    except OSError:
                        continue
        for p in self._workers:
            p.join(10)
        for conn in [*self._conns, *self._dumps, *([self._alive] if self._alive else [])]:
            conn.close()
        self._store = None
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
