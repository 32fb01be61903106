"""Figure "ring": the ring all-reduce, round by round (Patarasuk and Yuan 2009), beside a server's bytes and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labkit.cost import Link, naive_bytes, naive_time, ring_bytes
from labkit.show.figures.base import Interactive, real, whole
from labkit.show.palette import WIDTH_IN, WORKERS

_PANELS = 7  # rounds that the still picture shows at most


@dataclass(frozen=True)
class Ring(Interactive):
    """K workers (2 to 8), n elements of ``itemsize`` bytes, ``alpha`` s and ``beta`` bytes/s; ``round`` rounds are over."""

    name: ClassVar[str] = "ring"
    K: int = 4
    n: int = 250_000
    itemsize: int = 4
    alpha: float = 25e-6
    beta: float = 1.25e9
    round: int = 0

    def __post_init__(self) -> None:
        whole("K", self.K, 2, 8)
        whole("n", self.n, 0)
        whole("itemsize", self.itemsize, 1)
        whole("round", self.round, 0, 2 * (self.K - 1))
        real("alpha", self.alpha, 0)
        real("beta", self.beta, 1e-300)

    def draw(self) -> Any:
        import matplotlib.pyplot as plt
        from matplotlib.colors import to_rgb

        K, last = self.K, 2 * (self.K - 1)
        rounds = np.unique(np.linspace(0, last, min(last + 1, _PANELS)).round().astype(int))
        figure, axes = plt.subplots(
            -(-len(rounds) // 2), 2, figsize=(WIDTH_IN, 0.5 + (0.35 * K + 0.75) * -(-len(rounds) // 2))
        )
        for ax in axes.flat[len(rounds) :]:
            ax.axis("off")
        for ax, j in zip(axes.flat, rounds, strict=False):
            there = holds(K, int(j))
            for k, c, i in np.argwhere(there):
                colour = 0.45 * np.array(to_rgb(WORKERS[i])) + 0.55
                stripe = (c - 0.46 + 0.92 * i / K, k - 0.42)
                ax.add_patch(plt.Rectangle(stripe, 0.92 / K, 0.84, color=colour, lw=0))
            for k, c in np.ndindex(K, K):
                ax.add_patch(
                    plt.Rectangle((c - 0.46, k - 0.42), 0.92, 0.84, fill=False, ec="#B0B0B0", lw=0.6)
                )
                ax.text(c, k, _words(there[k, c], c), ha="center", va="center", fontsize=11 if K < 7 else 9)
            half = "start" if j == 0 else f"round {j}: {'add' if j < K else 'keep'}"
            ax.set_title(half, loc="left")
            ax.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5), xticks=range(K), yticks=range(K))
            ax.set_ylabel("worker")
            ax.tick_params(length=0)
            ax.set_xlabel("chunk")
            ax.spines[:].set_visible(False)
        return figure

    def alt(self) -> str:
        link, nbytes = Link(self.alpha, self.beta), self.n * self.itemsize
        longest = -(-self.n // self.K) * self.itemsize
        busiest = int(ring_bytes(self.K, self.n, self.itemsize).max())
        total = 2 * (self.K - 1) * link.seconds(longest) if self.n else 0.0
        server = int(naive_bytes(self.K, nbytes).max())
        alone = float(naive_time(self.K, nbytes, link)) if self.n else 0.0
        return (
            f"Whose share each of {self.K} workers holds of each chunk: after {self.K - 1} rounds of adding, worker k "
            f"holds the finished chunk k plus 1, and {self.K - 1} rounds later everyone holds everything. The busiest "
            f"port sends {busiest / 1e6:.4g} MB in {1e3 * total:.4g} ms; a server's would send {server / 1e6:.4g} MB in "
            f"{1e3 * alone:.4g} ms."
        )


def _words(there: NDArray[np.bool_], chunk: int) -> str:
    """Whose shares, in the order in which the ring adds them: from the chunk's own worker on."""
    K, members = len(there), np.flatnonzero(there)
    order = sorted(members, key=lambda k: (k - chunk) % K)
    if len(order) == K:
        return "sum" if K < 7 else "Σ"
    words = "+".join(map(str, order))
    return words if len(words) * K <= 28 else f"{len(order)}/{K}"


def holds(K: int, rounds: int) -> NDArray[np.bool_]:
    """(worker, chunk, k): whether worker k's share is in that worker's chunk after so many rounds."""
    worker, chunk, k = np.ogrid[:K, :K, :K]
    behind = (worker - chunk) % K  # how many workers the chunk's sum has come along to get here
    sums = (k - chunk) % K <= behind  # of the workers it came along
    arrives = np.where(behind == 0, K, behind)  # the round of the reduce-scatter in which it does
    now: NDArray[np.bool_] = np.where(arrives <= rounds, sums, k == worker)
    finished = K - 1 + (worker - chunk + 1) % K  # the round in which the finished chunk is there
    return now | (finished <= rounds)


FIGURE = Ring
