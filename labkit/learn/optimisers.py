"""Optimisers as a rule for one step: where to go from w along g, and what to remember.

``AdamW``: Kingma and Ba 2015, algorithm 1, with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).
``Momentum``: heavy ball or Nesterov's as Sutskever et al. 2013, section 2, in torch's convention: the velocity is a sum of
gradients, and the learning rate multiplies it last. Both agree with torch.optim.

Symbols: w, g (d,) parameters and gradient, ``eta`` the learning rate of this step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from labkit.learn.problems import Array


class Optimiser(Protocol):
    """One step of an optimiser; what it remembers is handed to it and back, so that it has no state of its own."""

    def start(self, w: Array) -> Any:
        """What to remember before the first step from w."""

    def step(self, w: Array, g: Array, eta: float, memory: Any) -> tuple[Array, Any]:
        """The next w, in w's dtype, and what to remember."""


class Velocity(NamedTuple):
    """What ``Momentum`` remembers: the velocity v, (d,)."""

    v: Array


class Moments(NamedTuple):
    """What ``AdamW`` remembers: running means of g and of g^2, (d,) each, and the number of steps taken."""

    m: Array
    v: Array
    t: int


@dataclass(frozen=True)
class Momentum:
    """``v <- momentum v + g``, then ``w <- w - eta v``, or with nesterov ``w <- w - eta (g + momentum v)``.

    momentum: 0 (plain SGD) up to, not including, 1. Raises ValueError for another.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _share("momentum", self.momentum)

    def start(self, w: Array) -> Velocity:
        """Velocity zero."""
        return Velocity(np.zeros_like(w))

    def step(self, w: Array, g: Array, eta: float, memory: Velocity) -> tuple[Array, Velocity]:
        """The next w and velocity."""
        v = self.momentum * memory.v + g
        ahead = g + self.momentum * v if self.nesterov else v
        return (w - eta * ahead).astype(w.dtype, copy=False), Velocity(v.astype(w.dtype, copy=False))


@dataclass(frozen=True)
class AdamW:
    """Steps of about eta in every coordinate: the mean gradient over the root of the mean square.

    beta1, beta2: memory of the mean and of the mean square, 0 up to 1. eps > 0: against division by zero.
    weight_decay >= 0: w shrinks by ``eta * weight_decay`` of itself each step. Raises ValueError for others.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _share("beta1", self.beta1)
        _share("beta2", self.beta2)
        if not (np.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps must be finite and > 0, got {self.eps!r}")
        if not (np.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay must be finite and >= 0, got {self.weight_decay!r}")

    def start(self, w: Array) -> Moments:
        """Both means zero; the first steps divide that out again."""
        return Moments(np.zeros_like(w), np.zeros_like(w), 0)

    def step(self, w: Array, g: Array, eta: float, memory: Moments) -> tuple[Array, Moments]:
        """The next w and moments."""
        t = memory.t + 1
        m = self.beta1 * memory.m + (1 - self.beta1) * g
        v = self.beta2 * memory.v + (1 - self.beta2) * g * g
        mean, square = m / (1 - self.beta1**t), v / (1 - self.beta2**t)
        new = w * (1 - eta * self.weight_decay) - eta * mean / (np.sqrt(square) + self.eps)
        dtype = w.dtype
        return new.astype(dtype, copy=False), Moments(
            m.astype(dtype, copy=False), v.astype(dtype, copy=False), t
        )


def _share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
