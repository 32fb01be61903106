"""A worker process: what runs on the other side of ``Pool``, and how a function and its arguments travel there.

It joins the process group once, then runs one task after another until its launcher ends it, or is gone. All goes by value,
functions too (cloudpickle), so that one defined in a notebook cell can run there; but a torch tensor that lies in shared
memory (``share_memory_()``) arrives as the same memory, in torch.multiprocessing's own way.
"""

import faulthandler
import gc
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import cloudpickle

from labkit.comm import netns
from labkit.comm.board import Board
from labkit.comm.errors import LaunchError, Mismatch, described, text_of
from labkit.comm.run import FINISHED, RUNNING

Frame = tuple[str, int, str]  # file, line, function
START_S = 120.0  # to start workers, the import of torch on a cold disk included
#: Another rank's end, as gloo words it.
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@dataclass(frozen=True)
class Worker:
    """One worker: what it must know to take its place in the group, and its life.

    store: the file in which the workers find one another: a TCPStore would ask the DNS for names of its peers. way: to the
    emulated host this worker lives on (``Network.enter``); () for this host.
    """

    rank: int
    K: int
    store: str
    hosts: tuple[int, ...]
    way: tuple[str, ...]
    backend: str
    device: str
    threads: int
    env: dict[str, str]

    def live(self, conn: Any, alive: Any, dump: Any, raw: Any, heap: Any) -> None:
        """conn: tasks and results; alive: closes when the launcher dies; dump: for stack traces; raw: the board;
        heap: None where the ranks share no host."""
        netns.Network.enter(self.way)  # first: a process with threads may not
        _end_with_launcher(alive)
        faulthandler.enable(file=dump.fileno(), all_threads=False)
        faulthandler.register(signal.SIGUSR1, file=dump.fileno(), all_threads=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "SCHED_BATCH"):
            # Without it gloo's busy threads stall one another a scheduler tick at a time when ranks share cores.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        sys.stdout = sys.stderr = out = _Out(conn)
        try:
            self._join()
            gc.freeze()  # torch's hundred thousand objects stay: no need to look through them again and again
            board = Board(raw, self.K, self.rank)
            out.send(("ready",))
        except BaseException as error:
            out.send(("failed", *_report(error)))
            return
        while True:
            task = conn.recv_bytes()
            outcome = self._run(board, heap, task)
            out.end()
            out.send(outcome)

    def _join(self) -> None:
        import torch
        import torch.distributed as dist

        from labkit.comm.torch_comm import TorchComm

        os.environ.update(self.env)
        torch.set_num_threads(self.threads)
        store = dist.FileStore(self.store)
        store.set_timeout(timedelta(seconds=START_S))
        # The launcher keeps the deadline of a run; the group's own would only fire on innocent ranks first.
        group = {"store": store, "rank": self.rank, "world_size": self.K}
        TorchComm.join(self.backend, self.device, **group, timeout=timedelta(days=1))

    def _run(self, board: Board, heap: Any, task: bytes) -> tuple:
        """The outcome of one task, as it is sent to the launcher."""
        from labkit.comm.torch_comm import TorchComm

        try:
            f, args, kwargs, law, seed = pickle.loads(task)
        except BaseException as error:
            _, why, *_ = _report(error)
            message = f"could not load the function or its arguments ({why})"
            return "failed", "raised", message, [], ()
        comm = TorchComm(self.rank, self.K, self.device, board, self.hosts)
        comm._follow(law, seed)
        if heap is not None:
            comm._share(heap)
        board.leave(RUNNING)
        board.ready(time.perf_counter_ns())
        while not (
            start := board.started()
        ):  # the clock begins when the last is ready
            time.sleep(0)
        comm._origin = start / 1e9
        try:
            value = f(comm, *args, **kwargs)
        except BaseException as error:
            return "failed", *_report(error)
        ended = comm.now()
        board.leave(FINISHED)
        try:
            return "done", pack(value), comm._record(ended)
        except Exception as error:
            message = (
                f"returned something that cannot be sent back ({described(error)})"
            )
            return "failed", "unpicklable", message, [], ()


def _report(error: BaseException) -> tuple[str, str, list[Frame], tuple[int, ...]]:
    """Kind, sentence, frames from the algorithm on, and the ranks to blame if the error knows them."""
    _, *stack = traceback.extract_tb(error.__traceback__)
    own = [(f.filename, f.lineno or 0, f.name) for f in stack]
    if isinstance(error, Mismatch):
        return "mismatch", error.message, own, error.ranks
    if isinstance(error, SystemExit):
        # Anything may be a status.
        status = text_of(error.code) or type(error.code).__name__
        return (
            "exit",
            f"called sys.exit({status}) before it returned a result",
            own,
            (),
        )
    # Another rank's end shows itself so, which is not this rank's fault.
    lost = any(symptom in text_of(error) for symptom in LOST_PEER)
    # Without torch's own stack, in C++.
    said, _, _ = f"raised {described(error)}".partition("\nException raised from")
    return "lost" if lost else "raised", said, own, ()


class _Out(io.TextIOBase):
    """The way to the launcher: messages of any thread, and standard output, which goes there a line at a time."""

    def __init__(self, conn: Any) -> None:
        self._conn, self._lock, self._rest = conn, threading.Lock(), ""

    def send(self, message: tuple) -> None:
        with self._lock:
            self._conn.send(message)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self.send(("out", line))
        return len(text)

    def end(self) -> None:
        """Send what is left of a last line without its end."""
        if self._rest:
            self.write("\n")


def _end_with_launcher(alive: Any) -> None:
    """See to it that this process does not outlive its launcher, however that one ends."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            alive.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="labkit watch").start()
    # So that the launcher can end this worker's own children with it.
    os.setpgid(0, 0)
    if sys.platform == "linux":
        netns.die_with_parent()  # the fork server, which goes when its launcher does


def pack(value: Any, shared: bool | None = None) -> bytes:
    """The bytes of ``value``, to be unpacked once. LaunchError for a tensor in shared memory out of reach from there.

    shared: of what goes to a worker, whether it can share this process's memory. None: it goes back to the launcher, which
    need not touch a GPU: tensors there come as the CPU's.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, shared).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    """By value, except what has a way of its own."""

    def __init__(self, buffer: io.BytesIO, shared: bool | None) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def reducer_override(self, obj: Any) -> Any:
        own = (
            _on_the_cpu(obj)
            if self._shared is None
            else _by_handle(obj, self._shared)
        )
        return super().reducer_override(obj) if own is NotImplemented else own


def _on_the_cpu(obj: Any) -> Any:
    import torch

    if not isinstance(obj, torch.Tensor) or obj.is_cpu:
        return NotImplemented
    return obj.detach().cpu().__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _by_handle(obj: Any, reachable: bool) -> Any:
    """How to open ``obj``, the storage of a tensor in shared memory, in another process; NotImplemented for all else."""
    if type(obj).__module__ != "torch.storage":
        return NotImplemented
    untyped = getattr(obj, "_untyped_storage", obj)
    if (
        untyped.device.type != "cpu"
        or not untyped.is_shared()
        or not untyped.nbytes()
    ):
        return NotImplemented
    if not reachable:
        cure = "pass a copy of it (w.clone())"
        raise LaunchError(
            f"lies in shared memory, and hosts of their own share none; {cure}"
        )
    from torch.multiprocessing import reductions

    # A typed storage is its untyped one, which comes here next, and a dtype.
    return (
        reductions.reduce_storage(obj)
        if untyped is obj
        else reductions.reduce_typed_storage(obj)
    )
