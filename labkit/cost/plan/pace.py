"""How long a step takes on average where chance has a say: the recurrences of `labkit.timing`, drawn and averaged.

What has a closed form (the slowest of K, the overlapped step) is not simulated. The rest is: R replicas of T steps, from the
same seeded draws for every method, after enough steps that the start is forgotten. Where no worker's time varies nothing is
left to chance, and one replica is exact.

Symbols: K workers, T steps, R replicas; times are in units of one undisturbed step's computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from labkit.timing import Constant, Law, Scaled, Trace, draw
from labkit.timing._check import FloatArray

SEED = 10
#: Steps that are averaged, steps before them, and how many draws are enough.
AVERAGED, FORGOTTEN, DRAWS = 96, 32, 2**17
#: More workers than these are not simulated: their draws would fill the memory.
K_MAX = 2**15
#: Nor more steps of all workers together, of one replica.
STEPS_MAX = 2**23


class Pace(NamedTuple):
    """The mean time of a step, and its standard error: 0 where nothing is left to chance."""

    mean: float
    error: float


def pace(law: Law, K: int, ends: Callable[[FloatArray], FloatArray], every: int = 1, memory: int = 0) -> Pace:
    """Mean time of a step of the recurrence ``ends``, such as ``lambda X: ssp_ends(X, 3)``.

    every: steps after which the recurrence repeats itself (H for local steps). memory: steps that it looks back (slack);
    its start is forgotten in about 16 times as many, the time in which chance makes leads grow to the slack.
    ValueError where the draws would fill the memory.
    """
    if K == 1:  # nobody to wait for and nothing to send
        return Pace(next(iter(law.groups(1))).mean, 0.0)
    if K > K_MAX:
        raise ValueError(f"K must be at most {K_MAX} for a method whose steps are simulated, got {K}")
    forgotten = FORGOTTEN + min(16 * memory, 2000, 2**22 // K)
    before = every * -(-forgotten // every)
    after = every * -(-AVERAGED // every)
    if K * (before + after) > STEPS_MAX:
        raise ValueError(
            f"K must leave at most {STEPS_MAX} steps to simulate in all, got K = {K} times {before + after} steps: "
            f"take fewer workers or a smaller H"
        )
    if isinstance(law, Trace):
        return _of_trace(law, K, ends, every)
    sure = settled(law, K)
    R = 1 if sure else int(np.clip(DRAWS // (K * (before + after)), 4 if K <= 2**12 else 2, 32))
    at = ends(_times(law, K, before + after, R))
    slopes = (at[-1] - at[before - 1]) / after
    error = 0.0 if sure else float(np.std(slopes, ddof=1)) / math.sqrt(R)
    return Pace(float(np.mean(slopes)), error)


def settled(law: Law, K: int) -> bool:
    """Whether every worker takes the same time in every step."""
    return all(isinstance(_unscaled(one), Constant) for one in law.groups(K))


def _unscaled(law: Law) -> Law:
    return _unscaled(law.base) if isinstance(law, Scaled) else law


@lru_cache(maxsize=4)
def _times(law: Law, K: int, T: int, R: int) -> FloatArray:
    """(K, T, R) seeded draws, read-only: all methods see the same."""
    X = np.ascontiguousarray(np.moveaxis(draw(law, K, T * R, SEED).reshape(K, R, T), 1, 2))
    X.setflags(write=False)
    return X


def _of_trace(law: Trace, K: int, ends: Callable[[FloatArray], FloatArray], every: int) -> Pace:
    """Recorded times have happened once: all of them are averaged, from the first on."""
    T = law.times.shape[1] // every * every
    if T == 0 or len(law.times) < K:
        raise ValueError(
            f"law must be a trace of {K} workers and {every} steps at least, got shape {law.times.shape}"
        )
    return Pace(float(ends(np.asarray(law.times[:K, :T]))[-1]) / T, 0.0)
