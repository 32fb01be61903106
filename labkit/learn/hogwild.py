"""Hogwild!: workers update one shared w in place, at the same time and without a lock.

Recht, Re, Wright and Niu 2011, *Hogwild!: a lock-free approach to parallelizing stochastic gradient descent*, algorithm 1.
An update reads the coordinates of one example, and adds to each. The addition is a load, a sum and a store, so that of two
workers which do it to the same coordinate at the same time one is overwritten: a **lost update**. (The paper's analysis
wants the addition of one coordinate to be atomic. Nothing here is: numpy has no such operation.)

How many are lost can be counted exactly: run the same loop with whole-number steps (``Ones``) and compare the sum.
Staleness is read from one counter a worker, which only its owner writes: their sum is the version.

Symbols: K workers, d parameters, m coordinates that an update touches, ``tau`` staleness in versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.comm.base import is_torch
from labkit.learn.problems import Array
from labkit.learn.sgd import Diverged
from labkit.timing._check import number

if TYPE_CHECKING:
    from labkit.comm.base import Comm

LINE = 8  # int64 between the workers' counters: one cache line each


class Sparse(Protocol):
    """What Hogwild! asks of a problem: example i touches the columns ``cols[i]``, with the gradient ``slope`` there."""

    cols: NDArray[np.intp]
    d: int

    def slope(self, i: int, x: Array) -> Any:
        """Gradient of example i in its own columns; x: (m,), w there."""


class Ones:
    """The same coordinates with gradient -1: with eta = 1 each update adds exactly 1 to each coordinate it touches.

    After n updates w must sum to n m; what it falls short of that was lost.
    """

    def __init__(self, cols: ArrayLike, d: int) -> None:
        self.cols = np.asarray(cols, dtype=np.intp)
        self.d = d

    def slope(self, i: int, x: Array) -> float:
        """-1 in every column."""
        return -1.0


@dataclass(frozen=True, eq=False)
class Ran:
    """What a worker did. updates: how many. begun_s, ended_s: seconds since the launch began, the loop alone.

    tau: (updates,) how many updates of others came between reading w and having written it; empty if not asked for.
    """

    updates: int
    begun_s: float
    ended_s: float
    tau: NDArray[np.int64]


def hogwild_inplace(
    comm: Comm,
    problem: Sparse,
    w: Any,
    eta: float,
    orders: Iterable[ArrayLike],
    counters: Any = None,
    lock: AbstractContextManager[Any] | None = None,
) -> Ran:
    """Update the shared ``w`` as one worker: ``w[cols[i]] -= eta * slope(i, w[cols[i]])`` for each i in its own order.

    w: (d,) float64, one memory for all workers: a torch tensor after ``share_memory_()``, given to ``launch``. (In the
    simulated world, where one worker runs at a time, any; nothing can be lost there.) Worker processes refuse a copy.
    orders: one list of example numbers for each worker. counters: ``counters_for(K)``, shared, to measure staleness.
    lock: held during each update (see ``FileLock``); None is Hogwild!. Raises ValueError for bad input, Diverged at
    this worker's first update that overflows.
    """
    shared = _shared(w, problem.d)
    if comm.K > 1 and comm.measured and _private(shared):
        raise ValueError(
            "w must be one memory for all workers, got a copy: w.share_memory_() before the launch"
        )
    eta = number("eta", eta, least=0)
    mine = [np.asarray(order) for order in orders]
    if len(mine) != comm.K:
        raise ValueError(
            f"orders must hold one list of examples for each of K = {comm.K} workers, got {len(mine)}"
        )
    order = _examples(mine[comm.rank], len(problem.cols))
    if counters is not None and lock is not None:
        raise ValueError("counters measure what happens without a lock: leave one of the two out")
    comm.barrier()
    begun = comm.now()
    tau: list[int] = []
    steps = iter(order)
    try:
        with np.errstate(over="raise", invalid="raise"):
            if counters is not None:
                tau = _watched(problem, shared, eta, steps, np.asarray(counters), comm.rank)
            elif lock is not None:
                _locked(problem, shared, eta, steps, lock)
            else:
                _plain(problem, shared, eta, steps)
    except FloatingPointError:
        raise Diverged(len(order) - length_hint(steps) - 1, eta) from None
    return Ran(len(order), begun, comm.now(), np.array(tau, dtype=np.int64))


def _plain(problem: Sparse, w: Array, eta: float, order: Iterator[int]) -> None:
    cols, slope = problem.cols, problem.slope
    for i in order:
        j = cols[i]
        w[j] -= eta * slope(i, w[j])


def _locked(
    problem: Sparse, w: Array, eta: float, order: Iterator[int], lock: AbstractContextManager[Any]
) -> None:
    cols, slope = problem.cols, problem.slope
    for i in order:
        j = cols[i]
        with lock:
            w[j] -= eta * slope(i, w[j])


def _watched(
    problem: Sparse,
    w: Array,
    eta: float,
    order: Iterator[int],
    counters: NDArray[np.int64],
    rank: int,
) -> list[int]:
    """As above, and how many updates of others each one missed."""
    cols, slope = problem.cols, problem.slope
    clocks, own = counters[::LINE], LINE * rank
    tau = []
    for done, i in enumerate(order):
        j = cols[i]
        read = int(clocks.sum())
        w[j] -= eta * slope(i, w[j])
        tau.append(int(clocks.sum()) - read)
        counters[own] = done + 1
    return tau


def counters_for(K: int) -> Any:
    """Shared counters for K workers, all 0: a torch tensor of int64, a cache line for each."""
    import torch

    return torch.zeros(LINE * K, dtype=torch.int64).share_memory_()


class FileLock:
    """A lock among processes of one host, as a context manager: ``flock`` on a file that is there.

    Travels to workers by its path; each opens the file for itself. The kernel frees it when its holder dies.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: Any = None

    def __enter__(self) -> None:
        import fcntl

        if self._file is None:
            self._file = open(self.path, "rb")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: Any) -> None:
        import fcntl

        fcntl.flock(self._file, fcntl.LOCK_UN)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_file": None}


def _shared(w: Any, d: int) -> Array:
    """``w`` as a numpy array on the same memory."""
    array = w.detach().numpy() if is_torch(w) else w
    if not isinstance(array, np.ndarray) or array.shape != (d,) or array.dtype != np.float64:
        raise ValueError(f"w must be a float64 tensor of shape ({d},), got {type(w).__name__} {np.shape(w)}")
    if not array.flags.writeable:
        raise ValueError("w must be writeable: all workers update it in place")
    return array


def _private(array: Array) -> bool:
    """Whether an array that came to a worker process is a copy of its own, in no memory that others could have."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    return not owner.is_shared() if is_torch(owner) else owner is None or isinstance(owner, bytes | bytearray)


def _examples(order: Array, N: int) -> list[int]:
    if order.ndim != 1 or (
        order.size and (order.dtype.kind not in "iu" or order.min() < 0 or order.max() >= N)
    ):
        raise ValueError(f"orders must hold lists of example numbers from 0 to {N - 1}, got {order!r}")
    return [int(i) for i in order]
