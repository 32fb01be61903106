"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3).

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes, hardly more for many workers than for two, in 2 (K-1) messages:
2 (K-1) (alpha + n / (K beta)) seconds where K divides the number of elements.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives.arrays import chunk_sizes, chunks, copy, empty, flat
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
        part = chunks(total, comm.K)
        right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        rounds = _rounds(x.size if isinstance(x, np.ndarray) else x.numel(), comm.K, comm.rank)
        inbox = [part[r.mine] if r.finished else empty(total, r.receives) for r in rounds]
        arriving = [comm.irecv(b, left) if r.receives else None for b, r in zip(inbox, rounds, strict=True)]
        leaving = []
        for r, b, request in zip(rounds, inbox, arriving, strict=True):
            if r.sends:
                leaving.append(comm.isend(part[r.outgoing], right))
            if request is not None:
                request.wait()
                if not r.finished:
                    mine = part[r.mine]
                    mine += b
        for sent in leaving:
            sent.wait()


class _Round(NamedTuple):
    """One round as one worker sees it: chunk numbers, their lengths, and whether chunks are finished sums already."""

    outgoing: int
    mine: int
    sends: int
    receives: int
    finished: bool


@lru_cache(maxsize=256)
def _rounds(n: int, K: int, rank: int) -> list[_Round]:
    size = chunk_sizes(n, K)
    outgoing = [(rank - j) % K for j in range(K - 1)] + [(rank + 1 - j) % K for j in range(K - 1)]
    return [_Round(i, (i - 1) % K, size[i], size[(i - 1) % K], j >= K - 1) for j, i in enumerate(outgoing)]
