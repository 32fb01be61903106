"""Passes around a ring: reduce-scatter, all-gather, or one after the other (Patarasuk and Yuan 2009, section 3).

The parts that ``ring``, ``torus``, ``hierarchical`` and ``parts`` are made of, among any of the workers. The vector is cut
into as many chunks as the ring has members. The member that starts with chunk c sends it to its right neighbour and gets
c - 1, c - 2, ... from its left: to add its own to them and pass them on (reduce-scatter: it ends with the finished chunk
c + 1), or to keep them and pass them on (all-gather, which starts with a finished chunk).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives.arrays import chunk_bounds, empty, split
from labkit.comm.base import Comm

#: Chunks of more bytes than this travel in segments of it.
SEGMENT_BYTES = 1 << 21


def allreduce_among(comm: Comm, total: Any, ranks: Sequence[int], segment_bytes: int = SEGMENT_BYTES) -> None:
    """Replace the vector ``total`` (n,) by its sum over ``ranks``, of which this worker is one."""
    at = ranks.index(comm.rank)
    _go_round(comm, total, ranks, at, _plan_for(total, len(ranks), at, segment_bytes, True, True))


def reduce_scatter_among(
    comm: Comm, total: Any, ranks: Sequence[int], segment_bytes: int = SEGMENT_BYTES
) -> None:
    """Replace chunk i of the vector ``total`` (n,), on the i-th of ``ranks``, by its sum; the rest of it is used up."""
    at = ranks.index(comm.rank)
    _go_round(comm, total, ranks, at, _plan_for(total, len(ranks), at - 1, segment_bytes, True, False))


def all_gather_among(
    comm: Comm, total: Any, ranks: Sequence[int], segment_bytes: int = SEGMENT_BYTES
) -> None:
    """Replace every chunk of the vector ``total`` (n,) but the i-th, on the i-th of ``ranks``, by its owner's."""
    at = ranks.index(comm.rank)
    _go_round(comm, total, ranks, at, _plan_for(total, len(ranks), at, segment_bytes, False, True))


def _go_round(comm: Comm, total: Any, ranks: Sequence[int], at: int, plan: _Plan) -> None:
    """The textbook's messages, made fast.

    Receives are posted before the sends that they answer, so that nothing waits at the door; chunks of more than a segment
    travel in segments, so that what arrives is added while it is still in the cache and two inboxes of that size are all
    the memory it takes; finished chunks arrive where they belong. That is safe: the left neighbour can't send a finished
    chunk before this worker's own part of it has gone all the way round.
    """
    right, left = ranks[(at + 1) % len(ranks)], ranks[at - 1]
    if plan.chunks:
        _in_whole_chunks(comm, total, right, left, plan)
        return
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


def _in_whole_chunks(comm: Comm, total: Any, right: int, left: int, plan: _Plan) -> None:
    """The same for short vectors, where every line of Python counts: all receives posted, every chunk cut once."""
    part = split(total, plan.chunks)
    last = plan.passed_on
    inbox = [empty(total, n) for n in plan.lengths[: plan.adding]]
    arriving = [comm.irecv(box, left) for box in inbox]
    arriving += [comm.irecv(part[c], left) for c in plan.order[plan.adding :]]
    leaving = [comm.isend(part[plan.start], right)]
    for i, c in enumerate(plan.order):
        arriving[i].wait()
        mine = part[c]
        if i < plan.adding:
            mine += inbox[i]
        if i < last:
            leaving.append(comm.isend(mine, right))
    for request in leaving:
        request.wait()


class _Plan(NamedTuple):
    """The segments of one worker, as bounds in the vector.

    first: those it sends unasked; arriving: those that come, in order, of ``lengths`` and at most ``widest`` elements.
    The first ``adding`` of them are added to its own, the rest replace it; the first ``passed_on`` go on to the right.
    ahead: how many receives to have posted: all if they are small, else two.
    chunks: the lengths of all chunks if each travels whole, with none empty and all receives ahead; else nothing. Then
    ``start`` is the chunk sent unasked, and ``order`` the numbers of those that come.
    """

    first: list[tuple[int, int]]
    arriving: list[tuple[int, int]]
    lengths: list[int]
    widest: int
    adding: int
    passed_on: int
    ahead: int
    chunks: list[int]
    start: int
    order: list[int]


def _plan_for(total: Any, K: int, start: int, segment_bytes: int, reduce: bool, gather: bool) -> _Plan:
    n = total.size if isinstance(total, np.ndarray) else total.numel()
    return _plan(n, K, start, max(1, segment_bytes // total.itemsize), reduce, gather)


@lru_cache(maxsize=256)
def _plan(n: int, K: int, start: int, segment: int, reduce: bool, gather: bool) -> _Plan:
    """The passes of a member that starts with chunk ``start`` of K; segments of ``segment`` elements."""
    bounds = chunk_bounds(n, K)
    longest = max(j - i for i, j in pairwise(bounds))
    per_chunk = max(1, -(-longest // segment))

    def segments(chunk: int) -> list[tuple[int, int]]:
        low, high = bounds[chunk % K], bounds[chunk % K + 1]
        cuts = [min(low + s * segment, high) for s in range(per_chunk)]
        return list(pairwise([*cuts, high]))

    summed = [s for j in range(1, K) for s in segments(start - j)] if reduce else []
    finished = start + 1 if reduce else start  # the chunk that this worker has to give in the all-gather
    gathered = [s for j in range(1, K) for s in segments(finished - j)] if gather else []
    arriving = summed + gathered
    lengths = [j - i for i, j in arriving]
    widest = max(lengths, default=0)
    ahead = min(len(arriving), max(2, segment // max(widest, 1)))
    order = [(start - j) % K for j in range(1, K)] * reduce + [
        (finished - j) % K for j in range(1, K)
    ] * gather
    whole = K > 1 and per_chunk == 1 and n >= K and ahead == len(arriving)
    return _Plan(
        first=segments(start) if K > 1 else [],
        arriving=arriving,
        lengths=lengths,
        widest=widest,
        adding=len(summed),
        passed_on=len(arriving) - per_chunk,
        ahead=ahead,
        chunks=[j - i for i, j in pairwise(bounds)] if whole else [],
        start=start % K,
        order=order,
    )
