"""Steps to a training loss, for batches, rates, widths and seeds: what critical batches are made of.

One row a run: the width of the one hidden layer, B, the rate, the seed, and the steps to each target. The loss over all
1024 digits is recorded at steps that grow by 3 % (each one, first); a run has arrived at the first record from which five in
a row are at most the target. null: not within the limit of T steps, which depends on B alone.
"""

from __future__ import annotations

import numpy as np

from labkit import evidence
from labkit.learn import MLP, Diverged, Momentum, digits, minibatches, walk

WIDTHS, TARGETS, SEEDS = (16, 32, 128), (1.0, 0.3, 0.1), 5
RATES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
LIMIT = {4: 1800, 8: 1200, 16: 900, 64: 500, 256: 250, 1024: 200}
STAY = 5


def arrivals(net: MLP, B: int, eta: float, seed: int) -> list[int | None]:
    T, start = LIMIT[B], net.init(np.random.default_rng(seed))
    looks = np.unique(np.ceil(1.03 ** np.arange(300)).astype(int))
    looks, seen = set(looks[looks <= T].tolist()), []
    batches = minibatches(net.N, B, np.random.default_rng(50 + seed), epochs=None)
    try:
        for t, w in enumerate(walk(net, start, Momentum(0.0), eta, batches, T=T), start=1):
            if t in looks:
                seen.append((t, net.loss(w)))
                if len(seen) >= STAY and max(x for _, x in seen[-STAY:]) <= min(TARGETS):
                    break
    except Diverged:
        pass
    first = [evidence.reach_and_stay([x for _, x in seen], target, STAY) for target in TARGETS]
    return [None if i is None else seen[i][0] for i in first]


def sweep() -> list[dict[str, object]]:
    np.seterr(over="ignore", invalid="ignore")
    data, rows = digits(np.random.default_rng(0), test=773 / 1797), []
    for width in WIDTHS:
        net = MLP(data.X.astype(np.float32), data.y, hidden=(width,), classes=10, activation="relu")
        for B in LIMIT:
            for eta in RATES:
                for seed in evidence.seeds(SEEDS):
                    steps = arrivals(net, B, eta, seed)
                    rows.append({"width": width, "B": B, "eta": eta, "seed": seed, "steps": steps})
    return rows
