"""Diminishing learning rates ``eta_t = c / (t + t0)^power``, and the two sums that Robbins and Monro ask about.

Robbins and Monro 1951: with steps whose sum is infinite and whose squares have a finite sum, the iterates
converge in spite of the noise. The first sum is how far one can travel, the second how much noise one picks up
on the way. A power in (1/2, 1] satisfies both. Bottou, Curtis and Nocedal 2018, theorem 4.7: at power 1, with
``c > 1 / mu``, the excess loss falls like 1/t.

Symbols: ``c`` and ``t0`` of the rule, t steps, mu strong convexity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.extras import scipy


@dataclass(frozen=True)
class Decay:
    """The learning rate as a function of the step t = 0, 1, ...: ``c / (t + t0)^power``. Pass it to ``sgd`` as ``eta``.

    c > 0. t0 > 0: how long the beginning lasts. power >= 0; 0 is a constant rate. Raises ValueError for
    anything else.

    >>> [Decay(c=2.0)(t) for t in (0, 1, 3)]
    [2.0, 1.0, 0.5]
    """

    c: float
    t0: float = 1.0
    power: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("c", "> 0"), ("t0", "> 0"), ("power", ">= 0")):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and least == ">= 0"))):
                raise ValueError(f"{name} must be finite and {least}, got {value!r}")

    def __call__(self, t: int) -> float:
        """The learning rate of step t."""
        return float(self.c / (t + self.t0) ** self.power)

    @property
    def total(self) -> float:
        """The sum of all learning rates: infinite up to power 1, then a Hurwitz zeta function. Needs scipy."""
        return self._sum(1)

    @property
    def squares(self) -> float:
        """The sum of their squares: infinite up to power 1/2. Needs scipy."""
        return self._sum(2)

    def _sum(self, exponent: int) -> float:
        if self.power * exponent <= 1:
            return math.inf
        zeta = scipy("special").zeta
        return float(self.c**exponent * zeta(self.power * exponent, self.t0))

    @property
    def robbins_monro(self) -> bool:
        """Whether both conditions hold: an infinite sum, and a finite sum of squares."""
        return 0.5 < self.power <= 1

    @classmethod
    def starting_at(cls, eta0: float, t0: float, power: float) -> Decay:
        """The rule whose first rate is ``eta0``, so that rules of different powers can be compared."""
        return cls(eta0 * t0**power, t0, power)
