"""The critical batch size: where more examples per step stop buying fewer steps.

McCandlish et al. 2018, section 2: to reach a given loss, S steps and E = B S examples lie on a hyperbola,

    (S / S_min - 1) (E / E_min - 1) = 1,    that is    S(B) = S_min (1 + B_crit / B),    B_crit = E_min / S_min.

Far below B_crit, doubling B halves the steps; far above it, doubling B doubles the bill. Its order of magnitude
can be forecast from gradients alone, as the noise scale averaged over the steps of the path, if all directions
are curved about alike; where they are not, the forecast is far too large.

Symbols: B examples per step (of all workers together), S steps, E examples, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.noise import gradient_noise
from labkit.learn.noise_ball import ExpectedSGD
from labkit.learn.problems import LeastSquares, Problem


@dataclass(frozen=True)
class Hyperbola:
    """``S(B) = S_min (1 + B_crit / B)``.

    S_min: steps with batches without limit, > 0. B_crit: the batch that needs twice as many, in examples, >= 0.
    Raises ValueError for anything else.

    >>> Hyperbola(S_min=100.0, B_crit=32.0).steps(32)
    200.0
    """

    S_min: float
    B_crit: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.S_min) and self.S_min > 0):
            raise ValueError(f"S_min must be a finite number of steps > 0, got {self.S_min!r}")
        if not (math.isfinite(self.B_crit) and self.B_crit >= 0):
            raise ValueError(f"B_crit must be a finite number of examples >= 0, got {self.B_crit!r}")

    @property
    def E_min(self) -> float:
        """Examples in all with batches far below B_crit."""
        return self.S_min * self.B_crit

    def steps(self, B: ArrayLike) -> Any:
        """Steps with B examples each. B > 0. A float for a number, an array for an array."""
        return self.S_min * (1 + self.B_crit / _batch(B))

    def examples(self, B: ArrayLike) -> Any:
        """Examples in all: ``B S(B) = E_min (1 + B / B_crit)``."""
        return self.S_min * (_batch(B) + self.B_crit)


def fit_hyperbola(B: ArrayLike, S: ArrayLike) -> Hyperbola:
    """The hyperbola through measured steps ``S`` at batches ``B``, (n,) each, n >= 2 different B, both > 0.

    Least squares of the *relative* misfit, since S spans decades; linear in (S_min, E_min), and neither is let
    below zero. ValueError for anything else, or where no S_min > 0 fits.
    """
    batch, steps = np.asarray(B, dtype=np.float64), np.asarray(S, dtype=np.float64)
    if batch.shape != steps.shape or batch.ndim != 1 or len(np.unique(batch)) < 2:
        raise ValueError(
            f"B and S must be lists of equal length with two different B at least, got {batch.shape}, {steps.shape}"
        )
    for name, values in (("B", batch), ("S", steps)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"{name} must be finite and > 0, got {values}")
    columns = np.stack([1 / steps, 1 / (batch * steps)], axis=1)
    S_min, E_min = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]
    if S_min <= 0:
        raise ValueError("S must level off for large B to show S_min > 0: measure larger batches too")
    if E_min < 0:  # the steps grow with B: the nearest hyperbola is flat
        return Hyperbola(float(np.sum(1 / steps) / np.sum(1 / steps**2)), 0.0)
    return Hyperbola(float(S_min), float(E_min / S_min))


class Tuned(NamedTuple):
    """The fewest steps that any constant learning rate of the grid needs, and the largest such rate."""

    steps: int
    eta: float


def fewest_steps(
    problem: LeastSquares, w0: ArrayLike, b: int, target: float, T: int = 10_000, grid: int = 25
) -> Tuned:
    """Steps until the *expected* excess loss is at most ``target``, at the best of ``grid`` constant learning rates.

    The expectation is exact (``noise_ball.ExpectedSGD``), the batches are drawn with replacement, so nothing here
    is random. The rates are spaced evenly in their logarithm from 1 % to 98 % of the largest stable one; those
    whose noise ball lies above the target could touch it in passing, not stay, and are left out. ValueError
    where none is there within T steps.
    """
    law = ExpectedSGD(problem, b)
    best: Tuned | None = None
    for eta in law.largest_eta * np.geomspace(0.98, 0.01, grid):
        if law.ball(float(eta)).excess > target:
            continue
        steps = law.steps_to(target, w0, float(eta), T if best is None else best.steps - 1)
        if steps is not None:
            best = Tuned(steps, float(eta))
            if steps == 0:
                break
    if best is None:
        raise ValueError(f"target must be within reach of T = {T} steps with b = {b}, got {target!r}")
    return best


def mean_noise_scale(problem: Problem, iterates: Iterable[ArrayLike]) -> float:
    """The simple noise scale averaged over the iterates of a run, in examples: a forecast of B_crit.

    iterates: the w before each step of a run with large batches, such as ``sgd(...)[:-1]``; at least one.
    """
    scales = [gradient_noise(problem, w).scale for w in iterates]
    if not scales:
        raise ValueError("iterates must hold at least one w, got none")
    return float(np.mean(scales))


def _batch(B: ArrayLike) -> NDArray[np.float64] | float:
    given = np.asarray(B, dtype=np.float64)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError(f"B must be finite and > 0, got {B!r}")
    return float(given) if given.ndim == 0 else given
