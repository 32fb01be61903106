"""A worker process: what runs on the other side of ``Pool``.

It joins the process group once, then runs one task after another until its launcher says stop, or is gone.
"""

from __future__ import annotations

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
from typing import Any

import cloudpickle

from labkit.comm import netns
from labkit.comm.board import Board
from labkit.comm.diagnose import FINISHED, RUNNING
from labkit.comm.errors import Mismatch


@dataclass(frozen=True)
class Place:
    """What one worker must know to take its place in the group.

    store: address and port of the group's key-value store; serves: whether this worker keeps it.
    host_pid: the process whose network this worker joins, and its user namespace if ``user``; 0 for none.
    """

    rank: int
    K: int
    store: tuple[str, int]
    serves: bool
    hosts: tuple[int, ...]
    host_pid: int
    user: bool
    backend: str
    device: str
    threads: int
    start_s: float
    env: dict[str, str]


def main(place: Place, conn: Any, alive: Any, dump: Any, raw: Any, memory: Any) -> None:
    """The life of a worker. conn: tasks and results; alive: closes when the launcher dies; dump: for stack traces;
    raw: the board; memory: the ranks' windows, None where they share no host."""
    if place.host_pid:
        netns.enter(place.host_pid, place.user)  # first: a process with threads may not
    _end_with_launcher(alive)
    faulthandler.enable(file=dump.fileno(), all_threads=False)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=dump.fileno(), all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "SCHED_BATCH"):
        # Without it gloo's busy threads stall one another a scheduler tick at a time when ranks share cores.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    conn = _Locked(conn)
    sys.stdout = sys.stderr = lines = _Lines(conn)
    try:
        _join(place)
        gc.freeze()  # torch's hundred thousand objects are here to stay: no need to look through them again and again
        board = Board(raw, place.K, place.rank)
        conn.send(("ready",))
    except BaseException as error:
        conn.send(("failed", *_report(error)))
        return
    while True:
        task = conn.recv_bytes()
        if not task:
            break
        outcome = _run(place, board, memory, task)
        lines.end()
        conn.send(outcome)


def _join(place: Place) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(place.env)
    torch.set_num_threads(place.threads)
    if place.device.startswith("cuda"):
        torch.cuda.set_device(place.device)
    from datetime import timedelta

    wait = timedelta(seconds=place.start_s)
    store = dist.TCPStore(*place.store, is_master=place.serves, wait_for_workers=False, timeout=wait)
    backend = "cpu:gloo,cuda:nccl" if place.backend == "nccl" else place.backend
    # The launcher keeps the deadline of a run; the group's own would only fire on innocent ranks first.
    dist.init_process_group(
        backend, store=store, rank=place.rank, world_size=place.K, timeout=timedelta(days=1)
    )


def _run(place: Place, board: Board, memory: Any, task: bytes) -> tuple:
    from labkit.comm.torch_comm import BareComm, TorchComm

    try:
        f, args, kwargs, law, seed, watch = pickle.loads(task)
    except BaseException as error:
        kind, message, _, ranks = _report(error)
        return "failed", kind, f"could not load the function or its arguments ({message})", [], ranks
    comm = (TorchComm if watch else BareComm)(place.rank, place.K, place.device, board, place.hosts)
    comm._follow(law, seed)
    if memory is not None:
        comm._share(memory)
    board.leave(RUNNING)
    board.ready(time.perf_counter_ns())
    while not (start := board.started()):
        time.sleep(0)
    comm._origin = start / 1e9
    try:
        value = f(comm, *args, **kwargs)
    except BaseException as error:
        return "failed", *_report(error)
    ended = comm.now()
    board.leave(FINISHED)
    try:
        result = _dumps(value)
    except Exception as error:
        message = f"returned something that cannot be sent back ({type(error).__name__}: {error})"
        return "failed", "unpicklable", message, [], ()
    return "done", result, comm_record(comm, ended)


def comm_record(comm: Any, ended_s: float) -> dict[str, Any]:
    """What the launcher needs of one worker's ``TorchComm`` to make a ``Run``; times relative to the common start."""
    return {
        "ended_s": ended_s,
        "origin": comm._origin,
        "spans": comm._spans,
        "log": comm._log,
        "arrivals": comm._arrivals,
        "bytes_sent": comm.bytes_sent,
        "messages_sent": comm.messages_sent,
    }


class _Pickler(cloudpickle.Pickler):
    """CUDA tensors come back as CPU tensors: the launcher need not touch the GPU."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ == "torch" and getattr(obj, "is_cuda", False):
            return obj.detach().cpu().__reduce_ex__(self.proto)
        return super().reducer_override(obj)


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.proto = pickle.HIGHEST_PROTOCOL
    pickler.dump(value)
    return buffer.getvalue()


def _report(error: BaseException) -> tuple[str, str, list[tuple[str, int, str]], tuple[int, ...]]:
    """Kind, sentence, frames from the algorithm on, and the ranks to blame if the error knows them."""
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, Mismatch):
        return "mismatch", error.message, frames[1:], error.ranks
    if isinstance(error, SystemExit):
        return "exit", f"called sys.exit({error.code!r}) before it returned a result", frames[1:], ()
    kind = "lost" if _is_lost_peer(error) else "raised"
    text = str(error).split("\nException raised from", 1)[0]
    return kind, f"raised {type(error).__name__}: {text}", frames[1:], ()


def _is_lost_peer(error: BaseException) -> bool:
    """Whether this is a symptom of another rank's end (as gloo words it) and so not this rank's fault."""
    text = str(error)
    return any(s in text for s in ("Connection closed by peer", "Connection reset by peer", "Broken pipe"))


class _Locked:
    """A connection that several threads may send on."""

    def __init__(self, conn: Any) -> None:
        self._conn, self._lock = conn, threading.Lock()
        self.recv_bytes = conn.recv_bytes

    def send(self, message: tuple) -> None:
        with self._lock:
            self._conn.send(message)


class _Lines(io.TextIOBase):
    """Standard output, sent to the launcher a line at a time, which prints it with the rank in front."""

    def __init__(self, conn: _Locked) -> None:
        self._conn, self._rest = conn, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._conn.send(("out", line))
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
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # so that the launcher can end this worker's own children with it
    if sys.platform == "linux":
        netns.die_with_parent()  # the fork server, which goes when its launcher does
