"""A pool of worker processes that stand ready, and the watch over them.

Workers are forked from torch.multiprocessing's fork server: a fresh interpreter that has imported torch but started no
thread, for forking a process whose OpenMP or CUDA is running hangs. A new interpreter would need seconds.
None is left behind: the launcher kills them, and each ends by itself when the launcher is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.util import Finalize, get_temp_dir
from typing import Any

from labkit.comm.board import Board, State
from labkit.comm.diagnose import PostMortem
from labkit.comm.errors import LaunchError, RankError, text_of
from labkit.comm.run import FINISHED, Record, Site, Task
from labkit.comm.windows import Windows
from labkit.comm.worker import START_S, Worker, pack

#: What the fork server's libraries must find in the environment when they are loaded.
ENVIRONMENT = {
    # K workers share the cores: libraries must not start pools of threads.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",  # the server would look into the current directory first
}
_starting = threading.Lock()


class Pool:
    """K worker processes, joined in a torch.distributed group. Use as a context manager, or ``close()``.

    threads: torch's, per worker. site: where they live; its network ends with the pool. LaunchError if they can't start.
    """

    def __init__(self, K: int, threads: int, site: Site) -> None:
        self.K, self.site = K, site
        self._network = site.network
        self._workers: list[Any] = []
        self._conns: list[Any] = []
        self._dumps: list[Any] = []
        self._open = [] if site.network is None else [site.network]
        # Also when Python exits, before multiprocessing waits for the workers: weakref's finalizers may come after that.
        self._end = Finalize(self, _end, (self._workers, self._open), exitpriority=0)
        try:
            self._start(threads, self._environment())
            self._collect("ready", START_S)
        except OSError as error:  # no disk, no memory, no file left to open
            self.close()
            needs = f"what {K} worker processes need"
            raise LaunchError(f"the system refused {needs}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _start(self, threads: int, env: dict[str, str]) -> None:
        K, mp, hosts = self.K, _context(), self.site.hosts
        raw = mp.RawArray("q", Board.words(K))
        self._board = Board(raw, K)
        self._post_mortem = PostMortem(self._board, self._workers, self._dumps)
        heap = None
        if len(set(hosts)) == 1:
            heap = Windows.heap(K)
            self._open.append(heap)
        store = tempfile.NamedTemporaryFile(dir=get_temp_dir())  # noqa: SIM115
        alive, ours = mp.Pipe(duplex=False)
        self._open += store, ours
        # Workers need not import the caller's script again, for functions travel by value; and a script without
        # ``if __name__ == "__main__"`` would launch itself without end.
        no_script = {"__main__": types.ModuleType("__main__")}
        with _starting, _for_now(sys.modules, no_script):
            for k in range(K):
                way = () if self._network is None else self._network.ways[hosts[k]]
                group = (
                    k,
                    K,
                    store.name,
                    hosts,
                    way,
                    self.site.backend,
                    self.site.devices[k],
                )
                worker = Worker(*group, threads, env)
                conn, theirs = mp.Pipe()
                dump, dumped = mp.Pipe(duplex=False)
                self._conns.append(conn)
                self._dumps.append(dump)
                self._open += conn, dump
                ends = theirs, alive, dumped, raw, heap
                process = mp.Process(target=worker.live, args=ends, name=f"rank {k}")
                process.start()
                self._workers.append(process)
                theirs.close()
                dumped.close()
        alive.close()

    def _environment(self) -> dict[str, str]:
        """What the workers' libraries need, and what they heed of this process's settings."""
        passed_on = ("CUDA", "NCCL", "GLOO", "TORCH", "PYTORCH")
        env = {k: v for k, v in os.environ.items() if k.startswith(passed_on)}
        local = "lo0" if sys.platform == "darwin" else "lo"
        env["GLOO_SOCKET_IFNAME"] = local if self._network is None else "eth0"
        return env

    def run(
        self, task: Task, settings: tuple, timeout_s: float
    ) -> list[tuple[bytes, Record]]:
        """Run a task on every worker; per rank its pickled result and its record. A failure closes the pool.

        settings: the world's law and seed. Raises TypeError that names what cannot be sent, RankError, LaunchError.
        """
        if not self._end.still_active():
            raise LaunchError("this pool is closed: a worker failed, or close() was")
        shared = self._network is None  # an emulated host has memory of its own
        try:
            tasks = [pack((*task, *settings), shared) for _ in range(self.K)]
        except Exception:
            numbered = {f"argument {i}": a for i, a in enumerate(task.args)}
            parts = {"f": task.f, **numbered, **task.kwargs, "law": settings[0]}
            _name_the_culprit(parts, shared)
            raise
        try:
            self._board.clear()
            for k, packed in enumerate(tasks):
                try:
                    self._conns[k].send_bytes(packed)
                except OSError:
                    raise self._post_mortem.death(k) from None
            return self._collect("done", timeout_s)
        except RankError as error:
            # Of which what has been seen may be a consequence.
            mismatch = self._board.mismatch()
            self.close()
            raise mismatch or error from None
        except BaseException:
            self.close()
            raise

    def _collect(self, wanted: str, timeout_s: float) -> list[Any]:
        """Wait for one ``wanted`` message from every worker, watching over all of them meanwhile."""
        got: dict[int, tuple] = {}
        failed: dict[int, tuple] = {}
        deadline, decide_at = time.monotonic() + timeout_s, inf
        before = None
        while len(got) < self.K:
            now = time.monotonic()
            if now >= decide_at:
                raise self._post_mortem.failure(failed)
            if now >= deadline:
                missing = {k for k in range(self.K) if k not in got}
                if wanted == "ready":
                    who = RankError.phrase(missing)
                    raise LaunchError(f"{who} did not start within {timeout_s:g} s")
                raise self._post_mortem.late(missing, timeout_s)
            so_far = len(failed)
            wait_s = min(0.05, deadline - now, decide_at - now)
            heard = self._listen(wanted, got, failed, wait_s)
            if len(failed) > so_far:
                # A symptom of another rank's end: wait for that end to show itself.
                symptoms = all(kind == "lost" for kind, *_ in failed.values())
                decide_at = min(
                    decide_at, time.monotonic() + (1.0 if symptoms else 0.02)
                )
            if wanted == "done" and not heard and not failed:
                before = self._watch(before)
        return [got[k] for k in range(self.K)]

    def _listen(
        self,
        wanted: str,
        got: dict[int, tuple],
        failed: dict[int, tuple],
        wait_s: float,
    ) -> bool:
        """Note what the workers say within ``wait_s``; whether there was anything."""
        missing = [k for k in range(self.K) if k not in got]
        conns = {self._conns[k]: k for k in missing if k not in failed}
        ends = {self._workers[k].sentinel: k for k in missing}
        heard = wait([*conns, *ends], wait_s)
        for k in [conns[c] for c in heard if c in conns]:
            try:
                kind, *rest = self._conns[k].recv()
            except (EOFError, OSError):
                raise self._post_mortem.death(k) from None
            if kind == "out":
                print(f"[rank {k}] {rest[0]}")
            else:
                (got if kind == wanted else failed)[k] = tuple(rest)
        for k in [ends[c] for c in heard if c in ends]:
            if not self._conns[k].poll():
                raise self._post_mortem.death(k)
        return bool(heard)

    def _watch(self, before: list[State] | None) -> list[State] | None:
        """Raise if the group stands still for good: somebody stuck, nobody on the way, seen twice and unchanged."""
        states = self._board.states()
        going = [s for s in states if not s.stuck and s.op != FINISHED]
        if going or not any(s.stuck for s in states):
            return None
        if before != states:
            return states
        raise self._post_mortem.standstill(states)

    def close(self) -> None:
        """End every worker, at once and for good. Safe to call twice."""
        self._end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _end(workers: list[Any], open_: list[Any]) -> None:
    for p in workers:
        if p.is_alive():
            with suppress(OSError):  # one that has only begun leads no group yet
                os.killpg(p.pid, signal.SIGKILL)
            p.kill()
    for p in workers:
        p.join(10)
    for one in open_:
        one.close()


def _name_the_culprit(parts: Mapping[str, Any], shared: bool) -> None:
    """Raise with the name of the part that cannot be sent to a worker."""
    for name, part in parts.items():
        try:
            pack(part, shared)
        except LaunchError as error:
            raise LaunchError(f"{name} {error}") from None
        except Exception as error:
            why = text_of(error) or type(error).__name__
            what = (
                f"{name} ({type(part).__name__}) cannot be sent to a worker process"
            )
            raise TypeError(f"{what}: {why}; make it inside the function") from None


def _context() -> Any:
    """Of the fork server, which runs."""
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["labkit.comm.preload"])
    # The same modules as here, wherever they lie.
    path = {"PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path)}
    with _starting, _for_now(os.environ, ENVIRONMENT | path):
        forkserver.ensure_running()
    return context


@contextmanager
def _for_now(
    where: MutableMapping[str, Any], these: Mapping[str, Any]
) -> Iterator[None]:
    """``where`` holds ``these`` inside the ``with``."""
    before = {name: where[name] for name in these if name in where}
    where.update(these)
    try:
        yield
    finally:
        where.update(before)
        for name in these.keys() - before.keys():
            where.pop(name, None)
