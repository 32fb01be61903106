"""Ring all-reduce: reduce-scatter, then all-gather, around a ring (Patarasuk and Yuan 2009, section 3).

The vector is cut into K chunks. For K-1 rounds each worker passes a chunk to its right neighbour and adds the one that
comes from the left; then worker k holds the finished chunk k+1. For K-1 more rounds the finished chunks go around.
Every worker sends 2 (K-1)/K n bytes, hardly more for many workers than for two, in 2 (K-1) messages:
2 (K-1) (alpha + n / (K beta)) seconds where K divides the number of elements.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from labkit.collectives.arrays import chunk_bounds, chunks, copy, empty, flat
from labkit.comm.base import Comm, describe


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


def ring_allreduce_inplace(comm: Comm, x: Any, segment_bytes: int = 1 << 20) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``.

    The textbook's messages, made fast: receives are posted before the sends that they answer, so that nothing waits at
    the door; chunks of more than ``segment_bytes`` travel in segments, so that what arrives is added while it is still in
    the cache and two inboxes of that size are all the memory it takes; finished chunks arrive where they belong. That
    is safe: the left neighbour can't send a finished chunk before this worker's own part of it has gone all the way round.
    """
    total = flat(x)
    with comm.collective("ring all-reduce", x):
        size = describe(x, "x")
        plan = _plan(size.n, comm.K, comm.rank, max(1, segment_bytes * size.n // max(size.nbytes, 1)))
        right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        mine = [total[i:j] for i, j in plan.arriving]
        inbox = [empty(total, plan.widest) for _ in range(min(plan.ahead, plan.adding))]

        def expect(i: int) -> tuple[Any, Any]:
            n = plan.lengths[i]
            into = inbox[i % len(inbox)][:n] if i < plan.adding else mine[i]
            return (comm.irecv(into, left) if n else None), into

        expected = deque(expect(i) for i in range(plan.ahead))
        leaving = [comm.isend(total[i:j], right) for i, j in plan.first if j > i]
        for i, part in enumerate(mine):
            request, into = expected.popleft()
            if request is not None:
                request.wait()
                if i < plan.adding:
                    part += into
                if i < plan.passed_on:
                    leaving.append(comm.isend(part, right))
            if i + plan.ahead < len(mine):
                expected.append(expect(i + plan.ahead))
        for request in leaving:
            request.wait()


class _Plan(NamedTuple):
    """The segments of one worker, as bounds in the vector.

    first: those it sends unasked; arriving: those that come, in order, of ``lengths`` and at most ``widest`` elements.
    The first ``adding`` of them are added to its own, the rest replace it; the first ``passed_on`` go on to the right.
    ahead: how many receives to have posted: all if they are small, else two.
    """

    first: list[tuple[int, int]]
    arriving: list[tuple[int, int]]
    lengths: list[int]
    widest: int
    adding: int
    passed_on: int
    ahead: int


@lru_cache(maxsize=256)
def _plan(n: int, K: int, rank: int, segment: int) -> _Plan:
    bounds = chunk_bounds(n, K)
    longest = max(j - i for i, j in pairwise(bounds))
    per_chunk = max(1, -(-longest // segment))

    def segments(chunk: int) -> list[tuple[int, int]]:
        low, high = bounds[chunk % K], bounds[chunk % K + 1]
        cuts = [min(low + s * segment, high) for s in range(per_chunk)]
        return list(pairwise([*cuts, high]))

    arriving = [s for j in range(1, K) for s in segments(rank - j)]  # reduce-scatter
    arriving += [s for j in range(K - 1) for s in segments(rank - j)]  # all-gather
    lengths = [j - i for i, j in arriving]
    widest = max(lengths, default=0)
    return _Plan(
        first=segments(rank) if K > 1 else [],
        arriving=arriving,
        lengths=lengths,
        widest=widest,
        adding=len(arriving) // 2,
        passed_on=len(arriving) - per_chunk,
        ahead=min(len(arriving), max(2, segment // max(widest, 1))),
    )
