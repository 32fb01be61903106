"""All-reduce along a binomial tree: reduce to rank 0, then broadcast (Chan et al. 2007, section 4).

In round i of the reduction every rank whose lowest set bit is 2^i sends its partial sum to the rank without that bit.
The broadcast runs the same tree backwards. 2 ceil(log2 K) (alpha + n / beta) seconds for n bytes and any K.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import copy, empty, flat
from labkit.comm.base import Comm


def tree_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array."""
    total = copy(x)
    tree_allreduce_inplace(comm, total)
    return total


def tree_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``."""
    total = flat(x)
    with comm.collective("tree all-reduce", x):
        inbox = empty(total, len(total))
        parent, children = None, []
        bit = 1
        while bit < comm.K:
            if comm.rank & bit:
                parent = comm.rank - bit
                break
            if comm.rank + bit < comm.K:
                children.append(comm.rank + bit)
            bit *= 2
        for child in children:
            total += comm.recv(inbox, child)
        if parent is not None:
            comm.send(total, parent)
            comm.recv(total, parent)
        for child in reversed(children):
            comm.send(total, child)
