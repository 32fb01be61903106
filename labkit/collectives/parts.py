"""The halves of an all-reduce, and the broadcast: what sharded training is made of (Rajbhandari et al. 2020).

Chunk r of n elements, r n // K to (r + 1) n // K, belongs to rank r. ``reduce_scatter`` gives every rank its chunk of the
sum, ``all_gather`` puts the chunks together: (K-1) (alpha + n / (K beta)) seconds each for n bytes where K divides the
number of elements, around the ring (Patarasuk and Yuan 2009); one after the other they are an all-reduce.
``broadcast`` goes down a binomial tree: ceil(log2 K) (alpha + n / beta) seconds (Chan et al. 2007, section 4).
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import chunk_bounds, copy, empty, flat
from labkit.collectives.rings import all_gather_among, reduce_scatter_among
from labkit.collectives.tree import broadcast_among
from labkit.comm.base import Comm, describe


def own_chunk(comm: Comm, n: int) -> tuple[int, int]:
    """Where this rank's chunk of n elements begins and ends."""
    low, high = chunk_bounds(n, comm.K)[comm.rank : comm.rank + 2]
    return low, high


def reduce_scatter(comm: Comm, x: Any) -> tuple[Any, tuple[int, int]]:
    """This rank's chunk of the sum of all workers' ``x`` (numpy or torch, n elements of any shape), and where it lies.

    Returns ``(part, (low, high))``: ``part`` is a new vector, elements ``low`` to ``high`` of the flattened sum.

    >>> from labkit import launch
    >>> launch(lambda comm: reduce_scatter(comm, np.arange(5.0)), 2).results[1]
    (array([4., 6., 8.]), (2, 5))
    """
    total = copy(x)
    low, high = reduce_scatter_inplace(comm, total)
    return copy(flat(total)[low:high]), (low, high)


def reduce_scatter_inplace(comm: Comm, x: Any) -> tuple[int, int]:
    """Replace this rank's chunk of ``x`` (contiguous) by the sum of all workers'; what else was in ``x`` is used up.

    Returns ``(low, high)``, where the chunk lies in the flattened ``x``.
    """
    total = flat(x)
    with comm.collective("reduce-scatter", x):
        reduce_scatter_among(comm, total, range(comm.K))
    return own_chunk(comm, len(total))


def all_gather(comm: Comm, part: Any, n: int) -> Any:
    """All ranks' chunks in one new vector (n,), as ``reduce_scatter`` cuts them.

    part: this rank's chunk (any shape). n: elements of all chunks together. ValueError if ``part`` has another length.

    >>> from labkit import launch
    >>> launch(lambda comm: all_gather(comm, np.full(2, comm.rank), n=6), 3).results[0]
    array([0, 0, 1, 1, 2, 2])
    """
    low, high = own_chunk(comm, n)
    if describe(part, "part").n != high - low:
        raise ValueError(
            f"part must have the {high - low} elements of rank {comm.rank}'s chunk of n = {n}, "
            f"got {describe(part, 'part').n}"
        )
    total = empty(part, n)
    total[low:high] = part.reshape(-1)
    all_gather_inplace(comm, total)
    return total


def all_gather_inplace(comm: Comm, x: Any) -> None:
    """Replace all of ``x`` (contiguous) but this rank's chunk by the chunks of their owners."""
    total = flat(x)
    with comm.collective("all-gather", x):
        all_gather_among(comm, total, range(comm.K))


def broadcast(comm: Comm, x: Any, root: int = 0) -> Any:
    """Rank ``root``'s ``x`` (numpy or torch, any shape, the same on every rank), as a new array on every rank.

    >>> from labkit import launch
    >>> launch(lambda comm: int(broadcast(comm, np.array([comm.rank]), root=2)[0]), 4).results
    [2, 2, 2, 2]
    """
    total = copy(x)
    broadcast_inplace(comm, total, root)
    return total


def broadcast_inplace(comm: Comm, x: Any, root: int = 0) -> None:
    """Replace ``x`` (contiguous) by that of rank ``root``. Raises ValueError if there is no such rank."""
    total = flat(x)
    if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < comm.K:
        raise ValueError(f"root must be a rank from 0 to {comm.K - 1}, got {root!r}")
    with comm.collective(f"broadcast from rank {root}", x):
        broadcast_among(comm, total, [(root + i) % comm.K for i in range(comm.K)])
