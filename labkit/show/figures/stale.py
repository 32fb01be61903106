"""Figure "stale": the largest step that a delay allows, and the path of w on either side of it.

w_{u+1} = w_u - eta L w_{u-tau} settles below eta L = 2 sin(pi / (2 (2 tau + 1))) (`labkit.learn.stability`). It swings
above tau^tau / (tau + 1)^(tau + 1), where the largest two of the roots of z^{tau+1} - z^tau + eta L meet on the real axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.learn.stability import delayed_path, largest_eta, spectral_radius
from labkit.show.figures.base import Interactive, one_of, real, whole
from labkit.show.palette import GUESS, INK, MEASURED, SIMULATED, WIDTH_IN

TAU_MOST = 16


@dataclass(frozen=True)
class Stale(Interactive):
    """A constant delay of ``tau`` versions (0 to 16), a step of ``eta_L`` (in units of 1 / L), ``U`` updates.

    view: "path", or "roots" for the roots in the complex plane.
    """

    name: ClassVar[str] = "stale"
    tau: int = 4
    eta_L: float = 0.33
    view: str = "path"
    U: int = 160

    def __post_init__(self) -> None:
        whole("tau", self.tau, 0, TAU_MOST)
        real("eta_L", self.eta_L, 1e-3, 3)
        one_of("view", self.view, ("path", "roots"))
        whole("U", self.U, 20, 2000)

    def path(self) -> Any:
        """(U + 1,) the path of w from 1."""
        return delayed_path(np.maximum(np.arange(self.U) - self.tau, 0), self.eta_L)[:, 0]

    def swings_above(self) -> float:
        """The eta L above which w swings around its goal."""
        return self.tau**self.tau / (self.tau + 1) ** (self.tau + 1)

    def draw(self) -> Any:
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(WIDTH_IN, 3.4), width_ratios=[3, 4])
        taus = np.arange(TAU_MOST + 1)
        line = largest_eta(taus)
        left.fill_between(taus, line, 3, color=MEASURED, alpha=0.15, lw=0)
        left.plot(taus, line, "o-", color=INK, ms=4)
        left.plot([self.tau], [self.eta_L], "o", color=GUESS, mec=INK, ms=12)
        left.text(TAU_MOST, 1.6, "runs away", ha="right", va="top", fontsize=11)
        left.text(0, 0.021, "settles", fontsize=11)
        left.set(yscale="log", ylim=(0.02, 3), xlabel=r"delay $\tau$", ylabel=r"step $\eta L$")
        left.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2], ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"])
        right.plot(self.path(), color=SIMULATED, lw=1.6)
        right.axhline(0, color=INK, lw=0.6)
        right.set(xlabel="update u", ylabel="w", ylim=(-2.2, 2.2))
        return figure

    def alt(self) -> str:
        limit, factor = largest_eta(self.tau), spectral_radius(self.tau, self.eta_L)
        fate = "settles" if self.eta_L < limit else "runs away"
        return (
            f"Left, the largest step eta L against the delay: a line that falls from 2 without delay to "
            f"{largest_eta(TAU_MOST):.3f} at a delay of {TAU_MOST}; for a delay of {self.tau} it is at {limit:.3f}. "
            f"Right, w over {self.U} updates with that delay and a step of {self.eta_L:g}: it {fate}, by a factor of "
            f"{factor:.3f} an update."
        )


FIGURE = Stale
