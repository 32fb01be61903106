"""A whole matrix of compute times at once: the same numbers as every worker's own stream, several times quicker.

Worker k draws from ``np.random.default_rng([seed, k])``, whoever else is there. To make ten thousand generators one by
one costs more than to draw ten million numbers from them, and nearly all of it goes into the hashing of the seeds (numpy's
``SeedSequence``, after O'Neill 2015, *Developing a seed_seq alternative*). So the seeds of all ranks are hashed together
here, by the same arithmetic; numpy promises that it will not change (NEP 19), and a test compares. Where numba is installed
and there are a million times to draw, all the generators run side by side too (`Streams`), and a stream for each worker
costs less than one for all.

Symbols: K workers, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from labkit import machine
from labkit.checks import FloatArray, integer
from labkit.timing.laws import Fleet, Law

#: Times from which on it pays to have numba, whose import takes half a second.
MANY = 1_000_000
_BLOCK = 65_536  # times that are made together: they stay in a core's own cache
_MASK = 0xFFFFFFFF


def draw(law: Fleet, K: int, T: int, seed: int) -> FloatArray:
    """(K, T) times in seconds; row k holds the first T of ``law.stream(k, seed)``.

    The matrix lies in memory step by step (Fortran order), as the recurrences of `barriers` read it.

    >>> draw(OneStraggler(Constant(0.1), slowdown=3.0), K=3, T=2, seed=0)
    array([[0.3, 0.3],
           [0.1, 0.1],
           [0.1, 0.1]])
    """
    integer("T", T, least=1)
    law.groups(K)  # refuses a K that the law does not fit
    X = np.empty((K, T), order="F")
    if K * T >= MANY and compiled():
        streams = Streams(law, K, seed)
        with ThreadPoolExecutor(machine.cores()) as pool:
            for first in range(0, T, streams.steps):
                streams.fill(X.T[first : first + streams.steps], pool.map)
        return X
    seeds = _Seeds(hashed(integer("seed", seed), K))
    n = max(1, _BLOCK // T)
    for first in range(0, K, n):
        ranks = range(first, min(first + n, K))
        q = np.empty((len(ranks), T))
        for rank, row in zip(ranks, q, strict=True):
            seeds.of(rank).random(out=row)
        np.subtract(1.0, q, out=q)
        for own, alike in groupby(ranks, law.worker):
            k = list(alike)
            X[k[0] : k[-1] + 1] = own._rows(q[k[0] - first : k[-1] + 1 - first])
    return X


@cache
def compiled() -> Any:
    """The module `fused`; None without numba (``pip install numba``), or where it finds no place for its cache."""
    try:
        from labkit.timing import fused
    except (ImportError, RuntimeError):
        return None
    return fused


class Streams:
    """The streams of K workers, a few steps of all of them at a time. Needs `compiled`.

    steps: how many at a time keep within a processor's cache.

    The workers are dealt out in parts, whose numbers stay in a core's own cache between being made and becoming times.
    """

    def __init__(self, law: Fleet, K: int, seed: int) -> None:
        one = next(iter(law.groups(K))) if len(law.groups(K)) == 1 else None
        each = [] if one else [law.worker(rank) for rank in range(K)]
        changes = [rank for rank in range(1, len(each)) if each[rank] != each[rank - 1]]
        self.steps = max(1, min(8 * _BLOCK // K, 1024), 16 * len(changes))  # many small runs: in long rows
        self.drawn = 0
        self._parts: list[tuple[int, NDArray[np.uint64], list[tuple[Law, int, int]]]] = []
        states, wide = compiled().seeded(hashed(integer("seed", seed), K)), max(64, _BLOCK // self.steps)
        for a in range(0, K, wide):
            b = min(a + wide, K)
            cuts = [a, *(rank for rank in changes if a < rank < b), b]
            runs = [(one or each[i], i, j) for i, j in pairwise(cuts)]
            self._parts.append((a, np.ascontiguousarray(states[:, a:b]), runs))

    def fill(self, out: FloatArray, over: Callable[..., Iterable[None]] = map) -> None:
        """The next n times of each worker into out (n, K). over: ``map``, or that of a pool, over parts."""
        lanes = machine.cores()

        def lane(which: int) -> None:
            for a, state, runs in self._parts[which::lanes]:
                q = np.empty((len(out), state.shape[1]))
                compiled().draw_inplace(state, q)
                for (
                    own,
                    i,
                    j,
                ) in runs:  # in one piece: of numbers far apart some versions of numpy take other logarithms
                    out[:, i:j] = own._rows(np.ascontiguousarray(q[:, i - a : j - a]).T, self.drawn).T

        list(over(lane, range(lanes)))
        self.drawn += len(out)


def hashed(seed: int, K: int) -> NDArray[np.uint64]:
    """(K, 4): row k is ``np.random.SeedSequence([seed, k]).generate_state(4, np.uint64)``."""
    words = [seed & _MASK]
    while seed := seed >> 32:
        words.append(seed & _MASK)
    entropy = [np.full(K, word, dtype=np.uint32) for word in words] + [np.arange(K, dtype=np.uint32)]
    entropy += [np.zeros(K, dtype=np.uint32)] * (4 - len(entropy))
    mixed = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [mixed(word) for word in entropy[:4]]
    for i in range(4):
        for j in range(4):
            if i != j:
                pool[j] = _mix(pool[j], mixed(pool[i]))
    for word in entropy[4:]:
        for j in range(4):
            pool[j] = _mix(pool[j], mixed(word))
    out = _Hash(0x8B51F9DD, 0x58F38DED)
    states = np.stack([out(pool[i % 4]) for i in range(8)], axis=1).astype(np.uint64)
    return states[:, 0::2] | states[:, 1::2] << np.uint64(32)  # of two words the lower one first


class _Hash:
    """numpy's ``hashmix``: every word is hashed with the next of a series of multipliers."""

    def __init__(self, start: int, multiplier: int) -> None:
        self.constant, self.multiplier = start, multiplier

    def __call__(self, word: NDArray[np.uint32]) -> NDArray[np.uint32]:
        word = word ^ np.uint32(self.constant)
        self.constant = self.constant * self.multiplier & _MASK
        word = word * np.uint32(self.constant)
        return word ^ word >> np.uint32(16)


def _mix(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint32]:
    z = x * np.uint32(0xCA01F9DD) - y * np.uint32(0x4973F715)
    return z ^ z >> np.uint32(16)


class _Seeds(ISeedSequence):
    """Hands hashed seeds to numpy's generators."""

    def __init__(self, states: NDArray[np.uint64]) -> None:
        self.states, self.rank = states, 0

    def of(self, rank: int) -> Generator:
        """The generator ``np.random.default_rng([seed, rank])``."""
        self.rank = rank
        seed: Any = self  # numpy's types know only its own SeedSequence
        return Generator(PCG64(seed))

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        return self.states[self.rank]
