"""The arguments of lab 10.4, by plain loops over events: no server, recurrence or lock-free update of labkit."""

import heapq
from itertools import combinations
from math import comb

import numpy as np
import pytest
from replay import turns


def rate(K, draw, c, n):
    """Gradients a second of K workers at one server, first come first served, in the second half of n updates."""
    ended = [at for _, _, at in turns(K, lambda k: draw(), n, c)]
    half = n // 2
    return (n - half) / (ended[-1] - ended[half - 1])


def test_why_10_4_busy():
    rng = np.random.default_rng(0)
    for K, t, c in (*((K, 3.0, 1.0) for K in (1, 3, 4, 5, 9)), (4, 0.02, 0.01)):
        bound = min(K / (t + c), 1 / c)
        assert rate(K, lambda t=t: t, c, 60 * K) == pytest.approx(bound, rel=1e-9)
        assert rate(K, lambda t=t: t + rng.exponential(t / 3), c, 4000) < bound * (1 + 1e-9)
    assert rate(3, lambda: 3.0, 1.0, 300) < 0.8 * min(3 / 3.0, 1.0)  # K / t would be wrong


def test_why_10_4_conserved():
    rng = np.random.default_rng(1)
    for K in (1, 2, 5):
        pace = rng.uniform(0.1, 20, K)
        now, stale = [0] * K, 0
        for u, (k, read, _) in enumerate(turns(K, lambda k, p=pace: p[k] * rng.exponential(), 500)):
            stale, now[k] = stale + u - read, u + 1
            assert stale + sum(u + 1 - version for version in now) == (K - 1) * (u + 1)


def test_why_10_4_overlap():
    for d, m in ((6, 2), (7, 3), (8, 1)):  # every pair of examples, counted
        sets = [set(c) for c in combinations(range(d), m)]
        meet = np.mean([bool(sets[0] & other) for other in sets])
        assert meet == pytest.approx(1 - comb(d - m, m) / comb(d, m)) and meet <= m * m / d
    rng = np.random.default_rng(2)
    d, m, n = 200, 4, 8000
    examples = np.argsort(rng.random((n, d)), axis=1)[:, :m]
    held = np.zeros((n, d), dtype=bool)
    np.put_along_axis(held, examples, True, axis=1)
    meet = 1 - comb(d - m, m) / comb(d, m)
    for tau in (1, 5, 12):
        since = np.cumsum(held, axis=0)
        touched = since[tau:] - since[:-tau]  # by the tau updates that end with each one
        fresh = 1 - (touched[:-1] * held[tau + 1 :]).any(axis=1).mean()
        assert fresh == pytest.approx((1 - meet) ** tau, abs=0.02) and fresh > 1 - tau * m * m / d


def lost(K, d, m, rounds, rng):
    """Share of additions lost by K workers of one pace who load again as soon as they have stored."""
    cells, added = np.zeros(d), 0
    events = [((k + 0.5) / K, k) for k in range(K)]  # when each stores
    where = [rng.choice(d, m, replace=False) for _ in range(K)]
    seen = [cells[at].copy() for at in where]
    for _ in range(rounds * K):
        now, k = heapq.heappop(events)
        cells[where[k]] = seen[k] + 1
        added += m
        where[k] = rng.choice(d, m, replace=False)
        seen[k] = cells[where[k]].copy()
        heapq.heappush(events, (now + 1.0, k))
    return 1 - cells.sum() / added


def test_why_10_4_lost():
    rng = np.random.default_rng(3)
    for K in (2, 3, 4):
        assert lost(K, 5, 5, 200, rng) == pytest.approx(1 - 1 / K, abs=0.01)
        share, bound = lost(K, 200, 4, 1000, rng), (K - 1) * 4 / 200
        assert 0.7 * bound < share <= 1.02 * bound  # at most, and nearly that much
