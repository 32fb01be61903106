"""Figure "stale": the largest step that a delay allows, and the path of w on either side of it.

w_{u+1} = w_u - eta L w_{u-tau} settles below eta L = 2 sin(pi / (2 (2 tau + 1))). It swings
above tau^tau / (tau + 1)^(tau + 1), where the largest two of the roots of z^{tau+1} - z^tau + eta L meet on the real axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labkit.checks import integer, number, one_of
from labkit.show.figures.base import Figure, parameter


@dataclass(frozen=True, repr=False)
class Stale(Figure):
    """A constant delay of ``tau`` versions (0 to 16), a step of ``eta_L`` (in units of 1 / L), ``U`` updates.

    view: "path", or "roots" for the roots in the complex plane.
    """

    name: ClassVar[str] = "stale"
    tau: int = parameter(4, integer, most=16)
    eta_L: float = parameter(0.33, number, least=1e-3, most=3)
    view: str = parameter("path", one_of, allowed=("path", "roots"))
    U: int = parameter(160, integer, least=20, most=2000)
