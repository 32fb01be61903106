"""All-reduce along a binomial tree: reduce to rank 0, then broadcast (Chan et al. 2007, section 4).

In round i of the reduction every rank whose lowest set bit is 2^i sends its partial sum to the rank without that bit.
The broadcast runs the same tree backwards. 2 ceil(log2 K) (alpha + n / beta) seconds for n bytes and any K.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from labkit.collectives.arrays import copy, empty, flat
from labkit.comm.base import Comm


def tree_allreduce(comm: Comm, x: Any) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    >>> from labkit import launch
    >>> run = launch(lambda comm: tree_allreduce(comm, np.ones(100)), 4)
    >>> run.messages_sent.tolist()
    [2, 1, 2, 1]
    """
    total = copy(x)
    tree_allreduce_inplace(comm, total)
    return total


def tree_allreduce_inplace(comm: Comm, x: Any) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``."""
    total = flat(x)
    with comm.collective("tree all-reduce", x):
        reduce_among(comm, total, range(comm.K))
        broadcast_among(comm, total, range(comm.K))


def reduce_among(comm: Comm, total: Any, ranks: Sequence[int]) -> None:
    """Replace the vector ``total`` (n,) of the first of ``ranks`` by the sum over them; the others' are used up."""
    parent, children = _family(ranks.index(comm.rank), len(ranks))
    if children and len(total):
        inbox = empty(total, len(total))
        for child in children:
            total += comm.recv(inbox, ranks[child])
    if parent is not None and len(total):
        comm.send(total, ranks[parent])


def broadcast_among(comm: Comm, total: Any, ranks: Sequence[int]) -> None:
    """Replace the vector ``total`` (n,) of all ``ranks`` by that of the first."""
    parent, children = _family(ranks.index(comm.rank), len(ranks))
    if parent is not None and len(total):
        comm.recv(total, ranks[parent])
    for child in reversed(children):
        if len(total):
            comm.send(total, ranks[child])


@lru_cache(maxsize=256)
def _family(i: int, K: int) -> tuple[int | None, tuple[int, ...]]:
    """The parent and the children, nearest first, of node i of a binomial tree of K."""
    children: list[int] = []
    bit = 1
    while bit < K:
        if i & bit:
            return i - bit, tuple(children)
        if i + bit < K:
            children.append(i + bit)
        bit *= 2
    return None, tuple(children)
