"""``make bench``, the models of time: recurrences beside plain Python loops and simpy, in one run, interleaved.

All compute the same thing: when the slowest of K workers has finished each of T steps under SSP with slack s, each step
taking shift + exponential seconds. Plain loops and simpy are timed on fewer steps of the same K workers and scaled by
worker-steps.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from table import part

from labkit import Link, Run, Simulated, launch
from labkit.collectives import Hierarchical, ring
from labkit.timing import (
    Asynchronous,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    draw,
)

SHIFT, SCALE = 0.010, 0.020
LAW = ShiftedExponential(SHIFT, SCALE)
SLACK = 3


def drawn_by_loops(K: int, T: int, rng: random.Random) -> list[list[float]]:
    """T lists of K times."""
    return [[SHIFT + rng.expovariate(1 / SCALE) for _ in range(K)] for _ in range(T)]


def drawn_by_numpy(K: int, T: int, rng: np.random.Generator) -> np.ndarray:
    """(K, T) times from one stream, as the loops draw theirs; a stream for each worker takes longer."""
    X = rng.standard_exponential((T, K))
    X *= SCALE
    X += SHIFT
    return X.T


def loops(X: list[list[float]], slack: int) -> list[float]:
    """SSP in plain Python; X holds T lists of K times."""
    finished = [0.0] * len(X[0])
    slowest: list[float] = []
    for t, times in enumerate(X):
        bar = slowest[t - 1 - slack] if t > slack else 0.0
        finished = [(bar if bar > f else f) + x for f, x in zip(finished, times, strict=True)]
        slowest.append(max(finished))
    return slowest


def by_simpy(K: int, T: int, slack: int, seconds: Callable[[int, int], float]) -> list[float]:
    """SSP as K processes of simpy; worker k computes for seconds(k, t) in step t."""
    import simpy

    env = simpy.Environment()
    done, left, slowest = [env.event() for _ in range(T)], [K] * T, [0.0] * T

    def worker(k: int):
        for t in range(T):
            if t > slack:
                yield done[t - 1 - slack]
            yield env.timeout(seconds(k, t))
            left[t] -= 1
            if not left[t]:
                slowest[t] = env.now
                done[t].succeed()

    for k in range(K):
        env.process(worker(k))
    env.run()
    return slowest


def ring_by_simpy(K: int, rounds: int) -> float:
    """Virtual seconds of K processes of simpy that pass a number to the right: a put, a get and a timeout a message."""
    import simpy

    env = simpy.Environment()
    boxes = [simpy.Store(env, capacity=1) for _ in range(K)]

    def worker(k: int):
        for _ in range(rounds):
            yield env.timeout(1.0)
            yield boxes[(k + 1) % K].put(k)
            yield boxes[k].get()

    for k in range(K):
        env.process(worker(k))
    env.run()
    return env.now


def ring_of_greenlets(K: int, rounds: int) -> int:
    """What no simulation of a worker each can be quicker than: every worker is switched to once a message. How often."""
    from greenlet import getcurrent, greenlet

    hub, switched = getcurrent(), 0

    def worker(k: int) -> None:
        nonlocal switched
        hub.switch()
        to_the_right = workers[(k + 1) % K].switch
        for _ in range(rounds):
            switched += 1
            to_the_right()

    workers = [greenlet(worker) for _ in range(K)]
    for k, one in enumerate(workers):
        one.switch(k)
    workers[0].switch()
    return switched


def many_ranks(times: int, rows: list, K: int = 256, hosts: int = 128, each: int = 8) -> None:
    """Simulated worlds of many ranks, against 5 s, and what a message costs."""
    here, n = Link(1e-6, 1e11), 4 * K
    levels = Hierarchical(each, here)
    cluster = Simulated(hosts=tuple(k // each for k in range(hosts * each)), inside=here)
    around = lambda comm: ring.allreduce(comm, np.ones(n))[0]  # noqa: E731
    up_and_down = lambda comm: levels.allreduce(comm, np.ones(4 * hosts))[0]  # noqa: E731
    runs: dict[str, Run] = {}

    def keep(name: str, f: Callable, ranks: int, world: Simulated) -> None:
        runs[name] = launch(f, ranks, world=world, timeout_s=600)

    m = medians(
        times,
        ring=lambda: keep("ring", around, K, Simulated()),
        levels=lambda: keep("levels", up_and_down, hosts * each, cluster),
        simpy=lambda: ring_by_simpy(K, 20),
        bare=lambda: ring_of_greenlets(K, 20),
    )
    for name, seconds in (
        ("ring", ring.time(K, 8 * n, Simulated().link)),
        ("levels", levels.time(hosts * each, 8 * 4 * hosts, cluster.link)),
    ):
        assert abs(runs[name].elapsed_s / seconds - 1) < 1e-9, name
    messages = int(runs["ring"].messages_sent.sum())
    a_message, an_event, a_switch = m["ring"] / messages, m["simpy"] / (K * 20 * 3), m["bare"] / (K * 20)
    rows += [
        (f"simulated ring, K = {K:,}, {messages:,} messages / 5 s", m["ring"], 5.0, 1.0),
        (f"simulated two levels, {hosts} hosts of {each} / 5 s", m["levels"], 5.0, 1.0),
        (
            f"  a message of that ring, {1e6 * a_message:.1f} µs / an event of simpy's",
            a_message,
            an_event,
            None,
        ),
        ("  the same / a message of simpy's (three events)", a_message, 3 * an_event, None),
        ("  the same / a bare switch from worker to worker", a_message, a_switch, None),
    ]


def medians(times: int, **ways: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each way, run in turn."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(times):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            spent[name].append(time.perf_counter() - begun)
    return {name: statistics.median(s) for name, s in spent.items()}


def stale_synchronous(times: int, rows: list, K: int = 10_000, T: int = 1_000) -> None:
    few, fewer = T // 20, T // 100  # steps of the loops; of simpy
    rng, numpys, ssp = random.Random(7), np.random.default_rng(7), StaleSynchronous(SLACK)
    X, listed = draw(LAW, K, T, seed=7), drawn_by_loops(K, few, rng)
    m = medians(
        times,
        one_stream=lambda: ssp.ends(drawn_by_numpy(K, T, numpys)),
        each_its_own=lambda: ssp.ends(draw(LAW, K, T, seed=7)),
        given=lambda: ssp.ends(X),
        one_pass=X.max,
        loops=lambda: loops(drawn_by_loops(K, few, rng), SLACK),
        loops_given=lambda: loops(listed, SLACK),
        simpy=lambda: by_simpy(K, fewer, SLACK, lambda k, t: SHIFT + rng.expovariate(1 / SCALE)),
    )
    looped, events = m["loops"] * T / few, m["simpy"] * T / fewer
    rows += [
        ("SSP, 1e4 by 1e3, drawn from one stream / plain loops", m["one_stream"], looped, 1 / 30),
        ("  the same / simpy (both scaled: 1/20, 1/100 of the steps)", m["one_stream"], events, 1 / 600),
        ("  drawn from a stream per worker / plain loops", m["each_its_own"], looped, None),
        (
            f"  times given: {K * T / m['given']:.2g} worker-steps/s / X.max()",
            m["given"],
            m["one_pass"],
            None,
        ),
        ("  the same / plain loops", m["given"], m["loops_given"] * T / few, None),
    ]


def others(times: int, rows: list) -> None:
    X = draw(LAW, 10_000, 100, seed=7)
    around = lambda comm: ring.allreduce(comm, np.ones(6400))  # noqa: E731
    m = medians(
        times,
        backup=partial(Synchronous(100).ends, X),
        free=partial(Asynchronous().ends, X),
        ring=lambda: launch(around, 64, world=Simulated()),
    )
    rows += [
        ("backup workers, K = 1e4 by 100, b = 100 / no barrier", m["backup"], m["free"], None),
        ("simulated world, ring on K = 64 / 2 s", m["ring"], 2.0, 1.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times", type=int, default=3, help="runs of each figure (default 3); medians are shown"
    )
    times = parser.parse_args().times
    with part(
        "simulation", "Models of time, beside plain Python loops, simpy and the machine's memory."
    ) as rows:
        for measure in (stale_synchronous, others, many_ranks):
            measure(times, rows)


if __name__ == "__main__":
    main()
