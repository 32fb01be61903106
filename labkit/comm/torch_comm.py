"""A worker that is a real process: ``Comm`` over torch.distributed.

Messages go through gloo's own ``send`` and ``recv``, what lies on a GPU through host memory. Also where the group's
collectives are nccl's: there a pair's messages run in the order in which each of the two issued them, so two workers that
both receive first would wait for good; and nccl has no ``recv_any``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit import machine
from labkit.comm.base import Comm, Described, describe
from labkit.comm.board import Board
from labkit.comm.run import MEETING, RECEIVING, SENDING
from labkit.comm.windows import Windows
from labkit.timing.timeline import Kind

COMPUTE, WAIT = int(Kind.COMPUTE), int(Kind.WAIT)
_clock = time.perf_counter


class _Message:
    """A message under way: a request. ``tensor`` is what torch moves; ``into`` is the receiver's own buffer."""

    def __init__(
        self, comm: TorchComm, op: int, peer: int, size: Described, data: Any
    ) -> None:
        self.comm, self.op, self.peer = comm, op, peer
        self.into = data if op == RECEIVING else None
        self.tensor, self.copied = _movable(data)
        self.posted = comm.now()
        self.number = comm._board.post(op, peer, size)
        post = comm._messages.send if op == SENDING else comm._messages.recv
        self.work = post([self.tensor], peer, 0)

    def wait(self) -> Any:
        if self.work is None:
            return self.into
        comm, ends = self.comm, (self.op, self.peer, self.number)
        begun = comm.now()
        comm._board.enter(*ends)
        self.work.wait()
        comm._board.leave()
        if self.copied and self.op == RECEIVING:
            comm._deliver(self.tensor, self.into)
        comm._log.append((*ends, self.posted, begun, comm.now(), comm.step))
        self.tensor = self.work = None
        return self.into


class TorchComm(Comm):
    """A worker process's end of the group. ``group`` is the torch process group, for torch.distributed's own calls.

    board: what the launcher reads; None: no launcher of ours does. group: of gloo's; None: torch's default group.
    """

    def __init__(
        self,
        rank: int,
        K: int,
        device: str,
        board: Board | None = None,
        hosts: tuple[int, ...] | None = None,
        group: Any = None,
    ) -> None:
        super().__init__(rank, K, device, hosts)
        default = dist.distributed_c10d._get_default_group
        self.group = self._messages = group or default()
        # Somebody's own group may be of nccl alone.
        if not group and torch.device("cpu") not in self.group._device_types:
            self._messages = dist.new_group(backend="gloo")
        self._board = board or Board(bytearray(8 * Board.words(K)), K, rank)
        self._origin = _clock()
        self._point = 0

    @staticmethod
    def join(backend: str, device: str, **group: Any) -> bool:
        """Use ``device`` in this process, and join torch's process group; False if it is in one already."""
        if device != "cpu":
            machine.gpu_module().set_device(device)
        if dist.is_initialized():
            return False
        # Beside nccl, which moves what is on a GPU, gloo for what is on the CPU.
        if backend != "gloo":
            backend = f"cpu:gloo,{machine.ACCELERATOR}:{backend}"
        dist.init_process_group(backend, **group)
        return True

    def now(self) -> float:
        return _clock() - self._origin

    def isend(self, data: Any, to: int) -> _Message:
        size = describe(data, "data")
        self.bytes_sent += size.nbytes
        self.messages_sent += 1
        return _Message(self, SENDING, self._peer(to, "to"), size, data)

    def irecv(self, into: Any, source: int) -> _Message:
        size = describe(into, "into")
        return _Message(self, RECEIVING, self._peer(source, "source"), size, into)

    def _recv_any(self, into: Any, size: Described) -> int:
        begun = self.now()
        tensor, copied = _movable(into)
        self._board.enter_any(size)
        work = self._messages.recv_anysource([tensor], 0)
        work.wait()
        source = work._source_rank()
        number = self._board.leave_any(source, size)
        if copied:
            self._deliver(tensor, into)
        self._log.append(
            (RECEIVING, source, number, begun, begun, self.now(), self.step)
        )
        return source

    def barrier(self) -> None:
        with self.collective("barrier"):
            begun = self.now()
            self._barrier()
            self._spans.append((self.step, WAIT, begun, self.now()))

    def _barrier(self) -> None:
        self._board.enter(MEETING)
        self._messages.allreduce([torch.zeros(1)]).wait()
        self._board.leave()

    def _share(self, heap: Any) -> None:
        """Use ``heap`` together with the other ranks of this host."""
        meets = self.collective, self._barrier, self._long_wait
        self._windows = Windows(self.K, self.rank, heap, *meets)

    def _long_wait(self, on: bool) -> None:
        """Tell the launcher that this rank begins, or ends, to wait for all others."""
        self._board.enter(MEETING) if on else self._board.leave()

    def _meet(self, name: str, size: Described | None) -> None:
        self._point += 1
        if not self._board.arrive(self._point, name, size):
            # For the others to show what they bring: the majority decides who is wrong.
            time.sleep(0.2)
            if (wrong := self._board.mismatch()) is not None:
                raise wrong

    def _part(self) -> None:
        self._board.depart()

    def _spend(self, fn: Callable[[], Any] | None, seconds: float | None) -> Any:
        begun = self.now()
        value = fn() if fn is not None else None
        if self.device != "cpu" and fn is not None:
            machine.gpu_module().synchronize(self.device)
        if seconds is not None:
            time.sleep(max(0.0, begun + seconds - self.now()))
        self._spans.append((self.step, COMPUTE, begun, self.now()))
        return value


def _movable(data: Any) -> tuple[torch.Tensor, bool]:
    """``data`` as a tensor that gloo can move, contiguous and on the CPU, and whether it had to be copied for that."""
    if isinstance(data, np.ndarray):
        if data.flags.c_contiguous and data.flags.writeable:
            return torch.from_numpy(data), False
        return torch.from_numpy(data.copy()), True
    tensor = data.detach() if data.requires_grad else data
    moved = tensor.cpu().contiguous()
    return moved, moved is not tensor
