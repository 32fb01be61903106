"""Why-boxes of lab B by another route: quadrature, symbols, roots found numerically, all subsets, jobs killed at random."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.optimize import brentq


def test_why_b_alive():
    M1, K, t = 7.0, 12, 0.9
    alone = quad(lambda s: math.exp(-s / M1) / M1, t, math.inf)[0]
    assert alone**K == pytest.approx(math.exp(-K * t / M1))
    mean = quad(lambda s: math.exp(-s / M1) ** K, 0, math.inf)[
        0
    ]  # the mean of a time is the integral of its tail
    assert mean == pytest.approx(M1 / K)
    old = quad(lambda s: math.exp(-s / M1) / M1, 3 + t, math.inf)[0] / math.exp(-3 / M1)
    assert old == pytest.approx(alone)  # at age 3 as at age 0


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
    for M in (1.0, 3.7):
        said = M * math.exp(R / M) * math.expm1((tau + delta) / M)
        assert interval_s(tau, delta, R, M) == pytest.approx(said)


def test_why_b_young():
    tau, delta, M = sp.symbols("tau delta M", positive=True)
    lost = delta / tau + tau / (2 * M)
    (best,) = sp.solve(sp.diff(lost, tau), tau)
    assert sp.simplify(best - sp.sqrt(2 * delta * M)) == 0 and sp.diff(lost, tau, 2).subs(tau, best) > 0
    assert sp.simplify(lost.subs(tau, best) - sp.sqrt(2 * delta / M)) == 0
    small = 1e-6  # and the exact loss has these terms first
    d, x = 3 * small**2, 2 * small
    assert 1 - x / (interval_s(x, d, 0, 1)) == pytest.approx(d / x + x / 2, rel=1e-3)


def test_why_b_daly():
    tau, delta, M = sp.symbols("tau delta M", positive=True)
    G = tau / (M * (sp.exp((tau + delta) / M) - 1))
    slope = sp.diff(sp.log(G), tau)
    zero = 1 / tau - 1 / (M * (1 - sp.exp(-(tau + delta) / M)))
    assert sp.simplify(slope - zero) == 0  # zero where (1 - tau/M) e^(tau/M) = e^(-delta/M)
    for ratio in (1e-2, 1e-3, 1e-4):
        root = brentq(lambda x, d=ratio: math.log1p(-x) + x + d, 1e-9, 1 - 1e-12, xtol=1e-15)
        assert float(zero.subs({tau: root, M: 1, delta: ratio})) == pytest.approx(0, abs=1e-6 / root)
        y = math.sqrt(2 * ratio)
        young, second, third = y, -2 * ratio / 3, ratio / 18 * y
        assert (
            abs(root - (young + second + third)) < 0.02 * y**4
        )  # the first term left out is y^4 / 540 or so
        assert abs(root - (young + second)) > 0.02 * y**3  # and the third is needed
        lambert = sp.N(1 + sp.LambertW(-sp.exp(-1 - sp.Float(ratio, 40)), 0), 20)
        assert float(lambert) == pytest.approx(root, rel=1e-6)


def test_why_b_notice():
    for tau, D in ((0.1, 0.05), (1.0, 2.0)):
        calm, silent = interval_s(tau, 0.02, 0.1, 1.3), interval_s(tau, 0.02, 0.1, 1.3, D)
        assert calm / silent == pytest.approx(1.3 / (1.3 + D))


def test_why_b_control():
    for K in range(2, 8):
        majority = K // 2 + 1
        groups = list(itertools.combinations(range(K), majority))
        assert all(set(a) & set(b) for a in groups for b in groups)
        for dead in range(K):
            assert (K - dead >= majority) == (dead < K / 2)
        n, log = 1e6, []
        for k in range(1, K):
            log += [(0, k, n), (k, 0, 1), (0, k, 1)]
        assert len(log) == 3 * (K - 1)
        leader = sum(b for src, _, b in log if src == 0)
        ring = [(r, (r + 1) % K, n / K) for _ in range(2 * (K - 1)) for r in range(K)]
        worker = sum(b for src, _, b in ring if src == 0)
        assert leader / worker == pytest.approx(K / 2, rel=1e-5)


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


def test_why_b_phase():
    """Gaps of very different laws and one mean: what is lost is the same, except where they are short beside an interval."""
    rng, n, tau, delta, R = np.random.default_rng(3), 200_000, 1.0, 0.02, 0.1
    M = 60.0
    laws = {
        "even": rng.uniform(0, 2 * M, n),
        "exponential": rng.exponential(M, n),
        "waves": np.where(rng.random(n) < 0.5, rng.exponential(M / 4, n), rng.exponential(7 * M / 4, n)),
        "bursts": np.where(rng.random(n) < 0.5, 0.0, rng.exponential(2 * M, n)),
    }
    lost = {}
    for name, gaps in laws.items():
        phase, whole = np.modf(np.maximum(gaps - R, 0.0) / (tau + delta))
        lost[name] = 1 - tau * whole.sum() / gaps.sum()
        if name == "even":
            assert phase.mean() == pytest.approx(0.5, abs=0.01)
    said = delta / tau + (tau / 2 + R) / M
    for name in ("even", "exponential", "waves"):
        assert lost[name] == pytest.approx(said, rel=0.05), name
    half = delta / tau + (tau / 2 + R) / M / 2  # every second of these failures costs nothing more
    assert lost["bursts"] == pytest.approx(half, rel=0.05) and half < 0.9 * said
    t, d, m = sp.symbols("tau delta m", positive=True)
    (best,) = sp.solve(sp.diff(d / t + (t / 2 + R) / m, t), t)
    assert sp.simplify(best - sp.sqrt(2 * d * m)) == 0


def test_why_b_repair():
    """Repairs of four laws, drawn; and failures in pairs, which keep the mean and break the law."""
    rng, lam, r = np.random.default_rng(4), 3.0, 2.0
    repairs = {
        "exponential": lambda n: rng.exponential(r, n),
        "always alike": lambda n: np.full(n, r),
        "nearly all short": lambda n: np.where(rng.random(n) < 0.9, r / 10, 9.1 * r),
    }

    def number(arrivals, repair):
        """In repair at moments far apart, after the beginning is forgotten."""
        ends = arrivals + repair(len(arrivals))
        looks = np.arange(100.0, arrivals[-1], 40.0)
        starts = np.searchsorted(arrivals, looks)
        return starts - np.searchsorted(np.sort(ends), looks)

    once = np.cumsum(rng.exponential(1 / lam, 1_200_000))
    for repair in repairs.values():
        seen = number(once, repair)
        assert seen.mean() == pytest.approx(lam * r, rel=0.02)
        assert seen.var() == pytest.approx(lam * r, rel=0.06)
        for k in (2, 6, 11):
            said = math.exp(-lam * r) * (lam * r) ** k / math.factorial(k)
            assert np.mean(seen == k) == pytest.approx(said, abs=5 * math.sqrt(said / len(seen)))
    pairs = np.repeat(np.cumsum(rng.exponential(2 / lam, 600_000)), 2)
    seen = number(pairs, repairs["always alike"])
    assert seen.mean() == pytest.approx(lam * r, rel=0.02) and seen.var() > 1.8 * lam * r
