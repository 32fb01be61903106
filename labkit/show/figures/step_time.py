"""Figure "step_time": computation and communication of a step against the number of workers.

A step computes ``t_comp`` seconds, of which the backward pass is a part, and sums the gradient in L buckets: each as soon as
its gradients are there and the bucket before it is through (`labkit.timing.overlap`). One bucket: no overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.cost import (
    Link,
    doubling_time,
    halving_time,
    naive_time,
    ring_time,
    tree_time,
)
from labkit.cost.closed_forms import K_MAX
from labkit.show.figures.base import Interactive, one_of, real, whole
from labkit.show.palette import COMMUNICATE, COMPUTE, INK, WIDTH_IN
from labkit.timing import overlap

FORMS: dict[str, Callable[..., Any]] = {
    "ring": ring_time,
    "tree": tree_time,
    "halving": halving_time,
    "doubling": doubling_time,
    "naive": naive_time,
}
_WORKERS = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class StepTime(Interactive):
    """P parameters of ``itemsize`` bytes, ``t_comp`` s of computation, a link of ``alpha`` s and ``beta`` bytes/s.

    K: workers. algorithm: one of `FORMS`. buckets: L. backward: the backward pass's share of the computation, 0 to 1.
    """

    name: ClassVar[str] = "step_time"
    P: float = 2e8
    itemsize: int = 4
    t_comp: float = 0.08
    alpha: float = 0.0
    beta: float = 1e10
    K: int = 8
    algorithm: str = "ring"
    buckets: int = 1
    backward: float = 2 / 3

    def __post_init__(self) -> None:
        real("P", self.P, 0)
        whole("itemsize", self.itemsize, 1)
        real("t_comp", self.t_comp, 0)
        real("alpha", self.alpha, 0)
        real("beta", self.beta, 1e-300)
        whole("K", self.K, 1, K_MAX)
        one_of("algorithm", self.algorithm, FORMS)
        whole("buckets", self.buckets, 1, 1024)
        real("backward", self.backward, 0, 1)

    def comm_s(self, K: int) -> float:
        """Seconds of communication in a step of K workers, hidden or not."""
        part = self.P * self.itemsize / self.buckets
        return self.buckets * float(FORMS[self.algorithm](K, part, Link(self.alpha, self.beta)))

    def step_s(self, K: int) -> float:
        """Seconds of a step of K workers."""
        back = self.backward * self.t_comp
        return self.t_comp - back + overlap(back, self.comm_s(K), self.buckets).total_s

    def takeover(self) -> int | None:
        """The smallest K at which communication takes longer than computation, None if never (up to 2**53).

        Times within 1e-12 of each other, relatively, tie. Tree, halving and doubling change at 2^m and 2^m + 1 only.
        """
        limit = self.t_comp * (1 + 1e-12)
        if self.algorithm in ("ring", "naive"):
            if self.comm_s(K_MAX) <= limit:
                return None
            low, high = 1, K_MAX  # grows with K, so halve
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self.comm_s(middle) > limit else (middle, high)
            return high
        steps = (K for m in range(53) for K in (2**m, 2**m + 1))
        return next((K for K in steps if self.comm_s(K) > limit), None)

    def draw(self) -> Any:
        import matplotlib.pyplot as plt

        Ks = sorted({*_WORKERS, self.K})
        step = 1e3 * np.array([self.step_s(K) for K in Ks])
        own = 1e3 * self.t_comp
        figure, ax = plt.subplots(figsize=(WIDTH_IN, 3.6))
        place = np.arange(len(Ks))
        edge = {"edgecolor": INK, "lw": 0.4}
        ax.bar(place, own, color=COMPUTE, label="compute", **edge)
        ax.bar(place, step - own, bottom=own, color=COMMUNICATE, hatch="..", label="communicate", **edge)
        ax.bar(Ks.index(self.K), step[Ks.index(self.K)], fill=False, edgecolor=INK, lw=2)
        first = self.takeover()
        if first is not None and first <= Ks[-1]:
            at = next(i for i, K in enumerate(Ks) if first <= K) - 0.5
            ax.axvline(at, color=INK, linestyle="--", lw=1.2, label=f"K = {first}: longer than compute")
        ax.set(xlabel="workers K", ylabel="step (ms)", ylim=(0, 1.05 * step.max() or 1))
        ax.set_xticks(place, Ks)
        figure.legend(loc="outside lower center", ncols=3, fontsize=10)
        return figure

    def alt(self) -> str:
        step, comm, first = self.step_s(self.K), self.comm_s(self.K), self.takeover()
        when = (
            f"first takes longer than computation at K = {first}"
            if first
            else "never takes longer than computation"
        )
        share = max(0.0, 1 - self.t_comp / step) if step else 0.0
        return (
            f"Bars of the step time against the number of workers. With {self.K} workers a step takes {1e3 * step:.4g} ms, "
            f"{1e3 * self.t_comp:.4g} ms of it computation; the all-reduce ({self.algorithm}) takes {1e3 * comm:.4g} ms, "
            f"and {100 * share:.1f} % of the step is nothing but communication. Communication {when}."
        )


FIGURE = StepTime
