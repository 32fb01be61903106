"""The verdicts of lab 2.2 by plain loops over a clock, without labkit's barrier models."""

from fractions import Fraction

import numpy as np
import pytest
from replay import paced, turns
from scipy.stats import binom


def barrier_end(steps):
    """When the last worker leaves the last barrier, one event after the other."""
    clock = 0.0
    for row in steps:
        clock = max(clock + x for x in row)
    return clock


def hiccups(rng, K, T, tail=1.0):
    """(T, K) by the inverse of the law: 10 ms and an exponential of mean 10, of which tail is the power."""
    return 10 + 10 * (-np.log1p(-rng.random((T, K)))) ** tail


def test_2_2_rule(verdict):
    """ "May proceed when the slowest has completed step t - s": to leave step t, or to start it? By events and counts."""

    def end(steps, s, leave):
        """leave: step t + 1 may begin once t - s is complete by all; else step t may. None if nobody ever may."""
        K, T = len(steps[0]), len(steps)

        def may(t, least):
            return least >= t - s + (not leave)  # of t steps taken, 0 to t - 1; least: by the slowest

        ran = list(paced(K, T, lambda k, t: steps[t][k], may))
        return ran[-1][-1] if len(ran) == K * T else None

    words = set()
    for K, T in ((4, 30), (3, 7), (16, 50)):
        steps = hiccups(np.random.default_rng(3), K, T).tolist()
        barrier = barrier_end(steps)
        assert end(steps, 1, False) == pytest.approx(barrier) and end(steps, 2, False) < 0.99 * barrier
        holds = [
            (at := end(steps, 0, leave)) is not None and abs(at - barrier) < 1e-9 for leave in (True, False)
        ]
        words.add("true" if all(holds) else "true if" if holds[0] else "false")
    assert words == {verdict}


@pytest.mark.settings(
    {"K": 4, "T": 200, "tail": 1.0, "slow": 4}, {"K": 16}, {"T": 50}, {"tail": 2.0}, {"tail": 0.3, "K": 8},
    {"slow": 2, "K": 64},
)  # fmt: skip
def test_2_2_faster(verdict, seed, at):
    """Is everything faster without a barrier? Fixed steps a worker, then a fixed number of gradients, by an event queue."""
    row = [20.0] * (at.K - 1) + [20.0 * at.slow]
    with_barrier = barrier_end([row] * at.T)
    *_, (_, _, gradients_ms) = turns(at.K, lambda k: row[k], at.K * at.T)
    taxes = []
    for s in range(seed, seed + 8):
        times = hiccups(np.random.default_rng(s), at.K, at.T, at.tail)
        taxes.append(barrier_end(times.tolist()) / times.sum(axis=0).max())
    always_slow = with_barrier / (at.T * max(row))
    if not at.index:
        assert 1.4 < np.mean(taxes) < 1.6 and abs(with_barrier / gradients_ms - 3.25) < 0.05
    gains = [always_slow, np.mean(taxes), with_barrier / gradients_ms]
    assert max(gains[1:]) > 1.1
    assert verdict == ("true" if min(gains) > 1.01 else "false")


def test_2_2_overlap(verdict):
    """Does overlap hide all but 1/L of the all-reduce? One wire, first bucket first served."""

    def exposed(backward, allreduce, L):
        wire = 0.0
        for bucket in range(1, L + 1):
            wire = max(wire, bucket * backward / L) + allreduce / L
        return wire - backward

    as_said = {
        (p, a): all(abs(exposed(p, a, L) - a / L) < 1e-9 for L in (1, 2, 5, 10, 100))
        for p, a in [(200, 60), (200, 200), (100, 30), (60, 200), (100, 101)]
    }
    two_unequal = max(150 + 45, 200) + 15  # 3/4 and 1/4 of 200 and 60: not 1/2 of 60 exposed
    assert two_unequal - 200 != 60 / 2
    assert exposed(60, 200, 10) == pytest.approx(146)
    held_where_shorter = all(held == (a <= p) for (p, a), held in as_said.items())
    assert verdict == ("true" if all(as_said.values()) else "true if" if held_where_shorter else "false")


def test_2_2_pays(verdict):
    """Forty buckets through one wire in whole microseconds: which exchange, short or long, gains the largest share?"""

    def share(p, a, L=40):  # of one bucket, computing and travelling
        through = 0
        for bucket in range(1, L + 1):
            through = max(through, bucket * p) + a
        return 1 - Fraction(through, L * (p + a))

    gains = {a: share(100, a) for a in (1, 10, 50, 90, 100, 110, 200, 1000, 10_000)}
    most = max(gains, key=gains.get)
    assert gains[100] == Fraction(39, 80) and gains[1] < Fraction(1, 100)
    assert verdict == ("true" if most < 100 else "false")


@pytest.mark.settings(
    {"K": 64, "ranks": 8, "spread": 5.0, "steps": 20, "many": 200}, {"K": 256}, {"spread": 2.0}, {"spread": 12.0},
    {"K": 32, "ranks": 4}, {"steps": 10, "many": 400},
)  # fmt: skip
def test_2_2_drained(verdict, seed, at):
    """Is a job 30 % slower for one node at 75 %, the node found, and all of it back when that is drained?

    By one long loop over steps, in every reading: loss of throughput or gain of time, for the node and for the job. Found:
    by a binomial law, those who are last in noisy steps more often than chance allows; one rank sick, or the whole node.
    """

    def job_s(sick_ms, comm_ms, steps=50):
        clock = 0.0
        for _ in range(steps):
            clock = max(clock + (sick_ms if k == 1 else 100) for k in range(at.K)) + comm_ms
        return clock

    longer = {c: job_s(100 / 0.75, c) / job_s(100, c) - 1 for c in (0, 11.11, 20)}
    alike = 1 - 1 / (1 + longer[0]), job_s(125, 0) / job_s(100, 0) - 1  # both as throughput, both as time
    assert longer[0] == pytest.approx(1 / 3) and alike == pytest.approx((0.25, 0.25))
    rng = np.random.default_rng(seed)

    def accused(sick, steps):
        arrivals = rng.uniform(100 - at.spread, 100 + at.spread, (steps, at.K))
        arrivals[:, sick] /= 0.75
        last = np.bincount(arrivals.argmax(axis=1), minlength=at.K)
        return set(np.flatnonzero(binom.sf(last - 1, steps, 1 / at.K) * at.K < 0.01))

    node = list(range(at.ranks))
    found = [accused([1], at.steps) == {1}, accused(node, at.many) == set(node)]
    short = [len(accused(node, at.steps)) for _ in range(8)]
    back = {left: left / at.K * (1 + longer[11.11]) - 1 for left in (at.K, at.K - at.ranks)}
    thirty = [abs(x - 0.30) < 0.005 for x in [*longer.values(), *back.values()]]
    always = all(thirty) and min(alike) > 0.295 and min(short) == at.ranks
    assert max(short) < at.ranks  # too few steps for so many
    assert thirty == [False, True, False, True, False]
    assert verdict == ("false" if not all(found) else "true" if always else "true if")


def seconds_of(load, compute, ahead, T=400):
    """Of a step, by a clock: two ranks of (load, compute) seconds meet after every step; ahead: a helper loads the next."""
    loader, worker, met = [0.0, 0.0], [0.0, 0.0], 0.0
    for _ in range(T):
        for k in range(2):
            begun = loader[k] if ahead else met  # the helper begins the next as soon as the last is taken
            there = max(met, begun + load[k])
            loader[k] = there
            worker[k] = there + compute[k]
        met = max(worker)
    return met / T


def shared_ms(load, compute, T=200):
    """Of a step, where one processor gives a tick to the loader of the next batch and one to the training loop, in turns."""
    clock, left, coming, done = 0, 0, load, 0
    while done < T:
        if not left and not coming:  # the batch is there: take it, and begin to load the next
            left, coming, done = compute, load, done + 1
        loads = coming and (clock % 2 or not left)
        coming, left, clock = coming - bool(loads), left - (not loads), clock + 1
    return clock / T


def test_2_2_gain(verdict):
    """Is the step without a cause what its cure leaves? Also for a loader without a processor, and for quadratic costs."""
    even = seconds_of((1, 1), (19, 19), False)
    batches = [(1, 8), (1, 22), (8, 1), (22, 1)]  # examples of both ranks, 2.4 ms each
    uneven = sum(1 + 2.4 * max(pair) for pair in batches) / 4
    more, square = np.array(batches) - np.mean(batches, axis=1)[:, None], 0.1 * np.array(batches) ** 2
    line = square - np.polyfit((1, 1, 8, 22), 0.1 * np.array([1, 1, 8, 22]) ** 2, 1)[0] * more
    promised, won = line.max(axis=1).mean(), 0.1 * np.mean(np.mean(batches, axis=1) ** 2)
    kept = {
        "rank": (seconds_of((1, 1), (19, 48), False) / even, 49 / (1 + 19)),
        "quadratic": (square.max(axis=1).mean() / promised, square.max(axis=1).mean() / won),
        "uneven": (uneven / (1 + 2.4 * 8), uneven / (1 + 2.4 * np.mean(batches))),
        "loader": (40 / max(20, 20), 40 / seconds_of((20, 20), (20, 20), True)),
        "slow loader": (70 / max(40, 30), 70 / seconds_of((40, 40), (30, 30), True)),
        "busy loader": (40 / max(20, 20), 40 / shared_ms(20, 20)),
    }
    held = {name: abs(promised / won - 1) < 0.01 for name, (promised, won) in kept.items()}
    assert [name for name, as_promised in held.items() if not as_promised] == ["quadratic", "busy loader"]
    assert (
        kept["busy loader"][1] == pytest.approx(1, abs=0.02) and kept["quadratic"][1] > kept["quadratic"][0]
    )
    assert verdict == ("true" if all(held.values()) else "true if")


def test_2_2_largest(verdict):
    """The example by a clock: the loading of a mean rank, and what is won without it, alone and with the other."""
    load, compute = (30, 0), (20, 50)
    now = seconds_of(load, compute, False)
    alone, both = now - seconds_of((0, 0), compute, False), now - seconds_of((0, 0), (20, 20), False)
    row = sum(load) / 2
    assert (row, alone, both, now + 5) == (15, 0, 30, 55)
    assert verdict == ("true" if alone == row else "false")
