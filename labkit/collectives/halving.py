"""All-reduce by recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005).

Reduce-scatter: in each round every worker exchanges half of what it still has with a partner, first the farthest, and
goes on with the sum of the other half, down to one chunk. All-gather: the same rounds backwards, with twice as much each.
2 log2 K alpha + 2 (K-1)/K n / beta seconds for n bytes where K is a power of two that divides the number of elements: the
ring's bytes in the tree's rounds. Otherwise ``folding`` makes a power of two of K, for 2 (alpha + n / beta) more.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

from labkit.collectives.arrays import chunk_bounds, copy, empty, flat
from labkit.collectives.folding import seat, stand_by
from labkit.comm.base import Comm


def halving_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    Each element is added up in one place and then copied, so every rank gets the same bits.

    >>> from labkit import launch
    >>> run = launch(lambda comm: halving_allreduce(comm, np.ones(100)), 4)
    >>> run.bytes_sent.tolist()
    [1200, 1200, 1200, 1200]
    """
    total = copy(x)
    halving_allreduce_inplace(comm, total)
    return total


def halving_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``. Takes up to one vector of memory besides.

    Among a power of two all receives are posted ahead, and finished pieces arrive where they belong. That is safe: a partner
    can't send the finished piece before it has got this worker's part of it. Behind a fold some workers are a message late;
    then receives are posted a round at a time, so that an early partner doesn't keep a late one from the port.
    """
    total = flat(x)
    with comm.collective("halving all-reduce", x):
        me = seat(comm.rank, comm.K)
        if not len(total):
            return
        if me.deputy is not None:
            stand_by(comm, total, me.deputy)
            return
        rounds = _rounds(len(total), comm.rank, comm.K)
        waiting = max((r.inbox.stop for r in rounds if r.inbox is not None), default=0)
        inbox = empty(total, max(waiting, len(total) if me.extra is not None else 0))
        if me.extra is not None:
            total += comm.recv(inbox[: len(total)], me.extra)

        def expect(r: _Round) -> Any:
            into = inbox[r.inbox] if r.inbox is not None else total[r.arrives]
            return comm.irecv(into, r.peer) if len(into) else None

        ahead = len(rounds) if me.size == comm.K else 1
        expected = deque(expect(r) for r in rounds[:ahead])
        leaving = []
        for i, r in enumerate(rounds):
            if r.leaves.stop > r.leaves.start:
                leaving.append(comm.isend(total[r.leaves], r.peer))
            request = expected.popleft()
            if request is not None:
                arrived = request.wait()
                if r.inbox is not None:
                    part = total[r.arrives]
                    part += arrived
            if i + ahead < len(rounds):
                expected.append(expect(rounds[i + ahead]))
        for request in leaving:
            request.wait()
        if me.extra is not None:
            comm.send(total, me.extra)


class _Round(NamedTuple):
    """An exchange with ``peer``: these elements of the vector leave and those arrive.

    In the halving they wait at ``inbox`` to be added to this worker's own; in the doubling (None) they replace them.
    """

    peer: int
    leaves: slice
    arrives: slice
    inbox: slice | None


@lru_cache(maxsize=256)
def _rounds(n: int, rank: int, K: int) -> list[_Round]:
    """The rounds of the halving, farthest partner first, then those of the doubling, which are the same backwards."""
    me = seat(rank, K)
    bounds = chunk_bounds(n, me.size)
    halving, low, used = [], 0, 0
    for bit in reversed(range(len(me.peers))):
        half = 1 << bit
        lower = slice(bounds[low], bounds[low + half])
        upper = slice(bounds[low + half], bounds[low + 2 * half])
        keep, give = (upper, lower) if me.number & half else (lower, upper)
        low += me.number & half
        end = used + keep.stop - keep.start
        halving.append(_Round(me.peers[bit], give, keep, slice(used, end)))
        used = end
    return halving + [_Round(r.peer, r.arrives, r.leaves, None) for r in reversed(halving)]
