"""A worker process: what runs on the other side of ``Pool``, or what ``torchrun`` has started.

The pool's joins the process group once, then runs one task after another until its launcher says stop, or is gone. Under
``torchrun`` (or any launcher that sets RANK and WORLD_SIZE) every rank runs the same script, so this process *is* one of
the workers: every rank calls ``launch``, and gets the whole ``Run``.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from labkit import machine
from labkit.comm import netns
from labkit.comm.board import Board
from labkit.comm.errors import Mismatch, described, text_of
from labkit.comm.packing import pack_result
from labkit.comm.run import FINISHED, RUNNING, Record
from labkit.timing.laws import Fleet

START_S = 120.0  # to start workers, the import of torch on a cold disk included


@dataclass(frozen=True)
class Place:
    """What one worker must know to take its place in the group.

    store: address and port of the group's key-value store; serves: whether this worker keeps it.
    way: to the emulated host this worker lives on (``netns.enter``); () for this host.
    """

    rank: int
    K: int
    store: tuple[str, int]
    serves: bool
    hosts: tuple[int, ...]
    way: tuple[str, ...]
    backend: str
    device: str
    threads: int
    env: dict[str, str]


def work(place: Place, conn: Any, alive: Any, dump: Any, raw: Any, memory: Any) -> None:
    """The life of a worker. conn: tasks and results; alive: closes when the launcher dies; dump: for stack traces;
    raw: the board; memory: the ranks' windows and their heap, None where they share no host."""
    netns.enter(place.way)  # first: a process with threads may not
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
    if place.device != "cpu":
        machine.gpu_module().set_device(place.device)
    wait = timedelta(seconds=START_S)
    store = dist.TCPStore(*place.store, is_master=place.serves, wait_for_workers=False, timeout=wait)
    # The launcher keeps the deadline of a run; the group's own would only fire on innocent ranks first.
    group = {"store": store, "rank": place.rank, "world_size": place.K, "timeout": timedelta(days=1)}
    dist.init_process_group(_both(place.backend), **group)


def _both(backend: str) -> str:
    """The backend for tensors on the CPU and on the GPU, as torch spells it."""
    return backend if backend == "gloo" else f"cpu:gloo,{machine.ACCELERATOR}:{backend}"


def _run(place: Place, board: Board, memory: Any, task: bytes) -> tuple:
    from labkit.comm.torch_comm import TorchComm

    try:
        f, args, kwargs, law, seed = pickle.loads(task)
    except BaseException as error:
        kind, message, _, ranks = _report(error)
        return "failed", kind, f"could not load the function or its arguments ({message})", [], ranks
    comm = TorchComm(place.rank, place.K, place.device, board, place.hosts)
    comm._follow(law, seed)
    if memory is not None:
        comm._share(*memory)
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
        result = pack_result(value)
    except Exception as error:
        message = f"returned something that cannot be sent back ({described(error)})"
        return "failed", "unpicklable", message, [], ()
    return "done", result, comm._record(ended)


def run_here(
    f: Callable[..., Any],
    K: int,
    args: tuple,
    kwargs: dict,
    law: Fleet | None,
    seed: int,
    backend: str,
    devices: list[str],
) -> tuple[list[Any], list[Record], tuple[str, ...]]:
    """Run ``f`` as this rank of the group that torchrun started (joined here if need be).

    devices: one per rank of this machine. Returns every rank's result, record and device. An exception of ``f`` is raised
    as it is: the launcher that started this process decides what becomes of the others.
    """
    import torch
    import torch.distributed as dist

    from labkit.comm.torch_comm import TorchComm

    rank = int(os.environ["RANK"])
    device = devices[int(os.environ.get("LOCAL_RANK", rank))]
    if device != "cpu":
        machine.gpu_module().set_device(device)
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group(_both(backend))
    group = messages = dist.distributed_c10d._get_default_group()
    if torch.device("cpu") not in group._device_types:  # somebody's own group, of nccl alone
        messages = dist.new_group(backend="gloo")
    try:
        comm = TorchComm(rank, K, device, Board(None, K, rank), messages=messages)
        comm._follow(law, seed)
        comm._barrier()
        comm._origin = time.perf_counter()
        value = f(comm, *args, **kwargs)
        everyone: list[Any] = [None] * K
        dist.all_gather_object(everyone, (value, comm._record(comm.now()), device), group=messages)
    finally:
        if messages is not group:
            dist.destroy_process_group(messages)
        if joined:
            dist.destroy_process_group()
    results, records, used = zip(*everyone, strict=True)
    return list(results), list(records), used


def _report(error: BaseException) -> tuple[str, str, list[tuple[str, int, str]], tuple[int, ...]]:
    """Kind, sentence, frames from the algorithm on, and the ranks to blame if the error knows them."""
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, Mismatch):
        return "mismatch", error.message, frames[1:], error.ranks
    if isinstance(error, SystemExit):
        return "exit", f"called sys.exit({_code(error)}) before it returned a result", frames[1:], ()
    kind = "lost" if _is_lost_peer(error) else "raised"
    return kind, f"raised {described(error)}".split("\nException raised from", 1)[0], frames[1:], ()


def _code(error: SystemExit) -> str:
    try:
        return repr(error.code)
    except BaseException:  # anything may be a status
        return type(error.code).__name__


def _is_lost_peer(error: BaseException) -> bool:
    """Whether this is a symptom of another rank's end (as gloo words it) and so not this rank's fault."""
    text = text_of(error)
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
