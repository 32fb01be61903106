"""DiLoCo for a torch model: let every worker train alone for H steps, then take one step together.

Douillard et al. 2023, algorithm 1. Every H steps the *outer gradient*, the mean over the workers of how far they went since
they last agreed (from there minus here), goes through an optimiser of its own, SGD with Nesterov momentum; from where that
leads all go on. What optimises the steps in between is yours; the paper takes AdamW. One all-reduce of all parameters every
H steps is all that travels.

    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    outer = DiLoCo(model.parameters(), comm, H=20)          # new
    for x, y in batches:
        model.loss(x, y).backward()
        inner.step()
        inner.zero_grad()
        outer.step()                                        # new
    outer.finish()                                          # new: a last meeting if H does not divide the steps

With ``lr=1, momentum=0`` the workers' parameters are simply averaged: local SGD (Stich 2019), or federated averaging
(McMahan et al. 2017).

Symbols: K workers, P parameters, H inner steps per outer step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from labkit.checks import integer, number
from labkit.collectives import ring
from labkit.comm.base import Comm
from labkit.train.agree import share_inplace


class DiLoCo:
    """The outer half of DiLoCo, beside an inner optimiser that knows nothing of it.

    params: the model's parameters, of one dtype on one device; those with ``requires_grad`` take part. Every worker takes
        over rank 0's at once (a broadcast).
    comm: this worker's end of the group. H: inner steps per outer step, >= 1.
    lr, momentum: of the outer SGD, lr > 0, 0 <= momentum < 1; Nesterov's if momentum > 0.
    allreduce: replaces the outer gradient by the sum of all workers'.
    Raises ValueError for anything else.

    anchor: (P,) where all workers last agreed. steps: inner steps since then. rounds: outer steps taken.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        comm: Comm,
        H: int,
        lr: float = 0.7,
        momentum: float = 0.9,
        allreduce: Callable[[Comm, Tensor], Any] = ring.allreduce_inplace,
    ) -> None:
        lr, momentum = number("lr", lr, above=0), number("momentum", momentum, least=0)
        if momentum >= 1:
            raise ValueError(f"momentum must be below 1, got {momentum!r}")
        self.params = _learning(params)
        self.comm, self.H, self.allreduce = comm, integer("H", H, least=1), allreduce
        share_inplace(comm, self.params)
        self.anchor = self._flat()
        self.optimiser = torch.optim.SGD([self.anchor], lr=lr, momentum=momentum, nesterov=momentum > 0)
        self.steps = self.rounds = 0

    def step(self) -> bool:
        """Call after each inner step. Every H-th call synchronises; returns whether this one did."""
        self.steps += 1
        if self.steps < self.H:
            return False
        self.synchronise()
        return True

    @torch.no_grad()
    def synchronise(self) -> None:
        """The outer step, whatever ``H`` says: afterwards every worker has the same parameters. All must call it."""
        outer_gradient = self.anchor - self._flat()
        self.allreduce(self.comm, outer_gradient)
        self.anchor.grad = outer_gradient / self.comm.K
        self.optimiser.step()
        for p, value in zip(self.params, self.anchor.split([p.numel() for p in self.params]), strict=True):
            p.copy_(value.view_as(p))
        self.steps = 0
        self.rounds += 1

    def finish(self) -> None:
        """Call after the last inner step: an outer step if some were taken since the last one, else nothing."""
        if self.steps:
            self.synchronise()

    def _flat(self) -> Tensor:
        """All parameters end to end, (P,), as a copy."""
        return torch.cat([p.detach().flatten() for p in self.params])


def _learning(params: Iterable[Tensor]) -> list[Tensor]:
    chosen = [p for p in params if isinstance(p, Tensor) and p.requires_grad]
    if not chosen:
        raise ValueError(
            "params must hold at least one tensor that learns: give model.parameters() of a model with some"
        )
    kinds = sorted({f"{p.dtype} on {p.device}" for p in chosen})
    if len(kinds) > 1:
        raise ValueError(f"params must all be of one dtype and on one device, got {', '.join(kinds)}")
    return chosen
