"""The recording and draws of it, which say how far its numbers may be off.

Draws take blocks of m, about sqrt(T), steps anew (moving-block bootstrap; Künsch 1989), as neighbouring steps may be alike,
and the rounds of measuring. n = T / m blocks spread too little: theirs is taken times sqrt(T / (T - m)), and times
1 + 0.93 / (n - 1), which is Student's quantile of 95 % over the normal one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit_book.why.prices import Prices
from labkit_book.why.steps import Steps

_DRAWS = 100


class Sample(NamedTuple):
    """Steps and rounds drawn: weights (T,) of steps, sum 1; alone_s, together_s: (K,), or empty; prices clocked."""

    weights: FloatArray
    alone_s: FloatArray
    together_s: FloatArray
    prices: Prices


def drawn(steps: Steps, seed: int = 0) -> list[Sample]:
    """The recording itself, and draws of it."""
    rng, T, m = np.random.default_rng(seed), steps.T, block(steps.T)

    def sample(which: Any, passes: Any = slice(None), rounds: Any = slice(None)) -> Sample:
        weights = np.bincount(which, minlength=T) / len(which)
        alone, together = (s[passes].mean(axis=0) if s.size else s for s in (steps.alone_s, steps.together_s))
        return Sample(weights, alone, together, Prices.of(steps, rounds))

    samples = [sample(np.arange(T))]
    for _ in range(_DRAWS):
        which = (rng.integers(0, T - m + 1, (-(-T // m), 1)) + np.arange(m)).ravel()
        again = (rng.integers(0, R, R) if R else slice(None) for R in (len(steps.alone_s), len(steps.prices)))
        samples.append(sample(which, *again))
    return samples


def block(T: int) -> int:
    return max(1, round(math.sqrt(T)))


def spread(values: Sequence[Any], T: int) -> FloatArray:
    """What was found in each sample, around the first, with the spread that few blocks lack made good."""
    first, others, m = np.asarray(values[0]), np.array(values[1:]), block(T)
    few = math.sqrt(T / max(T - m, 1)) * (1 + 0.93 / max(T / m - 1, 1))
    wide: FloatArray = first + (others - others.mean(axis=0)) * few
    return wide
