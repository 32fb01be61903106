"""A worker that is a real process: ``Comm`` over torch.distributed.

Messages go through the process group's own ``send`` and ``recv`` (gloo or nccl), straight from and into the caller's
buffers. gloo has no point-to-point messages for CUDA tensors: those are staged through host memory, and nothing else is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit.comm.base import Comm, Described, describe
from labkit.comm.board import Board
from labkit.comm.diagnose import MEETING, RECEIVING, SENDING
from labkit.comm.errors import Mismatch
from labkit.timing.timeline import Kind

COMPUTE, WAIT = int(Kind.COMPUTE), int(Kind.WAIT)
_clock = time.perf_counter


class _Message:
    """A message under way: a request. ``tensor`` is what torch moves; ``into`` is the receiver's own buffer."""

    __slots__ = ("comm", "done", "into", "op", "peer", "posted", "seq", "size", "tensor", "work")

    def __init__(self, comm: TorchComm, op: int, peer: int, size: Described, tensor: Any, into: Any) -> None:
        self.comm, self.op, self.peer, self.size, self.tensor, self.into = comm, op, peer, size, tensor, into
        self.done = False
        self.posted = _clock()
        self.seq = comm._board.post(op, peer, size)
        self._agree()
        group = comm._group
        self.work = (group.send if op == SENDING else group.recv)([tensor], peer, 0)

    def _agree(self) -> None:
        other = self.comm._board.other_end(self.op, self.peer, self.seq)
        if other is not None and other[:2] != self.size[:2]:
            a, b, sent, wanted = self.comm.rank, self.peer, self.size, other
            if self.op == RECEIVING:
                a, b, sent, wanted = b, a, wanted, sent
            raise Mismatch(f"rank {a} sends {sent} to rank {b}, which expects {wanted}", (a, b))

    def wait(self) -> Any:
        if not self.done:
            comm, begun = self.comm, _clock()
            comm._board.enter(self.op, self.peer, self.seq)
            self.work.wait()
            comm._board.leave()
            self._agree()
            if self.op == RECEIVING:
                _deliver(self.tensor, self.into)
            self.done = True
            comm._log.append((self.op, self.peer, self.posted, begun, _clock(), comm.step))
            self.tensor = self.work = None
        return self.into


class TorchComm(Comm):
    """A worker process's end of the group. ``group`` is the torch process group, for torch.distributed's own calls."""

    def __init__(self, rank: int, K: int, device: str, board: Board) -> None:
        super().__init__(rank, K, device)
        self.group = dist.group.WORLD
        self._group = dist.distributed_c10d._get_default_group()
        self._stage = dist.get_backend() == "gloo"
        self._board = board
        self._origin = _clock()
        self._point = 0
        self._log: list[tuple[int, int, float, float, float, int]] = []

    def now(self) -> float:
        return _clock() - self._origin

    def isend(self, data: Any, to: int) -> _Message:
        size, to = describe(data, "data"), self._peer(to, "to")
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        return _Message(self, SENDING, to, size, self._tensor(data), None)

    def irecv(self, into: Any, source: int) -> _Message:
        size, source = describe(into, "into"), self._peer(source, "source")
        return _Message(self, RECEIVING, source, size, self._tensor(into), into)

    def _tensor(self, data: Any) -> torch.Tensor:
        """``data`` as a tensor that the backend can move: the same memory wherever that is possible."""
        if isinstance(data, np.ndarray):
            if not (data.flags.c_contiguous and data.flags.writeable):
                data = data.copy()
            return torch.from_numpy(data)
        data = data.detach()
        return (data.cpu() if self._stage else data).contiguous()

    def barrier(self) -> None:
        with self.collective("barrier"):
            begun = _clock()
            self._board.enter(MEETING)
            self._group.allreduce([torch.zeros(1)]).wait()
            self._board.leave()
            self._spans.append((self.step, WAIT, begun - self._origin, self.now()))

    @contextmanager
    def collective(self, name: str, x: Any = None) -> Iterator[None]:
        outermost = self._inside is None
        with super().collective(name, x):
            yield
        if outermost:
            self._board.depart()

    def _meet(self, name: str, size: Described | None) -> None:
        self._point += 1
        if not self._board.arrive(self._point, name if size is None else f"{name} of {size}"):
            self._dispute()

    def _dispute(self) -> None:
        """Give the others a moment to show what they bring, so that the majority decides who is wrong."""
        time.sleep(0.2)
        found = self._board.mismatch()
        if found is not None:
            raise Mismatch(found[1], found[0])

    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any:
        begun = _clock()
        value = fn() if fn is not None else None
        if self.device != "cpu" and fn is not None:
            torch.cuda.synchronize(self.device)
        if seconds is not None:
            left = begun + seconds - _clock()
            if left > 0:
                time.sleep(left)
        self._spans.append((self.step, COMPUTE, begun - self._origin, self.now()))
        return value


def _deliver(tensor: torch.Tensor, into: Any) -> None:
    """Bring what arrived in ``tensor`` to the receiver's buffer, unless it is the same memory already."""
    if isinstance(into, np.ndarray):
        if tensor.data_ptr() != into.ctypes.data:
            into[...] = tensor.numpy()
    elif tensor.data_ptr() != into.data_ptr():
        into.copy_(tensor)
    elif into.is_cuda:
        torch.cuda.current_stream(into.device).synchronize()
