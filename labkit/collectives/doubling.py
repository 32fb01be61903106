"""All-reduce by recursive doubling: the fewest rounds (Thakur, Rabenseifner and Gropp 2005).

In round i every worker exchanges the whole sum it has so far with the worker whose number differs in bit i, so that sums
of 2, 4, 8, ... vectors arise everywhere at once. log2 K (alpha + n / beta) seconds for n bytes where K is a power of two;
otherwise ``folding`` makes one of it, for 2 (alpha + n / beta) more. Nothing needs fewer rounds; but every worker
sends the whole vector in each, so this is for short vectors.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import adder, copy, empty, flat
from labkit.collectives.folding import seat, stand_by
from labkit.comm.base import Comm


def doubling_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    Both ends of an exchange add the same two sums in the same order, so every rank gets the same bits.

    >>> from labkit import launch
    >>> run = launch(lambda comm: doubling_allreduce(comm, np.ones(100)), 8)
    >>> run.messages_sent.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3]
    """
    total = copy(x)
    doubling_allreduce_inplace(comm, total)
    return total


def doubling_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``. Takes up to three vectors of memory besides.

    A sum is written where the other's vector has arrived, so that this worker's own can still be on its way out, and
    two receives are always posted ahead.
    """
    total = flat(x)
    with comm.collective("doubling all-reduce", x):
        me = seat(comm.rank, comm.K)
        if not len(total):
            return
        if me.deputy is not None:
            stand_by(comm, total, me.deputy)
            return
        sources = me.peers if me.extra is None else (me.extra, *me.peers)
        last = len(sources) - 1
        inbox = [empty(total, len(total)) for _ in sources[:3]]
        arriving = [comm.irecv(inbox[i], source) for i, source in enumerate(sources[:2])]
        add = adder(total)
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
