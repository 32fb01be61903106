"""A worker that is a real process: ``Comm`` over torch.distributed.

Messages go through the process group's own ``send`` and ``recv`` (gloo or nccl), straight from and into the caller's
buffers. gloo has no point-to-point messages for CUDA tensors: those are staged through host memory, and nothing else is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit.comm.base import NOTHING, Comm, Described, deliver, describe
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
        self.tensor, self.copied = _movable(data, comm._stage)
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
            if comm.device != "cpu":
                torch.cuda.current_stream().synchronize()
            comm._log.append((self.op, self.peer, self.posted, begun, _clock(), comm.step))
            self.tensor = self.work = None
        return self.into


class TorchComm(Comm):
    """A worker process's end of the group. ``group`` is the torch process group, for torch.distributed's own calls."""

    def __init__(
        self, rank: int, K: int, device: str, board: Board, hosts: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(rank, K, device, hosts)
        self.group = dist.distributed_c10d._get_default_group()
        self._post_send, self._post_recv = self.group.send, self.group.recv
        self._stage = dist.get_backend() == "gloo"
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

    def recv_any(self, into: Any) -> int:
        if not self._stage and getattr(into, "is_cuda", False):
            raise ValueError(
                "recv_any cannot receive CUDA tensors over nccl; receive into a tensor on the CPU"
            )
        return super().recv_any(into)

    def _recv_any(self, into: Any, size: Described) -> int:
        posted = _clock()
        if (wrong := self._board.enter_any(size)) is not None:
            raise wrong
        source = self._from_anyone(into)
        self._board.leave_any(source, size)
        self._log.append((RECEIVING, source, posted, posted, _clock(), self.step))
        return source

    def _from_anyone(self, into: Any) -> int:
        tensor, copied = _movable(into, self._stage)
        work = self.group.recv_anysource([tensor], 0)
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
        self.group.allreduce([torch.zeros(1)]).wait()
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
            torch.cuda.synchronize(self.device)
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


class BareComm(TorchComm):
    """A worker that nobody watches: no timeline of messages, no check that both ends agree, no blackboard.

    Python after a change of process runs with cold caches, so for a message of a few kilobytes the watch costs as much
    as gloo does. For timing such messages; a mistake here may hang until the deadline, or end in a crash of gloo's.
    """

    def isend(self, data: Any, to: int) -> Any:
        tensor = data if _plain(data) else _movable(data, self._stage)[0]
        self.bytes_sent += tensor.nbytes
        self.messages_sent += 1
        return self._post_send([tensor], to, 0)

    def irecv(self, into: Any, source: int) -> Any:
        if _plain(into):
            return _Arriving(self._post_recv([into], source, 0), into, None)
        moved = _movable(into, self._stage)
        return _Arriving(self._post_recv([moved[0]], source, 0), into, moved)

    def _recv_any(self, into: Any, size: Described) -> int:
        return self._from_anyone(into)

    def collective(self, name: str, x: Any = None) -> AbstractContextManager[None]:
        return NOTHING

    def barrier(self) -> None:
        self._barrier()


class _Arriving:
    """A receive under way. moved: what torch moves in place of ``into`` and whether it is a copy; None: ``into`` itself."""

    __slots__ = ("into", "moved", "work")

    def __init__(self, work: Any, into: Any, moved: tuple[torch.Tensor, bool] | None) -> None:
        self.work, self.into, self.moved = work, into, moved

    def wait(self) -> Any:
        if self.work is not None:
            self.work.wait()
            self.work = None
            if self.moved is not None:
                tensor, copied = self.moved
                if copied:
                    deliver(tensor, self.into)
                if getattr(self.into, "is_cuda", False):
                    torch.cuda.current_stream().synchronize()
        return self.into


def _plain(data: Any) -> bool:
    """Whether torch can move ``data`` as it is."""
    return type(data) is torch.Tensor and not data.requires_grad and data.is_cpu and data.is_contiguous()


def _movable(data: Any, stage: bool) -> tuple[torch.Tensor, bool]:
    """``data`` as a tensor that the backend can move, and whether it had to be copied for that."""
    if isinstance(data, np.ndarray):
        if data.flags.c_contiguous and data.flags.writeable:
            return torch.from_numpy(data), False
        return torch.from_numpy(data.copy()), True
    tensor = data.detach() if data.requires_grad else data
    if (stage and tensor.is_cuda) or not tensor.is_contiguous():
        return (tensor.cpu() if stage else tensor).contiguous(), True
    return tensor, False
