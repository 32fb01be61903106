"""nccl's rules, without nccl: a process group for tensors on pretended devices, its data carried by a gloo of its own.

What nccl's documentation and torch's source (ProcessGroupNCCL) state, and this holds to:
* collectives run one after another, in the order in which this rank issued them;
* so do the messages of a pair of ranks, on the pair's own queue, in both directions: who receives first on either side, and
  sends second, waits for good. Messages issued as a group (``batch_isend_irecv``) go together;
* tensors must be on a device: one on the CPU is refused, unless the group was made with a backend for those too;
* two ranks on one device are refused, at the first collective or message;
* nobody receives from anybody;
* what never meets its other end fails after the time-out, and says what it was.

Unlike nccl's, an operation is done when ``wait`` returns: there are no streams.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from pretended import TIMEOUT
from pretended.device import There

COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "reduce", "gather", "scatter", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base", "barrier",
)  # fmt: skip


class Work(dist.Work):
    """An operation under way on a queue's thread."""

    def __init__(self, done: Future[None], outputs: Any) -> None:
        super().__init__()
        self._done, self._future = done, torch.futures.Future()
        done.add_done_callback(lambda d: self._settle(d, outputs))

    def _settle(self, done: Future[None], outputs: Any) -> None:
        if (error := done.exception()) is None:
            self._future.set_result(outputs)
        else:
            self._future.set_exception(RuntimeError(str(error)))

    def wait(self, timeout: Any = None) -> bool:
        self._done.result()
        return True

    def is_completed(self) -> bool:
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and self._done.exception() is None

    def get_future(self) -> Any:
        return self._future


class Pretended(dist.ProcessGroup):
    """A group of ranks with a pretended device each. cpu: whether tensors on the CPU have a backend too (gloo)."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, cpu: bool) -> None:
        super().__init__(rank, size)
        self._me, self._store = rank, store
        self._timeout = min(timeout, timedelta(seconds=float(os.environ[TIMEOUT])))
        self._carrier = dist.ProcessGroupGloo(dist.PrefixStore("carrier", store), rank, size, self._timeout)
        self._queues: dict[Any, ThreadPoolExecutor] = defaultdict(partial(ThreadPoolExecutor, 1))
        self._grouped: list[tuple[str, There, int]] | None = None
        self._device: torch.device | None = None
        self._gloo = None
        if cpu:
            self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), rank, size, timeout)
            self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
        self._register_backend(torch.device("pretend"), dist.ProcessGroup.BackendType.CUSTOM, self._carrier)

    def getBackendName(self) -> str:
        return "pnccl"

    # -- the rules ----------------------------------------------------------------------------------------------

    def _for_the_cpu(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are gloo's; RuntimeError if they are nobody's."""
        if not tensors or not any(t.is_cpu for t in tensors):
            return False
        if self._gloo is None or not all(t.is_cpu for t in tensors):
            raise RuntimeError("No backend type associated with device type cpu")
        return True

    def _enter(self, tensors: list[torch.Tensor]) -> None:
        """On a queue's thread, before the first operation: every rank has one device, and it is nobody else's."""
        if self._device is None:
            device = tensors[0].device if tensors else torch.device("pretend", torch.pretend.current_device())
            self._store.set(f"device of {self._me}", str(device))
            ranks = [f"device of {rank}" for rank in range(self.size())]
            self._store.wait(ranks, self._timeout)
            everyones = [self._store.get(rank).decode() for rank in ranks]
            if len(set(everyones)) < len(everyones):
                raise RuntimeError(f"Duplicate GPU detected: the ranks' devices are {', '.join(everyones)}")
            self._device = device
        for t in tensors:
            if t.device != self._device:
                raise RuntimeError(
                    f"rank {self._me} has used {self._device} in this group, and now {t.device}"
                )

    def _run(self, what: str, tensors: list[There], carry: Callable[[], list[Any]]) -> None:
        """On a queue's thread: do it, or say what never met its other end."""
        self._enter(tensors)
        try:
            for work in carry():
                work.wait(self._timeout)
        except RuntimeError as error:
            late = f"{what} of rank {self._me} met no other end within {self._timeout.total_seconds():g} s"
            raise RuntimeError(f"{late} ({str(error).splitlines()[0]})") from None

    # -- messages -----------------------------------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        return self._message("send", tensors, to, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Any:
        return self._message("recv", tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        if self._for_the_cpu(tensors):
            return self._gloo.recv_anysource(tensors, tag)
        raise RuntimeError("ProcessGroupNCCL does not support recv from any source")

    def _message(self, way: str, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        if self._for_the_cpu(tensors):
            return getattr(self._gloo, way)(tensors, peer, tag)
        message = way, tensors[0], peer
        if self._grouped is not None:
            self._grouped.append(message)
            return None
        return self._together(f"{way} with rank {peer}", peer, [message])

    def _together(self, what: str, queue: Any, messages: list[tuple[str, There, int]]) -> Work:
        """Post all of them at once, on one queue, and be done when all are."""
        copies = [t.here.contiguous() for _, t, _ in messages]

        def carry() -> list[Any]:
            posted = zip(messages, copies, strict=True)
            return [getattr(self._carrier, way)([c], peer, 0) for (way, _, peer), c in posted]

        def run() -> None:
            tensors = [t for _, t, _ in messages]
            self._run(what, tensors, carry)
            for (way, t, _), copy in zip(messages, copies, strict=True):
                if way == "recv":
                    t.here.copy_(copy)

        return Work(self._queues[queue].submit(run), [t for _, t, _ in messages])

    def _start_coalescing(self, device: Any) -> None:
        self._grouped = []

    def _end_coalescing(self, device: Any) -> Work:
        messages, self._grouped = self._grouped or [], None
        return self._together("a group of messages", "all", messages)

    # -- collectives --------------------------------------------------------------------------------------------

    def _collective(self, name: str, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if self._for_the_cpu(tensors):
            return getattr(self._gloo, name)(*args, **kwargs)

        def run() -> None:
            copies = {id(t): t.here.contiguous().clone() for t in tensors}
            a, k = pytree.tree_map(lambda x: copies.get(id(x), x), (args, kwargs))
            self._run(name, tensors, lambda: [getattr(self._carrier, name)(*a, **k)])
            for t in tensors:
                t.here.copy_(copies[id(t)])

        return Work(self._queues["all"].submit(run), args[0] if args else [])


for _name in COLLECTIVES:
    setattr(Pretended, _name, lambda self, *args, _name=_name, **k: self._collective(_name, *args, **k))


def register() -> None:
    """Let torch.distributed know it by its name, as the backend of the pretended devices."""
    dist.Backend.register_backend("pnccl", _create, devices=["pretend"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Pretended:
    # Torch does not tell a backend of those beside it.
    made_with = sys._getframe(1).f_locals["backend_config"]
    return Pretended(store, rank, size, timeout, "cpu" in made_with.get_device_backend_map())
