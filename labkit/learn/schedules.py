"""Learning rates for large batches: how far to scale, and how to get there.

Linear scaling and gradual warm-up: Goyal et al. 2017, sections 2.1 and 2.2. Square-root scaling: Krizhevsky 2014,
section 5; Hoffer, Hubara and Soudry 2017, section 4. The classes are functions of the step t = 0, 1, ..., the
``eta`` that `labkit.learn.sgd` and `labkit.learn.rules.walk` take.

Symbols: K how many times larger the batch is (B = K b), ``eta`` the learning rate, t the step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from labkit.learn.sgd import Rate, rate


def linear_rate(eta: float, K: float) -> float:
    """``eta K``: the rate for a batch K times as large, so that an epoch's steps add up to the same way.

    eta: the rate that suits the small batch, >= 0. K > 0. Raises ValueError for anything else.

    >>> round(linear_rate(0.1, K=8), 6)
    0.8
    """
    return _finite("eta", eta) * _factor(K)


def sqrt_rate(eta: float, K: float) -> float:
    """``eta sqrt(K)``: keeps the variance of a step, ``eta^2 sigma^2 / B``, where linear scaling keeps its mean.

    eta: the rate that suits the small batch, >= 0. K > 0. Raises ValueError for anything else.
    """
    return _finite("eta", eta) * math.sqrt(_factor(K))


@dataclass(frozen=True)
class WarmUp:
    """Gradual warm-up: from ``start`` at step 0 in equal increments to ``eta`` at step ``steps``, and on with ``eta``.

    eta: the rate afterwards, a number or a function of t (it sees the true t). steps >= 0; with 0 there is no
    warm-up. start >= 0: Goyal et al. start at the small batch's rate and take 5 epochs. Raises ValueError.

    >>> rate = WarmUp(eta=0.8, steps=4)
    >>> [round(rate(t), 6) for t in (0, 2, 4, 100)]
    [0.0, 0.4, 0.8, 0.8]
    """

    eta: Rate
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _rate(self.eta)
        _steps("steps", self.steps)
        _finite("start", self.start)

    def __call__(self, t: int) -> float:
        """The rate at step t."""
        if t >= self.steps:
            return rate(self.eta, t)
        return self.start + (rate(self.eta, self.steps) - self.start) * t / self.steps


@dataclass(frozen=True)
class ConstantWarmUp:
    """``start`` for the first ``steps`` steps, then ``eta`` at once: the warm-up that Goyal et al. found wanting.

    eta: the rate afterwards, a number or a function of t. steps, start >= 0. Raises ValueError.
    """

    eta: Rate
    steps: int
    start: float

    def __post_init__(self) -> None:
        _rate(self.eta)
        _steps("steps", self.steps)
        _finite("start", self.start)

    def __call__(self, t: int) -> float:
        """The rate at step t."""
        return rate(self.eta, t) if t >= self.steps else float(self.start)


@dataclass(frozen=True)
class StepDecay:
    """``eta`` times ``factor`` for each of the steps ``at`` that has been reached.

    eta >= 0. at: increasing whole numbers >= 0. factor: >= 0 (Goyal et al.: 0.1 at epochs 30, 60 and 80).
    Raises ValueError.
    """

    eta: float
    at: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        _finite("eta", self.eta)
        _finite("factor", self.factor)
        for step in self.at:
            _steps("at", step)
        if list(self.at) != sorted(set(self.at)):
            raise ValueError(f"at must hold increasing steps, got {self.at!r}")

    def __call__(self, t: int) -> float:
        """The rate at step t."""
        return self.eta * self.factor ** bisect_right(self.at, t)


def _finite(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise ValueError(f"{name} must be a number >= 0, got {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
    return float(value)


def _rate(eta: Rate) -> None:
    if not callable(eta):
        _finite("eta", eta)


def _factor(K: float) -> float:
    if _finite("K", K) == 0:
        raise ValueError(f"K must be > 0, got {K!r}")
    return float(K)


def _steps(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name} must be made of whole numbers >= 0, got {value!r}")
