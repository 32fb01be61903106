"""LARS: momentum in which every layer's step is proportional to the length of its weights.

You, Gitman and Ginsburg 2017, Algorithm 1:

    ratio = trust |w_l| / (|g_l| + weight_decay |w_l|)
    v_l <- momentum v_l + eta ratio (g_l + weight_decay w_l),   w_l <- w_l - v_l

Symbols: w_l, g_l one layer's part of w and g, ``eta`` the global rate, v (d,) the velocity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.learn.layers import Layer, check_layers, check_settings, norm
from labkit.learn.optimisers import Velocity
from labkit.learn.problems import Array


@dataclass(frozen=True)
class LARS:
    """Layer-wise adaptive rate scaling over the ``layers`` of a flat w.

    trust, the paper's small eta (0.001 there), is a layer's relative step at global rate 1. momentum as in
    `labkit.learn.Momentum`; weight_decay is added to the gradient. eps is added to the denominator (0 in the paper;
    Apex and timm have 1e-8). rate_inside: eta inside the velocity, as the paper has it, or outside (False), as torch's
    SGD and pytorch_optimizer do; they differ only while eta changes. clip: LARC, as in Apex and timm: the ratio only
    ever lowers a layer's rate, which is the smaller of eta and ``trust |w_l| / (...)``, no longer their product.

    A layer whose weights or whose denominator are zero has ratio 1 (a fresh bias must be able to start); one with
    ``adapt=False`` always has. Where the weights are not zero but the gradient is, and nothing decays, the layer only
    rolls on with its velocity. Raises ValueError for settings or layers that make no sense.
    """

    layers: tuple[Layer, ...]
    trust: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 0.0
    eps: float = 0.0
    rate_inside: bool = True
    clip: bool = False

    def __post_init__(self) -> None:
        check_settings(trust=self.trust, momentum=self.momentum, weight_decay=self.weight_decay, eps=self.eps)
        object.__setattr__(self, "layers", tuple(self.layers))

    def ratios(self, w: Array, g: Array, eta: float) -> Array:
        """What every layer's eta is multiplied by, (layers,); eta itself matters only with ``clip``."""
        check_layers(self.layers, w, g)
        return np.array([self._ratio(layer, w[layer.at], g[layer.at], eta) for layer in self.layers])

    def start(self, w: Array) -> Velocity:
        """Velocity zero."""
        return Velocity(np.zeros_like(w))

    def step(self, w: Array, g: Array, eta: float, memory: Velocity) -> tuple[Array, Velocity]:
        """The next w and velocity."""
        v, inside = self.momentum * memory.v, eta if self.rate_inside else 1.0
        for layer, ratio in zip(self.layers, self.ratios(w, g, eta), strict=True):
            part = g[layer.at] + (self.weight_decay * w[layer.at] if layer.decay else 0)
            v[layer.at] += inside * ratio * part
        return (w - (1.0 if self.rate_inside else eta) * v).astype(w.dtype, copy=False), Velocity(v)

    def _ratio(self, layer: Layer, w: Array, g: Array, eta: float) -> float:
        length = norm(w)
        below = norm(g) + (self.weight_decay if layer.decay else 0.0) * length + self.eps
        if not layer.adapt or length == 0 or below == 0:
            return 1.0
        ratio = self.trust * length / below
        return min(ratio, eta) / (eta or 1.0) if self.clip else ratio
