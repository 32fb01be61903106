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


def test_10_3_last(verdict):
    """Three jobs replayed by workers that take turns, each going on as far as what it waits for has come."""
    import math
    from collections import defaultdict

    from labkit_book.labs import data_file

    stored = np.load(data_file("traces/jobs.npz"))
    tail = ["norms", "embedding", "scatter", "clip", "optimizer"]

    def programs(labels, S):
        """What a worker of each stage does, in order."""
        ops = [(what, int(i), int(s)) for what, i, s in (label.split("|") for label in labels)]
        for s in range(S):
            of = [op for op in ops if op[2] == s]
            ends = [op for what in tail for op in of if op[0] == what]
            yield [("gather", 0, s), *(op for op in of if op[0] in ("forward", "backward")), *ends]

    def one_step(lines, seconds, D):
        """seconds(op, d); when the last worker is done."""
        S = len(lines)
        clock = dict.fromkeys(((d, s) for d in range(D) for s in range(S)), 0.0)
        at, sent, waiting = dict.fromkeys(clock, 0), {}, defaultdict(dict)
        moved = True
        while moved:
            moved = False
            for (d, s), now in list(clock.items()):
                while at[d, s] < len(lines[s]):
                    op = what, i, _ = lines[s][at[d, s]]
                    start = now
                    if what in ("forward", "backward"):
                        source = s - 1 if what == "forward" else s + 1
                        if 0 <= source < S:
                            if (what, i, d, source) not in sent:
                                break
                            start = max(now, sent[what, i, d, source] + seconds((what + " receive", i, s), d))
                        now = sent[what, i, d, s] = start + seconds(op, d)
                    elif what in ("gather", "scatter", "clip", "embedding"):
                        stages = [r for r in range(S) if any(x[0] == what for x in lines[r])]
                        group = what, s if what in ("gather", "scatter") else d if what == "embedding" else -1
                        size = {"clip": D * S, "embedding": len(stages)}.get(what, D)
                        waiting[group][d, s] = now
                        if len(waiting[group]) < size:
                            break
                        now = max(waiting[group].values()) + seconds(op, d)
                    else:
                        now += seconds(op, d)
                    at[d, s], clock[d, s], moved = at[d, s] + 1, now, True
        assert all(at[d, s] == len(lines[s]) for d, s in at), "somebody waits for ever"
        return max(clock.values())

    def job(name, steps):
        """Slowdown, ranks that come last too often by stage, and the share of the loss that curing (d, s) wins."""
        labels, us, came = (stored[f"{name}_{what}"] for what in ("ops", "us", "came_us"))
        S, D, T = came.shape
        lines, kinds = list(programs(labels.tolist(), S)), defaultdict(list)
        for label, rows in zip(labels.tolist(), us, strict=True):
            kinds[label.split("|")[0]] += rows.ravel().tolist()
        usual = {
            kind: float(
                np.mean(all_of) if kind in ("forward", "backward", "optimizer") else np.median(all_of)
            )
            for kind, all_of in kinds.items()
        }
        table = {(w, int(i), int(s)): k for k, (w, i, s) in enumerate(x.split("|") for x in labels.tolist())}

        def mean(cured):
            def seconds(t):
                return lambda op, d: usual[op[0]] if cured(d, op[2]) else float(us[table[op], d, t])

            return float(np.mean([one_step(lines, seconds(t), D) for t in range(0, T, T // steps)]))

        real, best = mean(lambda d, s: False), mean(lambda d, s: True)
        named = {}
        for s in range(S):
            last = [max(range(D), key=lambda d: came[s, d, t]) for t in range(T)]
            for d in range(D):
                n = last.count(d)
                tail_p = sum(math.comb(T, k) * (D - 1) ** (T - k) for k in range(n, T + 1)) / D**T
                if tail_p * D <= 0.01:
                    named.setdefault(s, []).append(d)
        wins = {
            (d, s): (real - mean(lambda k, r, d=d, s=s: (k, r) == (d, s))) / (real - best)
            for s in named
            for d in named[s]
        }
        return real / best, named, wins

    slow, named, wins = job("a", 4)
    assert 1.9 < slow < 2.1 and named == {s: [0] for s in range(4)}
    innocent = [who for who, won in wins.items() if won < 0.05]
    assert wins[0, 0] > 0.95 and len(innocent) == 3
    nobody = job("b", 4)
    assert nobody[0] > 1.4 and nobody[1] == {}
    little = job("c", 8)
    assert little[0] > 1.1 and {d for each in little[1].values() for d in each} == {1}
    right = not innocent and bool(nobody[1]) and max(little[2].values()) > 0.5
    assert verdict == ("true" if right else "false")
