"""ZeRO, stage 3: the parameters are sharded too. A layer's are on every worker only while it computes.

Source: Rajbhandari et al. 2020, section 5.3; the mechanics follow Zhao et al. 2023, *PyTorch FSDP*, section 3: the
parameters of a *unit* (a module, usually one layer) lie in one vector. A hook before the unit's forward pass all-gathers
the vector, one after it gives the memory back; the backward pass gathers again, and when the unit's gradients are there they
are reduce-scattered and both are let go. The memory is given back by resizing the storage to nothing, so that what
autograd has saved of the parameters is good again when they are gathered again into the same storage.

All workers must run the same units in the same order. Symbols as in ``zero``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from labkit.collectives import all_gather
from labkit.comm.base import Comm
from labkit_book.zero.zero import Zero2


class Zero3(Zero2):
    """Stage 3: parameters, gradients and state are sharded.

    units: the modules whose parameters come and go together; None: the model's children. What is in none of them, or in
        several (tied), comes and goes with the model as a whole.
    free_after_forward: give a unit's parameters back between its forward and its backward pass, and gather them twice.
        False keeps them in between: fewer bytes are sent, and at the end of the forward pass everything is there.
    Between steps a parameter has no elements; ``with optimizer.gathered():`` shows all of them, to save or look at.
    """

    _in_order = False  # units end their backward pass in the order of the model

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        *args: Any,
        units: Sequence[nn.Module] | None = None,
        free_after_forward: bool = True,
        **options: Any,
    ) -> None:
        self._modules = list(model.children() if units is None else units)
        strangers = [type(u).__name__ for u in self._modules if u not in set(model.modules()) or u is model]
        if strangers:
            raise ValueError(f"units must be modules inside the model, got a {strangers[0]} that is not")
        self._model, self._free_after_forward = model, free_after_forward
        self._in_backward = False
        super().__init__(comm, model, *args, **options)
        self._handles = []
        for i, owner in enumerate(self._owners):
            self._handles.append(owner.register_forward_pre_hook(partial(self._before, i)))
            self._handles.append(owner.register_forward_hook(partial(self._after, i)))

    def _groups(self, named: list[tuple[str, nn.Parameter]]) -> Sequence[Sequence[tuple[str, nn.Parameter]]]:
        """One group a unit, in the order of the units, and the rest; ``_owners`` has the module of each."""
        users: dict[nn.Parameter, set[int]] = {p: set() for _, p in named}
        for i, unit in enumerate(self._modules):
            for p in unit.parameters():
                if p in users:
                    users[p].add(i)
        groups: list[list[tuple[str, nn.Parameter]]] = [[] for _ in [*self._modules, self._model]]
        for name, p in named:
            groups[next(iter(users[p])) if len(users[p]) == 1 else -1].append((name, p))
        owners = [*self._modules, self._model]
        self._owners = [owner for owner, group in zip(owners, groups, strict=True) if group]
        return [group for group in groups if group]

    def _place(self) -> list[Tensor]:
        """Keep this rank's chunk of each unit's vector, and give the rest back."""
        self.vectors = [flat.vector() for flat in self.flats]
        self._here = [True] * len(self.flats)
        chunks = [v[f.low : f.high].clone() for f, v in zip(self.flats, self.vectors, strict=True)]
        for i in range(len(self.flats)):
            self._free(i)
        return chunks

    @torch.no_grad()
    def _gather(self, i: int) -> None:
        if self._here[i]:
            return
        flat, vector = self.flats[i], self.vectors[i]
        vector.untyped_storage().resize_(flat.n * vector.itemsize)
        vector[flat.low : flat.high] = self.chunks[i]
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

    def _before(self, i: int, module: nn.Module, args: Any) -> None:
        self._gather(i)

    def _after(self, i: int, module: nn.Module, args: Any, out: Any) -> None:
        if torch.is_grad_enabled():
            for t in tree_leaves(out):
                if isinstance(t, Tensor) and t.requires_grad:
                    t.register_hook(partial(self._before_backward, i))
        kept = torch.is_grad_enabled() and not self._free_after_forward
        if not (kept or self._in_backward):  # in the backward pass: a forward pass that is run again
            self._free(i)

    def _before_backward(self, i: int, gradient: Tensor) -> None:
        self._in_backward = True
        self._arrivals.begin()
        self._gather(i)

    def _end(self) -> None:
        self._in_backward = False

    def _shared(self) -> None:
        """Nothing yet: the next forward pass gathers what is new."""

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, all parameters are there on every worker, as for ``model.state_dict()``; changes to them are lost."""
        for i in range(len(self.flats)):
            self._gather(i)
        try:
            yield
        finally:
            for i in range(len(self.flats)):
                self._free(i)

    def close(self) -> None:
        """Let the model go, with all its parameters."""
        for handle in self._handles:
            handle.remove()
        for i in range(len(self.flats)):
            self._gather(i)
        super().close()
