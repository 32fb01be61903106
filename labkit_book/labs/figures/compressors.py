"""Figure "compressors": one and the same set of training runs against steps, against bytes and against seconds on any link.

A run is what labkit computed: the loss after each step, and what a step puts on the wire (`labkit.compress.wire_time`). Its
seconds follow from the link: t steps take ``t (compute_s + coding_s)`` and, for every exchange, its rounds times alpha plus
its bytes through the busiest port over beta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer, number, one_of
from labkit.compress import Scheme, sent_bytes, wire_time
from labkit.network import Link
from labkit.show.figures.base import Figure, parameter

_MOST = 8  # as many as there are colours and dashes for


@dataclass(frozen=True, eq=False)
class Curve:
    """A run of K workers that exchanged d elements of ``itemsize`` bytes as ``how`` says, in every ``every``-th step.

    name: of its method. loss: (n + 1,) positive and finite, at the start and after each of n >= 1 exchanges. coding_s: to
    encode and decode, a step. ValueError otherwise.
    """

    name: str
    how: Scheme
    loss: ArrayLike
    K: int
    d: int
    itemsize: int = 4
    coding_s: float = 0.0
    every: int = 1

    def __post_init__(self) -> None:
        losses = np.asarray(self.loss, dtype=float)
        if losses.ndim != 1 or len(losses) < 2 or not (np.isfinite(losses) & (losses > 0)).all():
            raise ValueError(f"loss must hold two or more finite numbers > 0, got {self.loss!r}")
        object.__setattr__(self, "loss", tuple(float(f"{x:.4g}") for x in losses))
        number("coding_s", self.coding_s, least=0)
        integer("every", self.every, 1)

    def data(self) -> dict[str, Any]:
        """For the front end. costs: (t, bytes that the busiest worker sends, rounds, bytes through the busiest port) of an
        exchange from the t-th on."""
        costs: list[tuple[int, float, float, float]] = []
        exchange = self.how, self.K, self.d, self.itemsize
        for t in range(np.size(self.loss) - 1):
            rounds = wire_time(*exchange, Link(1, math.inf), t)
            port = wire_time(*exchange, Link(0, 1), t)
            now = float(sent_bytes(*exchange, t).max()), float(rounds), float(port)
            if not costs or costs[-1][1:] != now:
                costs.append((t, *now))
        coding = float(f"{self.coding_s:.4g}")
        return {"name": self.name, "loss": self.loss, "costs": costs, "coding_s": coding, "every": self.every}


@dataclass(frozen=True, repr=False)
class Compressors(Figure):
    """curves: two to eight runs, the plain one first.

    against: "steps", "bytes" or "seconds". target: the loss to reach. A link of ``alpha`` s and ``beta`` bytes/s,
    ``compute_s`` s of computation a step; coding: whether encoding and decoding take their time.
    """

    name: ClassVar[str] = "compressors"
    curves: tuple[Curve, ...] = ()
    against: str = parameter("seconds", one_of, allowed=("steps", "bytes", "seconds"))
    target: float = parameter(0.3, number, above=0)
    beta: float = parameter(2.5e6, number, above=0)
    alpha: float = parameter(1e-4, number, least=0)
    compute_s: float = parameter(0.002, number, least=0)
    coding: bool = parameter(True, one_of, allowed=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(c, Curve) for c in self.curves) or not 2 <= len(self.curves) <= _MOST:
            raise ValueError(f"curves must be 2 to {_MOST} runs, each a Curve, got {self.curves!r:.100}")

    def state(self) -> dict[str, Any]:
        return {**super().state(), "curves": [run.data() for run in self.curves]}
