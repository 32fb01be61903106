"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3).

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes, hardly more for many workers than for two, in 2 (K-1) messages:
2 (K-1) (alpha + n / (K beta)) seconds where K divides the number of elements.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import chunks, copy, empty, flat
from labkit.comm.base import Comm


def ring_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    Each chunk is added up once and then copied, so every rank gets the same bits.
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


def ring_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``.

    The same messages as the textbook's, but every receive is posted before the first send, so that no chunk waits at
    the door. All-gather chunks arrive where they belong: the left neighbour can't send chunk k back before this worker's
    own send of it has gone all the way round.
    """
    total = flat(x)
    with comm.collective("ring all-reduce", x):
        K, r = comm.K, comm.rank
        right, left = (r + 1) % K, (r - 1) % K
        part = chunks(total, K)
        size = [(i + 1) * len(total) // K - i * len(total) // K for i in range(K)]
        outgoing = [(r - j) % K for j in range(K - 1)] + [(r + 1 - j) % K for j in range(K - 1)]
        incoming = [(i - 1) % K for i in outgoing]
        inbox = [empty(total, size[i]) for i in incoming[: K - 1]] + [part[i] for i in incoming[K - 1 :]]
        arriving = [comm.irecv(b, left) if size[i] else None for b, i in zip(inbox, incoming, strict=True)]
        leaving = []
        for j, request in enumerate(arriving):
            if size[outgoing[j]]:
                leaving.append(comm.isend(part[outgoing[j]], right))
            if request is not None:
                request.wait()
                if j < K - 1:
                    part[incoming[j]] += inbox[j]
        for sent in leaving:
            sent.wait()
