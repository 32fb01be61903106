"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3).

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes, hardly more for many workers than for two, in 2 (K-1) messages:
2 (K-1) (alpha + n / (K beta)) seconds where K divides the number of elements.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import chunks, copy, empty, flat
from labkit.collectives.rings import SEGMENT_BYTES, allreduce_among
from labkit.comm.base import Comm


def ring_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    Each chunk is added up once and then copied, so every rank gets the same bits.

    >>> from labkit import launch
    >>> launch(lambda comm: ring_allreduce(comm, np.arange(4.0) * comm.rank), 3).results[0]
    array([0., 3., 6., 9.])
    """
    total = copy(x)
    ring_allreduce_inplace(comm, total)
    return total


def textbook_ring_allreduce(comm: Comm, x: Any) -> Any:
    """The ring as one would say it, a send and a receive a round: what ``ring_allreduce`` must agree with, bit for bit."""
    total = copy(x)
    with comm.collective("ring all-reduce", x):
        part = chunks(flat(total), comm.K)
        right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        for j in range(comm.K - 1):  # reduce-scatter: pass on what has been added so far
            outgoing, mine = part[(comm.rank - j) % comm.K], part[(comm.rank - j - 1) % comm.K]
            inbox = empty(mine, len(mine))
            comm.sendrecv(outgoing, right, inbox, left)
            mine += inbox
        for j in range(comm.K - 1):  # all-gather: pass on what is finished
            outgoing, mine = part[(comm.rank + 1 - j) % comm.K], part[(comm.rank - j) % comm.K]
            comm.sendrecv(outgoing, right, mine, left)
    return total


def ring_allreduce_inplace(comm: Comm, x: Any, segment_bytes: int = SEGMENT_BYTES) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``.

    The textbook's messages, made fast (``rings``): chunks of more than ``segment_bytes`` travel in segments.
    """
    total = flat(x)
    with comm.collective("ring all-reduce", x):
        allreduce_among(comm, total, range(comm.K), segment_bytes)
