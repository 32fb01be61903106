"""Passes around a ring: reduce-scatter, all-gather, or one after the other (Patarasuk and Yuan 2009, section 3).

What ``ring``, ``torus`` and ``hierarchical`` are made of, among any of the workers. The vector is cut into as many chunks
as the ring has members. The member that starts with chunk c sends it to its right neighbour and gets c - 1, c - 2, ... from
its left: to add its own to them and pass them on (reduce-scatter: it ends with the finished chunk c + 1), or to keep them
and pass them on (all-gather, which starts with a finished chunk).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives.arrays import chunk_bounds, empty
from labkit.comm.base import Comm, is_torch

#: Chunks of more bytes than this travel in segments of it.
SEGMENT_BYTES = 1 << 21


def go_round(
    comm: Comm,
    total: Any,
    ranks: Sequence[int],
    start: int,
    segment_bytes: int = SEGMENT_BYTES,
    *,
    reduce: bool,
    gather: bool,
) -> None:
    """The passes of this worker, one of ``ranks``, that starts with chunk ``start`` of the vector ``total`` (n,).

    The textbook's messages, made fast: receives are posted before the sends that they answer, so that nothing waits at the
    door; chunks of more than a segment travel in segments, so that what arrives is added while it is still in the cache and
    two inboxes of that size are all the memory it takes; finished chunks arrive where they belong. That is safe: the left
    neighbour can't send a finished chunk before this worker's own part of it has gone all the way round.
    """
    n = total.size if isinstance(total, np.ndarray) else total.numel()
    plan = _plan(n, len(ranks), start, max(1, segment_bytes // total.itemsize), reduce, gather)
    at = ranks.index(comm.rank)
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
    part = _split(total, plan.chunks)
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


def _split(x: Any, lengths: list[int]) -> Sequence[Any]:
    """Views of the vector ``x`` of these lengths, one after another, cut in one go where that is quicker."""
    if is_torch(x):
        return x.split_with_sizes(lengths)
    return [x[end - n : end] for n, end in zip(lengths, accumulate(lengths), strict=True)]


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

    finished = start + 1 if reduce else start  # the chunk that this worker has to give in the all-gather
    summed = [start - j for j in range(1, K)] if reduce else []
    order = summed + ([finished - j for j in range(1, K)] if gather else [])
    arriving = [s for chunk in order for s in segments(chunk)]
    lengths = [j - i for i, j in arriving]
    widest = max(lengths, default=0)
    ahead = min(len(arriving), max(2, segment // max(widest, 1)))
    whole = K > 1 and per_chunk == 1 and n >= K and ahead == len(arriving)
    return _Plan(
        first=segments(start) if K > 1 else [],
        arriving=arriving,
        lengths=lengths,
        widest=widest,
        adding=len(summed) * per_chunk,
        passed_on=len(arriving) - per_chunk,
        ahead=ahead,
        chunks=[j - i for i, j in pairwise(bounds)] if whole else [],
        start=start % K,
        order=[chunk % K for chunk in order],
    )
