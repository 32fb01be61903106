"""ZeRO (Rajbhandari et al. 2020, section 5): every worker keeps one K-th of what training keeps for each parameter.

An all-reduce is a reduce-scatter and then an all-gather. ZeRO puts the optimizer in between: reduce-scatter the *gradients*,
let each worker step its own chunk, all-gather the *parameters*. The bytes are the same. Stage 1 shards the optimizer's
state. Stage 2 shards the gradients as well: they are reduce-scattered during the backward pass, and let go. Stage 3 shards
the parameters too; its mechanics follow Zhao et al. 2023, *PyTorch FSDP*, section 3.

    - optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    + optimizer = Zero1(comm, model, torch.optim.AdamW, lr=1e-3)

The model is taken in *units*, its children: the parameters of one lie in one vector. Parameters in none of them, or in
several (tied), are one unit more, the model's. A parameter without a gradient counts as zero (in torch's FSDP too).

Symbols: K workers, n elements, chunk r = elements r n // K to (r + 1) n // K of rank r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from labkit.collectives import all_gather, own_chunk, reduce_scatter
from labkit.comm.base import Comm
from labkit.train.agree import adopt
from labkit.train.buckets import Arrivals


class Flat:
    """Some parameters as parts of one vector of n elements; ``mine`` is this rank's chunk of it."""

    def __init__(self, comm: Comm, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, self.shapes = [*parameters], [p.shape for p in parameters]
        self.n = sum(p.numel() for p in parameters)
        self.mine = slice(*own_chunk(comm, self.n))

    def views(self, vector: Tensor) -> list[Tensor]:
        """Each parameter's place in ``vector`` (n,), in its own shape."""
        parts = vector.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    @torch.no_grad()
    def take_gradients(self, share: float) -> Tensor:
        """A new vector (n,) of the gradients times ``share``, each let go as soon as it is copied; None counts as zero."""
        together = self.parameters[0].new_zeros(self.n, requires_grad=False)
        for p, view in zip(self.parameters, self.views(together), strict=True):
            if p.grad is not None:
                torch.mul(p.grad, share, out=view)
                p.grad = None
        return together


def storage_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of memory that the tensors keep, each piece of memory once (views share theirs)."""
    storages = [t.untyped_storage() for t in tensors if t is not None]
    return sum({s._cdata: s.nbytes() for s in storages}.values())


class Sharded:
    """What the three stages have in common: an optimizer over this rank's chunks. Use ``Zero1``, ``Zero2`` or ``Zero3``.

    optimizer: a torch.optim class that treats elements alike, for it sees chunks of vectors. options: its own.
    Raises ValueError for a model without trainable parameters, of several dtypes, or looked after already; Mismatch if the
    ranks' models differ. Everyone takes rank 0's parameters and buffers.
    """

    def __init__(self, comm: Comm, model: nn.Module, optimizer: Callable[..., Any], **options: Any) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        dtypes = sorted({str(p.dtype) for p in parameters})
        if len(dtypes) > 1:
            raise ValueError(f"model must have parameters of one dtype to be sharded, got {dtypes}")
        adopt(comm, model, type(self).__name__)
        self.comm, self.model = comm, model
        self.flats = [Flat(comm, group) for group in self._groups(parameters)]
        self.vectors = [torch.cat([p.detach().reshape(-1) for p in flat.parameters]) for flat in self.flats]
        self.chunks = [nn.Parameter(chunk) for chunk in self._place()]
        self._optimizer = optimizer(self.chunks, **options)
        self._sums: list[Tensor] = []  # what gathers the gradients until the step

    def _groups(self, parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        """The parameters of each unit, as the backward pass meets them; ``_owners`` has the module of each."""
        units = [*reversed([*self.model.children()]), self.model]
        groups: list[list[nn.Parameter]] = [[] for _ in units]
        within = [set(unit.parameters()) for unit in units[:-1]]
        for p in parameters:
            users = [i for i, unit in enumerate(within) if p in unit]
            groups[users[0] if len(users) == 1 else -1].append(p)
        self._owners = [unit for unit, group in zip(units, groups, strict=True) if group]
        return [group for group in groups if group]

    def _place(self) -> list[Tensor]:
        """Put the parameters into the vectors; returns this rank's chunk of each."""
        for flat, vector in zip(self.flats, self.vectors, strict=True):
            for p, view in zip(flat.parameters, flat.views(vector), strict=True):
                p.data = view
        return [v[f.mine] for f, v in zip(self.flats, self.vectors, strict=True)]

    def _scattered(self, i: int) -> Tensor:
        """This rank's chunk of the mean gradient of unit i; the gradients are used up."""
        together = self.flats[i].take_gradients(1 / self.comm.K)
        self._free(i)
        reduce_scatter.inplace(self.comm, together)
        return together[self.flats[i].mine].clone()

    def _gather(self, i: int) -> None:
        """Bring the parameters of unit i where they have been let go."""

    def _free(self, i: int) -> None:
        """Let the parameters of unit i go, where they can come again."""

    @torch.no_grad()
    def step(self) -> None:
        """Step this rank's chunk by the mean gradient, all-gather the parameters; gradients are zero afterwards."""
        for chunk, mean in zip(self.chunks, self._means(), strict=True):
            chunk.grad = mean
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._shared()
        self.zero_grad()

    def _means(self) -> list[Tensor]:
        """This rank's chunk of each unit's mean gradient."""
        return self._sums

    def _shared(self) -> None:
        """All-gather the vectors: every rank gets the others' new chunks."""
        for vector in self.vectors:
            all_gather.inplace(self.comm, vector)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.model.zero_grad()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, all parameters are there on every worker, as for ``model.state_dict()``; stage 3 loses changes to them."""
        for i in range(len(self.flats)):
            self._gather(i)
        try:
            yield
        finally:
            for i in range(len(self.flats)):
                self._free(i)

    def kept_bytes(self) -> dict[str, int]:
        """Bytes of memory that this worker keeps now: parameters, gradients, and optimizer state."""
        state = [t for s in self._optimizer.state.values() for t in s.values()]
        return {
            "parameters": storage_bytes([*(p.data for p in self.model.parameters()), *self.chunks]),
            "gradients": storage_bytes([*(p.grad for f in self.flats for p in f.parameters), *self._sums]),
            "state": storage_bytes(t for t in state if isinstance(t, Tensor) and t.ndim),
        }


class Zero1(Sharded):
    """Stage 1: the optimizer's state is sharded. Gradients gather on every worker until ``step()`` sums them."""

    def _means(self) -> list[Tensor]:
        return [self._scattered(i) for i in range(len(self.flats))]


class Zero2(Sharded):
    """Stage 2: state and gradients are sharded. Each backward pass adds this rank's chunk of the mean to what it keeps."""

    _in_order = True  # units are summed in one order on all ranks, whatever their graphs

    def __init__(self, comm: Comm, model: nn.Module, *args: Any, **options: Any) -> None:
        super().__init__(comm, model, *args, **options)
        self._sums = [torch.zeros_like(c) for c in self.chunks]
        groups = [flat.parameters for flat in self.flats]
        self._arrivals = Arrivals(groups, self._reduce, lambda: None, in_order=self._in_order)

    @torch.no_grad()
    def _reduce(self, i: int, missing: set[int]) -> None:
        """The gradients of unit i are there."""
        self._sums[i] += self._scattered(i)

    def zero_grad(self) -> None:
        """Forget the gradients, also those of a backward pass that failed."""
        super().zero_grad()
        self._arrivals.reset()
        for i, sums in enumerate(self._sums):
            sums.zero_()
            self._free(i)


class Zero3(Zero2):
    """Stage 3: parameters, gradients and state are sharded, a unit (a child of the model) at a time.

    free_after_forward: give a unit's parameters back between its forward and its backward pass, and gather them twice.
        False keeps them in between: fewer bytes are sent, and at the end of the forward pass everything is there.
    Between steps a parameter has no elements; ``with optimizer.gathered():`` shows all of them, to save or look at.
    """

    _in_order = False  # a unit comes when its backward pass ends, in the order of the model

    def __init__(
        self, comm: Comm, model: nn.Module, *args: Any, free_after_forward: bool = True, **options: Any
    ) -> None:
        self._free_after_forward = free_after_forward
        super().__init__(comm, model, *args, **options)
        for i, owner in enumerate(self._owners):
            owner.register_forward_pre_hook(lambda module, args, i=i: self._gather(i))
            owner.register_forward_hook(partial(self._after, i))

    def _place(self) -> list[Tensor]:
        """Keep this rank's chunk of each unit's vector, and give the rest back."""
        chunks = [v[f.mine].clone() for f, v in zip(self.flats, self.vectors, strict=True)]
        self._here = [True] * len(self.flats)
        for i in range(len(self.flats)):
            self._free(i)
        return chunks

    @torch.no_grad()
    def _gather(self, i: int) -> None:
        if self._here[i]:
            return
        flat, vector = self.flats[i], self.vectors[i]
        vector.untyped_storage().resize_(flat.n * vector.itemsize)
        vector[flat.mine] = self.chunks[i]
        all_gather.inplace(self.comm, vector)
        for p, view in zip(flat.parameters, flat.views(vector), strict=True):
            p.data = view
        self._here[i] = True

    @torch.no_grad()
    def _free(self, i: int) -> None:
        if self._here[i]:
            for p in self.flats[i].parameters:
                p.data = p.new_empty(0)
            self.vectors[i].untyped_storage().resize_(0)
            self._here[i] = False

    def _after(self, i: int, module: nn.Module, args: Any, out: Any) -> None:
        if torch.is_grad_enabled():
            for t in tree_leaves(out):
                if isinstance(t, Tensor) and t.requires_grad:
                    t.register_hook(partial(self._before_backward, i))
        # during the backward pass this was a forward pass that is run again
        if not self._arrivals.running and (self._free_after_forward or not torch.is_grad_enabled()):
            self._free(i)

    def _before_backward(self, i: int, gradient: Tensor) -> None:
        self._arrivals.begin()
        self._gather(i)

    def _shared(self) -> None:
        """Nothing yet: the next forward pass gathers what is new."""
