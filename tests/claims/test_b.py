"""Lab B by another route: integrals done numerically, failures drawn one by one, torchrun's own reading of its options."""

from __future__ import annotations

import math

import numpy as np


def goodput(tau, delta):
    """Work that counts a second, no restart, a failure every second on average; the expectation by quadrature."""
    from scipy.integrate import quad

    c = tau + delta
    lost, _ = quad(lambda t: t * math.exp(-t), 0, c)  # a failure at t costs t, and the interval begins anew
    return tau / ((lost + c * math.exp(-c)) / math.exp(-c))


def test_b_young(verdict):
    from scipy.optimize import minimize_scalar

    kept = {}
    for delta in (0.001, 0.1, 1.0, 3.0):
        best = minimize_scalar(lambda tau, d=delta: -goodput(tau, d), bounds=(1e-3, 20), method="bounded")
        kept[delta] = goodput(math.sqrt(2 * delta), delta) / -best.fun
    assert (
        round(100 * kept[0.1], 2) == 99.53 and round(100 * kept[3.0], 2) == 56.67
    )  # what the verdict quotes
    quick, slow = min(kept[0.001], kept[0.1]) > 0.99, min(kept[1.0], kept[3.0]) > 0.99
    word = "true" if quick and slow else "true if" if quick else "false"
    assert verdict == word


def test_b_half(verdict, seed):
    """Moments of failure drawn one by one; those that fall into an interval, as a share of it."""
    rng = np.random.default_rng(seed)
    share = {}
    for c in (0.05, 5.0):
        moments = rng.exponential(size=2_000_000)
        hit = moments[moments < c]
        share[c] = hit.mean() / c
    rare, frequent = abs(share[0.05] - 0.5) < 0.02, abs(share[5.0] - 0.5) < 0.02
    assert abs(share[5.0] - 0.193) < 0.002
    word = "true" if rare and frequent else "true if" if rare else "false"
    assert verdict == word


def test_b_elastic(verdict):
    """Which sizes torchrun itself would let the group have: with restarts alone, and with a range of nodes."""
    from torch.distributed import run

    def sizes(*options):
        args = run.get_args_parser().parse_args([*options, "--nproc-per-node=1", "job.py"])
        config, _, _ = run.config_from_args(args)
        return config.min_nodes, config.max_nodes, config.max_restarts

    alone = [sizes("--nnodes=2", f"--max-restarts={n}")[:2] for n in (0, 2, 100)]
    ranged = sizes("--nnodes=1:2", "--max-restarts=2")[:2]
    by_restarts, by_range = any(low < high for low, high in alone), ranged[0] < ranged[1]
    word = "true" if by_restarts else "true if" if by_range else "false"
    assert verdict == word


def test_b_exponential(verdict, seed):
    """The year walked through fault by fault and second by second; servers counted at moments drawn from it."""
    import csv

    from labkit_book.labs import data_file

    text = data_file("traces/faults.csv").read_text()
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    spans = sorted((86_400 * float(row["down_days"]), 86_400 * float(row["up_days"])) for row in rows)
    begin, end = spans[0][0], max(up for _, up in spans)
    M = (end - begin) / len(spans)

    def kept(tau, write=30.0, restart=300.0):
        """Share of the year that is work which counts: intervals one after the other, up to the next fault."""
        work, now = 0.0, begin
        for fault in [down for down, _ in spans[1:]] + [end]:
            now += restart
            while now + tau + write <= fault:
                now, work = now + tau + write, work + tau
            now = fault  # what was not saved is lost, and so is a restart that was under way
        return work / (end - begin)

    young = kept(math.sqrt(2 * 30 * M))
    best = max(kept(60.0 * minutes) for minutes in range(10, 100))
    assert round(100 * young, 2) == 96.39 and young <= best < young + 0.003

    moments = np.random.default_rng(seed).uniform(begin, end, 20_000)
    downs, ups = np.array(spans).T
    in_repair = np.sum((downs[:, None] <= moments) & (moments < ups[:, None]), axis=0)
    mean = np.sum(ups - downs) / (end - begin)
    law = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(60)]
    assert abs(in_repair.mean() - mean) < 0.3
    waits, said = np.mean(in_repair > 16), sum(law[17:])
    needed = np.quantile(in_repair, 0.99)
    enough = next(n for n in range(60) if sum(law[: n + 1]) >= 0.99)
    assert abs(waits - 0.171) < 0.012 and round(100 * said, 1) == 1.6  # what the verdict quotes
    assert abs(needed - 31) <= 1 and enough == 17
    interval, spares = best - young < 0.003, waits < 2 * said
    word = "true" if interval and spares else "true if" if interval else "false"
    assert verdict == word
