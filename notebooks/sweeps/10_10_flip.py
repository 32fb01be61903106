"""Where does QSGD stop paying? Real processes over shaped links of 20 to 200 MB/s, and where the time of coding goes.

Every round visits the rates in an order of its own, and in a visit the two exchanges take turns, so that what disturbs the
machine disturbs both. Of a visit the least disturbed exchange of each kind counts (of the two workers the later one), as in
`labkit.collectives.measure_link`; the lab takes the median of the rounds.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from labkit import Emulated, Processes, launch
from labkit.collectives import measure_link, ring
from labkit.comm import Comm
from labkit.compress import QSGD, OverComm, Wire, rngs

D, K, S = 1_000_000, 2, 7  # numbers of a gradient, workers, levels of QSGD
RATES = [20e6, 30e6, 45e6, 65e6, 100e6, 140e6, 200e6]  # bytes per second
ROUNDS, T = 7, 12  # visits of a rate; exchanges of each kind in a visit


class Mirror(Wire):
    """A wire on which nothing travels: everybody else is taken to have sent what I did."""

    def _gather(self, message: Any) -> Any:
        return np.stack([message] * self.K)

    def _sum(self, x: Any) -> Any:
        return self.K * x


def gradient(comm: Comm) -> Any:
    return np.random.default_rng([3, comm.rank]).standard_normal(D).astype(np.float32)


def exchange(wire: Wire, g: Any, t: int, rank: int) -> list[float]:
    """Seconds of one compressed exchange: encode, on the wire, decode."""
    how, own = QSGD(S), rngs(t, rank)
    wire.start()
    how.mean(wire, g, None, own)
    return list(wire.stop())


def visit(comm: Comm) -> list[list[float]]:
    """Exchange by exchange the seconds of: the ring; the compressed exchange; its encoding, its wire, its decoding."""
    g, seen = gradient(comm), []
    for t in range(T + 1):
        comm.barrier()
        begun = time.perf_counter()
        ring.allreduce(comm, g)
        plain = time.perf_counter() - begun
        comm.barrier()
        begun = time.perf_counter()
        spent = exchange(OverComm(comm), g, t, comm.rank)
        seen.append([plain, time.perf_counter() - begun, *spent])
    return seen[1:]  # the first one warms up


def calm(results: list[list[list[float]]]) -> list[float]:
    """Of the T exchanges of a visit the quickest ring, and the quickest compressed exchange with its parts."""
    later = [max(rows, key=lambda row: row[1]) for rows in zip(*results, strict=True)]
    around = min(max(row[0] for row in rows) for rows in zip(*results, strict=True))
    return [around, *min(later, key=lambda row: row[1])[1:]]


def coding(comm: Comm) -> dict[str, list[list[float]]]:
    """Seconds, processor seconds and page faults of coding one gradient, time after time, in four ways."""
    g, how, rng = gradient(comm), QSGD(S), np.random.default_rng(0)

    def loop(decodes: int) -> None:
        message = how.encode(g, rng)
        for _ in range(decodes):
            how.decode(message, D, g.dtype)

    def in_place() -> None:
        exchange(Mirror(K), g, 0, comm.rank)

    ways: dict[str, tuple[Callable[[], None], bool]] = {  # (what, does everybody do it at once)
        "encode, decode K messages": (lambda: loop(K), False),
        "decode one's own as well": (lambda: loop(K + 1), False),
        "in memory that is new each time": (in_place, False),
        "both workers at once": (in_place, True),
    }
    found: dict[str, list[list[float]]] = {}
    for name, (way, together) in ways.items():
        found[name] = []
        for _ in range(T + 1):
            comm.barrier()
            if together or comm.rank == 0:
                before, used, begun = faults(), time.thread_time(), time.perf_counter()
                way()
                spent = time.perf_counter() - begun, time.thread_time() - used, faults() - before
                found[name].append([float(x) for x in spent])
        del found[name][:1]
    return found


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def sweep() -> dict[str, Any]:
    own = Processes(threads=1)
    alpha = measure_link(2, rounds=2, repeats=5, world=own).link.alpha
    rng, rounds = np.random.default_rng(10), []
    for _ in range(ROUNDS):
        load = os.getloadavg()[0]
        at: dict[str, list[float]] = {}
        with own.ready(K) as pool:
            here = replace(own, pool=pool)
            ways = launch(coding, K, world=here).results
            at["memory"] = calm(launch(visit, K, world=here).results)
        parts = {
            name: min(max(rows) for rows in zip(*(each[name] or rows for each in ways), strict=True))
            for name, rows in ways[0].items()
        }
        for rate in rng.permutation(RATES):
            at[f"{rate:.0f}"] = calm(launch(visit, K, world=Emulated(float(rate), threads=1)).results)
        rounds.append({"load": load, "coding": parts, "at": at})
    return {
        "D": D, "K": K, "levels": S, "exchanges": T, "rates": RATES, "alpha": alpha,
        "columns": ["plain", "coded", "encode", "wire", "decode"], "rounds": rounds,
    }  # fmt: skip
