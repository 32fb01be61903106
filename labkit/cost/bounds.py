"""What no all-reduce can beat: bytes, rounds and seconds; and how far a given one is from that.

The model: K workers that each hold a vector of n bytes, one outgoing and one incoming port each, full duplex, the same
link between any two. A message carries elements, each summed over some of the workers; elements are not mixed with each
other nor compressed, and nobody else adds. (A switch that adds needs half the bytes. A faster link inside a host, or memory
that all can read, makes it another question. Whether codes that mix elements could do with less seems to be open; that
every worker must send and receive n bytes holds for them too, and is less by a factor 2 (K - 1) / K.)
``least_bytes``: Patarasuk and Yuan 2009; ``least_rounds``: Chan et al. 2007, who list both among their lower bounds.

Symbols: K workers, ``nbytes`` bytes of the vector, ``alpha`` and ``beta`` of the link.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import _amount, _plain, _workers
from labkit.cost.linear import Form, name, terms
from labkit.cost.link import Link


class Distance(NamedTuple):
    """How many times the bound an algorithm needs: 1 is optimal, ``math.inf`` means that nothing at all was needed."""

    latency: float
    bandwidth: float
    time: float


def least_bytes(K: ArrayLike, nbytes: ArrayLike) -> Any:
    """Bytes that some worker's outgoing port carries in any all-reduce: 2 (K - 1) / K times ``nbytes``.

    Why: follow one element. Before anyone can know its sum, each of the K - 1 others must have sent something; at the
    moment when the first one knows it the other K - 1 don't, and each must still receive. That is 2 (K - 1) messages that
    carry the element, 2 (K - 1) ``nbytes`` bytes for all elements, and of K ports one carries the average or more. By the
    same count some incoming port receives as much.
    Arguments, result and errors as ``naive_time``.

    >>> least_bytes(K=8, nbytes=800)
    1400.0
    """
    Ks, size = _workers(K), _amount(nbytes, "nbytes")
    return _plain(2 * (Ks - 1) / Ks * size)


def least_rounds(K: ArrayLike) -> Any:
    """Rounds, one message out and one in per worker in each, that any all-reduce needs: ceil(log2 K).

    Why: everyone's sum contains worker 0's vector. At first one worker knows of it; in a round each who knows can tell
    one more, so their number at most doubles. It takes one round for 2 workers, two for 4, ceil(log2 K) for K.

    >>> least_rounds(K=5)
    3
    """
    rounds = np.frexp(_workers(K) - 1)[1]  # bits of K - 1, which is ceil(log2 K) without rounding
    return int(rounds) if np.ndim(rounds) == 0 else rounds.astype(np.int64)


def least_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds that any all-reduce takes on ``link``: the larger of ``alpha * least_rounds`` and ``least_bytes / beta``.

    Why: without rounds, too, who knows can tell one more every alpha seconds at best, and the busiest port passes beta
    bytes a second at best. Each holds for itself; that an algorithm would have to pay their sum does not follow, so the
    larger it is. An empty vector has no sum, needs no message and takes no time.
    Arguments, result and errors as ``naive_time``.
    """
    latency = np.where(_amount(nbytes, "nbytes") > 0, least_rounds(K) * link.alpha, 0.0)
    return _plain(np.maximum(latency, least_bytes(K, nbytes) / link.beta))


def distance(form: Form, K: int, nbytes: float, link: Link) -> Distance:
    """How far the closed form ``form`` is from the bounds, for K workers and a vector of ``nbytes`` bytes.

    latency: its serial messages over ``least_rounds``; bandwidth: its serial bytes over ``least_bytes``; neither
    depends on ``link``. time: its seconds over ``least_time``. Where nothing is needed (K = 1, an empty vector, a link
    that costs nothing) an algorithm that takes nothing is at distance 1, any other at ``math.inf``.
    ValueError for a form that pays for a second link: that is not the network of these bounds.
    """
    counted = terms(form, K, nbytes)
    if counted.seconds > 0:
        raise ValueError(
            f"form must be all-reduce on one kind of link, but {name(form)} spends {counted.seconds:g} s elsewhere"
        )
    return Distance(
        latency=ratio(counted.messages, least_rounds(K)),
        bandwidth=ratio(counted.nbytes, least_bytes(K, nbytes)),
        time=ratio(float(form(K, nbytes, link)), least_time(K, nbytes, link)),
    )


def ratio(needed: float, bound: float) -> float:
    """``needed / bound``; 1 where both are 0, ``math.inf`` where only the bound is."""
    if bound > 0:
        return needed / bound
    return 1.0 if needed == 0 else math.inf
