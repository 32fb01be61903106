"""DistributedDataParallel from scratch: gradients are summed in buckets while the backward pass goes on.

Source: Li et al. 2020, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, section 3.2. A hook on
each parameter says when its gradient is there; a bucket whose gradients have all come is summed at once, in the
background; the end of the backward pass waits for the last sum, so that every optimizer finds means. In code:

    + net = DDP(comm, model)
      for x, y in my_batches:
          optimizer.zero_grad()
    -     loss(model(x), y).backward()
    +     loss(net(x), y).backward()
          optimizer.step()

All workers start the same sums in the same order, whatever their own graphs look like: buckets leave in order, and those
that are still incomplete when the backward pass ends (parameters that took no part) leave then, with zeros. One short
sum before the first bucket tells how many examples everyone has, one after the last tells which parameters somebody used.

Symbols: K workers, b_k examples on worker k, g_k the gradient of worker k's mean loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from labkit.collectives import shared
from labkit.comm.base import Comm
from labkit.train.agree import adopt, plain_zeros, release, share_inplace, symmetric_zeros, trainable
from labkit.train.arrivals import Arrivals
from labkit.train.buckets import BUCKET_BYTES, FIRST_BYTES, Bucket, make
from labkit.train.sums import Ended, Recorder, Trace, Wait, starter


class DDP(nn.Module):
    """``model`` on every worker, trained as one. Wrap it on every worker; everyone takes rank 0's parameters and buffers.

    comm: any world's; the simulated one needs ``overlap=False`` and an ``allreduce``.
    bucket_bytes, first_bytes: a bucket is sent when it holds as many; the first is smaller, to start early.
    allreduce: one of labkit.collectives' ``..._inplace``; None: torch's own. With ``shared.allreduce_inplace`` the buckets
        lie in symmetric memory, where they are summed without a copy.
    overlap: sum in the background while the backward pass goes on. (In shared memory there is little to wait for:
        ``overlap=False`` is faster there.)
    uneven: what becomes of different b_k: "refused" (a ValueError), "weighted" (every example counts the same, on
        whichever worker it is), or None for a plain mean unasked, which torch's DDP takes (lab 10.3).
    buffers: after each synchronised backward everyone takes the buffers of the first rank that had examples.
    trace: keep the times of the last backward pass in ``last_trace``.
    Raises ValueError for a model without trainable parameters or wrapped already, Mismatch if the ranks' models differ.
    """

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        *,
        bucket_bytes: float = BUCKET_BYTES,
        first_bytes: float = FIRST_BYTES,
        allreduce: Callable[[Comm, Tensor], Any] | None = None,
        overlap: bool = True,
        uneven: Literal["refused", "weighted"] | None = "refused",
        buffers: bool = True,
        trace: bool = False,
    ) -> None:
        super().__init__()
        if uneven not in ("refused", "weighted", None):
            raise ValueError(f'uneven must be "refused", "weighted" or None, got {uneven!r}')
        parameters = trainable(model)
        self.module, self.comm = model, comm
        in_sight = allreduce == shared.allreduce_inplace and all(p.is_cpu for p in parameters)
        zeros = symmetric_zeros(comm) if in_sight and comm.K > 1 else plain_zeros
        self.buckets: list[Bucket] = make(parameters, bucket_bytes, first_bytes, zeros)
        self.last_trace: Trace | None = None
        self._recorder = Recorder(comm) if trace else None
        self._start = None if comm.K == 1 else starter(comm, allreduce, overlap)
        self._uneven, self._share_buffers = uneven, buffers
        self._last = self._waiting = 0
        adopt(comm, model, "DDP")
        groups = [bucket.parameters for bucket in self.buckets] if comm.K > 1 else []
        self._arrivals = Arrivals(groups, self._send, self._finish, arrived=self._take)
        self._reset()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own forward pass."""
        if torch.is_grad_enabled():
            self._reset()  # also after a backward pass that an exception ended
            b = _examples((args, kwargs))
            if self._arrivals.paused:
                self._waiting += b
            else:
                self._last = b
        out = self.module(*args, **kwargs)
        if self._recorder is not None:
            self._recorder.forward_done()
        return out

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here only accumulate; the first one after it sums what has gathered."""
        before, self._arrivals.paused = self._arrivals.paused, True
        try:
            yield
        finally:
            self._arrivals.paused = before

    @contextmanager
    def join(self, step: Callable[[], Any]) -> Iterator[None]:
        """Around the loop over this worker's batches, where some have more: who is through keeps answering.

        step: what to do after each step that is only answered, usually ``optimizer.step``, so that all stay equal.
        Needs ``uneven="weighted"``.
        """
        yield
        while self.answer():
            step()

    def answer(self) -> bool:
        """Take part in one backward pass without an example. False if nobody has one (then there are no gradients)."""
        if self._uneven is None:
            raise ValueError('uneven must be "weighted" for answer() and join() to work, got None')
        if self._start is None:
            return False
        self._reset()
        self._last = self._waiting = 0
        for bucket in self.buckets:
            for p in bucket.parameters:
                p.grad = None
        if not self._count().any():
            return False
        for i, bucket in enumerate(self.buckets):
            self._send(i, range(len(bucket.parameters)))
        self._finish()
        return True

    def close(self) -> None:
        """Take the hooks off, so that the model can be wrapped again."""
        self._arrivals.close()
        release(p for bucket in self.buckets for p in bucket.parameters)

    # -- one backward pass ------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._arrivals.reset()
        self._counts: np.ndarray | None = None
        self._share: float | None = None
        self._flying: list[Wait] = []

    def _count(self) -> np.ndarray:
        """Tell the others how many examples this worker has, and hear how many they have."""
        counts = torch.zeros(self.comm.K, dtype=torch.float64, device=self.comm.device)
        counts[self.comm.rank] = self._last + self._waiting
        with self.comm.collective("DDP's count of examples", counts):  # who is missing here will be named
            self._sum(counts)()
        self._counts = counts.cpu().numpy()
        return self._counts

    def _take(self, i: int, j: int) -> None:
        """A gradient is there: into its bucket."""
        if self._share is None:
            self._share = 1 / self.comm.K
            if self._uneven is not None:
                counts = self._count() if self._counts is None else self._counts
                self._share = _share(counts, self.comm.rank, self._uneven == "weighted")
        self.buckets[i].take(j, self._share)

    def _send(self, i: int, missing: Iterable[int]) -> None:
        """The gradients of bucket i are there, or will not come: it leaves."""
        bucket = self.buckets[i]
        for j in missing:
            self._take(i, j)
        ended = None if self._recorder is None else self._recorder.ready(i, bucket.nbytes)
        self._flying.append(self._sum(bucket.flat, ended))

    def _sum(self, x: Tensor, ended: Ended = None) -> Wait:
        assert self._start is not None
        return self._start(x, ended)

    @torch.no_grad()
    def _finish(self) -> None:
        """The backward pass is over and all have left: wait for them, and show the optimizer the means."""
        if self._recorder is not None:
            self._recorder.computed()
        used = [p.grad is not None for bucket in self.buckets for p in bucket.parameters]
        users = torch.tensor(used, dtype=torch.int32, device=self.comm.device)
        last = self._sum(users)
        for wait in [*self._flying, last]:
            wait()
        somebody = iter(users.tolist())
        for bucket in self.buckets:
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                p.grad = view if next(somebody) else None
        if self._share_buffers:
            root = 0 if self._counts is None else int(np.argmax(self._counts > 0))
            share_inplace(self.comm, self.module.buffers(), root)
        if self._recorder is not None:
            self.last_trace = self._recorder.done()
        self._last = self._waiting = 0
        self._reset()


def _examples(arguments: Any) -> int:
    """The length of the first tensor among the arguments of ``forward``; 0 if there is none."""
    return next((len(a) for a in tree_leaves(arguments) if isinstance(a, Tensor) and a.ndim), 0)


def _share(counts: np.ndarray, rank: int, weighted: bool) -> float:
    """What the mean of ``rank`` counts for in everybody's: b_k / M if weighted, M the sum of ``counts`` (K,); else 1 / K."""
    if weighted:
        if not counts.any():
            raise ValueError(
                "some rank must bring an example, but all bring 0; what is counted is the length of the first tensor "
                "that the model is given"
            )
        return float(counts[rank] / counts.sum())
    odd = np.flatnonzero(counts != counts[0])
    if len(odd):
        k = int(odd[0])
        raise ValueError(
            f"every rank must bring equally many examples, but rank {k} brings {counts[k]:.0f} and rank 0 "
            f'{counts[0]:.0f}; drop the short batch, or weigh by examples with uneven="weighted"'
        )
    return 1 / len(counts)
