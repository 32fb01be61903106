"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3). And its halves.

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes in 2 (K-1) messages: 2 (K-1) (alpha + n / (K beta)) seconds, half of it in each half.

The halves by themselves are what sharded training is made of (Rajbhandari et al. 2020). There chunk r of n elements,
r n // K to (r + 1) n // K, belongs to rank r, so the reduce-scatter starts one chunk earlier than in the all-reduce.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import (
    chunk_bounds,
    chunks,
    copy,
    empty,
    exchange,
    flat,
)
from labkit.collectives.base import AllReduce, Collective, Counts, Of
from labkit.comm.base import Comm, describe


def _around(
    comm: Comm, total: Any, ranks: Sequence[int], first: int, add: bool
) -> None:
    """Half of the ring of ``ranks``: this worker sends chunk ``first`` of ``total`` (n,) to the right, then what has come
    from the left: the chunk before ``first``, the one before that, and so on, added to its own, or in its place."""
    K, at = len(ranks), ranks.index(comm.rank)
    right, left = ranks[(at + 1) % K], ranks[at - 1]
    part = chunks(total, K)
    inbox = empty(total, -(-len(total) // K))
    for j in range(K - 1):
        out, mine = part[(first - j) % K], part[(first - j - 1) % K]
        into = inbox[: len(mine)] if add else mine
        exchange(comm, out, right, into, left)
        if add:
            mine += into


class _Ring(AllReduce):
    name = "ring"

    def _add_up(self, comm: Comm, total: Any) -> None:
        self.among(comm, total, range(comm.K))

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace the vector ``total`` (n,) by its sum over ``ranks``."""
        at = ranks.index(comm.rank)
        _around(comm, total, ranks, at, add=True)
        _around(comm, total, ranks, at + 1, add=False)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * (K - 1), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        # rank r sends r, r - 1, ... (all but r + 1), then r + 1, r, ... (all but r + 2): as rank r + 1 of the halves
        return np.roll(
            reduce_scatter._sent(K, n, of) + all_gather._sent(K, n, of), -1
        )


class _Half(Collective):
    first: ClassVar[int]  # chunk to leave, counted from the worker's own
    add: ClassVar[bool]

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """``inplace`` on a vector (n,), for the workers ``ranks`` only: chunk i belongs to the i-th of them."""
        _around(comm, total, ranks, ranks.index(comm.rank) + self.first, self.add)

    def inplace(self, comm: Comm, x: Any) -> tuple[int, int]:
        """The same in ``x`` (contiguous), all of which is overwritten. Returns where this rank's chunk of it lies."""
        total = flat(x)
        with comm.collective(self.name, x):
            self.among(comm, total, range(comm.K))
        return own_chunk(comm, len(total))

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return K - 1, (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        chunk = of(np.diff(chunk_bounds(n, K)))
        return chunk.sum() - np.roll(chunk, -self.first - 1)  # all but the next


class _ReduceScatter(_Half):
    name, first, add = "reduce-scatter", -1, True

    def __call__(self, comm: Comm, x: Any) -> tuple[Any, tuple[int, int]]:
        """This rank's chunk of the sum of all workers' ``x`` (numpy or torch, any shape), a new vector, and (low, high),
        where it lies in the flattened sum.

        >>> from labkit import launch
        >>> launch(lambda comm: reduce_scatter(comm, np.arange(5.0)), 2).results[1]
        (array([4., 6., 8.]), (2, 5))
        """
        total = copy(x)
        low, high = self.inplace(comm, total)
        return copy(flat(total)[low:high]), (low, high)


class _AllGather(_Half):
    name, first, add = "all-gather", 0, False

    def __call__(self, comm: Comm, part: Any, n: int) -> Any:
        """All ranks' chunks in one new vector (n,), as ``reduce_scatter`` cuts them.

        part: this rank's chunk (any shape). n: elements of all chunks together. ValueError if ``part`` has another length.

        >>> from labkit import launch
        >>> launch(lambda comm: all_gather(comm, np.full(2, comm.rank), n=6), 3).results[0]
        array([0, 0, 1, 1, 2, 2])
        """
        low, high = own_chunk(comm, n)
        if (has := describe(part, "part").n) != high - low:
            right = (
                f"the {high - low} elements of rank {comm.rank}'s chunk of n = {n}"
            )
            raise ValueError(f"part must have {right}, got {has}")
        total = empty(part, n)
        total[low:high] = part.reshape(-1)
        self.inplace(comm, total)
        return total


def own_chunk(comm: Comm, n: int) -> tuple[int, int]:
    """Where this rank's chunk of n elements begins and ends."""
    low, high = chunk_bounds(n, comm.K)[comm.rank : comm.rank + 2]
    return low, high


#: Reduce-scatter, then all-gather: each chunk is added up once and then copied.
ring = _Ring()
#: The ring's first half, ``reduce_scatter(comm, x)``: rank r gets chunk r of the sum.
reduce_scatter = _ReduceScatter()
#: The ring's second half, ``all_gather(comm, part, n)``: all ranks' chunks come together on every rank.
all_gather = _AllGather()
