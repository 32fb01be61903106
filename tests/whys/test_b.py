"""Why-boxes of labs B by another route: quadrature, symbols, all ways to be last, jobs killed at random."""

import hashlib
import itertools
import math

import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad


def interval_s(tau, delta, R, M, D=0.0):
    """Mean seconds of an interval by first steps: what is needed now, or lost and then a restart is needed, too."""

    def tried(need):
        lost = quad(lambda t: (t + D) * math.exp(-t / M) / M, 0, need)[0]
        alive = math.exp(-need / M)
        return lost + need * alive, 1 - alive

    (first, fails), (again, fails_again) = tried(tau + delta), tried(R + tau + delta)
    return first + fails * again / (1 - fails_again)


@pytest.mark.parametrize(("tau", "delta", "R"), [(0.2, 0.01, 0.05), (2.0, 0.5, 1.0), (0.01, 0.3, 0.0)])
def test_why_b_goodput(tau, delta, R):
    for M, D in ((1.0, 0.0), (3.7, 0.4)):
        n = math.exp(R / M) * math.expm1((tau + delta) / M)
        assert interval_s(tau, delta, R, M, D) == pytest.approx(n * (M + D))


def test_why_b_young():
    tau, delta, M = sp.symbols("tau delta M", positive=True)
    lost = delta / tau + tau / (2 * M)
    (best,) = sp.solve(sp.diff(lost, tau), tau)
    assert sp.simplify(best - sp.sqrt(2 * delta * M)) == 0 and sp.diff(lost, tau, 2).subs(tau, best) > 0
    assert sp.simplify(lost.subs(tau, best) - sp.sqrt(2 * delta / M)) == 0
    small = 1e-6  # and the exact loss has these terms first
    d, x = 3 * small**2, 2 * small
    assert 1 - x / (interval_s(x, d, 0, 1)) == pytest.approx(d / x + x / 2, rel=1e-3)


def test_why_b_bits():
    def run(kills, every=5, T=20, whole=True):
        """The state at the end; kills: after how many steps computed in a start it is killed."""
        stored, total = (0, b"start", 0), 0
        kills = list(kills)
        while True:
            t, x, hidden = stored
            hidden = hidden if whole else 0  # what the checkpoint forgot
            left = kills.pop(0) if kills else T
            while t < T and left > 0:
                x, hidden = hashlib.sha256(x + bytes([t, hidden])).digest(), (hidden + t) % 251
                t, left, total = t + 1, left - 1, total + 1
                if t % every == 0:
                    stored = (t, x, hidden)
            if t == T:
                return x, total

    calm, steps = run([])
    assert steps == 20 and run([17]) == (calm, 22)
    rng = np.random.default_rng(0)
    for _ in range(50):
        kills = rng.integers(1, 12, size=rng.integers(1, 5)).tolist()
        assert run(kills)[0] == calm
    assert run([17], whole=False)[0] != calm


def test_why_b_last():
    """All ways in which four steps may have their last; and a job's most frequent last against the union's bound."""
    K, T = 3, 4
    ways = list(itertools.product(range(K), repeat=T))
    for n in range(1, T + 1):
        some = sum(max(map(way.count, range(K))) >= n for way in ways) / len(ways)
        tail = sum(math.comb(T, k) * (K - 1) ** (T - k) for k in range(n, T + 1)) / K**T
        assert sum(way.count(0) >= n for way in ways) / len(ways) == pytest.approx(tail)
        assert some <= K * tail + 1e-12
