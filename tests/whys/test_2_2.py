"""The arguments of lab 2.2 and its overlap, by enumeration, events, matchings and linear programs."""

import math
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from replay import paced
from scipy.optimize import linear_sum_assignment, linprog


def finished(X, s):
    """When each worker has finished each step, by events: a worker starts step t once all have completed t - s steps."""
    F = np.full(X.shape, np.nan)
    for k, t, _, clock in paced(*X.shape, lambda k, t: X[k, t], lambda t, least: least >= t - s):
        F[k, t] = clock
    return F


def heaviest(X, s, jump=1):
    """The largest sum along a chain, every chain tried: back from (k, t) to (k, t - 1) or to any (j, t - jump - s)."""
    K, T = X.shape

    def back(k, t):
        ways = [back(k, t - 1)] if t else [0.0]
        if t - jump - s >= 0:
            ways += [back(j, t - jump - s) for j in range(K)]
        return X[k, t] + max(ways)

    return max(back(k, T - 1) for k in range(K))


def test_why_2_2_superstep():
    """Any pattern of units goes in h rounds, h the busiest port; the mean port is not enough, one round fewer neither."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        K = int(rng.integers(3, 7))
        units = rng.integers(0, 5, (K, K)) * (1 - np.eye(K, dtype=int))
        out, into = units.sum(axis=1), units.sum(axis=0)
        h = max(out.max(), into.max())
        padded, gaps = units.copy(), [h - out, h - into]
        while gaps[0].sum():  # units that nobody sends, so that every port has h
            i, j = gaps[0].argmax(), gaps[1].argmax()
            padded[i, j] += 1
            gaps[0][i] -= 1
            gaps[1][j] -= 1
        rounds = 0
        while padded.any():
            i, j = linear_sum_assignment(padded > 0, maximize=True)
            assert (padded[i, j] > 0).all() and len(set(i)) == len(set(j)) == K, "every port is busy"
            padded[i, j] -= 1
            rounds += 1
        assert rounds == h > units.sum() / K  # g h; not g times the mean over ports


def test_why_2_2_chain():
    """The run's end is the heaviest chain, by events against enumeration; between the bounds, and never later with slack."""
    rng = np.random.default_rng(1)
    X = rng.exponential(1.0, (3, 6))
    low, high = X.sum(axis=1).max(), X.max(axis=0).sum()
    ends = [finished(X, s).max() for s in range(7)]
    assert ends == pytest.approx([heaviest(X, s) for s in range(7)])
    assert ends[0] == pytest.approx(high) and ends[5] == ends[6] == pytest.approx(low)
    one_jump = np.array([[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    assert [finished(one_jump, s).max() for s in (0, 1, 2)] == [10, 10, 5]  # s = T - 1 is needed
    assert all(a >= b - 1e-12 for a, b in pairwise(ends))
    assert ends[1] != pytest.approx(heaviest(X, 1, jump=2))  # nor does a chain jump one step further
    for _ in range(20):
        X = rng.exponential(1.0, (4, 30))
        F = [finished(X, s) for s in (0, 1, 2, 5, 29)]
        assert all((a >= b - 1e-12).all() for a, b in pairwise(F))


def test_why_2_2_slack():
    """(a) The same end for every slack; (b) at most (K - 1) s gradients more, and attained."""
    rng = np.random.default_rng(2)
    K, T = 4, 20
    X = rng.uniform(1.0, 2.0, (K, T))
    X[2] = X.max(axis=0) + rng.uniform(0.0, 1.0, T)
    assert [finished(X, s).max() for s in (0, 1, 3, 19)] == pytest.approx([X[2].sum()] * 4)
    for s in (1, 2, 5):
        X = rng.uniform(0.01, 0.2, (K, T + 8))
        X[0] = rng.uniform(1.0, 2.0, T + 8)
        F = finished(X, s)
        made = (F[0, T - 1] >= F).sum(axis=1)
        assert (made <= T + s).all() and made.sum() == K * T + (K - 1) * s


def through(p, travel):
    """When the wire has carried all buckets, in ticks: bucket l of L is complete after l p / L of them."""
    L, backlog, tick = len(travel), 0, 0
    while True:
        if tick and tick % (p // L) == 0 and tick <= p:
            backlog += travel[tick // (p // L) - 1]
        if tick >= p and backlog == 0:
            return tick
        backlog -= backlog > 0
        tick += 1


def test_why_2_2_exposed():
    """A wire that carries one unit a tick, against the maximum over buckets, and against max(a / L, a - p + p / L)."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        L, part = int(rng.integers(1, 7)), int(rng.integers(1, 9))
        p, travel = L * part, rng.integers(0, 15, L).tolist()
        assert through(p, travel) == max((i + 1) * part + sum(travel[i:]) for i in range(L))
    for p, a, L in [(200, 60, 10), (60, 200, 10), (200, 200, 5), (12, 24, 4), (24, 12, 4)]:
        exposed = max(Fraction(a, L), a - p + Fraction(p, L))
        assert through(p, [a // L] * L) - p == exposed
    assert through(60, [20] * 10) - 60 == 146


def test_why_2_2_sizes():
    """The least exposed time over all cuts is a linear program in the shares and the times at which buckets are through."""
    for p, a, L in [(200, 60, 4), (60, 200, 4), (60, 200, 10), (100, 100, 5), (100, 90, 3)]:
        below = np.tril(np.ones((L, L)))
        moved = np.eye(L) - np.eye(L, k=-1)  # f_l - f_(l-1)
        rows = [np.hstack([a * np.eye(L), -moved]), np.hstack([a * np.eye(L) + p * below, -np.eye(L)])]
        cost = np.zeros(2 * L)
        cost[-1] = 1  # when the last bucket is through
        whole = np.hstack([np.ones(L), np.zeros(L)])[None]
        best = linprog(cost, np.vstack(rows), np.zeros(2 * L), whole, [1.0])
        rho = a / p
        bound = p * rho**L / sum(rho**i for i in range(L))
        assert best.fun - p == pytest.approx(bound, rel=1e-6, abs=1e-6)
        shares = rho ** np.arange(L) / (rho ** np.arange(L)).sum()
        assert best.x[:L] == pytest.approx(shares, abs=1e-5)  # and these are the only best ones
    assert bound < 90 / 3  # the equal cut is worse


def test_why_2_2_number():
    """The best of all whole numbers, by the queue itself, lies beside max(sqrt(p / l), (p - a) / l)."""

    def exposed(p, a, latency, L):
        wire = 0.0
        for bucket in range(1, L + 1):
            wire = max(wire, bucket * p / L) + a / L + latency
        return wire - p

    rng = np.random.default_rng(4)
    sides = set()
    for _ in range(40):
        p, latency = 1.0, 10 ** rng.uniform(-1.8, -0.5)
        a = p * rng.choice([rng.uniform(0.1, 0.95), rng.uniform(0.98, 3)])
        found = [exposed(p, a, latency, L) for L in range(1, 70)]
        said = max(1.0, np.sqrt(p / latency), (p - a) / latency)
        assert said < 68
        sides.add((p - a) / latency > np.sqrt(p / latency))
        beside = min(found[int(np.floor(said)) - 1], found[int(np.ceil(said)) - 1])
        assert beside == pytest.approx(min(found), rel=1e-9, abs=1e-12)
        L = 7
        terms = a / L + latency, a - p + p / L + L * latency
        assert found[L - 1] == pytest.approx(max(terms))
    assert sides == {True, False}


def test_why_2_2_rows():
    """Whatever is done to random steps, the rows telescope; in the box's example each cause's row is 0 if it goes first."""
    rng = np.random.default_rng(3)
    w = rng.exponential(size=(4, 3, 50))  # rank, part, step

    spoil = {
        "drop": lambda w: w * rng.integers(0, 2, w.shape),
        "shuffle": lambda w: rng.permuted(w, axis=0),
        "add": lambda w: w + rng.normal(size=w.shape),
    }
    for order in (("drop", "shuffle", "add"), ("add", "drop", "shuffle")):
        spoilt = accumulate(order, lambda now, kind: spoil[kind](now), initial=w)
        steps = [each.sum(axis=1).max(axis=0).mean() for each in spoilt]
        rows = [a - b for a, b in pairwise(steps)]
        assert np.isclose(sum(rows) + steps[-1], steps[0])

    def step(loading, computing):
        return max(a + b for a, b in zip(loading, computing, strict=True))

    sick, slow, none, alike = (20, 0), (30, 50), (0, 0), (30, 30)
    assert step(sick, slow) == 50
    assert [step(sick, slow) - step(none, slow), step(none, slow) - step(none, alike)] == [0, 20]
    assert [step(sick, slow) - step(sick, alike), step(sick, alike) - step(none, alike)] == [0, 20]


def test_why_2_2_blocks():
    """V and the correlation of blocks, from the full covariance matrix and by quadrature of the two normal signs."""
    from scipy.stats import multivariate_normal

    phi, T = 0.8, 96
    apart = np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
    both = np.zeros(T)  # P(both last) - 1/4, by the distance of two steps
    for j in range(1, T):
        both[j] = multivariate_normal([0, 0], [[1, phi**j], [phi**j, 1]]).cdf([0, 0]) - 0.25
        assert both[j] == pytest.approx(math.asin(phi**j) / (2 * math.pi), abs=1e-6)
    both[0] = 0.25
    V = 1 + 2 * sum((1 - j / T) * 2 / math.pi * math.asin(phi**j) for j in range(1, T))
    assert both[apart].sum() == pytest.approx(V * T / 4, rel=1e-4)

    last = 1.0
    for m in (1, 2, 4, 8, 16, 32):
        sums = np.kron(np.eye(T // m), np.ones(m))
        C = sums @ phi**apart @ sums.T
        stated = phi * (1 - phi**m) ** 2 / (m * (1 - phi**2) - 2 * phi * (1 - phi**m))
        assert C[0, 1] / C[0, 0] == pytest.approx(stated)
        assert C[0, 1] == pytest.approx(phi * (1 - phi**m) ** 2 / (1 - phi) ** 2)
        assert stated < last
        last = stated
    m = 4096
    assert m * phi / (m * (1 - phi**2) - 2 * phi) == pytest.approx(phi / (1 - phi**2), rel=0.01)  # like 1/m
