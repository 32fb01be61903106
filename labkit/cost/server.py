"""Closed forms for the all-reduce by S parameter servers (Li et al. 2014), which are ranks 0 to S - 1 and workers too.

Everyone pushes each of S parts to its server, which adds and answers everyone. Assumptions and symbols as in
``closed_forms``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import Counts, _amount, _plain, _whole, _workers, naive_rounds
from labkit.cost.link import Link


def server_time(K: ArrayLike, nbytes: ArrayLike, link: Link, servers: ArrayLike = 1) -> Any:
    """Seconds of an all-reduce by servers: a server's port takes in K - 1 parts of n / S bytes, then sends as many.

    Exact if S divides the number of elements; otherwise the longest part counts, which is less than one element more.
    servers: S, whole numbers from 1 to K. Other arguments, result and errors as ``naive_time``.
    """
    Ks, size, S = _workers(K), _amount(nbytes, "nbytes"), np.asarray(servers)
    if S.dtype.kind not in "iu" or np.any(S < 1) or np.any(Ks < S):
        raise ValueError(f"servers must be a whole number from 1 to K, got {servers!r}")
    return _plain(2 * (Ks - 1) * (link.alpha + size / (S * link.beta)))


#: Messages one after the other: 2 (K - 1), however many servers there are.
server_rounds = naive_rounds


def server_bytes(K: int, n: int, itemsize: int, servers: int = 1) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K, n and S.

    Part s is the elements from s n // S to (s + 1) n // S. Rank r pushes all parts but its own, if it has one, and sends
    that to the K - 1 others.
    """
    size = _parts(K, n, servers)
    return (size.sum() + (K - 2) * size) * _whole(itemsize, "itemsize")


def server_messages(K: int, n: int, servers: int = 1) -> Counts:
    """Messages each rank sends, (K,), for n elements; empty parts are not sent."""
    full = (_parts(K, n, servers) > 0).astype(np.int64)
    return full.sum() + (K - 2) * full


def _parts(K: int, n: int, servers: int) -> Counts:
    """Elements of each rank's part, (K,)."""
    K, S = _whole(K, "K", at_least=1), _whole(servers, "servers", at_least=1)
    if S > K:
        raise ValueError(f"servers must be a whole number from 1 to K = {K}, got {servers!r}")
    size = np.zeros(K, dtype=np.int64)
    size[:S] = np.diff(np.arange(S + 1) * _whole(n, "n") // S)
    return size
