"""All-reduce by recursive doubling, and by recursive halving and doubling (Rabenseifner 2004; Thakur et al. 2005).

Both pair workers whose numbers differ in one bit. Doubling: in round i every worker exchanges the whole sum it has so far
with the worker whose number differs in bit i, so that sums of 2, 4, 8, ... vectors arise everywhere at once:
log2 K (alpha + n / beta) seconds for n bytes. Nothing needs fewer rounds, but in each the whole vector is sent.
Halving: in each round every worker exchanges half of what it still has with a partner, first the farthest, and goes on with
the sum of the other half, down to one chunk; then the same rounds backwards, with twice as much each:
2 log2 K alpha + 2 (K-1)/K n / beta seconds, the ring's bytes in the tree's rounds.

Pairing needs 2^m workers. Of K = 2^m + e the even ones among the first 2 e hand their vector to the next rank, their proxy,
and get the result from it at the end: two more messages of the whole vector, which is the fold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labkit.collectives.arrays import chunk_bounds, empty
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm, is_torch


@dataclass(frozen=True)
class _Doubling(AllReduce):
    """Both ends of an exchange add the same two sums in the same order.

    >>> from labkit import launch
    >>> launch(lambda comm: doubling.allreduce(comm, np.ones(100)), 8).messages_sent.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3]
    """

    name: ClassVar[str] = "doubling"

    def _add_up(self, comm: Comm, total: Any) -> None:
        """Takes up to three vectors of memory besides.

        A sum is written where the other's vector has arrived, so that this worker's own can still be on its way out, and
        two receives are always posted ahead.
        """
        me = _place(comm.rank, comm.K)
        if me.proxy is not None:
            _leave_to(comm, total, me.proxy)
            return
        sources = me.peers if me.extra is None else (me.extra, *me.peers)
        last = len(sources) - 1
        inbox = [empty(total, len(total)) for _ in sources[:3]]
        arriving = [comm.irecv(inbox[i], source) for i, source in enumerate(sources[:2])]
        add = _adder(total)
        have = total
        for i, source in enumerate(sources):
            leaving = comm.isend(have, source) if source != me.extra else None
            theirs = arriving[i].wait()
            if leaving is not None:
                leaving.wait()
            into = total if i == last else theirs
            if comm.rank < source:
                add(have, theirs, out=into)
            else:
                add(theirs, have, out=into)
            have = into
            if i + 2 <= last:
                arriving.append(comm.irecv(inbox[(i + 2) % 3], sources[i + 2]))
        if me.extra is not None:
            comm.send(total, me.extra)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        m, folded = _folds(K)
        return m + 2 * folded, m + 2 * folded

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        m = K.bit_length() - 1
        return _unfold(np.full(1 << m, m), K, 1) * of(n)


@dataclass(frozen=True)
class _Halving(AllReduce):
    """Each element is added up in one place and then copied.

    >>> from labkit import launch
    >>> launch(lambda comm: halving.allreduce(comm, np.ones(100)), 4).bytes_sent.tolist()
    [1200, 1200, 1200, 1200]
    """

    name: ClassVar[str] = "halving"

    def _add_up(self, comm: Comm, total: Any) -> None:
        """Takes up to one vector of memory besides.

        Among a power of two all receives are posted ahead, and finished pieces arrive where they belong. That is safe: a
        partner can't send the finished piece before it has got this worker's part of it. Behind a fold some workers are a
        message late; then receives are posted a round at a time, so that an early partner doesn't keep a late one from the
        port.
        """
        me = _place(comm.rank, comm.K)
        if me.proxy is not None:
            _leave_to(comm, total, me.proxy)
            return
        rounds = _exchanges(len(total), comm.rank, comm.K)
        waiting = max((r.inbox.stop for r in rounds if r.inbox is not None), default=0)
        inbox = empty(total, max(waiting, len(total) if me.extra is not None else 0))
        if me.extra is not None:
            total += comm.recv(inbox[: len(total)], me.extra)

        def expect(r: _Exchange) -> Any:
            into = inbox[r.inbox] if r.inbox is not None else total[r.arrives]
            return comm.irecv(into, r.peer) if len(into) else None

        ahead = len(rounds) if 1 << len(me.peers) == comm.K else 1
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

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        m, folded = _folds(K)
        return 2 * m + 2 * folded, 2 * (1 - 2.0**-m) + 2 * folded

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        working = [rank for rank in range(K) if _place(rank, K).proxy is None]
        leaves = [[r.leaves.stop - r.leaves.start for r in _exchanges(n, rank, K)] for rank in working]
        return _unfold(of(np.array(leaves, dtype=np.int64)).sum(axis=1), K, of(n))


class _Place(NamedTuple):
    """One worker's place among the 2^m that remain.

    proxy: the rank that this one hands its vector to, if it has one; extra: the rank whose vector it takes over.
    number: its number among the 2^m that remain (-1 if it leaves its part to a proxy).
    peers: (m,) the ranks whose number differs in bit 0, 1, ...
    """

    proxy: int | None
    extra: int | None
    number: int
    peers: tuple[int, ...]


@lru_cache(maxsize=256)
def _place(rank: int, K: int) -> _Place:
    """The place of ``rank`` of K workers."""
    m = K.bit_length() - 1
    extras = K - (1 << m)
    if rank < 2 * extras and rank % 2 == 0:
        return _Place(rank + 1, None, -1, ())
    number = rank // 2 if rank < 2 * extras else rank - extras
    others = [number ^ (1 << bit) for bit in range(m)]
    peers = tuple(2 * v + 1 if v < extras else v + extras for v in others)
    return _Place(None, rank - 1 if rank < 2 * extras else None, number, peers)


def _leave_to(comm: Comm, total: Any, proxy: int) -> None:
    """Hand the vector ``total`` to the proxy, and get the result in its place."""
    result = comm.irecv(total, proxy)
    comm.send(total, proxy)
    result.wait()


def _adder(x: Any) -> Callable[..., Any]:
    """``add(a, b, out=c)`` for vectors of the kind of ``x``.

    Two workers that both add a and b must do it in the same order: a + b and b + a are the same number, but of two NaN
    the bits of the first survive.
    """
    if not is_torch(x):
        return np.add
    import torch

    return torch.add


class _Exchange(NamedTuple):
    """An exchange with ``peer``: these elements of the vector leave and those arrive.

    In the halving they wait at ``inbox`` to be added to this worker's own; in the doubling (None) they replace them.
    """

    peer: int
    leaves: slice
    arrives: slice
    inbox: slice | None


@lru_cache(maxsize=256)
def _exchanges(n: int, rank: int, K: int) -> list[_Exchange]:
    """The rounds of the halving, farthest partner first, then those of the doubling, which are the same backwards."""
    me = _place(rank, K)
    bounds = chunk_bounds(n, 1 << len(me.peers))
    halving, low, used = [], 0, 0
    for bit in reversed(range(len(me.peers))):
        half = 1 << bit
        lower = slice(bounds[low], bounds[low + half])
        upper = slice(bounds[low + half], bounds[low + 2 * half])
        keep, give = (upper, lower) if me.number & half else (lower, upper)
        low += me.number & half
        end = used + keep.stop - keep.start
        halving.append(_Exchange(me.peers[bit], give, keep, slice(used, end)))
        used = end
    return halving + [_Exchange(r.peer, r.arrives, r.leaves, None) for r in reversed(halving)]


def _folds(K: Counts) -> tuple[Any, Any]:
    """m, the exponent of the largest power of two up to K, and 1 where K is larger, else 0; for whole numbers >= 1."""
    m = np.frexp(K)[1].astype(np.int64) - 1
    m -= (np.int64(1) << m) > K  # a large K may have been rounded up to the next power
    return m, ((np.int64(1) << m) != K).astype(np.int64)


def _unfold(sent: Counts, K: int, whole: Any) -> Counts:
    """From the 2^m workers of ``sent`` to all K ranks: ``whole`` goes once to a proxy and once back."""
    extras = K - len(sent)
    out = np.full(K, whole, dtype=np.int64)
    out[1 : 2 * extras : 2] = sent[:extras] + whole
    out[2 * extras :] = sent[extras:]
    return out


#: Exchange whole sums with partners at distance 1, 2, 4, ...: the fewest rounds.
doubling = _Doubling()
#: Exchange halves, quarters, ..., and put them together again: the ring's bytes in the tree's rounds.
halving = _Halving()
