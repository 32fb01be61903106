"""Momentum, LARS and LAMB on all 1024 digits at once, 30 steps, at every rate of one grid, with and without warm-up.

One row a run: the method, the scale of the initial weights, the epochs of warm-up, the rate, the seed, and the share of
unseen digits that is right, in per cent, on two halves: one to choose a rate by and one to judge by. A run that
overflows is worth 10 per cent, a guess. Network, digits, LARS and LAMB are lab 10.8's.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import norm

from labkit import evidence
from labkit.learn import MLP, Diverged, Momentum, digits, walk

RATES, SEEDS, STEPS, WARM = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), 5, 30, 15


def problems() -> list[MLP]:
    """To learn from, to choose by, to judge by."""
    data = digits(np.random.default_rng(0), test=773 / 1797)
    mean, spread = data.X.mean(axis=0), data.X.std(axis=0) + 0.1
    X, test = (((x - mean) / spread).astype(np.float32) for x in (data.X, data.X_test))
    parts = (X, data.y), (test[:386], data.y_test[:386]), (test[386:], data.y_test[386:])
    return [MLP(x, y, hidden=(64, 64, 64), classes=10, activation="relu") for x, y in parts]


class LARS:
    """Momentum; in each layer the gradient is c |w| long before it enters."""

    def __init__(self, layers, c=0.01, m=0.9):
        self.layers, self.c, self.m = layers, c, m  # [weights, biases, weights, ...]

    def start(self, w):
        return np.zeros_like(w)

    def step(self, w, g, eta, v):
        g = g.copy()
        for at in self.layers[::2]:  # the biases are left as they are
            g[at] *= self.c * norm(w[at]) / (norm(g[at]) or 1)
        v = self.m * v + eta * g
        return w - v, v


class LAMB:
    """Adam; in each layer the step is eta |w| long."""

    def __init__(self, layers):
        self.layers = layers

    def start(self, w):
        return np.zeros_like(w), np.zeros_like(w), 0

    def step(self, w, g, eta, memory):
        a, q, t = memory
        a, q, t = 0.9 * a + 0.1 * g, 0.999 * q + 0.001 * g * g, t + 1
        r = a / (1 - 0.9**t) / (np.sqrt(q / (1 - 0.999**t)) + 1e-6)  # Adam's step
        for at in self.layers[::2]:
            r[at] *= norm(w[at]) / (norm(r[at]) or 1)
        return w - eta * r, (a, q, t)


def sweep() -> list[dict[str, object]]:
    np.seterr(over="ignore", invalid="ignore")
    net, *halves = problems()
    rows: list[dict[str, object]] = []
    methods = {"momentum": Momentum(0.9), "LARS": LARS(net.layers), "LAMB": LAMB(net.layers)}

    def right(method: str, scale: float, warm: int, eta: float, seed: int) -> list[float]:
        start = np.float32(scale) * net.init(np.random.default_rng(seed))

        def rate(t: int) -> float:
            return eta * min(1, (t + 1) / (warm + 1))

        try:
            *_, w = walk(net, start, methods[method], rate, [None] * STEPS)
        except Diverged:
            return [10.0, 10.0]
        return [round(100 * half.accuracy(w), 2) for half in halves]

    for method in methods:
        for scale in (2.5, 1.0):
            for warm in (0, WARM):
                for eta in RATES:
                    for seed in evidence.seeds(SEEDS):
                        choose, judge = right(method, scale, warm, eta, seed)
                        row = {"method": method, "scale": scale, "warm": warm, "eta": eta, "seed": seed}
                        rows.append(row | {"choose": choose, "judge": judge})
    return rows
