"""``make bench``, the models of time: recurrences beside plain Python loops and simpy, in one run, interleaved.

All compute the same thing: when the slowest of K workers has finished each of T steps under SSP with slack s, each step
taking shift + exponential seconds. Plain loops and simpy are timed on fewer steps of the same K workers and scaled by
worker-steps.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
from table import part

from labkit import Link, Simulated, launch
from labkit.collectives import broadcast, ring, tree
from labkit.comm import Comm
from labkit.timing import StaleSynchronous

SHIFT, SCALE = 0.010, 0.020
SLACK = 3


def drawn_by_loops(K: int, T: int, rng: random.Random) -> list[list[float]]:
    """T lists of K times."""
    return [[SHIFT + rng.expovariate(1 / SCALE) for _ in range(K)] for _ in range(T)]


def drawn_by_numpy(K: int, T: int, rng: np.random.Generator) -> np.ndarray:
    """(K, T) times from one stream, as the loops draw theirs."""
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


def many_ranks(times: int, rows: list, K: int = 256, hosts: int = 128, each: int = 8) -> None:
    """Simulated worlds of many ranks, against 5 s; their virtual seconds must be those of the closed form."""
    n, short = 4 * K, 4 * hosts
    here = Link(1e-6, 1e11)
    seats = tuple(k // each for k in range(hosts * each))
    cluster = Simulated(hosts=seats, inside=here)
    price_s = tree.time(each, 8 * short, here) + ring.time(hosts, 8 * short, cluster.link)

    def two_levels(comm: Comm) -> None:
        x, host = np.ones(short), range(comm.rank // each * each, (comm.rank // each + 1) * each)
        tree.reduce_among(comm, x, host)
        if comm.rank == host[0]:
            ring.among(comm, x, range(0, comm.K, each))
        broadcast.among(comm, x, host)

    def around() -> None:
        run = launch(lambda comm: ring.allreduce(comm, np.ones(n))[0], K, world=Simulated(), timeout_s=600)
        assert abs(run.elapsed_s / ring.time(K, 8 * n, Simulated().link) - 1) < 1e-9

    def up_and_down() -> None:
        run = launch(two_levels, hosts * each, world=cluster, timeout_s=600)
        assert abs(run.elapsed_s / price_s - 1) < 1e-9

    m = medians(times, around=around, up_and_down=up_and_down)
    rows += [
        (f"simulated ring, K = {K:,} / 5 s", m["around"], 5.0, 1.0),
        (f"simulated two levels, {hosts} hosts of {each} / 5 s", m["up_and_down"], 5.0, 1.0),
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
    m = medians(
        times,
        ours=lambda: ssp.ends(drawn_by_numpy(K, T, numpys)),
        loops=lambda: loops(drawn_by_loops(K, few, rng), SLACK),
        simpy=lambda: by_simpy(K, fewer, SLACK, lambda k, t: SHIFT + rng.expovariate(1 / SCALE)),
    )
    looped, events = m["loops"] * T / few, m["simpy"] * T / fewer
    rows += [
        ("SSP, 1e4 by 1e3, by numpy / plain loops (1/20 of the steps, scaled)", m["ours"], looped, 1 / 30),
        ("SSP, 1e4 by 1e3, by numpy / simpy (1/100 of the steps, scaled)", m["ours"], events, 1 / 600),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times", type=int, default=3, help="runs of each figure (default 3); medians are shown"
    )
    times = parser.parse_args().times
    with part("simulation", "Models of time, beside plain Python loops and simpy.") as rows:
        stale_synchronous(times, rows)
        many_ranks(times, rows)


if __name__ == "__main__":
    main()
