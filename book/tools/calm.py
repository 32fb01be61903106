"""Whether this machine is calm enough for what it runs to be stored: a known loop, timed on every core at once.

The loop is a fixed piece of work of about 20 ms, done again and again for a second by a thread on each core. Where nothing
else runs, a thread computes all the time, and most rounds take equally long.
"""

import hashlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from labkit import machine

MOST = 1.15  # of the two ratios below
ROUNDS = 50
WORK = bytes(20_000_000)  # to hash, which holds no lock of Python's


def loop() -> list[tuple[float, float]]:
    """Seconds of each round on one core: by the clock, and spent computing."""
    found = []
    for _ in range(ROUNDS):
        began, computed = time.perf_counter(), time.thread_time()
        hashlib.sha256(WORK)
        found.append((time.perf_counter() - began, time.thread_time() - computed))
    return found


def disturbance(loop: Callable[[], list[tuple[float, float]]] = loop) -> str:
    """What disturbs this machine, in one sentence; "" if it is calm. loop: what a thread on each core does."""
    cores = machine.cores()
    with ThreadPoolExecutor(cores) as pool:
        running = [pool.submit(loop) for _ in range(cores)]
    waited, uneven = 1.0, 1.0
    for rounds in (run.result() for run in running):
        by_clock, computing = zip(*rounds, strict=True)
        waited = max(waited, sum(by_clock) / sum(computing))
        low, _, high = statistics.quantiles(by_clock, n=4)
        uneven = max(uneven, high / low)
    if max(waited, uneven) <= MOST:
        return ""
    return (
        f"This machine is disturbed: a known loop took {waited:.2f} times the seconds it computed, and one round in four "
        f"{uneven:.2f} times as long as another (at most {MOST}). Wait until nothing else runs, or say --busy."
    )
