"""What a class can run, by number: each a program as one laptop runs it, over ``Comm`` like every algorithm of the book. No
clock is compared with another laptop's."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from labkit.collectives import broadcast, naive, ring, tree
from labkit.comm import Comm
from labkit.learn import LeastSquares, linear_data

SIZES = 8, 100_000  #: bytes of the two messages that say what a link costs
N, REPEATS = 25_000, 3  #: float32 elements of the vector that is added up
T, H, ETA = 24, 8, 0.03  #: averagings, local steps before each, learning rate


def links(comm: Comm) -> NDArray:
    """Seconds of a small and of a large message to each other rank, (K, 2), one way; many pairs at a time."""
    seconds = np.zeros((comm.K, 2))
    for turn in range(1, 1 << (comm.K - 1).bit_length()):
        comm.barrier()
        other = comm.rank ^ turn  # so each pair meets once
        for i in range(2 * (other < comm.K)):
            x, spent = np.zeros(SIZES[i], np.uint8), []
            for _ in range(1 + (4 - 3 * i) * REPEATS):  # the first warms up; the small one more often
                began = time.perf_counter()
                for sends in (comm.rank < other, comm.rank > other):
                    comm.send(x, other) if sends else comm.recv(x, other)
                spent.append(time.perf_counter() - began)
            seconds[other, i] = np.median(spent[1:]) / 2
    return seconds


def two_levels(comm: Comm, x: NDArray) -> None:
    """Replace x by its sum: up a tree in each room, around a ring of the rooms' first ranks, down again."""
    room = [k for k in range(comm.K) if comm.hosts[k] == comm.hosts[comm.rank]]
    firsts = [comm.hosts.index(each) for each in dict.fromkeys(comm.hosts)]
    tree.reduce_among(comm, x, room)
    if comm.rank in firsts:
        ring.among(comm, x, firsts)
    broadcast.among(comm, x, room)


#: Ways to replace x by everybody's sum.
WAYS: dict[str, Callable] = {each.name: each.allreduce_inplace for each in (naive, tree, ring)}
WAYS["two levels"] = two_levels


def allreduces(comm: Comm) -> NDArray:
    """Seconds of each of the ``WAYS``, (4, REPEATS). ValueError for a wrong sum."""
    seconds = np.zeros((len(WAYS), 1 + REPEATS))
    for i, j in np.ndindex(seconds.shape):
        x = np.full(N, comm.rank + 1, np.float32)
        comm.barrier()
        began = time.perf_counter()
        list(WAYS.values())[i](comm, x)
        seconds[i, j] = time.perf_counter() - began
        if not (x == comm.K * (comm.K + 1) / 2).all():
            raise ValueError(f"the {list(WAYS)[i]} all-reduce has added up wrongly")
    return seconds[:, 1:]


def training(comm: Comm) -> NDArray:
    """Seconds so far, seconds waited, this rank's loss, (2, 3, T): at each averaging, after 1 step each and after H."""
    X, y, _ = linear_data(256 * comm.K, 256, np.random.default_rng(7))
    problem = LeastSquares(X[comm.rank :: comm.K], y[comm.rank :: comm.K])
    found = np.zeros((2, 3, T))
    for (seconds, waited, loss), steps in zip(found, (1, H), strict=True):
        w, averages = np.zeros(problem.d), []
        comm.barrier()
        began = time.perf_counter()
        for t in range(T):
            for _ in range(steps):
                w = w - ETA * problem.grad(w)
            arrived = time.perf_counter()
            comm.barrier()
            waited[t] = time.perf_counter() - arrived
            w = ring.allreduce(comm, w) / comm.K
            averages.append(w)
            seconds[t] = time.perf_counter() - began
        loss[:] = [problem.loss(w) for w in averages]  # off the clock
    return found


#: The list: by number, the program of one rank and the shape of what it returns, for K ranks.
EXPERIMENTS: dict[int, tuple[Callable[[Comm], NDArray], Callable[[int], tuple[int, ...]]]] = {
    1: (links, lambda K: (K, 2)),
    2: (allreduces, lambda K: (len(WAYS), REPEATS)),
    3: (training, lambda K: (2, 3, T)),
}
