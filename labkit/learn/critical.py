"""The critical batch size: where more examples per step stop buying fewer steps.

McCandlish et al. 2018, section 2: to reach a given loss, S steps and E = B S examples lie on a hyperbola,

    (S / S_min - 1) (E / E_min - 1) = 1,    that is    S(B) = S_min (1 + B_crit / B),    B_crit = E_min / S_min.

Symbols: B examples per step (of all workers together), S steps, E examples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import number, plain


@dataclass(frozen=True)
class Hyperbola:
    """``S(B) = S_min (1 + B_crit / B)``: S_min steps with batches without limit, > 0; twice as many with B_crit examples.

    >>> Hyperbola(S_min=100.0, B_crit=32.0).steps(32)
    200.0
    """

    S_min: float
    B_crit: float

    def __post_init__(self) -> None:
        number("S_min", self.S_min, above=0)
        number("B_crit", self.B_crit, least=0)

    def steps(self, B: ArrayLike) -> Any:
        """Steps with B > 0 examples each. A float for a number, an array for an array."""
        return plain(self.S_min * (1 + self.B_crit / _positive("B", B)))


def fit_hyperbola(B: ArrayLike, S: ArrayLike) -> Hyperbola:
    """The hyperbola through measured steps ``S`` at batches ``B``, (n,) each, n >= 2 different B, both > 0.

    Least squares of the *relative* misfit; neither S_min nor E_min is let below zero. ValueError where no S_min > 0 fits.
    """
    batch, steps = _positive("B", B), _positive("S", S)
    if batch.shape != steps.shape or batch.ndim != 1 or len(np.unique(batch)) < 2:
        raise ValueError(
            f"B and S must be equally long, with two different B, got {batch.shape}, {steps.shape}"
        )
    columns = np.stack([1 / steps, 1 / (batch * steps)], axis=1)
    S_min, E_min = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]
    if S_min <= 0:
        raise ValueError(
            "S must level off for large B to show S_min > 0: measure larger batches too"
        )
    if E_min < 0:  # the steps grow with B: the nearest hyperbola is flat
        return Hyperbola(float(np.sum(1 / steps) / np.sum(1 / steps**2)), 0.0)
    return Hyperbola(float(S_min), float(E_min / S_min))


def _positive(name: str, value: ArrayLike) -> Any:
    given = np.asarray(value, float)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    return given
