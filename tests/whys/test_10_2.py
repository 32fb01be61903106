"""The arguments of lab 10.2: enumerated in fractions, by sympy, or by recursions in one dimension without labkit."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

sp = pytest.importorskip("sympy")

# -- one batch ----------------------------------------------------------------------------------------------

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
def test_why_10_2_unbiased(b):
    for batches in (product(range(N), repeat=b), combinations(range(N), b)):
        mean, full, _ = moments(list(batches))
        assert mean == full
    if b < N:  # what is never drawn biases: by |full - that| / (N - 1)
        mean, full, _ = moments(list(combinations(range(N - 1), b)))
        assert [m - f for m, f in zip(mean, full, strict=True)] == [
            (f - g) / (N - 1) for f, g in zip(full, GRADIENTS[-1], strict=True)
        ]


@pytest.mark.parametrize("b", [1, 2, 3, 5])
def test_why_10_2_variance(b):
    _, _, sigma2 = moments([(j,) for j in range(N)])
    _, _, drawn = moments(list(product(range(N), repeat=b)))
    _, _, without = moments(list(combinations(range(N), b)))
    assert drawn == sigma2 / b
    assert without == sigma2 / b * Fraction(N - b, N - 1)  # not (N - b) / N


# -- one step, and many -------------------------------------------------------------------------------------


def smooth(w):
    """A function of curvatures between 1 and 3 that is not quadratic, and its slope and curvature."""
    return w**2 + 1 - np.cos(w), 2 * w + np.sin(w), 2 + np.cos(w)


def test_why_10_2_descent():
    """Two equally likely gradients, slope +- noise, on a cosine bowl: the bound holds at every rate and place, and is
    an equality for the parabola of curvature L: with a third instead of a half it would fail."""
    for w, eta, sd in product(np.linspace(-6, 6, 25), (0.05, 0.3, 0.6), (0.0, 0.5, 3.0)):
        F, slope, _ = smooth(w)
        after = np.mean([smooth(w - eta * (slope + noise))[0] for noise in (-sd, sd)])
        L, V = 3, sd**2
        assert after <= F - eta * (1 - eta * L / 2) * slope**2 + eta**2 * L * V / 2 + 1e-12
    w, eta, L, s = sp.symbols("w eta L s", positive=True)
    parabola = [L / 2 * (w - eta * (L * w + noise)) ** 2 for noise in (-s, s)]
    bound = L / 2 * w**2 - eta * (1 - eta * L / 2) * (L * w) ** 2 + eta**2 * L * s**2 / 2
    assert sp.expand(sum(parabola) / 2 - bound) == 0


def test_why_10_2_ball():
    """A bowl of two curvatures whose noise has V + rho |grad|^2: an exact recursion stays below the bound, at all times; and
    the recursion e <- (1 - eta mu) e + eta^2 L V / 2 has the bound's limit, no less."""
    mu, L, V, rho = 0.2, 2.0, 0.7, 1.5
    for eta in (0.02, 1 / (L * (1 + rho))):
        v = np.array([9.0, 4.0])  # second moments of the two directions
        lam = np.array([mu, L])
        start = lam @ v / 2
        for t in range(150):
            assert lam @ v / 2 <= (1 - eta * mu) ** t * start + eta * L * V / (2 * mu)
            noise = np.array(
                [0.0, V + rho * (lam**2 @ v)]
            )  # all of it in the steep direction, where it costs most
            v = (1 - eta * lam) ** 2 * v + eta**2 * noise
    eta, mu, L, V, e = sp.symbols("eta mu L V e", positive=True)
    (limit,) = sp.solve(sp.Eq(e, (1 - eta * mu) * e + eta**2 * L * V / 2), e)
    assert sp.simplify(limit - eta * L * V / (2 * mu)) == 0


def test_why_10_2_floor():
    eta, lam, s, v = sp.symbols("eta lambda s v", positive=True)
    (still,) = sp.solve(sp.Eq(v, (1 - eta * lam) ** 2 * v + eta**2 * s), v)
    excess = sp.simplify(lam * still / 2)
    assert sp.simplify(excess - eta * s / (2 * (2 - eta * lam))) == 0
    assert sp.limit(excess / eta, eta, 0) == s / 4  # not s / 2
    rng = np.random.default_rng(0)  # and by draws, two directions
    e, seen, eta = np.zeros((2000, 2)), [], 0.05
    for t in range(400):
        e = (1 - eta * np.array([0.5, 2.0])) * e - eta * rng.standard_normal((2000, 2)) * [1.0, 2.0]
        if t >= 250:
            seen.append((e**2 @ [0.5, 2.0]).mean() / 2)
    assert np.mean(seen) == pytest.approx(eta * (1 + 4) / 4, rel=0.06)


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
    limits = {}
    for c in (1.6, 2.0, 2.4, 6.0):
        limits[c] = T * run(c)[1]
        assert limits[c] == pytest.approx(c**2 * s / (2 * c * lam - 1), rel=0.02)
    assert min(limits, key=limits.get) == 1 / lam
    assert limits[2.0] == pytest.approx(s / lam**2, rel=0.01)
    for c in (0.2, 0.4):
        early, late = run(c)
        assert np.log10(early / late) == pytest.approx(2 * c * lam, rel=0.05)


# -- the critical batch -------------------------------------------------------------------------------------


def test_why_10_2_critical():
    """Two directions and noise of two values each, all four draws: the best rate found by search, not by the formula."""
    h, g = np.array([3.0, 0.4]), np.array([1.2, -0.7])
    sd = np.array([2.0, 5.0])
    noises = np.array(list(product((-1, 1), repeat=2))) * sd

    def gain(B):
        etas = np.linspace(0, 3, 60_001)[:, None]
        falls = [etas[:, 0] * 0]
        for noise in noises / np.sqrt(B):  # a batch's noise has the covariance Sigma / B
            step = -etas * (g + noise)
            falls.append(-(step @ g + (step**2 @ h) / 2))
        return np.max(sum(falls) / len(noises))

    script = h @ sd**2 / (h @ g**2)
    for B in (1, script / 3, script, 7 * script):
        assert gain(B) / gain(np.inf) == pytest.approx(1 / (1 + script / B), rel=1e-4)
    assert abs(script - sd @ sd / (g @ g)) > 0.3 * script  # the noise scale is another number here
