"""ZeRO, stages 1 and 2: every worker updates, and keeps the optimizer's state for, one K-th of the parameters.

Source: Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, section 5. An
all-reduce is a reduce-scatter and then an all-gather. ZeRO puts the optimizer in between: reduce-scatter the *gradients*,
let each worker step its own chunk, all-gather the *parameters*. The bytes are the same. Stage 1 shards the optimizer's
state, stage 2 the gradients as well: they are reduce-scattered a bucket at a time during the backward pass, and let go.

    - optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    + optimizer = Zero1(comm, model, torch.optim.AdamW, lr=1e-3)

A parameter without a gradient counts as zero here (in torch's own FSDP too), where plain training would skip it.

Symbols: K workers, n elements, chunk r = elements r n // K to (r + 1) n // K of rank r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from labkit.collectives import all_gather, reduce_scatter
from labkit.comm.base import Comm
from labkit.train.agree import adopt, release, trainable
from labkit.train.arrivals import Arrivals
from labkit.train.buckets import BUCKET_BYTES, assign
from labkit_book.zero.flat import Flat, storage_bytes


class Sharded:
    """What the three stages have in common: an optimizer over this rank's pieces. Use ``Zero1``, ``Zero2`` or ``Zero3``.

    optimizer: a torch.optim class that treats elements alike, for it sees parts of parameters. options: its own.
    master: step a float32 copy of the chunk, and round to the parameters' own type (mixed precision).
    inner: the optimizer itself, for learning-rate schedulers.
    Raises ValueError for a model without trainable parameters, of several dtypes, or looked after already; Mismatch if
    the ranks' models differ. Everyone takes rank 0's parameters and buffers.
    """

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        optimizer: Callable[..., torch.optim.Optimizer],
        *,
        master: bool = False,
        **options: Any,
    ) -> None:
        trainable(model)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        dtypes = sorted({str(p.dtype) for _, p in named})
        if len(dtypes) > 1:
            raise ValueError(f"model must have parameters of one dtype to be sharded, got {dtypes}")
        adopt(comm, model, type(self).__name__)
        self.comm, self.model = comm, model
        self.flats = [Flat.of(comm, part) for part in self._groups(named)]
        self.chunks, self.slices = self._place(), [f.high - f.low for f in self.flats]
        self.masters = [c.float() for c in self.chunks] if master else self.chunks
        self._pieces: list[list[nn.Parameter]] = []
        for flat, chunk in zip(self.flats, self.masters, strict=True):
            self._pieces.append([nn.Parameter(part) for part in flat.pieces(chunk.detach())])
        nothing = [nn.Parameter(torch.empty(0, device=comm.device))]
        self.inner = optimizer([piece for own in self._pieces for piece in own] or nothing, **options)
        self._sums: list[Tensor] = []  # what gathers the gradients until the step

    def _groups(self, named: list[tuple[str, nn.Parameter]]) -> Sequence[Sequence[tuple[str, nn.Parameter]]]:
        """Which parameters share a vector."""
        return [named]

    def _place(self) -> list[Tensor]:
        """Put the parameters into vectors; returns this rank's chunk of each."""
        self.vectors = [flat.vector() for flat in self.flats]
        for flat, vector in zip(self.flats, self.vectors, strict=True):
            for p, view in zip(flat.parameters, flat.views(vector), strict=True):
                p.data = view
        return [v[f.low : f.high] for f, v in zip(self.flats, self.vectors, strict=True)]

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor]) -> None:
        """Step this rank's pieces by its chunks of the mean gradient."""
        for flat, own, chunk in zip(self.flats, self._pieces, gradients, strict=True):
            chunk = chunk.float() if self.masters is not self.chunks else chunk
            for piece, part in zip(own, flat.pieces(chunk), strict=True):
                piece.grad = part
        self.inner.step()
        for own in self._pieces:
            for piece in own:
                piece.grad = None
        if self.masters is not self.chunks:
            for chunk, master in zip(self.chunks, self.masters, strict=True):
                chunk.copy_(master)

    def _shared(self) -> None:
        """All-gather the vectors: every rank gets the others' new chunks."""
        for vector in self.vectors:
            all_gather.inplace(self.comm, vector)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, all parameters are there on every worker (up to stage 2 they always are)."""
        yield

    def kept_bytes(self) -> dict[str, int]:
        """Bytes of memory that this worker keeps now: parameters, gradients, and optimizer state (master copy included)."""
        parameters = [p.data for p in self.model.parameters()]
        state = [t for s in self.inner.state.values() for t in s.values() if isinstance(t, Tensor) and t.ndim]
        masters = [] if self.masters is self.chunks else self.masters
        return {
            "parameters": storage_bytes([*parameters, *self.chunks]),
            "gradients": storage_bytes([*(p.grad for f in self.flats for p in f.parameters), *self._sums]),
            "state": storage_bytes([*state, *masters]),
        }

    def close(self) -> None:
        """Let the model go: it keeps its parameters and may be wrapped again."""
        release(p for flat in self.flats for p in flat.parameters)


class Zero1(Sharded):
    """Stage 1: the optimizer's state is sharded. Gradients gather on every worker until ``step()`` sums them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sums = [torch.zeros_like(v) for v in self.vectors]
        self._views = [flat.views(sums) for flat, sums in zip(self.flats, self._sums, strict=True)]
        self.zero_grad()

    @torch.no_grad()
    def step(self) -> None:
        """Reduce-scatter the gradients to their mean, step this rank's chunk, all-gather the parameters.

        The gradients are used up: they are zero afterwards.
        """
        for flat, sums, views in zip(self.flats, self._sums, self._views, strict=True):
            for p, view in zip(flat.parameters, views, strict=True):
                if p.grad is None:
                    view.zero_()
                elif p.grad.data_ptr() != view.data_ptr():
                    view.copy_(p.grad)
            sums.mul_(1 / self.comm.K)
            reduce_scatter.inplace(self.comm, sums)
        self._update([s[f.low : f.high] for f, s in zip(self.flats, self._sums, strict=True)])
        self._shared()
        self.zero_grad()

    @torch.no_grad()
    def zero_grad(self) -> None:
        """Gradients of zero, where the backward pass adds to them."""
        for flat, sums, views in zip(self.flats, self._sums, self._views, strict=True):
            sums.zero_()
            for p, view in zip(flat.parameters, views, strict=True):
                p.grad = view


class Zero2(Sharded):
    """Stage 2: state and gradients are sharded. Each backward pass adds this rank's chunk of the mean to what it keeps.

    bucket_bytes: gradients of so many bytes are on every worker at a time.
    """

    _in_order = True  # whether buckets are summed in one order on all ranks by our own doing

    def __init__(
        self, comm: Comm, model: nn.Module, *args: Any, bucket_bytes: float = BUCKET_BYTES, **options: Any
    ):
        self._bucket_bytes = bucket_bytes
        super().__init__(comm, model, *args, **options)
        self._sums = [torch.zeros_like(c) for c in self.chunks]
        groups = [flat.parameters for flat in self.flats]
        self._arrivals = Arrivals(groups, self._reduce, self._end, in_order=self._in_order)

    def _groups(self, named: list[tuple[str, nn.Parameter]]) -> Sequence[Sequence[tuple[str, nn.Parameter]]]:
        buckets = assign([p.nbytes for _, p in named], [self._bucket_bytes])
        return [[named[i] for i in bucket] for bucket in buckets]

    @torch.no_grad()
    def _reduce(self, i: int, missing: set[int]) -> None:
        """The gradients of vector i are there."""
        flat = self.flats[i]
        together = flat.take_gradients(1 / self.comm.K)
        self._free(i)
        reduce_scatter.inplace(self.comm, together)
        self._sums[i] += together[flat.low : flat.high]

    def _free(self, i: int) -> None:
        """Let vector i go, where it can come again."""

    def _end(self) -> None:
        """The backward pass is over."""

    @torch.no_grad()
    def step(self) -> None:
        """Step this rank's chunk, all-gather the parameters; gradients are zero afterwards."""
        self._update(self._sums)
        self._shared()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Forget the gradients, also those of a backward pass that failed."""
        self._arrivals.reset()
        self._end()
        for i, (flat, sums) in enumerate(zip(self.flats, self._sums, strict=True)):
            sums.zero_()
            for p in flat.parameters:
                p.grad = None
            self._free(i)

    def close(self) -> None:
        """Let the model go: it keeps its parameters and may be wrapped again."""
        self._arrivals.close()
        super().close()
