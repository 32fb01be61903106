"""The critical batch size: where more examples per step stop buying fewer steps.

McCandlish et al. 2018, section 2: to reach a given loss, S steps and E = B S examples lie on a hyperbola,

    (S / S_min - 1) (E / E_min - 1) = 1,    that is    S(B) = S_min (1 + B_crit / B),    B_crit = E_min / S_min.

Far below B_crit, doubling B halves the steps; far above it, doubling B doubles the bill. What B_crit is made of, and what
tells it beforehand, is the matter of lab 10.2.

Symbols: B examples per step (of all workers together), S steps, E examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import number, plain


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
        number("S_min", self.S_min, above=0)
        number("B_crit", self.B_crit, least=0)

    @property
    def E_min(self) -> float:
        """Examples in all with batches far below B_crit."""
        return self.S_min * self.B_crit

    def steps(self, B: ArrayLike) -> Any:
        """Steps with B examples each. B > 0. A float for a number, an array for an array."""
        return plain(self.S_min * (1 + self.B_crit / _positive("B", B)))

    def examples(self, B: ArrayLike) -> Any:
        """Examples in all: ``B S(B) = E_min (1 + B / B_crit)``."""
        return plain(self.S_min * (_positive("B", B) + self.B_crit))


def fit_hyperbola(B: ArrayLike, S: ArrayLike) -> Hyperbola:
    """The hyperbola through measured steps ``S`` at batches ``B``, (n,) each, n >= 2 different B, both > 0.

    Least squares of the *relative* misfit, since S spans decades; linear in (S_min, E_min), and neither is let
    below zero. ValueError for anything else, or where no S_min > 0 fits.
    """
    batch, steps = _positive("B", B), _positive("S", S)
    if batch.shape != steps.shape or batch.ndim != 1 or len(np.unique(batch)) < 2:
        raise ValueError(
            f"B and S must be lists of equal length with two different B at least, got {batch.shape}, {steps.shape}"
        )
    columns = np.stack([1 / steps, 1 / (batch * steps)], axis=1)
    S_min, E_min = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]
    if S_min <= 0:
        raise ValueError("S must level off for large B to show S_min > 0: measure larger batches too")
    if E_min < 0:  # the steps grow with B: the nearest hyperbola is flat
        return Hyperbola(float(np.sum(1 / steps) / np.sum(1 / steps**2)), 0.0)
    return Hyperbola(float(S_min), float(E_min / S_min))


def _positive(name: str, value: ArrayLike) -> Any:
    given = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return given
