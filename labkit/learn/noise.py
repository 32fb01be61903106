"""Noise of a mini-batch gradient: its exact law, and a test whether a sampler obeys it.

A batch's gradient is the mean of b of the N examples' gradients, so the theory of sampling applies word for
word (Cochran 1977, chapter 2): it is unbiased, and its variance is ``sigma2 / b`` for draws with replacement.
Without, the batch uses up part of the examples, and the finite-population correction ``(N - b) / (N - 1)`` says
how much less is left to chance.

Symbols: N examples, b per batch, R batches, d parameters; Sigma (d, d) the covariance of one example's gradient
at w, divided by N and not N - 1; ``sigma2`` its trace; g (d,) the full gradient; B_simple = sigma2 / |g|^2 the
noise scale of McCandlish et al. 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.extras import scipy
from labkit.learn.problems import Array, Problem


class Noise(NamedTuple):
    """The gradient of one example drawn at random: its mean (d,), the full gradient, and its covariance (d, d)."""

    mean: Array
    covariance: Array

    @property
    def sigma2(self) -> float:
        """Variance of one example's gradient: mean squared distance from the full one, the covariance's trace."""
        return float(np.trace(self.covariance))

    @property
    def scale(self) -> float:
        """The simple noise scale ``sigma2 / |g|^2``, in examples: the batch whose noise is as long as the gradient.

        McCandlish et al. 2018, section 2.2. Infinite where the gradient is zero and the noise is not.
        """
        signal = float(self.mean @ self.mean)
        return self.sigma2 / signal if signal > 0 else math.inf if self.sigma2 > 0 else 0.0


def example_gradients(problem: Problem, w: ArrayLike) -> Array:
    """Every example's own gradient at w, (N, d)."""
    return np.array([problem.grad_sum(np.asarray(w), [i]) for i in range(problem.N)])


def gradient_noise(problem: Problem, w: ArrayLike) -> Noise:
    """Mean and covariance over all N examples' gradients at w, (d,): exact, nothing is sampled."""
    return noise_of(example_gradients(problem, w))


def noise_of(gradients: ArrayLike) -> Noise:
    """Mean and covariance (divided by N) of given gradients, (N, d). ValueError for another shape, or for none."""
    g = _table(gradients)
    mean = g.mean(axis=0)
    return Noise(mean, (g - mean).T @ (g - mean) / len(g))


def batch_variance(sigma2: ArrayLike, b: ArrayLike, N: int | None = None) -> Any:
    """Variance of a batch's mean gradient: ``sigma2 / b``, and times (N - b) / (N - 1) where N is given.

    sigma2: of one example, >= 0. b: examples in the batch, whole numbers >= 1; they broadcast. N: how many
    examples there are, if the b are drawn from them *without* replacement; then b <= N. Cochran 1977, theorem
    2.2. Returns a float for numbers, an array for arrays. ValueError for anything else.

    >>> batch_variance(sigma2=8.0, b=4), batch_variance(sigma2=8.0, b=4, N=4)
    (2.0, 0.0)
    """
    s, size = np.asarray(sigma2), np.asarray(b)
    if s.dtype.kind not in "iuf" or not (np.isfinite(s).all() and (s >= 0).all()):
        raise ValueError(f"sigma2 must be finite and >= 0, got {sigma2!r}")
    if size.dtype.kind not in "iu" or (size < 1).any():
        raise ValueError(f"b must be a whole number of examples >= 1, got {b!r}")
    variance = s / size * (1.0 if N is None else correction(b, N))
    return float(variance) if np.ndim(variance) == 0 else variance


def correction(b: ArrayLike, N: int) -> Any:
    """The finite-population correction ``(N - b) / (N - 1)``: 1 for b = 1, 0 for b = N (and for N = 1)."""
    if isinstance(N, bool) or not isinstance(N, (int, np.integer)) or N < 1:
        raise ValueError(f"N must be a whole number >= 1, got {N!r}")
    size = np.asarray(b)
    if size.dtype.kind not in "iu" or (size < 1).any() or (size > N).any():
        raise ValueError(f"b must be from 1 to N = {N} without replacement, got {b!r}")
    left = (N - size) / max(N - 1, 1)
    return float(left) if left.ndim == 0 else left


def scale_from_two(small2: float, big2: float, b: int, B: int) -> float:
    """The noise scale from two mean squared lengths of gradients: ``small2`` of batches of b, ``big2`` of batches of B > b.

    ``E |g_b|^2 = |g|^2 + sigma2 / b`` for either size: two equations, two unknowns (McCandlish et al. 2018,
    appendix A.1). In data-parallel training both are there for nothing: a worker's own gradient, and the
    all-reduced one. Each of the two unknowns is estimated without bias, their quotient is not; average
    ``small2`` and ``big2`` over steps first. Returns examples; infinite or negative where the noise drowns
    |g|^2. ValueError unless 1 <= b < B and the lengths are finite, >= 0.
    """
    if not 1 <= b < B:
        raise ValueError(
            f"b and B must be whole numbers of examples with 1 <= b < B, got b = {b!r}, B = {B!r}"
        )
    for name, value in (("small2", small2), ("big2", big2)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite squared length >= 0, got {value!r}")
    signal = (B * big2 - b * small2) / (B - b)
    sigma2 = (small2 - big2) / (1 / b - 1 / B)
    return float(sigma2 / signal) if signal else math.copysign(math.inf, sigma2)


# -- does a sampler obey the law? ---------------------------------------------------------------------------


class Evidence(NamedTuple):
    """p-values, each the chance of a result as far off if the law holds. Reject below the false-alarm rate you can bear.

    bias: of "the mean of the batches' gradients is the full gradient".
    variance: of "their mean squared distance from it is the one that ``batch_variance`` says".
    """

    bias: float
    variance: float


def evidence(gradients: ArrayLike, batches: Iterable[ArrayLike], replacement: bool) -> Evidence:
    """Test R independent batches of equal size against the law of sampling with or without replacement.

    gradients: (N, d), every example's. batches: R lists of b example numbers, drawn independently of each other
    (so at most one from an epoch). Bias by the chi-square of R batch means whose covariance is known; variance
    by the z-score of R squared distances. Both rest on the central limit theorem: take R in the thousands for
    p-values near 1e-6. ValueError for batches of different sizes or fewer than two. Needs scipy.
    """
    chdtrc = scipy("special").chdtrc
    g = _table(gradients)
    chosen = [np.asarray(idx) for idx in batches]
    if len(chosen) < 2 or len({idx.shape for idx in chosen}) > 1 or chosen[0].ndim != 1:
        raise ValueError(f"batches must be at least two lists of equal length, got {len(chosen)} lists")
    R, b = len(chosen), len(chosen[0])
    noise = noise_of(g)
    off = g[np.array(chosen)].mean(axis=1) - noise.mean
    share = 1 / b if replacement else correction(b, len(g)) / b
    values, axes = np.linalg.eigh(noise.covariance)
    free = values > 1e-12 * values[-1]  # directions in which the gradients differ at all
    rounding = 1e-24 * float(np.abs(g).max()) ** 2 * g.shape[1]
    along = off.mean(axis=0) @ axes
    stuck = share == 0  # every batch holds every example
    if stuck or (along[~free] ** 2).sum() > rounding:
        within = bool((along**2 <= rounding).all())
        bias = 1.0 if within else 0.0
    else:
        bias = float(chdtrc(free.sum(), R * np.sum(along[free] ** 2 / (share * values[free]))))
    squares = (off**2).sum(axis=1)
    excess, spread = squares.mean() - share * noise.sigma2, squares.std(ddof=1) / math.sqrt(R)
    variance = (
        float(abs(excess) <= rounding)
        if spread <= rounding
        else math.erfc(abs(excess / spread) / math.sqrt(2))
    )
    return Evidence(bias, variance)


def _table(gradients: ArrayLike) -> NDArray[np.float64]:
    g = np.asarray(gradients, dtype=np.float64)
    if g.ndim != 2 or 0 in g.shape or not np.isfinite(g).all():
        raise ValueError(f"gradients must be finite with shape (N, d), N and d >= 1, got shape {g.shape}")
    return g
