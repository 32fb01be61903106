"""A worker that is a real process: ``Comm`` over torch.distributed.

Messages go through gloo's own ``send`` and ``recv``, straight from and into the caller's buffers; what lies on a GPU is
staged through host memory. Also where the group's collectives are nccl's: there a pair's messages run in the order in which
each of the two issued them, so two workers that both receive first would wait for good; and nccl has no ``recv_any``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit import machine
from labkit.comm.base import Comm, Described, deliver, describe
from labkit.comm.board import Board
from labkit.comm.errors import Mismatch
from labkit.comm.run import MEETING, RECEIVING, SENDING, Record
from labkit.comm.windows import Heap, Windows
from labkit.timing.timeline import Kind

COMPUTE, WAIT = int(Kind.COMPUTE), int(Kind.WAIT)
_clock = time.perf_counter


class _Message:
    """A message under way: a request. ``tensor`` is what torch moves; ``into`` is the receiver's own buffer."""

    __slots__ = ("agreed", "comm", "copied", "into", "op", "peer", "posted", "seq", "size", "tensor", "work")

    def __init__(self, comm: TorchComm, op: int, peer: int, size: Described, data: Any) -> None:
        self.comm, self.op, self.peer, self.size = comm, op, peer, size
        self.into = data if op == RECEIVING else None
        self.tensor, self.copied = _movable(data)
        self.posted = _clock()
        self.seq, other = comm._board.post(op, peer, size)
        self.agreed = other is not None and self._agree(other)
        self.work = (comm._post_send if op == SENDING else comm._post_recv)([self.tensor], peer, 0)

    def _agree(self, other: Described) -> bool:
        if other[:2] != self.size[:2]:
            source, to, sent, wanted = self.comm.rank, self.peer, self.size, other
            if self.op == RECEIVING:
                source, to, sent, wanted = to, source, wanted, sent
            raise Mismatch.of_message(source, to, sent, wanted)
        return True

    def wait(self) -> Any:
        if self.work is not None:
            comm, begun = self.comm, _clock()
            comm._board.enter(self.op, self.peer, self.seq)
            self.work.wait()
            comm._board.leave()
            if not self.agreed and (other := comm._board.other_end(self.op, self.peer, self.seq)) is not None:
                self._agree(other)
            if self.copied and self.op == RECEIVING:
                deliver(self.tensor, self.into)
            comm._log.append((self.op, self.peer, self.posted, begun, _clock(), comm.step))
            self.tensor = self.work = None
        return self.into


class TorchComm(Comm):
    """A worker process's end of the group. ``group`` is the torch process group, for torch.distributed's own calls.

    messages: the group that carries messages, in which gloo moves tensors on the CPU; None: ``group`` does.
    """

    def __init__(
        self,
        rank: int,
        K: int,
        device: str,
        board: Board,
        hosts: tuple[int, ...] | None = None,
        messages: Any = None,
    ) -> None:
        super().__init__(rank, K, device, hosts)
        self.group = dist.distributed_c10d._get_default_group()
        self._messages = self.group if messages is None else messages
        self._post_send, self._post_recv = self._messages.send, self._messages.recv
        self._board = board
        self._origin = _clock()
        self._point = 0
        self._log: list[tuple[int, int, float, float, float, int]] = []

    def now(self) -> float:
        return _clock() - self._origin

    def isend(self, data: Any, to: int) -> _Message:
        size = describe(data, "data")
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        return _Message(self, SENDING, self._peer(to, "to"), size, data)

    def irecv(self, into: Any, source: int) -> _Message:
        return _Message(self, RECEIVING, self._peer(source, "source"), describe(into, "into"), into)

    def _recv_any(self, into: Any, size: Described) -> int:
        posted = _clock()
        if (wrong := self._board.enter_any(size)) is not None:
            raise wrong
        source = self._from_anyone(into)
        self._board.leave_any(source, size)
        self._log.append((RECEIVING, source, posted, posted, _clock(), self.step))
        return source

    def _from_anyone(self, into: Any) -> int:
        tensor, copied = _movable(into)
        work = self._messages.recv_anysource([tensor], 0)
        work.wait()
        if copied:
            deliver(tensor, into)
        return work._source_rank()

    def barrier(self) -> None:
        with self.collective("barrier"):
            begun = _clock()
            self._barrier()
            self._spans.append((self.step, WAIT, begun - self._origin, self.now()))

    def _share(self, memory: Any, heap: Heap) -> None:
        """Use ``memory`` (``Windows.words(K)`` int64) and ``heap`` together with the other ranks of this host."""
        self._windows = Windows(
            memory, self.K, self.rank, self._barrier, heap, self.collective, self._long_wait
        )

    def _long_wait(self, on: bool) -> None:
        """Tell the launcher that this rank begins, or ends, to wait for all others."""
        self._board.enter(MEETING) if on else self._board.leave()

    def _barrier(self) -> None:
        self._board.enter(MEETING)
        self._messages.allreduce([torch.zeros(1)]).wait()
        self._board.leave()

    def _meet(self, name: str, size: Described | None) -> None:
        self._point += 1
        if not self._board.arrive(self._point, name, size):
            time.sleep(0.2)  # for the others to show what they bring: the majority decides who is wrong
            if (wrong := self._board.mismatch()) is not None:
                raise wrong

    def _part(self) -> None:
        self._board.depart()

    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any:
        begun = _clock()
        value = fn() if fn is not None else None
        if self.device != "cpu" and fn is not None:
            machine.gpu_module().synchronize(self.device)
        if seconds is not None:
            left = begun + seconds - _clock()
            if left > 0:
                time.sleep(left)
        self._spans.append((self.step, COMPUTE, begun - self._origin, self.now()))
        return value

    def _record(self, ended_s: float) -> Record:
        origin = self._origin
        messages = [
            (op, peer, posted - origin, begun - origin, ended - origin, step)
            for op, peer, posted, begun, ended, step in self._log
        ]
        return super()._record(ended_s)._replace(messages=messages)


def _movable(data: Any) -> tuple[torch.Tensor, bool]:
    """``data`` as a tensor that gloo can move, contiguous and on the CPU, and whether it had to be copied for that."""
    if isinstance(data, np.ndarray):
        if data.flags.c_contiguous and data.flags.writeable:
            return torch.from_numpy(data), False
        return torch.from_numpy(data.copy()), True
    tensor = data.detach() if data.requires_grad else data
    moved = tensor.cpu().contiguous()
    return moved, moved is not tensor
