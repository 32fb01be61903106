"""What no all-reduce can beat: bytes, rounds and seconds.

The model: K workers that each hold a vector of n bytes, one outgoing and one incoming port each, full duplex, the same
link between any two. A message carries elements, each summed over some of the workers; elements are not mixed with each
other nor compressed, and nobody else adds. (A switch that adds needs half the bytes. A faster link inside a host, or memory
that all can read, makes it another question. Whether codes that mix elements could do with less seems to be open; that
every worker must send and receive n bytes holds for them too, and is less by a factor 2 (K - 1) / K.)
``least_bytes``: Patarasuk and Yuan 2009; ``least_rounds``: Chan et al. 2007, who list both among their lower bounds.

Symbols: K workers, ``nbytes`` bytes of the vector, ``alpha`` and ``beta`` of the link.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import amounts, plain, workers
from labkit.network.link import Link


def least_bytes(K: ArrayLike, nbytes: ArrayLike) -> Any:
    """Bytes that some worker's outgoing port carries in any all-reduce: 2 (K - 1) / K times ``nbytes``.

    Why: follow one element. Before anyone can know its sum, each of the K - 1 others must have sent something; at the
    moment when the first one knows it the other K - 1 don't, and each must still receive. That is 2 (K - 1) messages that
    carry the element, 2 (K - 1) ``nbytes`` bytes for all elements, and of K ports one carries the average or more. By the
    same count some incoming port receives as much.
    K: workers, whole numbers >= 1. nbytes: finite, >= 0. Returns a float for numbers, an array for arrays. Raises ValueError
    for anything else.

    >>> least_bytes(K=8, nbytes=800)
    1400.0
    """
    Ks, size = workers(K), amounts("nbytes", nbytes)
    return plain(2 * (Ks - 1) / Ks * size)


def least_rounds(K: ArrayLike) -> Any:
    """Rounds, one message out and one in per worker in each, that any all-reduce needs: ceil(log2 K).

    Why: everyone's sum contains worker 0's vector. At first one worker knows of it; in a round each who knows can tell
    one more, so their number at most doubles. It takes one round for 2 workers, two for 4, ceil(log2 K) for K.

    >>> least_rounds(K=5)
    3
    """
    # bits of K - 1, which is ceil(log2 K) without rounding
    rounds = np.frexp(workers(K) - 1)[1]
    return int(rounds) if np.ndim(rounds) == 0 else rounds.astype(np.int64)


def least_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds that any all-reduce takes on ``link``: the larger of ``alpha * least_rounds`` and ``least_bytes / beta``.

    Why: without rounds, too, who knows can tell one more every alpha seconds at best, and the busiest port passes beta
    bytes a second at best. Each holds for itself; that an algorithm would have to pay their sum does not follow, so the
    larger it is. An empty vector has no sum, needs no message and takes no time.
    Arguments, result and errors as ``least_bytes``.
    """
    latency = np.where(amounts("nbytes", nbytes) > 0, least_rounds(K) * link.alpha, 0.0)
    return plain(np.maximum(latency, least_bytes(K, nbytes) / link.beta))
