"""The arguments of both labs 10.2: enumerated in fractions, by sympy, or by recursions without labkit."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

sp = pytest.importorskip("sympy")


GRADIENTS = [(Fraction(a), Fraction(b)) for a, b in ((3, 1), (-2, 5), (7, 0), (1, -4), (0, 11))]
N = len(GRADIENTS)


def moments(batches):
    """Mean (2,) of the batches' mean gradients, and their mean squared distance from the full gradient, in fractions."""
    full = [sum(g[i] for g in GRADIENTS) / N for i in range(2)]
    means = [[sum(GRADIENTS[j][i] for j in batch) / len(batch) for i in range(2)] for batch in batches]
    mean = [sum(m[i] for m in means) / len(means) for i in range(2)]
    spread = sum((m[i] - full[i]) ** 2 for m in means for i in range(2)) / len(means)
    return mean, full, spread


@pytest.mark.parametrize("b", [1, 2, 3, 5])
def test_why_10_2_variance(b):
    _, _, sigma2 = moments([(j,) for j in range(N)])
    mean, full, drawn = moments(list(product(range(N), repeat=b)))
    same, _, without = moments(list(combinations(range(N), b)))
    assert mean == full == same  # right on average
    assert drawn == sigma2 / b
    assert without == sigma2 / b * Fraction(N - b, N - 1)  # not (N - b) / N


def test_why_10_2_floor():
    eta, lam, s, v = sp.symbols("eta lambda s v", positive=True)
    (still,) = sp.solve(sp.Eq(v, (1 - eta * lam) ** 2 * v + eta**2 * s), v)
    excess = sp.simplify(lam * still / 2)
    assert sp.simplify(excess - eta * s / (2 * (2 - eta * lam))) == 0
    assert sp.limit(excess / eta, eta, 0) == s / 4  # not s / 2
    rng = np.random.default_rng(0)  # and by draws, two directions
    e, seen, eta = np.zeros((2000, 2)), [], 0.05
    for _ in range(400):
        e = (1 - eta * np.array([0.5, 2.0])) * e - eta * rng.standard_normal((2000, 2)) * [1.0, 2.0]
        seen.append((e**2 @ [0.5, 2.0]).mean() / 2)
    assert np.mean(seen[250:]) == pytest.approx(eta * (1 + 4) / 4, rel=0.06)


def test_why_10_2_one_over_t():
    """The recursion itself, run to 40,000 steps: limits and exponents; the best c is 1 / lambda."""

    def run(c, lam=0.5, s=2.0, T=40_000):
        v, seen = 3.0, {}
        for t in range(10, T + 1):
            v = (1 - c * lam / t) ** 2 * v + c**2 * s / t**2
            if t in (T // 10, T):
                seen[t] = v
        return seen[T // 10], seen[T]

    lam, s, T = 0.5, 2.0, 40_000
    limits = {c: T * run(c)[1] for c in (1.6, 2.0, 2.4, 6.0)}
    assert limits == pytest.approx({c: c**2 * s / (2 * c * lam - 1) for c in limits}, rel=0.02)
    assert min(limits, key=limits.get) == 1 / lam
    assert limits[2.0] == pytest.approx(s / lam**2, rel=0.01)
    for c in (0.2, 0.4):
        early, late = run(c)
        assert np.log10(early / late) == pytest.approx(2 * c * lam, rel=0.05)


def test_why_10_2_critical():
    """Two directions and noise of two values each, all four draws: the best rate found by search, not by the formula."""
    h, g = np.array([3.0, 0.4]), np.array([1.2, -0.7])
    sd = np.array([2.0, 5.0])
    noises = np.array(list(product((-1, 1), repeat=2))) * sd

    def gain(B):
        etas = np.linspace(0, 3, 60_001)[:, None]
        # A batch's noise: covariance Sigma / B.
        steps = [-etas * (g + noise) for noise in noises / np.sqrt(B)]
        return np.max(-sum(step @ g + (step**2 @ h) / 2 for step in steps) / len(noises))

    script = h @ sd**2 / (h @ g**2)
    for B in (1, script / 3, script, 7 * script):
        assert gain(B) / gain(np.inf) == pytest.approx(1 / (1 + script / B), rel=1e-4)
    assert abs(script - sd @ sd / (g @ g)) > 0.3 * script  # the noise scale is another number here


def test_why_10_2_limits():
    """The largest rate at which two noisy directions settle at or below eps, by halving: 4 B eps / sigma^2 far below the
    crossing, 2 / L far above it, however flat the second direction is."""

    def largest(B, flat, eps=1e-3):
        lam, s, low, high = np.array([2.0, flat]), np.array([3.0, 2.0]), 0.0, 2.0
        for _ in range(50):
            eta = (low + high) / 2
            settles = np.sum(eta * s / B / (2 * (2 - eta * lam))) if eta < 1 else np.inf
            low, high = (eta, high) if settles <= eps else (low, eta)
        return low

    crossing = 5 / (2 * 2 * 1e-3)
    for flat in (0.5, 0.005):
        assert largest(crossing / 100, flat) == pytest.approx(4 * crossing / 100 * 1e-3 / 5, rel=0.02)
        assert largest(100 * crossing, flat) == pytest.approx(2 / 2, rel=0.02)
        assert 0.4 < largest(crossing, flat) < 1
