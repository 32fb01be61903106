"""Figure "compressors": one and the same set of training runs against steps, against bytes and against seconds on any link.

A run is what labkit computed: the loss after each step, and what a step puts on the wire (`labkit.compress.price`). Its
seconds follow from the link: t steps take ``t (compute_s + coding_s)`` and, for every exchange, its rounds times alpha plus
its bytes through the busiest port over beta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from labkit.compress import Compressor, Pays, Scheme, sent_bytes, wire_time
from labkit.cost import Link
from labkit.show.figures.base import Interactive, one_of, real
from labkit.show.palette import INK, WIDTH_IN, WORKERS

COLOURS = (INK, *WORKERS[:6], WORKERS[7])


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

    def reaches(self, target: float) -> int | None:
        """The number of exchanges after which the loss is first at most ``target``; None if never."""
        return next((i for i, loss in enumerate(self.loss) if loss <= target), None)

    def spent(self, exchanges: int) -> tuple[float, float, float]:
        """Bytes, rounds and bytes through the busiest port of so many exchanges."""
        ends = [t for t, *_ in self.costs[1:]] + [exchanges]
        counts = [max(0, min(end, exchanges) - t) for (t, *_), end in zip(self.costs, ends, strict=True)]
        total = [sum(n * cost[i] for n, cost in zip(counts, self.costs, strict=True)) for i in (1, 2, 3)]
        return total[0], total[1], total[2]


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
    real("coding_s", coding_s, 0)
    costs: list[tuple[int, float, float, float]] = []
    for t in range(len(losses) - 1):
        rounds, port = (wire_time(how, K, d, itemsize, link, t) for link in (Link(1, math.inf), Link(0, 1)))
        now = (float(sent_bytes(how, K, d, itemsize, t).max()), float(rounds), float(port))
        if not costs or costs[-1][1:] != now:
            costs.append((t, *now))
    return Curve(
        name, tuple(float(f"{x:.4g}") for x in losses), tuple(costs), float(f"{coding_s:.4g}"), int(every)
    )


@dataclass(frozen=True)
class Compressors(Interactive):
    """curves: two to eight runs, the plain one first; without any, those of a small least-squares problem.

    against: "steps", "bytes" or "seconds". target: the loss to reach. A link of ``alpha`` s and ``beta`` bytes/s,
    ``compute_s`` s of computation a step; coding: whether encoding and decoding take their time.
    """

    name: ClassVar[str] = "compressors"
    curves: tuple[Curve, ...] = ()
    against: str = "seconds"
    target: float = 0.3
    beta: float = 2.5e6
    alpha: float = 1e-4
    compute_s: float = 0.002
    coding: bool = True

    def __post_init__(self) -> None:
        if self.curves:
            object.__setattr__(self, "curves", tuple(self.curves))
            if not all(isinstance(c, Curve) for c in self.curves) or not 2 <= len(self.curves) <= len(
                COLOURS
            ):
                raise ValueError(
                    f"curves must be 2 to {len(COLOURS)} runs made by curve(...), got {self.curves!r:.100}"
                )
        one_of("against", self.against, ("steps", "bytes", "seconds"))
        real("target", self.target, 1e-12)
        real("beta", self.beta, 1e-300)
        real("alpha", self.alpha, 0)
        real("compute_s", self.compute_s, 0)
        if not isinstance(self.coding, bool):
            raise ValueError(f"coding must be True or False, got {self.coding!r}")

    def data(self) -> dict[str, Any]:
        keys = ("name", "loss", "costs", "coding_s", "every")
        return {"curves": [{key: getattr(c, key) for key in keys} for c in self.runs()]}

    def runs(self) -> tuple[Curve, ...]:
        """The runs that are shown."""
        return self.curves or example()

    def at(self, run: Curve, exchanges: int) -> float:
        """Where a run stands on the horizontal axis after so many exchanges."""
        nbytes, rounds, port = run.spent(exchanges)
        steps = exchanges * run.every
        if self.against != "seconds":
            return float(steps) if self.against == "steps" else nbytes
        return steps * (self.compute_s + self.coding * run.coding_s) + rounds * self.alpha + port / self.beta

    def to_target(self) -> dict[str, float]:
        """Steps, bytes or seconds until each run is at the target; infinite if it never is."""
        reached = {run.name: (run, run.reaches(self.target)) for run in self.runs()}
        return {name: math.inf if i is None else self.at(run, i) for name, (run, i) in reached.items()}

    def sooner(self) -> dict[str, Pays]:
        """On which bandwidths each run is at the target before the plain one, which must get there."""
        lines = {}
        for run in self.runs():
            i = run.reaches(self.target)
            if i is not None:
                _, rounds, port = run.spent(i)
                own = i * run.every * (self.compute_s + self.coding * run.coding_s)
                lines[run.name] = (own + rounds * self.alpha, port)
        plain = lines.get(self.runs()[0].name)
        return {name: _between(plain, line) for name, line in lines.items()} if plain else {}

    def draw(self) -> Any:
        import matplotlib.pyplot as plt

        figure, (above, below) = plt.subplots(2, 1, figsize=(WIDTH_IN, 6.4), height_ratios=[3, 2])
        reached = self.to_target()
        order = sorted(reached, key=lambda name: reached[name])
        for run, colour in zip(self.runs(), COLOURS, strict=False):
            x = [self.at(run, i) for i in range(1, len(run.loss))]
            above.plot(x, run.loss[1:], color=colour, lw=1.6, label=run.name)
            if reached[run.name] < math.inf:
                below.barh(order.index(run.name), reached[run.name], color=colour)
        above.axhline(self.target, color=INK, linestyle="--", lw=1.2)
        unit = {"steps": "steps", "bytes": "bytes sent by each worker", "seconds": "time (s)"}[self.against]
        above.set(xscale="log", yscale="log", ylabel="loss", xlabel=unit)
        above.set_yticks([y for y in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if _inside(y, self.runs())])
        above.yaxis.set_major_formatter("{x:g}")
        above.yaxis.set_minor_formatter("")
        below.set_yticks(range(len(order)), order)
        below.invert_yaxis()
        below.set_xlabel(f"{unit} to a loss of {self.target:g}")
        return figure

    def alt(self) -> str:
        reached = self.to_target()
        unit = {"steps": "steps", "bytes": "bytes", "seconds": "seconds"}[self.against]
        said = [
            f"{name} {x:.4g}" if x < math.inf else f"{name} never"
            for name, x in sorted(reached.items(), key=lambda p: p[1])
        ]
        link = (
            f" at {8 * self.beta:.3g} bit/s and {self.alpha:.3g} s a message"
            if self.against == "seconds"
            else ""
        )
        return (
            f"Loss against {unit}{link}. {unit.capitalize()} to a loss of {self.target:g}: {', '.join(said)}."
        )


def _between(plain: tuple[float, float], line: tuple[float, float]) -> Pays:
    """Where line[0] + line[1] / beta < plain[0] + plain[1] / beta."""
    saved_s, saved_bytes = plain[0] - line[0], plain[1] - line[1]
    if saved_bytes > 0:
        return Pays(0.0, math.inf if saved_s >= 0 else saved_bytes / -saved_s)
    return Pays(-saved_bytes / saved_s, math.inf) if saved_s > 0 else Pays(0.0, 0.0)


def _inside(y: float, runs: Sequence[Curve]) -> bool:
    every = [loss for run in runs for loss in run.loss]
    return min(every) <= y <= max(every)


@cache
def example() -> tuple[Curve, ...]:
    """Four workers, least squares in 200 dimensions, 40 steps, five ways to send a gradient; coding at 20 ns a number."""
    from labkit.comm.launch import launch
    from labkit.compress import QSGD, ErrorFeedback, Identity, Sign, TopK, compressed_sgd
    from labkit.learn import LeastSquares, linear_data, split

    K, d, T = 4, 200, 40
    rng = np.random.default_rng(7)
    X, y, _ = linear_data(400, d, rng)
    problem = LeastSquares(X / 10, y / 10)
    shards = [split(np.arange(400), K)] * T
    ways: dict[str, Any] = {
        "plain": Identity(), "QSGD, s = 7": QSGD(7), "top 1 %": ErrorFeedback(TopK(0.01)),
        "sign": ErrorFeedback(Sign()), "top 10 %": ErrorFeedback(TopK(0.1)),
    }  # fmt: skip
    made = []
    for name, how in ways.items():
        run = launch(compressed_sgd, K, problem, np.zeros(d), 0.2 / problem.L, shards, how)
        loss = [problem.loss(w) for w in run.results[0].iterates]
        made.append(curve(name, how, loss, K, d, 8, 0.0 if name == "plain" else d * 20e-9))
    return tuple(made)


FIGURE = Compressors
