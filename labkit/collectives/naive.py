"""All-reduce by a server: everyone sends to rank 0, which adds and sends the sum back.

With K workers and n bytes the server's port carries (K-1) n bytes in and as many out, one message after another:
2 (K-1) (alpha + n / beta) seconds.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import copy, empty, flat
from labkit.comm.base import Comm


def naive_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    Added in order of rank, so every rank gets the same bits.

    >>> from labkit import launch
    >>> run = launch(lambda comm: naive_allreduce(comm, np.ones(100)), 4)
    >>> run.bytes_sent.tolist()
    [2400, 800, 800, 800]
    """
    total = copy(x)
    naive_allreduce_inplace(comm, total)
    return total


def naive_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``."""
    total = flat(x)
    with comm.collective("naive all-reduce", x):
        if comm.rank == 0:
            inbox = empty(total, len(total))
            for source in range(1, comm.K):
                total += comm.recv(inbox, source)
            for to in range(1, comm.K):
                comm.send(total, to)
        else:
            comm.send(total, 0)
            comm.recv(total, 0)
