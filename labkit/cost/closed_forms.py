"""Closed forms for the all-reduce of one vector: seconds, bytes and messages of naive, tree and ring.

Times are alpha-beta times (Hockney 1994): a message costs ``alpha + nbytes / beta`` and keeps the
sender's outgoing and the receiver's incoming port busy for all of it; ports are full duplex, all workers
start together and adding numbers costs nothing. Naive: everyone sends to rank 0, which answers everyone.
Tree: reduce to rank 0 along a binomial tree, then broadcast back along it. Ring: reduce-scatter, then
all-gather (Patarasuk and Yuan 2009).

Symbols: K workers, n elements, ``nbytes`` bytes of the whole vector, P parameters, ``alpha`` and ``beta``
of the link.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.cost.link import Link

Counts = NDArray[np.int64]

#: Beyond as many workers, ``ring_crossover`` says never.
K_MAX = 2**53


# -- seconds --------------------------------------------------------------------------------------------


def naive_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a naive all-reduce: rank 0's one port takes in K - 1 vectors, then sends K - 1.

    K: workers, whole numbers >= 1. nbytes: bytes of the vector, finite, >= 0. They broadcast against each
    other. Returns a float for numbers, an array for arrays. Raises ValueError for anything else.

    >>> round(naive_time(K=4, nbytes=4e6, link=Link(alpha=1e-4, beta=1.25e8)), 6)
    0.1926
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    return _plain(2 * (Ks - 1) * (link.alpha + size / link.beta))


def tree_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a binomial-tree all-reduce: ceil(log2 K) rounds down to rank 0 and as many back.

    Exact for every K: rank 0 takes part in each round. Arguments, result and errors as ``naive_time``.
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    return _plain(tree_rounds(Ks) * (link.alpha + size / link.beta))


def ring_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a ring all-reduce: 2 (K - 1) rounds, each sends one K-th of the vector.

    Assumes chunks of equal size, so it is exact when K divides the number of elements; otherwise a round
    lasts as long as its longest chunk, which is less than one element more. Arguments, result and errors as
    ``naive_time``.

    >>> round(ring_time(K=4, nbytes=4e6, link=Link(alpha=1e-4, beta=1.25e8)), 6)
    0.0486
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    return _plain(2 * (Ks - 1) * (link.alpha + size / (Ks * link.beta)))


# -- rounds: messages one after the other, which is the time on a link with alpha = 1 s and no bytes to pay ----


def naive_rounds(K: ArrayLike) -> Any:
    """Messages that go one after the other through rank 0's port: 2 (K - 1)."""
    return 2 * (_workers(K) - 1)


def tree_rounds(K: ArrayLike) -> Any:
    """Messages one after the other: 2 ceil(log2 K)."""
    return 2 * np.frexp(_workers(K) - 1)[1].astype(np.int64)  # bits of K - 1: ceil(log2 K) without rounding


def ring_rounds(K: ArrayLike) -> Any:
    """Messages one after the other: 2 (K - 1)."""
    return 2 * (_workers(K) - 1)


# -- a step ---------------------------------------------------------------------------------------------


def step_time(t_comp: ArrayLike, t_comm: ArrayLike) -> Any:
    """Seconds of a step that computes ``t_comp`` seconds, then communicates ``t_comm``: no overlap."""
    return _plain(_amount(t_comp, "t_comp") + _amount(t_comm, "t_comm"))


def communication_share(t_comp: ArrayLike, t_comm: ArrayLike) -> Any:
    """The part of a step, from 0 to 1, that is communication (0 where the step takes no time at all).

    >>> round(communication_share(t_comp=0.08, t_comm=0.14), 3)
    0.636
    """
    total = np.asarray(step_time(t_comp, t_comm))
    return _plain(_amount(t_comm, "t_comm") / np.where(total > 0, total, 1.0))


def ring_crossover(P: float, itemsize: int, t_comp: float, link: Link) -> int | None:
    """The smallest K at which a ring all-reduce takes longer than the computation it follows.

    P: parameters. itemsize: bytes of each. t_comp: seconds every worker computes per step, whatever K is
    (b is fixed). A tie is not longer; times within 1e-12 of each other, relatively, tie. Returns None if
    there is no such K up to 2**53: without latency the ring takes less than ``2 P itemsize / beta``.
    Raises ValueError for negative or non-finite numbers.

    >>> ring_crossover(P=2e8, itemsize=4, t_comp=0.08, link=Link(0.0, 1e10))
    3
    """
    nbytes = float(_amount(P, "P")) * float(_amount(itemsize, "itemsize"))
    limit = float(_amount(t_comp, "t_comp")) * (1 + 1e-12)
    if ring_time(K_MAX, nbytes, link) <= limit:
        return None
    low, high = 1, K_MAX  # the ring's time grows with K, so halve: not yet at low, longer at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ring_time(middle, nbytes, link) > limit else (middle, high)
    return high


# -- bytes and messages, rank by rank -------------------------------------------------------------------


def naive_messages(K: int) -> Counts:
    """Messages each rank sends, (K,), for a vector that is not empty: rank 0 answers, the others send one."""
    K = _whole(K, "K", at_least=1)
    return np.where(np.arange(K) == 0, K - 1, 1).astype(np.int64)


def naive_bytes(K: int, nbytes: int) -> Counts:
    """Bytes each rank sends, (K,), for a vector of ``nbytes`` bytes."""
    return naive_messages(K) * _whole(nbytes, "nbytes")


def tree_messages(K: int) -> Counts:
    """Messages each rank sends, (K,), for a vector that is not empty.

    Rank r > 0, whose lowest set bit is 2^i, sends to r - 2^i in round i; the broadcast takes the same edges
    back, so r also sends once to each worker that it received from.
    """
    K = _whole(K, "K", at_least=1)
    sent = np.zeros(K, dtype=np.int64)
    for r in range(1, K):
        parent = r - (r & -r)
        sent[r] += 1  # reduce
        sent[parent] += 1  # broadcast
    return sent


def tree_bytes(K: int, nbytes: int) -> Counts:
    """Bytes each rank sends, (K,), for a vector of ``nbytes`` bytes."""
    return tree_messages(K) * _whole(nbytes, "nbytes")


def ring_bytes(K: int, n: int, itemsize: int) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K and n.

    Chunk i is the elements from i n // K to (i + 1) n // K. In K - 1 rounds each, rank r sends in the
    reduce-scatter the chunks r, r - 1, ... (all but r + 1) and in the all-gather r + 1, r, ... (all but
    r + 2). Empty chunks are not sent.

    >>> ring_bytes(K=4, n=1000, itemsize=4)
    array([6000, 6000, 6000, 6000])
    """
    size = _chunks(K, n)
    return (2 * size.sum() - np.roll(size, -1) - np.roll(size, -2)) * _whole(itemsize, "itemsize")


def ring_messages(K: int, n: int) -> Counts:
    """Messages each rank sends, (K,), for n elements: 2 (K - 1), less the empty chunks."""
    full = (_chunks(K, n) > 0).astype(np.int64)
    return 2 * full.sum() - np.roll(full, -1) - np.roll(full, -2)


def _chunks(K: int, n: int) -> Counts:
    edges = np.arange(_whole(K, "K", at_least=1) + 1) * _whole(n, "n") // K
    return np.diff(edges)


# -- at the door ----------------------------------------------------------------------------------------


def _workers(K: ArrayLike) -> Any:
    given = np.asarray(K)
    if given.dtype.kind not in "iu" or np.any(given < 1):
        raise ValueError(f"K must be a whole number of workers >= 1 (an int or an array of ints), got {K!r}")
    return given.astype(np.int64)


def _whole(value: int, name: str, at_least: int = 0) -> int:
    given = np.asarray(value)
    if given.dtype.kind not in "iu" or given.ndim or given < at_least:
        raise ValueError(f"{name} must be a whole number >= {at_least}, got {value!r}")
    return int(given)


def _amount(value: ArrayLike, name: str) -> NDArray[np.float64]:
    given = np.asarray(value)
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)) or np.any(given < 0):
        raise ValueError(f"{name} must be a finite number >= 0, or an array of them, got {value!r}")
    return given.astype(np.float64)


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
