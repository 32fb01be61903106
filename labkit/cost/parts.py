"""Closed forms for the halves of the ring all-reduce, reduce-scatter and all-gather, and for the broadcast down a tree.

Chunk i is the elements from i n // K to (i + 1) n // K and belongs to rank i. Assumptions and symbols as in
``closed_forms``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import (
    Counts,
    _chunks,
    _plain,
    _whole,
    ring_rounds,
    ring_time,
    tree_rounds,
    tree_time,
)
from labkit.cost.link import Link


def reduce_scatter_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a ring reduce-scatter of a vector of ``nbytes`` bytes: (K - 1) (alpha + n / (K beta)).

    Exact where ``ring_time`` is. Arguments, result and errors as ``naive_time``.
    """
    return _plain(ring_time(K, nbytes, link) / 2)


def all_gather_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a ring all-gather into a vector of ``nbytes`` bytes: the same as ``reduce_scatter_time``."""
    return reduce_scatter_time(K, nbytes, link)


def broadcast_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of a broadcast down a binomial tree: ceil(log2 K) (alpha + n / beta), exact for every K.

    Arguments, result and errors as ``naive_time``.
    """
    return _plain(tree_time(K, nbytes, link) / 2)


def reduce_scatter_rounds(K: ArrayLike) -> Any:
    """Messages one after the other: K - 1."""
    return ring_rounds(K) // 2


#: Messages one after the other: K - 1.
all_gather_rounds = reduce_scatter_rounds


def broadcast_rounds(K: ArrayLike) -> Any:
    """Messages one after the other: ceil(log2 K)."""
    return tree_rounds(K) // 2


def reduce_scatter_bytes(K: int, n: int, itemsize: int) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes: all chunks but its own; exact for every K and n."""
    size = _chunks(K, n)
    return (size.sum() - size) * _whole(itemsize, "itemsize")


def reduce_scatter_messages(K: int, n: int) -> Counts:
    """Messages each rank sends, (K,), for n elements: K - 1, less the empty chunks."""
    full = (_chunks(K, n) > 0).astype(np.int64)
    return full.sum() - full


def all_gather_bytes(K: int, n: int, itemsize: int) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes: all chunks but its right neighbour's."""
    size = _chunks(K, n)
    return (size.sum() - np.roll(size, -1)) * _whole(itemsize, "itemsize")


def all_gather_messages(K: int, n: int) -> Counts:
    """Messages each rank sends, (K,), for n elements: K - 1, less the empty chunks."""
    full = (_chunks(K, n) > 0).astype(np.int64)
    return full.sum() - np.roll(full, -1)


def broadcast_messages(K: int, root: int = 0) -> Counts:
    """Messages each rank sends, (K,), for a vector that is not empty: one to each of its children in the tree."""
    K, root = _whole(K, "K", at_least=1), _whole(root, "root")
    if root >= K:
        raise ValueError(f"root must be a rank from 0 to {K - 1}, got {root!r}")
    node = np.arange(1, K)
    sent = np.bincount(node & (node - 1), minlength=K)  # a node's parent lacks its lowest bit
    return np.roll(sent.astype(np.int64), root)


def broadcast_bytes(K: int, nbytes: int, root: int = 0) -> Counts:
    """Bytes each rank sends, (K,), for a vector of ``nbytes`` bytes."""
    return broadcast_messages(K, root) * _whole(nbytes, "nbytes")
