"""How long the slowest of K workers takes: the expected maximum, and how far it falls short.

A barrier lets a step end when its slowest worker does, so a step's expected time is E max of K times.
For K independent times with inverse survival function Q the maximum is Q(1 - U**(1/K)), U uniform
(David & Nagaraja, *Order Statistics*, 3rd ed. 2003, section 2.1 and (3.1.1)). With U = exp(-y),

    E max = integral over y > 0 of Q(1 - exp(-y / K)) exp(-y) dy,

which costs the same for a million workers as for two. Workers of different laws: with A the slowest of some
and B the slowest of the others, max(A, B) + min(A, B) = A + B, and E min(A, B) is the integral of
P(A > x) P(B > x), whose tail is thin even where those of A and B are heavy.

How much the slowest falls short of x seconds, E max(x - max, 0), is the integral of its distribution function from 0 to x.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from labkit.checks import FloatArray, number
from labkit.extras import scipy
from labkit.timing.fleets import Trace
from labkit.timing.laws import Constant, Fleet, Law, Pareto, Recorded, Scaled

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def expected_max(law: Fleet, K: int) -> float:
    """Expected time of the slowest of K workers, in seconds; ``math.inf`` where it is infinite.

    By quadrature (relative error below 1e-9 for the smooth laws of `laws`), in closed form where the law jumps or its tail
    is too heavy. For a Trace it is the mean over its steps of the slowest time
    recorded. ValueError if K does not fit the law.

    >>> round(expected_max(Uniform(0.0, 1.0), K=9), 6)
    0.9
    """
    groups = law.groups(K)
    if isinstance(law, Trace):
        return float(law.times[:K].max(axis=0).mean())
    if len(groups) == 1:
        return _alike(next(iter(groups)), K)
    if any(isinstance(one, Recorded) or isinstance(getattr(one, "base", None), Recorded) for one in groups):
        raise ValueError(f"law must not mix recorded times with other laws in expected_max, got {law!r}")
    alone = [_alike(one, n) for one, n in groups.items()]
    if math.inf in alone:
        return math.inf
    return float(sum(alone) - _sum_of_minima(list(groups.items())))


def expected_shortfall(law: Fleet, K: int, x: float) -> float:
    """Expected seconds by which the slowest of K workers is earlier than x: E max(x - slowest, 0). x: finite, >= 0.

    For a Trace it is the mean over its steps. ValueError if K does not fit the law.
    """
    x = number("x", x, least=0)
    groups = law.groups(K)
    if isinstance(law, Trace):
        return float(np.maximum(x - law.times[:K].max(axis=0), 0.0).mean())
    found = [_edges(one, n) for one, n in groups.items() if not isinstance(one, Recorded)]
    found += [np.asarray(one.times) for one in groups if isinstance(one, Recorded)]
    edges = np.unique(np.concatenate([*found, np.array([0.0, x])]))
    at, weight = _panels(edges[edges <= x]) if x > 0 else (np.zeros(0), np.zeros(0))
    log_cdf = np.zeros_like(at)
    with np.errstate(divide="ignore"):
        for one, n in groups.items():
            log_cdf += n * np.log1p(-one.sf(at))
    return float(np.sum(weight * np.exp(log_cdf)))


def _alike(law: Law, K: int) -> float:
    """E max of K independent times of one law."""
    if K == 1 or math.isinf(law.mean):
        return law.mean
    match law:
        case Constant(t):
            return float(t)
        case Pareto(minimum, shape):  # near shape 1 the integral has no end
            special, c = scipy("special"), 1 / shape
            # minimum * Gamma(K + 1) Gamma(1 - c) / Gamma(K + 1 - c): poch takes the ratio without its factors
            return float(minimum * special.gamma(1 - c) * special.poch(K + 1 - c, c))
        case Scaled(base, factor):
            return factor * _alike(base, K)
        case Recorded(times):
            steps = np.arange(len(times) + 1) / len(times)
            return float(np.sort(times) @ np.diff(steps**K))
    return _quadrature(law, K)


def _panels(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on every interval between neighbouring edges."""
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def _quadrature(law: Law, K: int) -> float:
    """The integral over y in v = log y, where a tail like y ** -c becomes a plain exponential."""
    lowest = math.log(K) - 690.0  # keeps y / K a normal number
    edges = np.concatenate([np.linspace(lowest, -40.0, 70, endpoint=False), np.linspace(-40.0, 6.6, 63)])
    v, weight = _panels(edges)
    y = np.exp(v)
    return float(np.sum(weight * law.isf(-np.expm1(-y / K)) * np.exp(v - y)))


@lru_cache(maxsize=64)
def _edges(law: Law, n: int) -> FloatArray:
    """Times between which the survival function of the slowest of n is smooth and changes little."""
    tail = np.logspace(math.log10(40.0), -24.0, 130) / n
    head = np.array([1.0, 1 - 1e-12, 1 - 1e-8, 1 - 1e-6, 1 - 1e-4, 0.999, 0.99, 0.96, 0.9, 0.8, 0.65, 0.5])
    return law.isf(np.concatenate([np.minimum(tail, 1.0), head]))


def _sum_of_minima(groups: list[tuple[Law, int]]) -> float:
    """Sum over i of E min(slowest of groups 0 to i - 1, slowest of group i)."""
    edges = np.unique(np.concatenate([_edges(law, n) for law, n in groups] + [np.zeros(1)]))
    # The first panel may start at 0; the others are taken in u = log x.
    x0, w0 = _panels(edges[:2])
    u, weight = _panels(np.log(edges[1:]))
    x = np.concatenate([x0, np.exp(u)])
    w = np.concatenate([w0, weight * np.exp(u)])
    total, log_cdf = 0.0, np.zeros_like(x)
    with np.errstate(divide="ignore"):
        for law, n in groups:
            one = n * np.log1p(-law.sf(x))
            total += float(np.sum(w * np.expm1(log_cdf) * np.expm1(one)))
            log_cdf += one
    return total
