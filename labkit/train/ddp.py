"""DistributedDataParallel from scratch: gradients are summed in buckets while the backward pass goes on.

Source: Li et al. 2020, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, section 3.2. A hook on
each parameter says when its gradient is there; a bucket whose gradients have all come is summed at once, in the
background; the end of the backward pass waits for the last sum, so that every optimizer finds means. In code:

    + net = DDP(comm, model)
    -     loss(model(x), y).backward()
    +     loss(net(x), y).backward()

All workers start the same sums in the same order, whatever their own graphs look like: buckets leave in order, and those
that are still incomplete when the backward pass ends leave then, with zeros. One short sum before the first bucket tells how
many examples everyone has, one after the last tells which parameters somebody used.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from labkit.checks import number
from labkit.comm.base import Comm
from labkit.train.agree import adopt, share_inplace
from labkit.train.buckets import BUCKET_BYTES, Arrivals, Bucket


class DDP(nn.Module):
    """``model`` on every worker, trained as one. Wrap it on every worker; everyone takes rank 0's parameters and buffers.

    comm: any world's; the simulated one needs ``overlap=False`` and an ``allreduce``, one of labkit.collectives'
    ``..._inplace``; None: torch's own. bucket_bytes: a bucket is sent when it holds as many; the first is smaller. overlap:
    sum in the background while the backward pass goes on. check_even: refuse batches of different lengths with a ValueError,
    by one short sum a step; without, it takes the plain mean of the workers' means, as torch's DDP does (lab 10.3). After
    each synchronised backward pass everyone takes rank 0's buffers, and ``last_trace`` tells when its sums were made, where
    ``allreduce`` is labkit's.
    """

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        *,
        bucket_bytes: float = BUCKET_BYTES,
        allreduce: Callable[[Comm, Tensor], Any] | None = None,
        overlap: bool = True,
        check_even: bool = True,
    ) -> None:
        super().__init__()
        number("bucket_bytes", bucket_bytes, above=0)
        self._sums = _Sums(comm, allreduce, overlap)
        self._let_go = adopt(comm, model, "DDP")
        self.module, self.comm, self._check_even = model, comm, check_even
        trained = [p for p in model.parameters() if p.requires_grad]
        self.buckets = Bucket.fill(trained, bucket_bytes)
        self.last_trace: Trace | None = None
        self._forward_s = 0.0
        self._last = 0  # examples of this backward pass
        self._waiting = 0  # and of those that only accumulated
        groups = [bucket.parameters for bucket in self.buckets] if comm.K > 1 else []
        self._arrivals = Arrivals(
            groups, self._send, self._finish, arrived=self._take
        )
        self._reset()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own forward pass."""
        if torch.is_grad_enabled():
            self._reset()  # also after a backward pass that an exception ended
            b = batch_length((args, kwargs))
            if self._arrivals.paused:
                self._waiting += b
            else:
                self._last = b
        out = self.module(*args, **kwargs)
        self._forward_s = self.comm.now()
        return out

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here only accumulate; the first one after it sums what has gathered."""
        before, self._arrivals.paused = self._arrivals.paused, True
        try:
            yield
        finally:
            self._arrivals.paused = before

    def close(self) -> None:
        """Take the hooks off, so that the model can be wrapped again."""
        self._arrivals.close()
        self._let_go()

    def _reset(self) -> None:
        self._arrivals.reset()
        self._checked = not self._check_even
        # A bucket, when it left, and what waits for its sum.
        self._flying: list[tuple[Bucket, float, _Wait]] = []

    def _take(self, i: int, j: int) -> None:
        """A gradient is there: into its bucket."""
        if not self._checked:
            self._checked = True
            self._compare_examples()
        self.buckets[i].take(j, 1 / self.comm.K)

    def _compare_examples(self) -> None:
        """Tell the others how many examples this worker has, and hear how many they have."""
        counts = torch.zeros(
            self.comm.K, dtype=torch.float64, device=self.comm.device
        )
        counts[self.comm.rank] = self._last + self._waiting
        # Who is missing here will be named.
        with self.comm.collective("DDP's count of examples", counts):
            self._sums.start(counts)()
        b = counts.cpu().numpy()
        odd = np.flatnonzero(b != b[0])
        if len(odd):
            raise ValueError(
                f"every rank must bring equally many examples, but rank {odd[0]} brings {b[odd[0]]:.0f} and rank 0 "
                f"{b[0]:.0f}; drop the short batch, or take the mean of means with check_even=False"
            )

    def _send(self, i: int, missing: Iterable[int]) -> None:
        """The gradients of bucket i are there, or will not come: it leaves."""
        bucket = self.buckets[i]
        for j in missing:
            self._take(i, j)
        self._flying.append((bucket, self.comm.now(), self._sums.start(bucket.flat)))

    @torch.no_grad()
    def _finish(self) -> None:
        """The backward pass is over and all have left: wait for them, and show the optimizer the means."""
        computed_s = self.comm.now()
        used = [
            p.grad is not None for bucket in self.buckets for p in bucket.parameters
        ]
        users = torch.tensor(used, dtype=torch.int32, device=self.comm.device)
        last = self._sums.start(users)
        flights = []
        for bucket, left_s, wait in self._flying:
            if times := wait():
                flights.append(_Flight(bucket.flat.nbytes, left_s, *times))
        last()
        somebody = iter(users.tolist())
        for bucket in self.buckets:
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                p.grad = view if next(somebody) else None
        share_inplace(self.comm, self.module.buffers())
        if flights:
            ends = self._forward_s, computed_s, self.comm.now()
            self.last_trace = Trace(*ends, tuple(flights))
        self._last = self._waiting = 0
        self._reset()


def batch_length(arguments: Any) -> int:
    """The length of the first tensor among the arguments of ``forward``; 0 if there is none."""
    return next(
        (len(a) for a in tree_leaves(arguments) if isinstance(a, Tensor) and a.ndim),
        0,
    )


#: Waits for a sum; the seconds when it began and ended, if known.
_Wait = Callable[[], tuple[float, float] | None]


class _Sums:
    """How a bucket is summed: by torch, or by one of labkit's all-reduces, in the background or at once.

    In the background a thread has the messages of ``comm``. ValueError for what the simulated world cannot do.
    """

    def __init__(
        self,
        comm: Any,
        allreduce: Callable[[Comm, Tensor], Any] | None,
        overlap: bool,
    ) -> None:
        if comm.K > 1 and not hasattr(comm, "group"):
            if allreduce is None:
                raise ValueError("the simulated world needs an allreduce of labkit's")
            if overlap:
                raise ValueError("overlap must be False in the simulated world")
        self._comm, self._allreduce, self._overlap = comm, allreduce, overlap
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="labkit sums"
        )

    def start(self, x: Tensor) -> _Wait:
        """Begin to replace ``x`` by the sum of all workers'; it is not to be touched until what is returned has returned."""
        wait: _Wait
        if self._allreduce is None:
            wait = partial(self._wait_for_torch, self._comm.group.allreduce([x]))
        elif self._overlap:
            return self._thread.submit(self._summed, x).result
        else:
            wait = partial(self._summed, x)
        if self._overlap:
            return wait
        times = wait()
        return lambda: times

    def _summed(self, x: Tensor) -> tuple[float, float]:
        assert self._allreduce is not None
        begun = self._comm.now()
        self._allreduce(self._comm, x)
        return begun, self._comm.now()

    def _wait_for_torch(self, work: Any) -> None:
        self._comm._long_wait(True)
        work.wait()
        self._comm._long_wait(False)


class _Flight(NamedTuple):
    """One bucket. Its gradients were there at ready_s; its sum was made from start_s to end_s."""

    nbytes: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """One backward pass on one worker, seconds on the launch's clock: the forward pass was over, the backward computation
    was, the last sum was there; and the buckets, in the order of their leaving.
    """

    begin_s: float
    computed_s: float
    end_s: float
    flights: tuple[_Flight, ...]
