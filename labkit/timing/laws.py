"""Laws of compute time: how long one worker's step takes, in seconds; and fleets of workers that need not be alike.

A law is known by its inverse survival function: ``isf(q)`` is the time exceeded with probability ``q``. One uniform number u
makes one time, ``isf(1 - u)`` (inversion: Devroye, *Non-Uniform Random Variate Generation*, 1986, section II.2), so whoever
draws step by step sees the times of a whole matrix drawn at once, and the tail of a maximum stays accurate.

What worlds, recurrences and plans are given is a `Fleet`: which worker follows which law. A law is a fleet of equals; one
straggler, a law each, a recorded trace are others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import FloatArray, integer, matrix, number
from labkit.extras import scipy

_BLOCK = 256  # draws a stream makes at a time


class Fleet(ABC):
    """K workers and their laws."""

    @abstractmethod
    def worker(self, rank: int) -> Law:
        """The law of one rank."""

    def groups(self, K: int) -> dict[Law, int]:
        """The laws of ranks 0 to K - 1, each with the number of workers that follow it. ValueError if K doesn't fit."""
        return dict(Counter(map(self.worker, range(integer("K", K, least=1)))))

    def stream(self, rank: int, seed: int) -> Iterator[float]:
        """One rank's times, one after another, without end, from ``np.random.default_rng([seed, rank])``."""
        law = self.worker(integer("rank", rank))
        rng = np.random.default_rng([integer("seed", seed), rank])
        first = 0
        while True:
            times = law.block(rng, first, _BLOCK).tolist()
            if not times:
                raise ValueError(
                    f"the trace holds {first} steps of rank {rank}, not more"
                )
            yield from times
            first += len(times)


class Law(Fleet):
    """What every law of compute time can do. Times are in seconds."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected time; ``math.inf`` where the law has none."""

    @abstractmethod
    def isf(self, q: ArrayLike) -> FloatArray:
        """Time exceeded with probability q, of q's shape. Every q is in (0, 1]."""

    @abstractmethod
    def sf(self, x: ArrayLike) -> FloatArray:
        """Probability that a time exceeds x seconds, of x's shape; accurate far out in the tail."""

    def sample(self, rng: np.random.Generator, shape: Any = ()) -> FloatArray:
        """Independent times of the given shape, one uniform number each, in C order."""
        return self.isf(1.0 - np.asarray(rng.random(shape)))

    def worker(self, rank: int) -> Law:
        integer("rank", rank)
        return self

    def groups(self, K: int) -> dict[Law, int]:
        return {self: integer("K", K, least=1)}

    def block(self, rng: np.random.Generator, first: int, n: int) -> FloatArray:
        """(n,) times of a stream from its ``first`` on, the next that ``rng`` gives; fewer where a record ends."""
        return self.sample(rng, n)


@dataclass(frozen=True)
class Constant(Law):
    """Always t seconds, t >= 0."""

    t: float

    def __post_init__(self) -> None:
        number("t", self.t, least=0)

    @property
    def mean(self) -> float:
        return float(self.t)

    def isf(self, q: ArrayLike) -> FloatArray:
        return np.full(np.shape(q), float(self.t))

    def sf(self, x: ArrayLike) -> FloatArray:
        return np.where(np.less(x, self.t), 1.0, 0.0)


@dataclass(frozen=True)
class Uniform(Law):
    """Anywhere between low and high seconds, 0 <= low <= high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        number("high", self.high, least=number("low", self.low, least=0))

    @property
    def mean(self) -> float:
        return 0.5 * (self.low + self.high)

    def isf(self, q: ArrayLike) -> FloatArray:
        width = self.high - self.low
        return np.maximum(self.high - width * np.asarray(q), self.low)

    def sf(self, x: ArrayLike) -> FloatArray:
        if self.low == self.high:
            return np.where(np.less(x, self.low), 1.0, 0.0)
        return np.clip((self.high - np.asarray(x)) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True)
class TruncatedNormal(Law):
    """Normal(mu, sigma) conditioned on being >= 0; mu >= -10 sigma, sigma > 0 (Johnson, Kotz and Balakrishnan 1994,
    13.10.1)."""

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        number("mu", self.mu, least=-10 * number("sigma", self.sigma, above=0))

    @property
    def mean(self) -> float:
        z = self.mu / self.sigma
        density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return float(self.mu + self.sigma * density / scipy("special").ndtr(z))

    def isf(self, q: ArrayLike) -> FloatArray:
        special = scipy("special")
        z = special.ndtri(np.asarray(q) * special.ndtr(self.mu / self.sigma))
        return np.maximum(self.mu - self.sigma * z, 0.0)

    def sf(self, x: ArrayLike) -> FloatArray:
        ndtr = scipy("special").ndtr
        z = (self.mu - np.maximum(x, 0)) / self.sigma
        return ndtr(z) / ndtr(self.mu / self.sigma)


@dataclass(frozen=True)
class ShiftedExponential(Law):
    """shift + Exponential with mean ``scale``; shift >= 0, scale > 0 (seconds)."""

    shift: float
    scale: float

    def __post_init__(self) -> None:
        number("shift", self.shift, least=0)
        number("scale", self.scale, above=0)

    @property
    def mean(self) -> float:
        return float(self.shift + self.scale)

    def isf(self, q: ArrayLike) -> FloatArray:
        return self.shift - self.scale * np.log(q)

    def sf(self, x: ArrayLike) -> FloatArray:
        return np.exp(-np.maximum(np.subtract(x, self.shift), 0.0) / self.scale)


@dataclass(frozen=True)
class LogNormal(Law):
    """median * exp(sigma * standard normal); median > 0 seconds, 0 < sigma <= 10 (a pure number)."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        number("median", self.median, above=0)
        number("sigma", self.sigma, above=0, most=10)

    @property
    def mean(self) -> float:
        return float(self.median * math.exp(0.5 * self.sigma**2))

    def isf(self, q: ArrayLike) -> FloatArray:
        return self.median * np.exp(-self.sigma * scipy("special").ndtri(q))

    def sf(self, x: ArrayLike) -> FloatArray:
        ndtr = scipy("special").ndtr
        with np.errstate(divide="ignore"):
            return ndtr(-np.log(np.maximum(x, 0.0) / self.median) / self.sigma)


@dataclass(frozen=True)
class Pareto(Law):
    """P(T > x) = (minimum / x) ** shape beyond ``minimum`` seconds; both > 0. No mean for shape <= 1."""

    minimum: float
    shape: float

    def __post_init__(self) -> None:
        number("minimum", self.minimum, above=0)
        number("shape", self.shape, above=0)

    @property
    def mean(self) -> float:
        if self.shape <= 1:
            return math.inf
        return self.minimum * self.shape / (self.shape - 1)

    def isf(self, q: ArrayLike) -> FloatArray:
        return self.minimum * np.power(q, -1.0 / self.shape)

    def sf(self, x: ArrayLike) -> FloatArray:
        return np.power(self.minimum / np.maximum(x, self.minimum), self.shape)


@dataclass(frozen=True)
class Scaled(Law):
    """``base`` with every time multiplied by ``factor`` > 0; the law of a straggler."""

    base: Law
    factor: float

    def __post_init__(self) -> None:
        number("factor", self.factor, above=0)

    @property
    def mean(self) -> float:
        return self.factor * self.base.mean

    def isf(self, q: ArrayLike) -> FloatArray:
        return self.factor * self.base.isf(q)

    def sf(self, x: ArrayLike) -> FloatArray:
        return self.base.sf(np.divide(x, self.factor))

    def block(self, rng: np.random.Generator, first: int, n: int) -> FloatArray:
        return self.factor * self.base.block(rng, first, n)


@dataclass(frozen=True)
class Recorded(Law):
    """One worker's recorded times: a stream replays them in order; ``sample`` draws from them at random."""

    times: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    def isf(self, q: ArrayLike) -> FloatArray:
        n = len(self.times)
        from_the_end = np.ceil(n * np.asarray(q)).astype(np.int64)
        return np.sort(self.times)[n - from_the_end]

    def sf(self, x: ArrayLike) -> FloatArray:
        up_to = np.searchsorted(np.sort(self.times), x, side="right")
        return 1.0 - up_to / len(self.times)

    def block(self, rng: np.random.Generator, first: int, n: int) -> FloatArray:
        return np.array(self.times[first : first + n])


@dataclass(frozen=True)
class OneStraggler(Fleet):
    """Everyone follows ``base``, but the times of one rank are multiplied by ``slowdown`` > 0."""

    base: Fleet
    slowdown: float
    rank: int = 0

    def __post_init__(self) -> None:
        number("slowdown", self.slowdown, above=0)
        integer("rank", self.rank)

    def worker(self, rank: int) -> Law:
        own = self.base.worker(rank)
        return Scaled(own, self.slowdown) if rank == self.rank else own

    def groups(self, K: int) -> dict[Law, int]:
        if self.rank >= K:
            raise ValueError(f"rank must be below K = {K}, got {self.rank}")
        return super().groups(K)


@dataclass(frozen=True)
class PerWorker(Fleet):
    """Rank k follows ``laws[k]``."""

    laws: tuple[Fleet, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "laws", tuple(self.laws))

    def worker(self, rank: int) -> Law:
        integer("rank", rank, most=len(self.laws) - 1)
        return self.laws[rank].worker(rank)


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


def draw(law: Fleet, K: int, T: int, seed: int) -> FloatArray:
    """(K, T) times in seconds; row k holds the first T of ``law.stream(k, seed)``. They lie in memory step by step.

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
        times = law.worker(k).block(np.random.default_rng([seed, k]), 0, T)
        if len(times) < T:
            raise ValueError(
                f"T must be at most the trace's {len(times)} steps, got {T}"
            )
        X[k] = times
    return np.asfortranarray(X)
