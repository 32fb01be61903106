"""Figure "compressors": one and the same set of training runs against steps, against bytes and against seconds on any link.

A run is what labkit computed: the loss after each step, and what a step puts on the wire (`labkit.compress.wire_time`). Its
seconds follow from the link: t steps take ``t (compute_s + coding_s)`` and, for every exchange, its rounds times alpha plus
its bytes through the busiest port over beta.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer, number, one_of
from labkit.compress import Compressor, Scheme, sent_bytes, wire_time
from labkit.network import Link
from labkit.show.figures.base import Interactive, parameter

_MOST = 8  # as many as there are colours and dashes for


@dataclass(frozen=True)
class Curve:
    """A training run. name: of its method. loss: (n + 1,) at the start and after every exchange. every: steps between
    exchanges. costs: (t, bytes, rounds, port) of an exchange from the t-th on: bytes that the busiest worker sends, rounds,
    and bytes through the busiest port in the time formula. coding_s: to encode and decode, a step. Make it by `curve`."""

    name: str
    loss: tuple[float, ...]
    costs: tuple[tuple[int, float, float, float], ...]
    coding_s: float = 0.0
    every: int = 1


def curve(
    name: str,
    how: Scheme | Compressor,
    loss: ArrayLike,
    K: int,
    d: int,
    itemsize: int = 4,
    coding_s: float = 0.0,
    every: int = 1,
) -> Curve:
    """A run of K workers that exchanged d elements of ``itemsize`` bytes as ``how`` says, in every ``every``-th step.

    loss: (n + 1,) positive and finite, at the start and after each of n >= 1 exchanges. ValueError otherwise.
    """
    losses = np.asarray(loss, dtype=float)
    if losses.ndim != 1 or len(losses) < 2 or not (np.isfinite(losses) & (losses > 0)).all():
        raise ValueError(f"loss must hold two or more finite numbers > 0, got {loss!r}")
    costs: list[tuple[int, float, float, float]] = []
    for t in range(len(losses) - 1):
        rounds, port = (wire_time(how, K, d, itemsize, link, t) for link in (Link(1, math.inf), Link(0, 1)))
        now = (float(sent_bytes(how, K, d, itemsize, t).max()), float(rounds), float(port))
        if not costs or costs[-1][1:] != now:
            costs.append((t, *now))
    coding_s, every = number("coding_s", coding_s, least=0), integer("every", every, 1)
    return Curve(
        name, tuple(float(f"{x:.4g}") for x in losses), tuple(costs), float(f"{coding_s:.4g}"), every
    )


@dataclass(frozen=True)
class Compressors(Interactive):
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
    coding: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.coding, bool):
            raise ValueError(f"coding must be True or False, got {self.coding!r}")
        object.__setattr__(self, "curves", tuple(self.curves))
        if not all(isinstance(c, Curve) for c in self.curves) or not 2 <= len(self.curves) <= _MOST:
            raise ValueError(f"curves must be 2 to {_MOST} runs made by curve(...), got {self.curves!r:.100}")

    def data(self) -> dict[str, Any]:
        return {"curves": [asdict(run) for run in self.curves]}
