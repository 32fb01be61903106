"""LARS as a torch optimizer; `labkit.learn.lars` is the same in numpy and says what the settings mean.

You, Gitman and Ginsburg 2017, Algorithm 1. Every parameter tensor is a layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from labkit.learn.layers import check_settings
from labkit.train.layerwise import Layerwise


class LARS(Layerwise):
    """Momentum in which every tensor's step is proportional to the length of its weights.

    params: tensors or parameter groups. lr: the global rate. Settings as in `labkit.learn.lars.LARS`: trust, momentum,
    weight_decay, eps, rate_inside, clip; each may differ by group. adapt: None adapts and decays tensors of
    two axes and more and treats the rest (biases, norms) as plain momentum without decay, as pytorch_optimizer does;
    True or False says it for all tensors of the group, and then all of them decay.

    A tensor without gradient is left alone; a sparse gradient is refused with ValueError, as are bad settings.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        eps: float = 0.0,
        rate_inside: bool = True,
        clip: bool = False,
        adapt: bool | None = None,
    ) -> None:
        numbers = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "eps": eps}
        super().__init__(params, numbers | {"rate_inside": rate_inside, "clip": clip, "adapt": adapt})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; ValueError for settings that make no sense."""
        super().add_param_group(param_group)
        check_settings(**{key: self.param_groups[-1][key] for key in _NUMBERS})

    def _step_one(self, p: torch.Tensor, group: dict[str, Any]) -> None:
        adapt, decays = self._treatment(p, group["adapt"])
        decay, g = group["weight_decay"] if decays else 0.0, p.grad
        part = (g + decay * p) * _ratio(p, g, decay, group) if adapt else g + decay * p
        if group["rate_inside"]:
            part = part * group["lr"]
        state = self.state[p]
        v = state.setdefault("momentum_buffer", torch.zeros_like(p))
        v.mul_(group["momentum"]).add_(part)
        p.sub_(v if group["rate_inside"] else group["lr"] * v)


_NUMBERS = ("lr", "momentum", "weight_decay", "trust", "eps")


def _ratio(p: torch.Tensor, g: torch.Tensor, decay: float, group: dict[str, Any]) -> torch.Tensor:
    """The trust ratio, a tensor without axes, so that no device has to be waited for."""
    length = torch.linalg.vector_norm(p)
    below = torch.linalg.vector_norm(g) + decay * length + group["eps"]
    ratio = group["trust"] * length / below
    if group["clip"]:
        ratio = ratio.clamp(max=group["lr"]) / (group["lr"] or 1.0)
    return torch.where((length > 0) & (below > 0), ratio, torch.ones_like(ratio))
