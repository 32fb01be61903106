"""LAMB as a torch optimizer; `labkit.learn.lamb` is the same in numpy and says what the settings mean.

You et al. 2020 (arXiv 2019), Algorithm 2. Every parameter tensor is a layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from labkit.learn.layers import check_settings
from labkit.train.layerwise import Layerwise


class LAMB(Layerwise):
    """Adam in which every tensor's step is as long as ``lr`` times the length of its weights.

    params: tensors or parameter groups. Settings as in `labkit.learn.lamb.LAMB`: betas, eps, weight_decay,
    correct_bias, longest, trust_eps; each may differ by group. adapt: None adapts and decays tensors of two axes and
    more only; True or False says it for all tensors of the group, and then all of them decay (pytorch_optimizer
    adapts and decays everything; the paper's authors leave biases and norms out).

    A tensor without gradient is left alone; a sparse gradient is refused with ValueError, as are bad settings.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        longest: float = float("inf"),
        trust_eps: float = 0.0,
        adapt: bool | None = None,
    ) -> None:
        numbers = {"lr": lr, "eps": eps, "weight_decay": weight_decay, "trust_eps": trust_eps}
        choices = {"betas": betas, "correct_bias": correct_bias, "longest": longest, "adapt": adapt}
        super().__init__(params, numbers | choices)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; ValueError for settings that make no sense."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        beta1, beta2 = group["betas"]
        numbers = {key: group[key] for key in ("lr", "eps", "weight_decay", "trust_eps")}
        check_settings(beta1=beta1, beta2=beta2, **numbers)
        for name in ("eps", "longest"):
            if not group[name] > 0:
                raise ValueError(f"{name} must be > 0, got {group[name]!r}")

    def _step_one(self, p: torch.Tensor, group: dict[str, Any]) -> None:
        adapt, decays = self._treatment(p, group["adapt"])
        (beta1, beta2), state = group["betas"], self.state[p]
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        state["step"] += 1
        a, q = state["exp_avg"], state["exp_avg_sq"]
        a.mul_(beta1).add_(p.grad, alpha=1 - beta1)
        q.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        by1 = 1 - beta1 ** state["step"] if group["correct_bias"] else 1.0
        by2 = 1 - beta2 ** state["step"] if group["correct_bias"] else 1.0
        direction = (a / by1) / ((q / by2).sqrt() + group["eps"])
        if decays:
            direction = direction + group["weight_decay"] * p
        if adapt:
            direction = direction * _ratio(p, direction, group)
        p.sub_(group["lr"] * direction)


def _ratio(p: torch.Tensor, direction: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    """The trust ratio, a tensor without axes, so that no device has to be waited for."""
    length, below = torch.linalg.vector_norm(p), torch.linalg.vector_norm(direction)
    ratio = length.clamp(max=group["longest"]) / (below + group["trust_eps"])
    return torch.where((length > 0) & (below > 0), ratio, torch.ones_like(ratio))
