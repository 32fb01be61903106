"""How long the slowest of K workers takes: the expected maximum, and how far it falls short.

A barrier lets a step end when its slowest worker does, so a step's expected time is E max of K times. For K independent
times with inverse survival function Q the maximum is Q(1 - U**(1/K)), U uniform (David & Nagaraja, *Order Statistics*,
3rd ed. 2003, section 2.1 and (3.1.1)). With U = exp(-y),

    E max = integral over y > 0 of Q(1 - exp(-y / K)) exp(-y) dy.

Workers of different laws: with A the slowest of some and B the slowest of the others, max(A, B) + min(A, B) = A + B, and
E min(A, B) is the integral of P(A > x) P(B > x), whose tail is thin even where those of A and B are heavy.
"""

import math

import numpy as np

from labkit.checks import FloatArray, number
from labkit.extras import scipy
from labkit.timing.laws import Constant, Fleet, Law, Pareto, Recorded, Scaled, Trace

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
#: Shares of times between which a law's head is smooth.
_HEAD = [
    1.0, 1 - 1e-12, 1 - 1e-8, 1 - 1e-6, 1 - 1e-4,
    0.999, 0.99, 0.96, 0.9, 0.8, 0.65, 0.5,
]  # fmt: skip


def expected_max(law: Fleet, K: int) -> float:
    """Expected time of the slowest of K workers, in seconds; ``math.inf`` where it is infinite.

    By quadrature (relative error below 1e-9), in closed form where the law jumps or its tail is too heavy. For a Trace it
    is the mean over its steps of the slowest time recorded.

    >>> round(expected_max(Uniform(0.0, 1.0), K=9), 6)
    0.9
    """
    groups = law.groups(K)
    if isinstance(law, Trace):
        return float(law.times[:K].max(axis=0).mean())
    if any(isinstance(getattr(one, "base", one), Recorded) for one in groups):
        raise ValueError(f"recorded times must be a Trace by themselves, got {law!r}")
    alone = [_alike(one, n) for one, n in groups.items()]
    if len(alone) == 1 or math.inf in alone:
        return max(alone)
    return float(sum(alone) - _sum_of_minima(groups))


def expected_shortfall(law: Fleet, K: int, x: float) -> float:
    """Expected seconds by which the slowest of K workers is earlier than x >= 0, E max(x - slowest, 0): the integral from 0
    to x of the slowest's distribution function. For a Trace it is the mean over its steps.
    """
    x = number("x", x, least=0)
    groups = law.groups(K)
    if isinstance(law, Trace):
        return float(np.maximum(x - law.times[:K].max(axis=0), 0.0).mean())
    edges = np.union1d(_all_edges(groups), [0.0, x])
    at, weight = _panels(edges[edges <= x])
    log_cdf = np.zeros_like(at)
    for one, n in groups.items():
        log_cdf += _log_cdf(one, n, at)
    return float(weight @ np.exp(log_cdf))


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
    # The integral is taken over v = log y, where a tail like y ** -c becomes a plain exponential.
    lowest = math.log(K) - 690.0  # keeps y / K a normal number
    tail = np.linspace(lowest, -40.0, 70)
    head = np.linspace(-40.0, 6.6, 63)
    v, weight = _panels(np.union1d(tail, head))
    y = np.exp(v)
    slowest = law.isf(-np.expm1(-y / K))
    return float(np.sum(weight * slowest * np.exp(v - y)))


def _panels(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on every interval between neighbouring edges."""
    half = 0.5 * np.diff(edges)[:, None]
    nodes = edges[:-1, None] + half * (1 + _NODES)
    weights = half * _WEIGHTS
    return nodes.ravel(), weights.ravel()


def _log_cdf(law: Law, n: int, x: FloatArray) -> FloatArray:
    """log P(the slowest of n <= x)."""
    with np.errstate(divide="ignore"):
        return n * np.log1p(-law.sf(x))


def _all_edges(groups: dict[Law, int]) -> FloatArray:
    """Times, sorted, between which the survival functions of the groups' slowest are smooth and change little."""
    tail = np.logspace(math.log10(40.0), -24.0, 130)
    found: list[FloatArray] = []
    for law, n in groups.items():
        found += [law.isf(np.minimum(tail / n, 1.0)), law.isf(_HEAD)]
    return np.unique(np.concatenate(found))


def _sum_of_minima(groups: dict[Law, int]) -> float:
    """Sum over i of E min(slowest of groups 0 to i - 1, slowest of group i)."""
    edges = np.union1d(_all_edges(groups), [0.0])
    # The first panel may start at 0; the others are taken in u = log x.
    x0, w0 = _panels(edges[:2])
    u, weight = _panels(np.log(edges[1:]))
    x = np.concatenate([x0, np.exp(u)])
    w = np.concatenate([w0, weight * np.exp(u)])
    total = 0.0
    log_cdf = np.zeros_like(x)
    for law, n in groups.items():
        own = _log_cdf(law, n, x)
        either = np.expm1(log_cdf) * np.expm1(own)  # P(both later than x)
        total += float(w @ either)
        log_cdf += own
    return total
