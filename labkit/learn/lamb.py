"""LAMB: Adam in which every layer's step is as long as ``eta`` times the length of its weights.

You et al. 2020 (arXiv 2019), Algorithm 2:

    m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
    r = m' / (sqrt(v') + eps),      m' = m / (1 - beta1^t),  v' = v / (1 - beta2^t)
    w_l <- w_l - eta phi(|w_l|) / |r_l + weight_decay w_l| (r_l + weight_decay w_l)

Symbols: m, v (d,) the two moments, t = 1, 2, ... the step, w_l, r_l one layer's part, phi a clipping of the norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.learn.layers import Layer, check_layers, check_settings, norm
from labkit.learn.optimisers import Moments
from labkit.learn.problems import Array


@dataclass(frozen=True)
class LAMB:
    """Layer-wise adaptive Adam over the ``layers`` of a flat w.

    beta1, beta2 in [0, 1), eps > 0 inside Adam's ratio, weight_decay >= 0 decoupled as in the paper (added to the
    direction before its norm is taken). phi(z) = min(z, longest): infinity is the paper's identity, pytorch_optimizer
    has 10. correct_bias: divide by 1 - beta^t as the paper does; pytorch_optimizer instead divides eta by
    1 - beta1^t (or, with ``adam_debias=True``, nothing at all, which is ``correct_bias=False`` here). trust_eps is
    added to the direction's norm (0 in the paper, pytorch_optimizer adds its eps).

    A layer whose weights or whose direction are zero has ratio 1; one with ``adapt=False`` always has. With no layer
    adapted this is AdamW. Raises ValueError for settings or layers that make no sense.
    """

    layers: tuple[Layer, ...]
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    correct_bias: bool = True
    longest: float = float("inf")
    trust_eps: float = 0.0

    def __post_init__(self) -> None:
        settings = {"beta1": self.beta1, "beta2": self.beta2, "eps": self.eps, "trust_eps": self.trust_eps}
        check_settings(**settings, weight_decay=self.weight_decay)
        if not self.eps > 0:
            raise ValueError(f"eps must be > 0, or a zero gradient divides by zero, got {self.eps!r}")
        if not self.longest > 0:
            raise ValueError(f"longest must be > 0 (infinity for no limit), got {self.longest!r}")
        object.__setattr__(self, "layers", tuple(self.layers))

    def start(self, w: Array) -> Moments:
        """Both moments zero."""
        return Moments(np.zeros_like(w), np.zeros_like(w), 0)

    def step(self, w: Array, g: Array, eta: float, memory: Moments) -> tuple[Array, Moments]:
        """The next w and moments."""
        check_layers(self.layers, w, g)
        t = memory.t + 1
        m = self.beta1 * memory.m + (1 - self.beta1) * g
        v = self.beta2 * memory.v + (1 - self.beta2) * g * g
        by1, by2 = (1 - self.beta1**t, 1 - self.beta2**t) if self.correct_bias else (1.0, 1.0)
        direction = (m / by1) / (np.sqrt(v / by2) + self.eps)
        new = w.copy()
        for layer in self.layers:
            part = direction[layer.at] + (self.weight_decay * w[layer.at] if layer.decay else 0)
            new[layer.at] -= eta * self._ratio(layer, w[layer.at], part) * part
        return new, Moments(m, v, t)

    def _ratio(self, layer: Layer, w: Array, direction: Array) -> float:
        length, below = norm(w), norm(direction)
        if not layer.adapt or length == 0 or below == 0:
            return 1.0
        return min(length, self.longest) / (below + self.trust_eps)
