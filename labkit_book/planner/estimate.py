"""How long a step takes on average where chance has a say and no closed form is known: recurrences, averaged over draws.

Symbols: K workers, T steps, R replicas; times are in units of one undisturbed step's computation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from labkit.checks import FloatArray
from labkit.timing import Constant, Fleet, OneStraggler

SEED = 10
#: Steps that are averaged, steps before them, and how many draws are enough.
AVERAGED, FORGOTTEN, DRAWS = 96, 32, 2**17
#: More steps of all workers together are not simulated: their draws would fill the memory.
STEPS_MAX = 2**21


def estimate(law: Fleet, K: int, ends: Callable[[FloatArray], FloatArray], every: int, slack: int) -> float:
    """Mean time of a step of the recurrence ``ends``, such as ``StaleSynchronous(3).ends``.

    every: steps after which the recurrence repeats itself (H for local steps). slack: its start is forgotten in about 16
    times as many steps, the time in which chance makes leads grow to the slack.
    ValueError where the draws would fill the memory.
    """
    before = every * -(-(FORGOTTEN + 16 * slack) // every)
    after = every * -(-AVERAGED // every)
    steps = K * (before + after)
    if steps > STEPS_MAX:
        got = f"K = {K} times {before + after} steps: take fewer workers, a smaller H or less slack"
        raise ValueError(f"K must leave at most {STEPS_MAX} steps to simulate in all, got {got}")
    at = ends(_times(law, K, before + after))
    return float(np.mean(at[-1] - at[before - 1]) / after)


@lru_cache(maxsize=4)
def _times(law: Fleet, K: int, T: int) -> FloatArray:
    """(K, T, R) seeded draws, read-only: all methods see the same, and turning the slowdown draws nothing anew."""
    base = law.base if isinstance(law, OneStraggler) else law
    R = 1 if isinstance(base, Constant) else int(np.clip(DRAWS // (K * T), 4, 32))
    X = base.worker(0).sample(np.random.default_rng(SEED), (T, K, R)).transpose(1, 0, 2)
    if isinstance(law, OneStraggler):
        X[law.rank] *= law.slowdown
    X.setflags(write=False)
    return X
