"""Momentum with the learning rate inside the velocity, and the correction that a changing rate then needs.

Goyal et al. 2017, section 3, remark 2. Many papers write ``v <- m v + eta g, w <- w - v`` where torch (and
`labkit.learn.Momentum`) has ``u <- m u + g, w <- w - eta u``. While eta stands still v is eta u. When it changes, the
old v was made with the old rate, and multiplying it by ``eta_t / eta_{t-1}`` (their equation 10) makes the two the
same again. A warm-up changes the rate at every step.

Symbols: v (d,) velocity, m ``momentum``, ``eta`` the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.learn.layers import check_settings
from labkit.learn.problems import Array


class RatedVelocity(NamedTuple):
    """The velocity v, (d,), and the rate of the step that made it; None before the first."""

    v: Array
    eta: float | None


@dataclass(frozen=True)
class MomentumRateInside:
    """``v <- momentum (eta / last eta) v + eta g``, ``w <- w - v``; without ``correct`` the factor is left out.

    momentum: 0 <= momentum < 1. Raises ValueError for another, and for a correction by a last rate of 0.
    """

    momentum: float = 0.9
    correct: bool = True

    def __post_init__(self) -> None:
        check_settings(momentum=self.momentum)

    def start(self, w: Array) -> RatedVelocity:
        """Velocity zero."""
        return RatedVelocity(np.zeros_like(w), None)

    def step(self, w: Array, g: Array, eta: float, memory: RatedVelocity) -> tuple[Array, RatedVelocity]:
        """The next w and velocity."""
        factor = 1.0
        if self.correct and memory.eta is not None and eta != memory.eta:
            if memory.eta == 0:
                raise ValueError(f"eta must not rise from 0 where momentum is corrected, got {eta!r} after 0")
            factor = eta / memory.eta
        v = self.momentum * factor * memory.v + eta * g
        return (w - v).astype(w.dtype, copy=False), RatedVelocity(v.astype(w.dtype, copy=False), eta)
