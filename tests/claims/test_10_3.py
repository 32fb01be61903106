"""The claims of lab 10.3 by another route: plain loops, closed forms of order statistics, arithmetic."""

import numpy as np
import pytest
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
        w, walked = [0.0, 0.0, 0.0], []
        for _ in range(20):
            total = [0.0, 0.0, 0.0]
            for part in sums(w):
                total = [t + p for t, p in zip(total, part, strict=True)]
            w = [a - 0.1 * (t / 96) for a, t in zip(w, total, strict=True)]
            walked.append(w)
        return walked  # all of it: by chance, or where the gradient is gone, two paths meet again

    shards = [rows[i : i + 12] for i in range(0, 96, 12)]
    one = path(lambda w: [add_up(rows, w)])
    workers = path(lambda w: [add_up(shard, w) for shard in shards])

    in_turn = path(lambda w: (add_up(shard, w) for shard in shards))  # one machine, in the same order
    equal, same_parts = workers == one, workers == in_turn
    assert np.allclose(workers, one, rtol=1e-12)
    assert verdict == ("true" if equal else "true if" if same_parts else "false")


@pytest.mark.settings(
    {"spread": 0.2, "together": False}, {"spread": 0.05}, {"spread": 0.1}, {"spread": 0.35}, {"spread": 0.5},
    {"together": True, "verdict": "false"},
)  # fmt: skip
def test_10_3_straggler_tax(verdict, seed, at):
    """E max of K times in closed form, or by an integral; and drawn, by workers that are slow independently, or together.

    Beside the laws, one worker that is always the slowest: there the maximum is no matter of K.
    """
    sd, a = 100 * at.spread, 1 + (1 + at.spread**-2) ** 0.5
    half, scale = sd * 3**0.5, 100 * (a - 1) / a

    def normal(K):
        def density(z):
            return z * K * stats.norm.pdf(z) * np.exp((K - 1) * stats.norm.logcdf(z))

        return 100 + sd * integrate.quad(density, -10, 12, limit=400, points=[0, 3, 6])[0]

    def heavy(K):
        log_ratio = special.gammaln(K + 1) - special.gammaln(K + 1 - 1 / a)
        return scale * np.exp(special.gammaln(1 - 1 / a) + log_ratio)

    mean_max = {
        "bounded": lambda K: 100 - half + 2 * half * K / (K + 1),
        "normal": normal,
        "exponential": lambda K: 100 - sd + sd * (special.digamma(K + 1) + np.euler_gamma),
        "heavy": heavy,
    }
    rng, size = np.random.default_rng(seed), (4000, 1 if at.together else 128)
    drawn = {
        "bounded": rng.uniform(100 - half, 100 + half, size),
        "normal": rng.normal(100, sd, size),
        "exponential": 100 - sd + rng.exponential(sd, size),
        "heavy": scale * (rng.pareto(a, size) + 1),
    }
    for law, times in drawn.items():
        assert abs(times.max(axis=1).mean() / mean_max[law](size[1]) - 1) < 0.05
    grows = [x.max(axis=1).mean() > 1.02 * x[:, :2].max(axis=1).mean() for x in drawn.values()]
    one_sick = [max(300 if k == 1 else 90 for k in range(K)) for K in (8, 512)]
    always = all(grows) and one_sick[1] > one_sick[0]
    goes_on = [law for law, m in mean_max.items() if m(10**9) > 1.05 * m(128) and m(10**9) > 100 + half]
    assert goes_on == ["normal", "exponential", "heavy"]  # these without limit
    ranked = [sorted(mean_max, key=lambda law: mean_max[law](K)) for K in (2, 128)]
    assert ranked[0] == ranked[1][::-1]
    assert verdict == ("true" if always else "true if" if all(grows) else "false")


def test_10_3_clock(verdict):
    """A job whose steps are computation for a share of their time, with one clock at 70 %: how long can 22 minutes get?"""
    computing = 22 * np.linspace(0, 1, 101)
    longest = max(np.maximum(computing, computing / 0.7) + 22 - computing)
    assert verdict == ("true" if longest > 0.95 * 41 else "false")
