"""The claims of lab 10.3 by another route: plain loops, closed forms of order statistics, arithmetic."""

from __future__ import annotations

import numpy as np
from scipy import integrate, special, stats


def test_10_3_bitwise(verdict, seed):
    """Gradient descent on 96 examples in lists of Python floats: in one sum, in eight, and in eight by one machine."""
    rng = np.random.default_rng(seed)
    rows = [(x.tolist(), float(rng.normal())) for x in rng.normal(size=(96, 3))]

    def add_up(rows, w):
        total = [0.0, 0.0, 0.0]
        for x, y in rows:
            error = sum(a * b for a, b in zip(x, w, strict=True)) - y
            total = [t + 2 * error * a for t, a in zip(total, x, strict=True)]
        return total

    def path(sums):
        w = [0.0, 0.0, 0.0]
        for _ in range(20):
            total = [0.0, 0.0, 0.0]
            for part in sums(w):
                total = [t + p for t, p in zip(total, part, strict=True)]
            w = [a - 0.1 * (t / 96) for a, t in zip(w, total, strict=True)]
        return w

    shards = [rows[i : i + 12] for i in range(0, 96, 12)]
    one = path(lambda w: [add_up(rows, w)])
    workers = path(lambda w: [add_up(shard, w) for shard in shards])

    def accumulate(w):  # one machine, the same parts in the same order
        for shard in shards:
            yield add_up(shard, w)

    equal, same_parts = workers == one, workers == path(accumulate)
    assert np.allclose(workers, one, rtol=1e-12)
    word = "true" if equal else "true if" if same_parts else "false"
    assert word == verdict


def test_10_3_straggler_tax(verdict, seed):
    """E max of K times in closed form, where one is known, and by an integral for the normal law; a sample as a check.

    Beside the laws, one worker that is always the slowest: there the maximum is no matter of K.
    """
    half, a = 20 * 3**0.5, 1 + 26**0.5
    scale = 100 * (a - 1) / a

    def normal(K):
        def density(z):
            return z * K * stats.norm.pdf(z) * np.exp((K - 1) * stats.norm.logcdf(z))

        return 100 + 20 * integrate.quad(density, -10, 12, limit=400, points=[0, 3, 6])[0]

    def heavy(K):
        log_ratio = special.gammaln(K + 1) - special.gammaln(K + 1 - 1 / a)
        return scale * np.exp(special.gammaln(1 - 1 / a) + log_ratio)

    mean_max = {
        "bounded": lambda K: 100 - half + 2 * half * K / (K + 1),
        "normal": normal,
        "exponential": lambda K: 80 + 20 * (special.digamma(K + 1) + np.euler_gamma),
        "heavy": heavy,
    }
    rng = np.random.default_rng(seed)
    sampled = scale * (rng.pareto(a, size=(4000, 128)) + 1).max(axis=1).mean()
    assert abs(sampled / mean_max["heavy"](128) - 1) < 0.05
    goes_on = {law: m(10**9) > 1.1 * m(128) for law, m in mean_max.items()}
    grows = {law: m(128) > 1.1 * m(2) and m(10**9) > m(128) for law, m in mean_max.items()}
    one_sick = {K: max(300 if k == 1 else 90 for k in range(K)) for K in (8, 512)}
    grows_sick = one_sick[512] > one_sick[8]
    word = "true" if all(grows.values()) and grows_sick else "true if" if all(grows.values()) else "false"
    assert [law for law, more in goes_on.items() if not more] == [
        "bounded"
    ]  # "without limit" only for the others
    ranked = [sorted(mean_max, key=lambda law: mean_max[law](K)) for K in (2, 128)]
    assert ranked[0] == ranked[1][::-1]
    assert word == verdict


def test_10_3_clock(verdict):
    """A job whose steps are computation for a share of their time, with one clock at 70 %: how long can 22 minutes get?"""
    longest = 0.0
    for share in np.linspace(0, 1, 101):
        ranks = np.full(8, 22 * share)
        ranks[6] /= 0.7
        longest = max(longest, ranks.max() + 22 * (1 - share))
    assert verdict == ("true" if longest > 0.95 * 41 else "false")
