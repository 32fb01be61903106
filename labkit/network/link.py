"""A network link as two numbers: the alpha-beta model (Hockney 1994). And what no all-reduce can beat on it.

A message of ``nbytes`` takes ``alpha + nbytes / beta`` seconds. The bounds are for K workers that each hold a vector, with
one outgoing and one incoming port each, full duplex, the same link between any two. A message carries elements, each summed
over some of the workers; nothing is mixed or compressed, and nobody else adds: no switch, no worker in shared memory.
``least_bytes``: Patarasuk and Yuan 2009; ``least_rounds``: Chan et al. 2007. Lab 10.9 has the arguments.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import amounts, number, plain, workers


@dataclass(frozen=True)
class Link:
    """A link between two workers.

    alpha: seconds per message, finite and >= 0. beta: bytes of the vector per second, > 0, without headers and gaps between
    frames; ``math.inf``: it costs latency only.

    >>> Link(alpha=0.001, beta=1e6).seconds(4000)
    0.005
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        number("alpha", self.alpha, least=0)
        if not self.beta > 0:
            raise ValueError(f"beta must be bytes per second > 0, got {self.beta!r}")

    def seconds(self, nbytes: float) -> float:
        """Seconds one message of ``nbytes`` bytes takes."""
        return self.alpha + nbytes / self.beta

    def __str__(self) -> str:
        return f"alpha = {self.alpha * 1e6:g} µs, beta = {self.beta / 1e9:g} GB/s"


#: A price: something with a ``time(K, nbytes, link)``, such as ``ring``, or such a function by itself.
Form = Any


def evaluate(form: Form, K: int, nbytes: float, link: Link) -> float:
    """Seconds of ``form`` as a float."""
    price: Any = getattr(form, "time", form)
    return float(price(K, nbytes, link))


def least_bytes(K: ArrayLike, nbytes: ArrayLike) -> Any:
    """Bytes that some worker's outgoing port carries in any all-reduce: 2 (K - 1) / K times ``nbytes``; for arrays an array.

    >>> least_bytes(K=8, nbytes=800)
    1400.0
    """
    Ks, size = workers(K), amounts("nbytes", nbytes)
    return plain(2 * (Ks - 1) / Ks * size)


def least_rounds(K: ArrayLike) -> Any:
    """Rounds, one message out and one in per worker in each, that any all-reduce needs: ceil(log2 K).

    >>> least_rounds(K=5)
    3
    """
    _, rounds = np.frexp(workers(K) - 1)  # the bits of K - 1: exact up to 2^53
    return int(rounds) if np.ndim(rounds) == 0 else rounds.astype(np.int64)


def least_time(K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
    """Seconds that any all-reduce takes on ``link``: the larger of ``alpha * least_rounds`` and ``least_bytes / beta``; that
    one must pay the sum of the two does not follow. An empty vector needs no message, and no time.
    """
    latency = np.where(
        amounts("nbytes", nbytes) > 0, least_rounds(K) * link.alpha, 0.0
    )
    return plain(np.maximum(latency, least_bytes(K, nbytes) / link.beta))
