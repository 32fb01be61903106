"""Fleets: K workers that need not be alike. One straggler, a law each, a recorded trace; and all their times at once.

Symbols as in `laws`: K workers, T steps, ``slowdown`` the straggler's lambda.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labkit.checks import FloatArray, integer, matrix, number
from labkit.timing.laws import Fleet, Law, Recorded, Scaled


@dataclass(frozen=True)
class OneStraggler(Fleet):
    """Everyone follows ``base``, but the times of one rank are multiplied by ``slowdown`` > 0."""

    base: Fleet
    slowdown: float
    rank: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.base, Fleet):
            raise ValueError(f"base must be a law of compute time such as Constant(0.1), got {self.base!r}")
        number("slowdown", self.slowdown, above=0)
        integer("rank", self.rank)

    def worker(self, rank: int) -> Law:
        own = self.base.worker(rank)
        return Scaled(own, self.slowdown) if rank == self.rank else own

    def groups(self, K: int) -> dict[Law, int]:
        counts = Counter(self.base.groups(K))
        if self.rank >= K:
            raise ValueError(f"the straggler's rank must be below K = {K}, got {self.rank}")
        counts[self.base.worker(self.rank)] -= 1
        counts[self.worker(self.rank)] += 1
        return dict(+counts)


@dataclass(frozen=True)
class PerWorker(Fleet):
    """Rank k follows ``laws[k]``."""

    laws: tuple[Fleet, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "laws", tuple(self.laws))
        for rank, law in enumerate(self.laws):
            if not isinstance(law, Fleet):
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
        return dict(Counter(map(self.worker, range(K))))


@dataclass(frozen=True, eq=False)
class Trace(Fleet):
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

    @cached_property
    def _each(self) -> PerWorker:
        return PerWorker(tuple(Recorded(tuple(row)) for row in self.times.tolist()))

    def worker(self, rank: int) -> Law:
        return self._each.worker(rank)

    def groups(self, K: int) -> dict[Law, int]:
        return self._each.groups(K)


def draw(law: Fleet, K: int, T: int, seed: int) -> FloatArray:
    """(K, T) times in seconds; row k holds the first T of ``law.stream(k, seed)``.

    The matrix lies in memory step by step (Fortran order), as the recurrences of `policy` read it.

    >>> draw(OneStraggler(Constant(0.1), slowdown=3.0), K=3, T=2, seed=0)
    array([[0.3, 0.3],
           [0.1, 0.1],
           [0.1, 0.1]])
    """
    integer("T", T, least=1)
    integer("seed", seed)
    law.groups(K)  # refuses a K that the law does not fit
    X = np.empty((K, T))
    for k in range(K):
        X[k] = law.worker(k)._times(np.random.default_rng([seed, k]).random(T))
    return np.asfortranarray(X)
