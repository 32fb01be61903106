"""What LARS and LAMB share as torch optimizers: every tensor takes its own step, adapted to its own length or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch


class Layerwise(torch.optim.Optimizer):
    """An optimizer that says in ``_step_one`` what becomes of one tensor that has a gradient."""

    @abstractmethod
    def _step_one(self, p: torch.Tensor, group: dict[str, Any]) -> None: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_one(p, group)
        return loss

    def _treatment(self, p: torch.Tensor, adapt: bool | None) -> tuple[bool, bool]:
        """Whether to adapt and whether to decay this tensor; ValueError if its gradient is sparse."""
        if p.grad is not None and p.grad.is_sparse:
            raise ValueError(
                f"{type(self).__name__} needs dense gradients, got a sparse one for a tensor of shape {tuple(p.shape)}"
            )
        return (p.ndim > 1, p.ndim > 1) if adapt is None else (adapt, True)
