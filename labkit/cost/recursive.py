"""Closed forms for recursive doubling and for recursive halving and doubling (Rabenseifner 2004; Thakur et al. 2005).

Both pair workers whose numbers differ in one bit, so they need 2^m of them. Of K = 2^m + e the even ones among the first
2 e ranks hand their vector to the next rank and get the sum from it at the end: two more messages of the whole vector,
which is the fold. Assumptions and symbols as in ``closed_forms``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import Counts, _amount, _plain, _whole, _workers
from labkit.cost.link import Link


def doubling_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of an all-reduce by recursive doubling: log2 K exchanges of the whole vector.

    Exact for every K and any length: where K isn't a power of two, floor(log2 K) exchanges and the fold's two messages.
    Arguments, result and errors as ``naive_time``.
    """
    size = _amount(nbytes, "nbytes")
    return _plain(doubling_rounds(K) * (link.alpha + size / link.beta))


def halving_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds of an all-reduce by recursive halving and doubling: 2 log2 K exchanges of n/2, n/4, ..., n/K bytes.

    Where K isn't a power of two, 2^m is the next smaller one, and the fold adds 2 (alpha + n / beta). Exact for every K
    if 2^m divides the number of elements; otherwise an exchange lasts as long as its longer half, which is less than one
    element more. Arguments, result and errors as ``naive_time``.
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    m, folded = _folds(Ks)
    halves = 2 * (1 - 2.0**-m) * size / link.beta
    return _plain(2 * m * link.alpha + halves + 2 * folded * (link.alpha + size / link.beta))


def doubling_rounds(K: ArrayLike) -> Any:
    """Messages one after the other of recursive doubling: log2 K, or floor(log2 K) + 2 with the fold."""
    m, folded = _folds(_workers(K))
    return m + 2 * folded


def halving_rounds(K: ArrayLike) -> Any:
    """Messages one after the other of recursive halving and doubling: 2 log2 K, or 2 floor(log2 K) + 2 with the fold."""
    m, folded = _folds(_workers(K))
    return 2 * m + 2 * folded


def doubling_messages(K: int) -> Counts:
    """Messages each rank sends, (K,), for a vector that is not empty."""
    K = _whole(K, "K", at_least=1)
    return _unfold(np.full(_size(K), K.bit_length() - 1, dtype=np.int64), K, 1)


def doubling_bytes(K: int, nbytes: int) -> Counts:
    """Bytes each rank sends, (K,), for a vector of ``nbytes`` bytes; exact for every K."""
    return doubling_messages(K) * _whole(nbytes, "nbytes")


def halving_bytes(K: int, n: int, itemsize: int) -> Counts:
    """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K and n.

    Among 2^m workers, in the halving v sends the halves that it gives up, all but its chunk v n // 2^m to
    (v + 1) n // 2^m; in the doubling, what it has put together so far.
    """
    K, n = _whole(K, "K", at_least=1), _whole(n, "n")
    return _unfold(sum(_pieces(K, n), np.zeros(_size(K), dtype=np.int64)), K, n) * _whole(
        itemsize, "itemsize"
    )


def halving_messages(K: int, n: int) -> Counts:
    """Messages each rank sends, (K,), for n elements; what is empty is not sent."""
    K, n = _whole(K, "K", at_least=1), _whole(n, "n")
    full = ((piece > 0).astype(np.int64) for piece in _pieces(K, n))
    return _unfold(sum(full, np.zeros(_size(K), dtype=np.int64)), K, int(n > 0))


def _pieces(K: int, n: int) -> list[Counts]:
    """What each of 2^m workers sends in each exchange: elements, (2^m,) an exchange."""
    size = _size(K)
    v = np.arange(size)
    edges = np.arange(size + 1) * n // size
    pieces = []
    for bit in range(K.bit_length() - 1):
        half = 1 << bit
        kept = v // half * half
        given = kept ^ half
        pieces += [edges[given + half] - edges[given], edges[kept + half] - edges[kept]]
    return pieces


def _size(K: int) -> int:
    """The largest power of two up to K."""
    return 1 << (K.bit_length() - 1)


def _unfold(sent: Counts, K: int, whole: int) -> Counts:
    """From the 2^m workers of ``sent`` to all K ranks: ``whole`` goes once to a deputy and once back."""
    extras = K - len(sent)
    out = np.full(K, whole, dtype=np.int64)
    out[1 : 2 * extras : 2] = sent[:extras] + whole
    out[2 * extras :] = sent[extras:]
    return out


def _folds(Ks: Any) -> tuple[Any, Any]:
    """m, the exponent of the largest power of two up to K, and 1 where K is larger, else 0; for whole numbers >= 1."""
    m = np.frexp(Ks)[1].astype(np.int64) - 1
    m -= (np.int64(1) << m) > Ks  # a large K may have been rounded up to the next power
    return m, ((np.int64(1) << m) != Ks).astype(np.int64)
