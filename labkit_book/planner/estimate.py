"""Step-time estimate: how long a step takes on average where chance has a say.

What has a closed form (the slowest of K, the overlapped step) is not simulated. The rest is: the recurrences of
`labkit.timing.policy` for R replicas of T steps, from the same seeded draws for every method, after enough steps that the
start is forgotten. Where no worker's time varies nothing is left to chance, and one replica is exact.

Symbols: K workers, T steps, R replicas; times are in units of one undisturbed step's computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit.timing import Constant, Fleet, OneStraggler, Scaled, Trace, expected_max

SEED = 10
#: Steps that are averaged, steps before them, and how many draws are enough.
AVERAGED, FORGOTTEN, DRAWS = 96, 32, 2**17
#: The slowest of many workers varies little: with more than so many fewer steps are forgotten and averaged, but so many.
MANY, LEAST = 2**8, 16
#: More workers than these are not simulated: their draws would fill the memory.
K_MAX = 2**15
#: Nor more steps of all workers together, of one replica.
STEPS_MAX = 2**23


class _Estimate(NamedTuple):
    """The mean time of a step, and its standard error: 0 where nothing is left to chance."""

    mean: float
    error: float


def estimate(
    law: Fleet,
    K: int,
    ends: Callable[[FloatArray], FloatArray],
    every: int = 1,
    memory: int = 0,
    spare: int = 0,
) -> _Estimate:
    """Mean time of a step of the recurrence ``ends``, such as ``StaleSynchronous(3).ends``.

    every: steps after which the recurrence repeats itself (H for local steps). memory: steps that it looks back (slack);
    its start is forgotten in about 16 times as many, the time in which chance makes leads grow to the slack.
    spare: backups, workers that a round does without.
    ValueError where the draws would fill the memory.
    """
    if K == 1:  # nobody to wait for and nothing to send
        return _Estimate(next(iter(law.groups(1))).mean, 0.0)
    many = K > MANY
    start, leads = min(FORGOTTEN, 2**17 // K), min(2000, (2**19 if many else 2**22) // K)
    before = every * -(-(start + min(16 * memory, leads)) // every)
    after = every * -(-max(LEAST, min(AVERAGED, 2**17 // K)) // every)
    if K * (before + after) > STEPS_MAX:
        raise ValueError(
            f"K must leave at most {STEPS_MAX} steps to simulate in all, got K = {K} times {before + after} steps: "
            f"take fewer workers or a smaller H"
        )
    if isinstance(law, Trace):
        return _of_trace(law, K, ends, every)
    sure = all(isinstance(_unscaled(one), Constant) for one in law.groups(K))
    R = 1 if sure else int(np.clip(DRAWS // (K * (before + after)), 4 if K <= 2**12 else 2, 32))
    if sure:
        X = _sure(law, K, before + after, 1 + spare)
    else:  # of many workers all methods share the draws that a slack of 3 takes
        T = before + after
        X = _times(law, K, max(T, start + min(48, leads) + after) if many else T, R)[:, :T]
    # of few replicas one after the other, whose maxima run along memory
    at = np.stack([ends(X[..., r]) for r in range(X.shape[2])], axis=-1) if many else ends(X)
    slopes = (at[-1] - at[before - 1]) / after
    error = 0.0 if sure else float(np.std(slopes, ddof=1)) / math.sqrt(R)
    return _Estimate(float(np.mean(slopes)), error)


#: `expected_max`, computed once for every law and K.
slowest = lru_cache(maxsize=64)(expected_max)


def means(law: Fleet, K: int) -> dict[float, int]:
    """The mean factors of the K workers' steps, with how many workers have each.

    ValueError unless all are finite and > 0: without a mean no step has an expected time.
    """
    found: dict[float, int] = {}
    for one, n in law.groups(K).items():
        found[one.mean] = found.get(one.mean, 0) + n
    if not all(0 < mean < math.inf for mean in found):
        raise ValueError(
            f"law must have a finite mean > 0, or the slowest worker has none either, got {law!r}"
        )
    return found


def undisturbed(law: Fleet, K: int) -> float:
    """The mean factor of the least disturbed of K workers; where one straggles, of the others, even if it is alone."""
    base = law.base if isinstance(law, OneStraggler) else law
    return min(one.mean for one in (*law.groups(K), *base.groups(K)))


def _unscaled(law: Fleet) -> Fleet:
    return _unscaled(law.base) if isinstance(law, Scaled) else law


@lru_cache(maxsize=4)
def _times(law: Fleet, K: int, T: int, R: int) -> FloatArray:
    """(K, T, R) seeded draws, read-only: all methods see the same. Step t of all workers of a replica lies together."""
    X = _sampled(law, np.random.default_rng(SEED), K, T, R).transpose(2, 1, 0)
    X.setflags(write=False)
    return X


def _sampled(law: Fleet, rng: np.random.Generator, K: int, T: int, R: int) -> FloatArray:
    """(R, T, K) draws. A straggler's are its base's times its slowdown, whatever that is: a dial turns nothing else."""
    if isinstance(law, OneStraggler):
        X = _sampled(law.base, rng, K, T, R)
        X[..., law.rank] *= law.slowdown
        return X
    X, first = np.empty((R, T, K)), 0
    for one, n in law.groups(K).items():
        for t in range(T):  # a step at a time, which a processor's cache holds
            X[:, t, first : first + n] = one.sample(rng, (n, R)).T
        first += n
    return X


def _sure(law: Fleet, K: int, T: int, most: int) -> FloatArray:
    """(n, T, 1) times of workers that never vary. Of those alike no more than ``most``, one more than a round does without,
    can be told apart by when a round ends: the (b + 1)-th largest of their times is the same."""
    each = [one.mean for one, n in law.groups(K).items() for _ in range(min(n, most))]
    return np.broadcast_to(np.array(each)[:, None, None], (len(each), T, 1))


def _of_trace(law: Trace, K: int, ends: Callable[[FloatArray], FloatArray], every: int) -> _Estimate:
    """Recorded times have happened once: all of them are averaged, from the first on."""
    T = law.times.shape[1] // every * every
    if T == 0 or len(law.times) < K:
        raise ValueError(
            f"law must be a trace of {K} workers and {every} steps at least, got shape {law.times.shape}"
        )
    return _Estimate(float(ends(np.asarray(law.times[:K, :T]))[-1]) / T, 0.0)
