"""A pool of worker processes that stand ready, and the watch over them.

Workers are forked by torch.multiprocessing's fork server, a fresh interpreter that has imported torch but started no
thread (forking a process whose OpenMP or CUDA is running hangs). Functions travel by value (cloudpickle), so that one
defined in a notebook cell can run there. Whatever happens to the launcher or to a worker, none is left behind: the
launcher kills them, and each ends by itself when the launcher is gone.
"""

from __future__ import annotations

import atexit
import linecache
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

import cloudpickle

from labkit.comm.board import Board, words
from labkit.comm.diagnose import FINISHED, MEETING, RECEIVING, RUNNING, SENDING, blame, standstill
from labkit.comm.errors import Deadlock, LaunchError, Mismatch, RankDied, RankError, RankTimeout, ranks_phrase
from labkit.comm.worker import Place, main

START_S = 120.0  # to start workers, the import of torch on a cold disk included
_PRELOAD = ["torch", "torch.distributed", "torch._dynamo", "labkit.comm.worker", "labkit.comm.torch_comm"]
_starting = threading.Lock()
_open: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """K worker processes, joined in a torch.distributed group.

    backend, devices: as ``Processes`` chose them, one device per rank; threads: torch's, per worker.
    Raises LaunchError if the workers can't be started. Use as a context manager, or ``close()``.
    """

    def __init__(self, K: int, backend: str, devices: list[str], threads: int) -> None:
        import torch.distributed as dist

        self.K, self.closed = K, False
        self.backend, self.devices = backend, tuple(devices)
        self._workers: list[Any] = []
        self._conns: list[Any] = []
        self._dumps: list[Any] = []
        context = _context()
        self._raw = context.RawArray("q", words(K))
        self._board = Board(self._raw, K)
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        alive, self._alive = context.Pipe(duplex=False)
        env = {k: v for k, v in os.environ.items() if k.startswith(("CUDA", "NCCL", "GLOO", "TORCH", "PYTORCH"))}
        env.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        _open.add(self)
        try:
            with _starting, _no_main_module():
                for k in range(K):
                    here, there = context.Pipe()
                    dump, dumped = context.Pipe(duplex=False)
                    place = Place(k, K, self._store.port, backend, devices[k], threads, START_S, env)
                    p = context.Process(
                        target=main, args=(place, there, alive, dumped, self._raw), name=f"labkit rank {k}"
                    )
                    self._conns.append(here)
                    self._dumps.append(dump)
                    p.start()
                    self._workers.append(p)
                    there.close()
                    dumped.close()
            alive.close()
            self._collect("ready", START_S)
        except BaseException:
            self.close()
            raise

    # -- running ----------------------------------------------------------------------------------------------

    def run(
        self, f: Callable[..., Any], args: tuple, kwargs: dict, law: Any, seed: int, timeout_s: float
    ) -> list[tuple[bytes, dict]]:
        """Run ``f`` on every worker; per rank its pickled result and its record. A failure closes the pool."""
        if self.closed:
            raise LaunchError("this pool is closed (a worker failed or close() was called); make a new one")
        task = _pack(f, args, kwargs, law, seed)
        try:
            self._board.clear()
            for k, conn in enumerate(self._conns):
                try:
                    conn.send_bytes(task)
                except OSError:
                    raise self._death(k) from None
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
                raise self._failure(failed)
            if now >= deadline:
                raise self._late(missing, timeout_s) if wanted == "done" else self._no_start(missing, timeout_s)
            ends = {self._workers[k].sentinel: k for k in missing}
            conns = {self._conns[k]: k for k in missing if k not in failed}
            heard = wait([*conns, *ends], timeout=min(0.05, deadline - now, max(0.0, decide_at - now)))
            for c in heard:
                if c in conns:
                    k = conns[c]
                    try:
                        kind, *rest = c.recv()
                    except (EOFError, OSError):
                        raise self._death(k) from None
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
                    raise self._death(ends[c])
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
        found = self._board.mismatch()
        if found is not None:
            raise Mismatch(found[1], found[0])
        ranks, sentence = blame(states)
        raise Deadlock(sentence, ranks, self._where([k for k, s in enumerate(states) if s.stuck], "waits at"))

    # -- saying what went wrong -------------------------------------------------------------------------------

    def _failure(self, failed: dict[int, tuple]) -> RankError:
        order = ["mismatch", "raised", "unpicklable", "exit", "lost"]
        k = min(failed, key=lambda k: (order.index(failed[k][0]), k))
        kind, message, frames, ranks = failed[k]
        found = self._board.mismatch()
        if kind == "mismatch":
            return Mismatch(found[1], found[0]) if found else Mismatch(message, ranks)
        if found is not None and kind in ("raised", "lost"):
            return Mismatch(found[1], found[0])
        together = sorted(j for j in failed if failed[j][:2] == (kind, message))
        who = ranks_phrase(together)
        return RankError(f"{who} {message}", tuple(together), _trace(frames, message))

    def _death(self, k: int) -> RankError:
        self._workers[k].join(5)
        code = self._workers[k].exitcode
        found = self._board.mismatch()
        if found is not None:
            return Mismatch(found[1], found[0])
        trace = "".join(self._dump_of(k)) if code not in (0, -signal.SIGKILL) else ""
        if code is not None and code < 0:
            hint = "; the system may have run out of memory" if code == -signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name} before it returned a result{hint}"
        elif code == 0:
            how = "exited with status 0 before it returned a result (os._exit?)"
        else:
            how = f"exited with status {code} before it returned a result"
        return RankDied(f"rank {k} {how}", (k,), trace)

    def _late(self, missing: set[int], timeout_s: float) -> RankError:
        found = self._board.mismatch()
        if found is not None:
            return Mismatch(found[1], found[0])
        states = self._board.states()
        busy = sorted(k for k in missing if not states[k].stuck and states[k].op == RUNNING)
        if any(s.stuck for s in states):
            ranks, sentence = blame(states)
            busy = [k for k in ranks if states[k].op == RUNNING]
            if not busy:
                return RankTimeout(f"{sentence} (deadline of {timeout_s:g} s)", ranks, self._where(ranks, "waits at"))
        returned = sorted(set(range(self.K)) - missing)
        if returned and busy:
            return RankTimeout(
                f"{ranks_phrase(busy)} had not returned at the deadline of {timeout_s:g} s, but {ranks_phrase(returned)} "
                f"had: still computing, or in a collective that {ranks_phrase(returned)} left out (see the lines below)",
                tuple(busy),
                self._where(busy, "is at"),
            )
        who = tuple(busy or sorted(missing))
        was = "was" if len(who) == 1 else "were"
        return RankTimeout(
            f"{ranks_phrase(who)} {was} still running at the deadline of {timeout_s:g} s", who, self._where(who, "is at")
        )

    def _no_start(self, missing: set[int], timeout_s: float) -> LaunchError:
        return LaunchError(f"{ranks_phrase(sorted(missing))} did not start within {timeout_s:g} s")

    def _where(self, ranks: Any, verb: str) -> str:
        """The stacks of ranks that are alive, fetched with a signal."""
        parts = []
        for k in ranks:
            pid = self._workers[k].pid
            if pid is None or not hasattr(signal, "SIGUSR1"):
                continue
            try:
                os.kill(pid, signal.SIGUSR1)
            except OSError:
                continue
            parts.append(f"rank {k} {verb}\n{''.join(self._dump_of(k))}")
        return "\n".join(parts)

    def _dump_of(self, k: int) -> list[str]:
        frames = []
        text = ""
        while self._dumps[k].poll(0.3):
            chunk = os.read(self._dumps[k].fileno(), 65536)
            if not chunk:
                break
            text += chunk.decode(errors="replace")
        for line in text.splitlines():
            # '  File "x.py", line 3 in f', the innermost first
            if line.startswith('  File "') and ", line " in line:
                file, _, rest = line[8:].rpartition('", line ')
                number, _, name = rest.partition(" in ")
                frames.append((file, int(number) if number.isdigit() else 0, name))
        frames = frames[::-1]
        own = next((i for i, f in enumerate(frames) if f[0].endswith("worker.py") and f[2] == "_run"), -1)
        return _lines(frames[own + 1 :])

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
        for conn in [*self._conns, *self._dumps, self._alive]:
            conn.close()
        self._store = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for pool in list(_open):
        pool.close()


def _pack(f: Any, args: tuple, kwargs: dict, law: Any, seed: int) -> bytes:
    try:
        return cloudpickle.dumps((f, args, kwargs, law, seed))
    except Exception:
        parts = {"f": f, **{f"argument {i}": a for i, a in enumerate(args)}, **kwargs, "law": law}
        for name, part in parts.items():
            try:
                cloudpickle.dumps(part)
            except Exception as error:
                raise TypeError(
                    f"{name} ({type(part).__name__}) cannot be sent to a worker process: {error}; "
                    f"make it inside the function instead"
                ) from None
        raise


def _trace(frames: list[tuple[str, int, str]], message: str) -> str:
    return "Traceback in the worker (most recent call last):\n" + "".join(_lines(frames)) + message if frames else ""


def _lines(frames: list[tuple[str, int, str]]) -> list[str]:
    """Frames with their source lines, which this process can look up even for notebook cells."""
    linecache.checkcache()
    return traceback.format_list([traceback.FrameSummary(f, n, name, lookup_line=True) for f, n, name in frames])


def _context() -> Any:
    import torch.multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return torch.multiprocessing.get_context("spawn")
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    with _starting, _one_thread():
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
def _no_main_module() -> Iterator[None]:
    """Keep workers from importing the caller's script again: functions travel by value, and a script without
    ``if __name__ == "__main__"`` would launch itself without end."""
    real = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
