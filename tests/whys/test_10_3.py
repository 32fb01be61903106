"""The arguments of lab 10.3, by symbols and exact fractions."""

from fractions import Fraction

import numpy as np
import sympy as sp
from replay import around


def test_why_10_3_one_step():
    """In exact fractions, for losses (x w - y)^2 + w^4 / i: sums and counts of unequal parts give the one worker's step."""
    w, eta = Fraction(3, 7), Fraction(1, 20)
    rows = [(Fraction(i, 3), Fraction(1, i), i) for i in (1, 2, 3, 4, 5, 5, 6)]  # one of them twice

    def gradient(x, y, i):
        return 2 * x * (x * w - y) + 4 * w**3 / i

    one = w - eta * sum(gradient(*row) for row in rows) / len(rows)
    shards = [rows[:1], rows[1:5], [], rows[5:]]
    total, count = sum(sum(gradient(*row) for row in shard) for shard in shards), sum(map(len, shards))
    assert w - eta * total / count == one
    means = [sum(gradient(*row) for row in shard) / len(shard) for shard in shards if shard]
    assert w - eta * sum(means) / len(means) != one  # what the box does not promise
    as_a_set = {row: gradient(*row) for row in rows}.values()
    assert w - eta * sum(as_a_set) / len(as_a_set) != one


def test_why_10_3_every_step():
    """The recurrence d <- rho d + e is solved by the geometric sum; a quadratic with rounding of length e attains it."""
    rho, e = sp.symbols("rho e", positive=True)
    n = sp.Symbol("n", integer=True, positive=True)
    d = e * (1 - rho**n) / (1 - rho)
    assert sp.simplify(d.subs(n, n + 1) - (rho * d + e)) == 0 and d.subs(n, 1).equals(e)
    assert sp.limit(d.subs(rho, sp.Rational(9, 10)), n, sp.oo) == 10 * e

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    H = 2 * X.T @ X / 40
    eta = 0.4 / np.linalg.eigvalsh(H)[-1]
    stretch = np.abs(np.linalg.eigvalsh(np.eye(3) - eta * H)).max()
    w = v = np.zeros(3)
    worst = np.linalg.eigh(H)[1][:, 0]  # the slowest direction: here the bound is attained
    for _ in range(2000):
        w = w - eta * 2 * X.T @ (X @ w - y) / 40
        v = v - eta * 2 * X.T @ (X @ v - y) / 40 + 1e-3 * worst
    assert abs(np.linalg.norm(v - w) * (1 - stretch) / 1e-3 - 1) < 1e-6


def test_why_10_3_unequal():
    """The difference in symbols."""
    K = 4
    b = sp.symbols("b0:4", positive=True)
    g = sp.symbols("g0:4")
    M = sum(b)
    plain, whole = sum(g) / K, sum(x * y for x, y in zip(b, g, strict=True)) / M
    stated = sum((sp.Rational(1, K) - x / M) * y for x, y in zip(b, g, strict=True))
    assert sp.simplify(plain - whole - stated) == 0


def test_why_10_3_harmonic():
    """E max by integrating P(max > x) = 1 - (1 - exp(-x))^K exactly, in symbols."""
    x = sp.Symbol("x", positive=True)
    for K in (1, 2, 3, 7):
        tail = sp.expand(1 - (1 - sp.exp(-x)) ** K)
        assert sp.integrate(tail, (x, 0, sp.oo)) == sp.harmonic(K)
    gaps = [sp.integrate(sp.exp(-j * x), (x, 0, sp.oo)) for j in (1, 2, 5)]  # least of j times
    assert gaps == [1, sp.Rational(1, 2), sp.Rational(1, 5)]


def test_why_10_3_share():
    """Chunks are passed round, counted in fractions of a vector; and the crossing is searched for, not solved."""
    for K in (2, 3, 8):
        rounds = around(K)
        assert rounds == 2 * (K - 1) and Fraction(rounds, K) == 2 * Fraction(K - 1, K)
    for x in (Fraction(3, 5), Fraction(1), Fraction(7, 4)):
        first = next(K for K in range(1, 1000) if 2 * Fraction(K - 1, K) * x > 1)
        least = 2 * x / (2 * x - 1)
        assert first > least >= first - 1
    assert not any(2 * Fraction(K - 1, K) * Fraction(1, 2) > 1 for K in range(1, 1000))
