"""Laws of compute time: how long one worker's step takes, in seconds.

A law is known by its inverse survival function: ``isf(q)`` is the time exceeded with probability ``q``. One uniform number u
makes one time, ``isf(1 - u)`` (inversion: Devroye, *Non-Uniform Random Variate Generation*, 1986, section II.2), so a
simulation that draws step by step and one that draws a whole matrix see the same times, and the tail of a maximum over a
million workers stays accurate.

What worlds, recurrences and plans are given is a `Fleet`: which worker follows which law. A law is a fleet of equals; others
are in `fleets`. A new law says ``mean``, ``_isf`` and ``_sf``; everything else follows.

Symbols: K workers, T steps, q a probability of exceeding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import FloatArray, generator, integer, number
from labkit.extras import scipy

_BLOCK = 256  # draws a stream makes at a time


class Fleet(ABC):
    """K workers and their laws."""

    @abstractmethod
    def worker(self, rank: int) -> Law:
        """The law of one rank."""

    @abstractmethod
    def groups(self, K: int) -> dict[Law, int]:
        """The laws of ranks 0 to K - 1, each with the number of workers that follow it. ValueError if K doesn't fit."""

    def stream(self, rank: int, seed: int) -> Iterator[float]:
        """One rank's times, one after another, without end, from ``np.random.default_rng([seed, rank])``."""
        return self.worker(rank).stream(rank, seed)


class Law(Fleet):
    """What every law of compute time can do. Times are in seconds."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected time; ``math.inf`` where the law has none."""

    @abstractmethod
    def _isf(self, q: FloatArray) -> FloatArray:
        """``isf`` with q already checked."""

    @abstractmethod
    def _sf(self, x: FloatArray) -> FloatArray:
        """``sf`` of an array."""

    def isf(self, q: ArrayLike) -> FloatArray:
        """Time exceeded with probability q, of q's shape. ValueError unless every q is in (0, 1]."""
        p = np.asarray(q, dtype=np.float64)
        if p.size and not (p.min() > 0 and p.max() <= 1):
            bad = p[~((p > 0) & (p <= 1))].flat[0]
            raise ValueError(f"q must be a probability in (0, 1], got {bad!r}")
        return self._isf(p)

    def sf(self, x: ArrayLike) -> FloatArray:
        """Probability that a time exceeds x seconds, of x's shape; accurate far out in the tail."""
        return self._sf(np.asarray(x, dtype=np.float64))

    def sample(self, rng: np.random.Generator, shape: int | tuple[int, ...] = ()) -> FloatArray:
        """Independent times of the given shape, one uniform number each, in C order."""
        return self._isf(1.0 - np.asarray(generator(rng).random(shape)))

    def worker(self, rank: int) -> Law:
        integer("rank", rank)
        return self

    def groups(self, K: int) -> dict[Law, int]:
        return {self: integer("K", K, least=1)}

    def stream(self, rank: int, seed: int) -> Iterator[float]:
        rng = np.random.default_rng([integer("seed", seed), integer("rank", rank)])
        while True:
            yield from self.sample(rng, _BLOCK).tolist()

    def _times(self, u: FloatArray) -> FloatArray:
        """(T,) the first times of a stream, made of its uniform numbers u (T,)."""
        return self._isf(1.0 - u)


@dataclass(frozen=True)
class Constant(Law):
    """Always t seconds, t >= 0."""

    t: float

    def __post_init__(self) -> None:
        number("t", self.t, least=0)

    @property
    def mean(self) -> float:
        return float(self.t)

    def _isf(self, q: FloatArray) -> FloatArray:
        return np.full(q.shape, float(self.t))

    def _sf(self, x: FloatArray) -> FloatArray:
        return np.where(x < self.t, 1.0, 0.0)


@dataclass(frozen=True)
class Uniform(Law):
    """Anywhere between low and high seconds, 0 <= low <= high.

    >>> Uniform(1.0, 3.0).mean, float(Uniform(1.0, 3.0).isf(0.25))
    (2.0, 2.5)
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        number("high", self.high, least=number("low", self.low, least=0))

    @property
    def mean(self) -> float:
        return 0.5 * (self.low + self.high)

    def _isf(self, q: FloatArray) -> FloatArray:
        return np.maximum(self.high - (self.high - self.low) * q, self.low)

    def _sf(self, x: FloatArray) -> FloatArray:
        if self.low == self.high:
            return np.where(x < self.low, 1.0, 0.0)
        return np.clip((self.high - x) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True)
class TruncatedNormal(Law):
    """Normal(mu, sigma) conditioned on being >= 0; mu >= -10 sigma, sigma > 0 (seconds).

    With z = mu / sigma, P(T > x) = Phi((mu - x) / sigma) / Phi(z) and E T = mu + sigma phi(z) / Phi(z)
    (Johnson, Kotz & Balakrishnan, *Continuous Univariate Distributions* 1, 1994, section 13.10.1).
    """

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        number("mu", self.mu, least=-10 * number("sigma", self.sigma, above=0))

    @property
    def mean(self) -> float:
        ndtr = scipy("special").ndtr
        z = self.mu / self.sigma
        density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return float(self.mu + self.sigma * density / ndtr(z))

    def _isf(self, q: FloatArray) -> FloatArray:
        special = scipy("special")
        ndtr, ndtri = special.ndtr, special.ndtri
        return np.maximum(self.mu - self.sigma * ndtri(q * ndtr(self.mu / self.sigma)), 0.0)

    def _sf(self, x: FloatArray) -> FloatArray:
        ndtr = scipy("special").ndtr
        return np.where(x < 0, 1.0, ndtr((self.mu - x) / self.sigma) / ndtr(self.mu / self.sigma))


@dataclass(frozen=True)
class ShiftedExponential(Law):
    """shift + Exponential with mean ``scale``; shift >= 0, scale > 0 (seconds).

    >>> ShiftedExponential(shift=0.5, scale=0.25).mean
    0.75
    """

    shift: float
    scale: float

    def __post_init__(self) -> None:
        number("shift", self.shift, least=0)
        number("scale", self.scale, above=0)

    @property
    def mean(self) -> float:
        return float(self.shift + self.scale)

    def _isf(self, q: FloatArray) -> FloatArray:
        x = np.log(q)  # in place from here on: ten million times go through this line
        x *= -self.scale
        x += self.shift
        return x

    def _sf(self, x: FloatArray) -> FloatArray:
        return np.exp(-np.maximum(x - self.shift, 0.0) / self.scale)


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

    def _isf(self, q: FloatArray) -> FloatArray:
        ndtri = scipy("special").ndtri
        return self.median * np.exp(-self.sigma * ndtri(q))

    def _sf(self, x: FloatArray) -> FloatArray:
        ndtr = scipy("special").ndtr
        with np.errstate(divide="ignore"):
            return ndtr(-np.log(np.maximum(x, 0.0) / self.median) / self.sigma)


@dataclass(frozen=True)
class Pareto(Law):
    """P(T > x) = (minimum / x) ** shape beyond ``minimum`` seconds; both > 0. No mean for shape <= 1.

    >>> Pareto(minimum=1.0, shape=2.0).sf([1.0, 10.0])
    array([1.  , 0.01])
    """

    minimum: float
    shape: float

    def __post_init__(self) -> None:
        number("minimum", self.minimum, above=0)
        number("shape", self.shape, above=0)

    @property
    def mean(self) -> float:
        return math.inf if self.shape <= 1 else self.minimum * self.shape / (self.shape - 1)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.minimum * np.power(q, -1.0 / self.shape)

    def _sf(self, x: FloatArray) -> FloatArray:
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

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.factor * self.base._isf(q)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.base._sf(x / self.factor)

    def stream(self, rank: int, seed: int) -> Iterator[float]:
        return (self.factor * x for x in self.base.stream(rank, seed))

    def _times(self, u: FloatArray) -> FloatArray:
        return self.factor * self.base._times(u)


@dataclass(frozen=True)
class Recorded(Law):
    """One worker's recorded times: a stream replays them in order; ``sample`` draws from them at random."""

    times: tuple[float, ...]

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
        raise ValueError(self._exhausted())

    def _times(self, u: FloatArray) -> FloatArray:
        if len(u) > len(self.times):
            raise ValueError(self._exhausted())
        return np.array(self.times[: len(u)])

    def _exhausted(self) -> str:
        n = len(self.times)
        return f"the trace holds {n} steps a worker and one more was asked for: take at most {n} steps or record more"
