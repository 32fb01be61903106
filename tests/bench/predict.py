"""How well an all-reduce is predicted: fitted on small vectors and few hosts, held against long vectors and more hosts.

On the emulated cluster, at each of three rates, alpha, beta and o (seconds of CPU for a message that a rank handles) are
fitted to all algorithms together on K = 2 and 3 and up to 400 kB. Then other sizes, ten to 160 times as long, and K = 4 are
predicted, and measured. ``python tests/bench/predict.py``, by hand or from ``make bench``; under four minutes.

Two things that are known, not fitted, go into a prediction besides the closed form.

- The shaper's gift: a port that has rested lets its first ``netns.BURST_S`` of bytes through at once. An all-reduce gets it
  once for every port that its critical path rests before it uses it: the server's incoming and then its outgoing one; all
  ports of a ring at the same time.
- The cores: K ranks share them, so that handling messages takes as long as the busiest rank has to, or as all of them have
  to on all cores, whichever is longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from table import Row, part

from labkit import Link, launch, machine
from labkit.collectives import Server, halving, naive, ring, tree
from labkit.comm import Emulated, emulated, netns
from labkit.network import Fit, Sample, fit, terms
from labkit.network.linear import Form

MBIT = 1e6 / 8
FITTED = (1_000, 10_000, 40_000, 100_000, 400_000)
BETWEEN = (3_000, 30_000, 200_000, 1_000_000)
#: For each rate, the lengths that are bandwidth-bound, for K = 2, 3 and 4, and one more for 4 alone.
LONG: dict[float, tuple[tuple[int, ...], tuple[int, ...]]] = {
    100 * MBIT: ((4_000_000,), ()),
    300 * MBIT: ((4_000_000,), (16_000_000,)),
    1000 * MBIT: ((4_000_000, 16_000_000), (64_000_000,)),
}


class Way(NamedTuple):
    """An algorithm, its closed form, and how many times its critical path comes to a port that has rested."""

    f: Callable[..., Any]
    form: Form
    rested: Callable[[int], int]


WAYS = {
    "naive": Way(naive.allreduce_inplace, naive.time, lambda K: 2),
    "tree": Way(tree.allreduce_inplace, tree.time, lambda K: 2),
    "ring": Way(ring.allreduce_inplace, ring.time, lambda K: 1),
    "halving": Way(halving.allreduce_inplace, halving.time, lambda K: 1),
    "server": Way(Server(1).allreduce_inplace, Server(1).time, lambda K: 2),
}


class Point(NamedTuple):
    """What is measured: an algorithm, K workers, bytes of the vector, bytes per second of a port."""

    way: str
    K: int
    nbytes: int
    rate: float


def gift(point: Point) -> float:
    """Seconds that the shaper's bursts save."""
    way, port = WAYS[point.way], point.rate * emulated.PAYLOAD
    rested = way.rested(point.K)
    burst_s = max(netns.BURST_S, netns.LEAST_BURST / point.rate)
    return rested * min(burst_s, terms(way.form, point.K, point.nbytes).nbytes / rested / port)


@cache
def handled(name: str, K: int) -> float:
    """Messages that a rank sends or receives one after the other, K ranks on this machine's cores."""
    sent = launch(WAYS[name].f, K, np.ones(64 * K)).messages_sent  # and as many arrive, in each of these
    return float(max(2 * sent.max(), 2 * sent.sum() / machine.cores()))


def learn(measured: dict[Point, float]) -> Fit:
    """alpha, beta and o that explain what was measured at one rate."""

    def samples(with_o: bool) -> Iterable[Sample]:
        for p, seconds in measured.items():
            o = handled(p.way, p.K) if with_o else 0.0
            yield Sample(WAYS[p.way].form, p.K, p.nbytes, seconds + gift(p), o)

    try:
        return fit(samples(True))
    except ValueError:  # too noisy to tell o from alpha
        return fit(samples(False))


def predict(model: Fit, p: Point) -> float:
    """Seconds."""
    o = handled(p.way, p.K) if model.overhead_s else 0.0
    return model.predict(WAYS[p.way].form, p.K, p.nbytes, o) - gift(p)


# -- measuring --------------------------------------------------------------------------------------------


def clocked(comm: Any, tasks: Sequence[tuple[Any, int, int]]) -> list[list[float]]:
    """This rank's seconds for every (algorithm, bytes, repeats); where there are many repeats, after one more."""
    spent = []
    for way, nbytes, repeats in tasks:
        x, row = np.ones(nbytes // 4, np.float32), []
        for i in range(repeats + (repeats > 2)):
            x.fill(1)
            comm.barrier()
            begun = time.perf_counter()
            way(comm, x)
            if i or repeats <= 2:
                row.append(time.perf_counter() - begun)
        spent.append(row)
    return spent


def measure(points: Sequence[Point], launches: int, spend_s: float = 0.07) -> dict[Point, float]:
    """Seconds of each point: the slowest rank's, median of its repeats; of the launches, the least disturbed."""
    found: dict[Point, float] = {}
    for rate, K in dict.fromkeys((p.rate, p.K) for p in points):
        here = [p for p in points if (p.rate, p.K) == (rate, K)]
        link = Link(2e-4, rate * emulated.PAYLOAD)
        takes = [float(WAYS[p.way].form(K, p.nbytes, link)) for p in here]
        tasks = [
            (WAYS[p.way].f, p.nbytes, int(np.clip(spend_s / s, 3 if s < 0.2 else 1, 15)))
            for p, s in zip(here, takes, strict=True)
        ]
        for _ in range(launches):
            run = launch(clocked, K, tasks, world=Emulated(rate), timeout_s=300)
            for p, *rows in zip(here, *run.results, strict=True):
                seconds = float(np.median(np.max(rows, axis=0)))
                found[p] = min(seconds, found.get(p, np.inf))
    return found


# -- the table --------------------------------------------------------------------------------------------


def error(predicted: float, measured: float) -> float:
    """Of the prediction, relative to what was measured."""
    return predicted / measured - 1


def points_at(rate: float) -> tuple[list[Point], list[Point]]:
    """To fit, and to predict."""
    everywhere, for_four = LONG[rate]
    fitted = [Point(w, K, n, rate) for K in (2, 3) for n in FITTED for w in WAYS]
    held_out = [
        Point(w, K, n, rate)
        for K in (2, 3, 4)
        for n in sorted({*BETWEEN, *everywhere, *(FITTED if K == 4 else ()), *(for_four if K == 4 else ())})
        for w in WAYS
    ]
    return fitted, held_out


def row(p: Point, predicted: float, measured: float) -> str:
    """One line of the table."""
    return (
        f"{p.way:8} {p.K:2} {p.nbytes:>10} {p.rate / MBIT:7.0f} {1e3 * predicted:11.3f} {1e3 * measured:11.3f} "
        f"{100 * error(predicted, measured):+8.1f}"
    )


def summary(table: dict[Point, tuple[float, float]], plain: dict[Point, float]) -> list[Row]:
    """The errors that are held against targets. plain: predictions from a ping and the rate alone."""
    off = {p: abs(error(*pair)) for p, pair in table.items()}
    long = [off[p] for p in off if p.nbytes >= 4_000_000 and p.way != "tree"]
    rest = [abs(error(s, table[p][1])) for p, s in plain.items()]
    ratios = {}
    for p, pair in table.items():
        if p.way == "server":
            around = table[p._replace(way="ring")]
            ratios[p] = abs(error(pair[0] / around[0], pair[1] / around[1]))
    long_ratios = [r for p, r in ratios.items() if p.nbytes >= 4_000_000]
    return [
        ("bandwidth-bound (4 MB and more): median error", float(np.median(long)), None, 0.05),
        ("bandwidth-bound (4 MB and more): worst error", max(long), None, 0.15),
        ("all held-out, 1 kB and more: median error", float(np.median(list(off.values()))), None, 0.12),
        ("  the same by closed form, a ping and the rate", float(np.median(rest)), None, None),
        ("server / ring, 4 MB and more: worst error", max(long_ratios), None, 0.15),
        ("server / ring, all held-out: median error", float(np.median(list(ratios.values()))), None, 0.15),
    ]


def foretold(launches: int) -> tuple[dict[Point, tuple[float, float]], dict[Point, float]]:
    """Of every point held out (predicted, measured), printed as it comes; and what a ping and the rate alone predict."""
    print("algorithm K      bytes  Mbit/s  predicted, ms  measured, ms  error, %")
    table: dict[Point, tuple[float, float]] = {}
    plain: dict[Point, float] = {}
    for rate in LONG:
        fitted, held_out = points_at(rate)
        known = measure(fitted, launches)
        model = learn(known)
        # one message there and one back is what naive with two workers is
        simple = Link(known[Point("naive", 2, FITTED[0], rate)] / 2, rate * emulated.PAYLOAD)
        for p, seconds in measure(held_out, launches).items():
            table[p] = predict(model, p), seconds
            plain[p] = float(WAYS[p.way].form(p.K, p.nbytes, simple))
            print(row(p, *table[p]), flush=True)
        print(f"  fitted at {rate / MBIT:.0f} Mbit/s: {model}\n")
    return table, plain


def main() -> None:
    """Measure, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=2, help="launches per rate and K (default 2)")
    launches = parser.parse_args().launches
    if why := emulated.unavailable():
        print(f"no predictions: {why}")
        return
    about = "All-reduces on emulated links, foretold from shorter vectors on fewer hosts: relative errors."
    with part("prediction", about) as rows:
        rows += summary(*foretold(launches))


if __name__ == "__main__":
    main()
