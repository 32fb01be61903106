"""Fit by logarithms, robustly: theta >= 0 such that rest + X theta is what most samples say, whatever the others say.

An MM-estimator (Yohai 1987; Huber and Ronchetti, Robust Statistics, 2nd edition, 2009, chapter 7) of the residuals
log seconds - log predicted: it starts from the best fit through p samples in the sense of the least median
(Rousseeuw 1984), which up to half of the samples cannot mislead, measures the scatter there, and minimises Tukey's bisquare,
which is quadratic for what scatters and flat for what is far out. What disturbs a time mostly makes it longer; a loss
that went on growing would be pulled that way.

Symbols: m samples, p unknowns theta; X (m, p) counts; rest (m,) seconds known beforehand; r residuals.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from labkit.extras import scipy

Array = NDArray[np.float64]

#: Residuals of as many scatters and more don't count: 95 % as efficient as least squares where all noise is normal.
FAR = 4.685
#: Below this, relatively, all scatter is rounding.
ROUNDING = 1e-12
#: Where all subsets of samples are too many to start from, so many of them.
SUBSETS = 500


def estimate(X: Array, rest: Array, seconds: Array) -> tuple[Array, float]:
    """theta (p,) >= 0 with log(rest + X theta) close to log seconds for most samples, and the scatter of those."""
    scale = (X / seconds[:, None]).max(axis=0)  # of each column, so that the unknowns are of one size
    X = X / scale
    p = X.shape[1]
    theta = _start(X, rest, seconds)
    scatter = _scatter(_residuals(theta, X, rest, seconds), p)
    for _ in range(20):  # the scatter says which residuals are far, and the others what the scatter is
        theta = _minimise(theta, X, rest, seconds, FAR * scatter)
        before, scatter = scatter, _scatter(_residuals(theta, X, rest, seconds), p)
        if abs(scatter - before) <= 1e-3 * before:
            break
    return theta / scale, scatter


def total(theta: Array, X: Array, rest: Array) -> Array:
    """The predicted seconds (m,), kept from 0 so that they have a logarithm."""
    return np.maximum(rest + X @ theta, 1e-300)


def half_widths(J: Array, residuals: Array, scatter: float, level: float) -> Array:
    """Half of each unknown's interval, (p,): Student's t times the standard error.

    J (m, p): the derivatives of log predicted. The standard error is Huber's for an M-estimator, with his correction for
    few samples (section 7.6), each sample supporting an unknown by its weight only. Infinite where nothing does.
    """
    stdtrit = scipy("special").stdtrit
    m, p = J.shape
    r = np.minimum(np.abs(residuals) / (FAR * scatter), 1.0) ** 2
    weight, slope = (1 - r) ** 2, (1 - r) * (1 - 5 * r)
    correction = 1 + p / m * np.var(slope) / np.mean(slope) ** 2
    variance = correction**2 * np.sum((weight * residuals) ** 2) / (m - p) / np.mean(slope) ** 2
    supported = J * np.sqrt(weight / weight.mean())[:, None]
    norm = np.maximum(np.linalg.norm(supported, axis=0), np.finfo(float).tiny)
    _, singular, basis = np.linalg.svd(supported / norm, full_matrices=False)
    spread = np.sum((basis.T / np.maximum(singular, 1e-9)) ** 2, axis=1) / norm**2
    return stdtrit(m - p, (1 + level) / 2) * np.sqrt(variance * spread)


def _start(X: Array, rest: Array, seconds: Array) -> Array:
    """Of all theta that pass through p of the samples, the one with the least median distance to the samples."""
    m, p = X.shape
    rng = np.random.default_rng(
        m
    )  # many samples: of some subsets, always the same ones; a repetition does no harm
    every = list(combinations(range(m), p)) if m <= 16 else rng.integers(m, size=(SUBSETS, p))
    subsets = np.asarray(every)
    rows, target = X[subsets] / seconds[subsets][..., None], 1 - rest[subsets] / seconds[subsets]
    theta = np.maximum(np.einsum("spq,sq->sp", np.linalg.pinv(rows), target), 0.0)
    distance = np.sort(np.abs(_residuals(theta.T, X, rest[:, None], seconds[:, None])), axis=0)
    return theta[np.argmin(distance[(m + p) // 2])]


def _minimise(theta: Array, X: Array, rest: Array, seconds: Array, far: float) -> Array:
    """The theta >= 0 of least loss, by Gauss-Newton: log predicted made linear, far residuals weighed less."""
    nnls = scipy("optimize").nnls
    now = _loss(theta, X, rest, seconds, far)
    for _ in range(100):
        predicted = total(theta, X, rest)
        r = np.log(seconds / predicted)
        root = np.maximum(1 - (r / far) ** 2, 0.0)  # of the bisquare's weight
        new, _ = nnls(X * (root / predicted)[:, None], root * (r + 1 - rest / predicted))
        moved = new - theta
        while (loss := _loss(theta + moved, X, rest, seconds, far)) > now and np.abs(moved).max() > 1e-14:
            moved = moved / 2
        if loss > now:
            break
        theta = theta + moved
        if now - loss <= 1e-12 * now:
            break
        now = loss
    return theta


def _loss(theta: Array, X: Array, rest: Array, seconds: Array, far: float) -> float:
    """Tukey's bisquare: like a square near 0, 1 from ``far`` on."""
    r = np.minimum(np.abs(_residuals(theta, X, rest, seconds)) / far, 1.0)
    return float(np.sum(1 - (1 - r**2) ** 3))


def _residuals(theta: Array, X: Array, rest: Array, seconds: Array) -> Array:
    return np.log(seconds) - np.log(total(theta, X, rest))


def _scatter(residuals: Array, p: int) -> float:
    """Standard deviation from the median distance to 0, without the p smallest: p residuals can be made to vanish.

    0.6745: the median distance of a normal variable; 1 + 5 / (m - p): for few samples (Rousseeuw and Leroy 1987).
    """
    distance = np.sort(np.abs(residuals))
    few = 1 + 5 / (len(distance) - p)
    return max(float(np.median(distance[p:])) / 0.6745 * few, ROUNDING)
