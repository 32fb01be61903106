"""Figure "barriers": who waits for whom, as lanes, with a barrier, some slack, none, spare workers, or local steps.

Compute times are labkit's own draws: the uniform numbers of ranks 0 to 11 travel with the figure, and the browser pushes
them through the same inverse of the law, so a run there is the run that `labkit.timing` makes of the same seed.
All laws have the mean ``mean_s`` and the standard deviation ``spread * mean_s``; they differ in their tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labkit.show.figures.base import Interactive, one_of, real, whole
from labkit.timing import (
    Constant,
    Law,
    OneStraggler,
    Pareto,
    ShiftedExponential,
    Timeline,
    Uniform,
    Updates,
    asynchronous,
    backup,
    backup_ends,
    bsp,
    draw,
    local,
    one_by_one,
    ssp,
    together,
)

K_MOST, SEEDS = 12, 4
LAWS: dict[str, Callable[[float, float], Law]] = {
    "constant": lambda mean, spread: Constant(mean),
    "uniform": lambda mean, spread: Uniform(
        mean - math.sqrt(3) * spread * mean, mean + math.sqrt(3) * spread * mean
    ),
    "exponential": lambda mean, spread: ShiftedExponential(mean - spread * mean, spread * mean),
    "pareto": lambda mean, spread: _pareto(mean, 1 + math.sqrt(1 + spread**-2)),
}
METHODS = ("BSP", "SSP", "asynchronous", "backup", "local")


class Totals(NamedTuple):
    """elapsed_s: all have taken their steps. waiting: share of the workers' time until then. rate: gradients a second that
    are used, while all are at work. staleness, stalest: mean and largest, in versions; None where each has its own w."""

    elapsed_s: float
    waiting: float
    rate: float
    staleness: float | None
    stalest: int | None


@dataclass(frozen=True)
class Barriers(Interactive):
    """K workers take T steps each; rank 0 is ``slowdown`` times slower. A step communicates for ``comm_s``.

    method: one of `METHODS`; its dial is ``slack`` (SSP), ``server_s`` (asynchronous: seconds of a server's time for each
    gradient), ``backups`` (below K) or ``H`` (local steps). law: one of `LAWS`. seed: 0 to 3, of the compute times.
    """

    name: ClassVar[str] = "barriers"
    K: int = 4
    slowdown: float = 1.0
    law: str = "exponential"
    spread: float = 0.5
    mean_s: float = 0.02
    method: str = "BSP"
    slack: int = 1
    server_s: float = 0.0
    backups: int = 1
    H: int = 4
    comm_s: float = 0.002
    T: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        whole("K", self.K, 1, K_MOST)
        real("slowdown", self.slowdown, 1, 100)
        one_of("law", self.law, LAWS)
        real("spread", self.spread, 0.01, 0.57)
        real("mean_s", self.mean_s, 1e-9)
        one_of("method", self.method, METHODS)
        whole("slack", self.slack, 0)
        real("server_s", self.server_s, 0)
        whole("backups", self.backups, 0, self.K - 1 if self.method == "backup" else None)
        whole("H", self.H, 1)
        real("comm_s", self.comm_s, 0)
        whole("T", self.T, 1, 40)
        whole("seed", self.seed, 0, SEEDS - 1)

    def data(self) -> dict[str, Any]:
        """u[seed][rank][t]: the uniform numbers from which labkit's laws make compute times."""
        rows = [
            [np.random.default_rng([s, k]).random(self.T).tolist() for k in range(K_MOST)]
            for s in range(SEEDS)
        ]
        return {"u": rows}

    def times(self) -> Any:
        """(K, T) compute times, seconds."""
        law = OneStraggler(LAWS[self.law](self.mean_s, self.spread), self.slowdown)
        return draw(law, self.K, self.T, self.seed)

    def timeline(self) -> Timeline:
        """The run."""
        X = self.times()
        return {
            "BSP": lambda: bsp(X, self.comm_s),
            "SSP": lambda: ssp(X, self.slack, self.comm_s),
            "asynchronous": lambda: asynchronous(X, self.comm_s, self.server_s),
            "backup": lambda: backup(X, self.backups, self.comm_s),
            "local": lambda: local(X, self.H, self.comm_s),
        }[self.method]()

    def updates(self) -> Updates | None:
        """What the run means for learning; None for local steps, where each worker has parameters of its own."""
        if self.method == "local":
            return None
        return (together if self.method in ("BSP", "backup") else one_by_one)(self.timeline())

    def free_s(self) -> float:
        """Seconds until all are done if nobody waits for anybody."""
        return asynchronous(self.times(), self.comm_s).finish_s

    def totals(self) -> Totals:
        """The numbers under the picture."""
        run, updates = self.timeline(), self.updates()
        elapsed = run.finish_s
        if self.method == "backup":  # late workers may go on after the run
            elapsed = float(backup_ends(self.times(), self.backups, self.comm_s)[-1])
        waiting = run.idle_s / (self.K * elapsed)
        if updates is None:
            return Totals(elapsed, waiting, self.K * self.T / elapsed, None, None)
        until, used = elapsed, len(updates.tau)
        if self.method in ("SSP", "asynchronous"):  # until the first has nothing left to do
            last = updates.step == self.T - 1
            until = float(updates.applied_s[last].min())
            used = int((updates.applied_s <= until).sum())
        return Totals(elapsed, waiting, used / until, float(updates.tau.mean()), int(updates.tau.max()))

    def draw(self) -> Any:
        import matplotlib.pyplot as plt

        from labkit.show.lanes import lanes
        from labkit.show.palette import INK, WIDTH_IN

        figure, ax = plt.subplots(figsize=(WIDTH_IN, 1.9 + 0.42 * self.K))
        lanes(self.timeline(), ax=ax)
        ax.set_title(f"{self.described()}: {1e3 * self.totals().elapsed_s:.0f} ms", loc="left", fontsize=12)
        ax.axvline(1e3 * self.free_s(), color=INK, linestyle="--", lw=1.2)
        return figure

    def described(self) -> str:
        """The method and its dial."""
        return {
            "BSP": "a barrier after every step",
            "SSP": f"slack s = {self.slack}",
            "asynchronous": "no barrier",
            "backup": f"{self.backups} backup worker{'s' * (self.backups != 1)}",
            "local": f"a barrier after every {self.H} steps",
        }[self.method]

    def alt(self) -> str:
        totals = self.totals()
        who = f", worker 0 {self.slowdown:g} times slower" if self.slowdown > 1 else ""
        rounds = "rounds" if self.method == "backup" else "steps each"
        stale = (
            "each worker has parameters of its own"
            if totals.staleness is None
            else f"gradients are {totals.staleness:.2f} versions old on average, {totals.stalest} at most"
        )
        return (
            f"Lanes of {self.K} workers{who}, {self.described()}. {self.T} {rounds} take {1e3 * totals.elapsed_s:.1f} ms; "
            f"{100 * totals.waiting:.1f} % of the time is spent waiting; {stale}. "
            f"If nobody waited they would be done after {1e3 * self.free_s():.1f} ms."
        )


def _pareto(mean: float, shape: float) -> Law:
    return Pareto(mean * (shape - 1) / shape, shape)


FIGURE = Barriers
