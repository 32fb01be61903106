"""Closed forms for the all-reduce on a two-dimensional torus (Ying et al. 2018), and its shape.

Reduce-scatter along the rows, all-reduce of the chunk along the columns, all-gather along the rows, each a ring.
Assumptions and symbols as in ``closed_forms``; K = rows x ``cols``.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import Counts, _amount, _plain, _whole, _workers, ring_bytes, ring_messages
from labkit.cost.link import Link


def torus_cols(K: int, cols: int | None = None) -> int:
    """The number of columns of a torus of K workers: ``cols`` if it divides K; None: that of the most square torus.

    At least as many columns as rows; K for a prime K, which makes a ring of it. Raises ValueError for other numbers.
    """
    K = _whole(K, "K", at_least=1)
    if cols is None:
        return K // next(rows for rows in range(isqrt(K), 0, -1) if K % rows == 0)
    if _whole(cols, "cols", at_least=1) and K % cols:
        raise ValueError(f"cols must divide the number of workers, K = {K}, got {cols!r}")
    return int(cols)


def torus_time(K: ArrayLike, nbytes: ArrayLike, link: Link, cols: int | None = None) -> Any:
    """Seconds of an all-reduce on a torus: 2 (cols - 1) messages of n / cols bytes and 2 (rows - 1) of n / K.

    Exact if K divides the number of elements; otherwise a round lasts as long as its longest chunk, as in ``ring_time``.
    cols: as in ``torus_cols``. Other arguments, result and errors as ``naive_time``.
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    across = _cols(Ks, cols)
    rows = Ks // across
    along_rows = 2 * (across - 1) * (link.alpha + size / (across * link.beta))
    return _plain(along_rows + 2 * (rows - 1) * (link.alpha + size / (Ks * link.beta)))


def torus_rounds(K: ArrayLike, cols: int | None = None) -> Any:
    """Messages one after the other: 2 (rows + cols - 2)."""
    Ks = _workers(K)
    across = _cols(Ks, cols)
    return 2 * (Ks // across + across - 2)


def torus_bytes(K: int, n: int, itemsize: int, cols: int | None = None) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K and n.

    In column c: along the row all chunks but c, then all but c + 1, and along the column ``ring_bytes`` of chunk c.
    """
    size = _chunks(K, n, cols)
    along_row = (2 * size.sum() - size - np.roll(size, -1)) * _whole(itemsize, "itemsize")
    along_column = np.stack([ring_bytes(K // len(size), int(part), itemsize) for part in size], axis=1)
    return (along_row + along_column).ravel()


def torus_messages(K: int, n: int, cols: int | None = None) -> Counts:
    """Messages each rank sends, (K,), for n elements; what is empty is not sent."""
    size = _chunks(K, n, cols)
    full = (size > 0).astype(np.int64)
    along_row = 2 * full.sum() - full - np.roll(full, -1)
    along_column = np.stack([ring_messages(K // len(size), int(part)) for part in size], axis=1)
    return (along_row + along_column).ravel()


def _chunks(K: int, n: int, cols: int | None) -> Counts:
    across = torus_cols(K, cols)
    return np.diff(np.arange(across + 1) * _whole(n, "n") // across)


def _cols(Ks: Any, cols: int | None) -> Any:
    return np.vectorize(lambda K: torus_cols(int(K), cols), otypes=[np.int64])(Ks)
