"""Laws of compute time that differ from worker to worker: one straggler, a law each, a recorded trace.

``worker(rank)`` is one worker's law. The group as a whole has no single mean or quantile, so asking for one
is refused. Symbols as in `laws`: K workers, T steps, ``slowdown`` the straggler's lambda.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

import numpy as np

from labkit.timing._check import FloatArray, integer, matrix, number
from labkit.timing.laws import Law, Scaled


class GroupLaw(Law):
    """A law that is another one for each rank."""

    def _refuse(self) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} is a different law for each rank: ask law.worker(rank) for the law of one"
        )

    @property
    def mean(self) -> float:
        self._refuse()

    def _isf(self, q: FloatArray) -> FloatArray:
        self._refuse()

    def _sf(self, x: FloatArray) -> FloatArray:
        self._refuse()


@dataclass(frozen=True)
class OneStraggler(GroupLaw):
    """Everyone follows ``base``, but the times of one rank are multiplied by ``slowdown`` > 0."""

    base: Law
    slowdown: float
    rank: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.base, Law):
            raise ValueError(f"base must be a law of compute time such as Constant(0.1), got {self.base!r}")
        number("slowdown", self.slowdown, above=0)
        integer("rank", self.rank)

    def worker(self, rank: int) -> Law:
        own = self.base.worker(rank)
        return Scaled(own, self.slowdown) if rank == self.rank else own

    def groups(self, K: int) -> dict[Law, int]:
        counts = dict(self.base.groups(K))
        if self.rank >= K:
            raise ValueError(f"the straggler's rank must be below K = {K}, got {self.rank}")
        ordinary, slow = self.base.worker(self.rank), self.worker(self.rank)
        counts[ordinary] -= 1
        counts[slow] = counts.get(slow, 0) + 1
        return {law: n for law, n in counts.items() if n}


@dataclass(frozen=True)
class PerWorker(GroupLaw):
    """Rank k follows ``laws[k]``."""

    laws: tuple[Law, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "laws", tuple(self.laws))
        for rank, law in enumerate(self.laws):
            if not isinstance(law, Law):
                raise ValueError(f"laws must be a tuple of laws of compute time, got {law!r} for rank {rank}")
        if not self.laws:
            raise ValueError("laws must hold one law for each worker, got none")

    def worker(self, rank: int) -> Law:
        if integer("rank", rank) >= len(self.laws):
            raise ValueError(f"rank must be below {len(self.laws)}, the number of laws given, got {rank}")
        return self.laws[rank].worker(rank)

    def groups(self, K: int) -> dict[Law, int]:
        if integer("K", K, least=1) > len(self.laws):
            raise ValueError(f"K must be at most {len(self.laws)}, the number of laws given, got {K}")
        counts: dict[Law, int] = {}
        for rank in range(K):
            law = self.worker(rank)
            counts[law] = counts.get(law, 0) + 1
        return counts


@dataclass(frozen=True)
class Recorded(Law):
    """One worker's recorded times: a stream replays them in order; ``sample`` draws from them at random."""

    times: tuple[float, ...]

    @property
    def inversion(self) -> bool:
        return False

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    def _isf(self, q: FloatArray) -> FloatArray:
        n = len(self.times)
        return np.sort(self.times)[n - np.ceil(n * q).astype(np.int64)]

    def _sf(self, x: FloatArray) -> FloatArray:
        return 1.0 - np.searchsorted(np.sort(self.times), x, side="right") / len(self.times)

    def stream(self, rank: int, seed: int) -> Iterator[float]:
        yield from self.times
        raise ValueError(
            f"the trace holds {len(self.times)} steps of rank {rank} and one more was asked for: "
            f"take at most {len(self.times)} steps or record a longer trace"
        )

    def row(self, rank: int, T: int, seed: int) -> FloatArray:
        return np.fromiter(islice(self.stream(rank, seed), T), dtype=np.float64, count=T)


@dataclass(frozen=True, eq=False)
class Trace(GroupLaw):
    """Recorded times, seconds, shape (K, T): worker k's t-th time is ``times[k, t]``, whatever the seed.

    >>> draw(Trace([[1.0, 2.0], [3.0, 4.0]]), K=2, T=2, seed=0)
    array([[1., 2.],
           [3., 4.]])
    """

    times: FloatArray

    def __post_init__(self) -> None:
        times = matrix("times", self.times).copy()
        times.setflags(write=False)
        object.__setattr__(self, "times", times)

    def __str__(self) -> str:
        return f"Trace of {self.times.shape[0]} workers, {self.times.shape[1]} steps"

    def worker(self, rank: int) -> Law:
        if integer("rank", rank) >= len(self.times):
            raise ValueError(f"rank must be below {len(self.times)}, the rows of the trace, got {rank}")
        return Recorded(tuple(self.times[rank].tolist()))

    def groups(self, K: int) -> dict[Law, int]:
        if integer("K", K, least=1) > len(self.times):
            raise ValueError(f"K must be at most {len(self.times)}, the rows of the trace, got {K}")
        counts: dict[Law, int] = {}
        for rank in range(K):
            law = self.worker(rank)
            counts[law] = counts.get(law, 0) + 1
        return counts
