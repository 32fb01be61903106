"""Closed forms for the all-reduce in two levels: a tree inside each host, a ring across the hosts, the tree again.

Assumptions and symbols as in ``closed_forms``; a host has a leader, the lowest of its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import (
    Counts,
    _amount,
    _whole,
    _workers,
    ring_bytes,
    ring_messages,
    ring_rounds,
    ring_time,
    tree_messages,
    tree_rounds,
    tree_time,
)
from labkit.cost.link import Link


def hierarchical_time(K: ArrayLike, nbytes: ArrayLike, link: Link, inside: Link, per_host: ArrayLike) -> Any:
    """Seconds of an all-reduce of K workers on hosts of ``per_host`` (the last one may have fewer).

    link: between hosts. inside: between workers of one host. per_host: whole numbers >= 1.
    Exact if the number of hosts divides the number of elements, as ``ring_time`` is. One host takes ``tree_time`` of the
    link inside, one worker a host ``ring_time``. Other arguments, result and errors as ``naive_time``.
    """
    Ks, each = _workers(K), _each(per_host)
    _amount(nbytes, "nbytes")
    return tree_time(np.minimum(Ks, each), nbytes, inside) + ring_time(-(-Ks // each), nbytes, link)


def hierarchical_rounds(K: ArrayLike, per_host: ArrayLike) -> Any:
    """Messages one after the other: 2 ceil(log2 L) inside hosts of L workers, 2 (H - 1) among the H hosts."""
    Ks, each = _workers(K), _each(per_host)
    return tree_rounds(np.minimum(Ks, each)) + ring_rounds(-(-Ks // each))


def hierarchical_bytes(hosts: Sequence[int], n: int, itemsize: int) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for all hosts and n.

    hosts: (K,) the host of each rank, as ``comm.hosts``.
    """
    return _both(
        hosts,
        lambda L: tree_messages(L) * _whole(n, "n") * _whole(itemsize, "itemsize"),
        lambda H: ring_bytes(H, n, itemsize),
    )


def hierarchical_messages(hosts: Sequence[int], n: int) -> Counts:
    """Messages each rank sends, (K,), for n elements on ``hosts``; what is empty is not sent."""
    return _both(
        hosts,
        lambda L: tree_messages(L) * (_whole(n, "n") > 0),
        lambda H: ring_messages(H, n),
    )


def _both(hosts: Sequence[int], inside: Any, across: Any) -> Counts:
    """What each rank sends, from what each of L workers of one host sends inside and each of H leaders across."""
    where = np.asarray(hosts)
    if where.ndim != 1 or not len(where):
        raise ValueError(f"hosts must name the host of each rank, at least one, got {hosts!r}")
    _, leaders = np.unique(where, return_index=True)
    sent = np.zeros(len(where), dtype=np.int64)
    for leader in leaders:
        members = np.flatnonzero(where == where[leader])
        sent[members] += inside(len(members))
    sent[np.sort(leaders)] += across(len(leaders))
    return sent


def _each(per_host: ArrayLike) -> Any:
    given = np.asarray(per_host)
    if given.dtype.kind not in "iu" or np.any(given < 1):
        raise ValueError(
            f"per_host must be a whole number of workers >= 1 (an int or an array of ints), got {per_host!r}"
        )
    return given.astype(np.int64)
