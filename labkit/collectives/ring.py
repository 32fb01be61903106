"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3). And its halves.

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes, hardly more for many workers than for two, in 2 (K-1) messages:
2 (K-1) (alpha + n / (K beta)) seconds. Each half takes half of that.

The halves by themselves are what sharded training is made of (Rajbhandari et al. 2020). There chunk r of n elements,
r n // K to (r + 1) n // K, belongs to rank r, so the reduce-scatter starts one chunk earlier than in the all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import chunk_bounds, chunks, copy, empty, flat
from labkit.collectives.base import AllReduce, Collective, Counts, Of
from labkit.comm.base import Comm, Request, describe

#: Vectors up to so many bytes are short.
SHORT_BYTES = 1 << 20


@dataclass(frozen=True)
class _Ring(AllReduce):
    """Each chunk is added up once and then copied.

    >>> from labkit import launch
    >>> launch(lambda comm: ring.allreduce(comm, np.arange(4.0) * comm.rank), 3).results[0]
    array([0., 3., 6., 9.])
    """

    name: ClassVar[str] = "ring"

    def _add_up(self, comm: Comm, total: Any) -> None:
        self.among(comm, total, range(comm.K))

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace the vector ``total`` (n,) by its sum over ``ranks``."""
        at = ranks.index(comm.rank)
        _around(comm, total, ranks, at, len(ranks) - 1, len(ranks) - 1)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * (K - 1), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        # rank r sends r, r - 1, ... (all but r + 1), then r + 1, r, ... (all but r + 2): as rank r + 1 of the halves
        return np.roll(reduce_scatter._sent(K, n, of) + all_gather._sent(K, n, of), -1)


@dataclass(frozen=True)
class _ReduceScatter(Collective):
    """Rank r gets chunk r of the sum of all workers' vectors.

    >>> from labkit import launch
    >>> launch(lambda comm: reduce_scatter(comm, np.arange(5.0)), 2).results[1]
    (array([4., 6., 8.]), (2, 5))
    """

    name: ClassVar[str] = "reduce-scatter"

    def __call__(self, comm: Comm, x: Any) -> tuple[Any, tuple[int, int]]:
        """This rank's chunk of the sum of all workers' ``x`` (numpy or torch, n elements of any shape), and where it lies.

        Returns ``(part, (low, high))``: ``part`` is a new vector, elements ``low`` to ``high`` of the flattened sum.
        """
        total = copy(x)
        low, high = self.inplace(comm, total)
        return copy(flat(total)[low:high]), (low, high)

    def inplace(self, comm: Comm, x: Any) -> tuple[int, int]:
        """Replace this rank's chunk of ``x`` (contiguous) by the sum of all workers'; what else was in ``x`` is used up.

        Returns ``(low, high)``, where the chunk lies in the flattened ``x``.
        """
        total = flat(x)
        with comm.collective("reduce-scatter", x):
            self.among(comm, total, range(comm.K))
        return own_chunk(comm, len(total))

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace chunk i of the vector ``total`` (n,), on the i-th of ``ranks``, by its sum; the rest of it is used up."""
        _around(comm, total, ranks, ranks.index(comm.rank) - 1, len(ranks) - 1, 0)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return K - 1, (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        chunk = of(np.diff(chunk_bounds(n, K)))
        return chunk.sum() - chunk  # all but its own


@dataclass(frozen=True)
class _AllGather(Collective):
    """All ranks' chunks come together on every rank.

    >>> from labkit import launch
    >>> launch(lambda comm: all_gather(comm, np.full(2, comm.rank), n=6), 3).results[0]
    array([0, 0, 1, 1, 2, 2])
    """

    name: ClassVar[str] = "all-gather"

    def __call__(self, comm: Comm, part: Any, n: int) -> Any:
        """All ranks' chunks in one new vector (n,), as ``reduce_scatter`` cuts them.

        part: this rank's chunk (any shape). n: elements of all chunks together. ValueError if ``part`` has another length.
        """
        low, high = own_chunk(comm, n)
        if describe(part, "part").n != high - low:
            raise ValueError(
                f"part must have the {high - low} elements of rank {comm.rank}'s chunk of n = {n}, "
                f"got {describe(part, 'part').n}"
            )
        total = empty(part, n)
        total[low:high] = part.reshape(-1)
        self.inplace(comm, total)
        return total

    def inplace(self, comm: Comm, x: Any) -> None:
        """Replace all of ``x`` (contiguous) but this rank's chunk by the chunks of their owners."""
        total = flat(x)
        with comm.collective("all-gather", x):
            self.among(comm, total, range(comm.K))

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace every chunk of the vector ``total`` (n,) but the i-th, on the i-th of ``ranks``, by its owner's."""
        _around(comm, total, ranks, ranks.index(comm.rank), 0, len(ranks) - 1)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return K - 1, (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        chunk = of(np.diff(chunk_bounds(n, K)))
        return chunk.sum() - np.roll(chunk, -1)  # all but its right neighbour's


def _around(comm: Comm, total: Any, ranks: Sequence[int], first: int, added: int, kept: int) -> None:
    """This worker's part in a ring: it sends chunk ``first`` of ``total`` (n,) to the right, and passes on what comes.

    From the left come the chunk before ``first``, the one before that, and so on. The first ``added`` of them are added to
    this worker's own, the next ``kept`` replace it. In a short vector all receives are posted before the first send, so that
    no message waits for its receiver; else each is posted before the send that leaves with it.
    """
    K, at, part = len(ranks), ranks.index(comm.rank), chunks(total, len(ranks))
    order = [part[(first - j) % K] for j in range(added + kept + 1)]
    ahead = added + kept if len(total) * total.itemsize <= SHORT_BYTES else 1
    inbox = [empty(total, -(-len(total) // K)) for _ in range(min(ahead, added))]
    into = [inbox[j % ahead][: len(mine)] if j < added else mine for j, mine in enumerate(order[1:])]

    def receive(j: int) -> Request | None:
        return comm.irecv(into[j], ranks[at - 1]) if j < len(into) and len(into[j]) else None

    arriving = [receive(j) for j in range(ahead)]
    leaving = []
    for j, mine in enumerate(order[1:]):
        if len(order[j]):
            leaving.append(comm.isend(order[j], ranks[(at + 1) % K]))
        if (request := arriving[j]) is not None:
            request.wait()
            if j < added:
                mine += into[j]
        arriving.append(receive(j + ahead))
    for sent in leaving:
        sent.wait()


def own_chunk(comm: Comm, n: int) -> tuple[int, int]:
    """Where this rank's chunk of n elements begins and ends."""
    low, high = chunk_bounds(n, comm.K)[comm.rank : comm.rank + 2]
    return low, high


#: Reduce-scatter, then all-gather.
ring = _Ring()
#: The ring's first half: ``reduce_scatter(comm, x)``.
reduce_scatter = _ReduceScatter()
#: The ring's second half: ``all_gather(comm, part, n)``.
all_gather = _AllGather()
