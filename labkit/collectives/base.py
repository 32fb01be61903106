"""What every collective is: an algorithm and its price, in one file, as one object.

``ring.allreduce(comm, x)`` adds up; ``ring.time(K, nbytes, link)`` says how long that takes, ``ring.rounds(K)``,
``ring.bytes(K, n, itemsize)`` and ``ring.messages(K, n)`` what it sends. The same names for all of them.

Times are alpha-beta times (Hockney 1994): a message costs ``alpha + nbytes / beta`` and keeps the sender's outgoing and the
receiver's incoming port busy for all of it; ports are full duplex, all workers start together, adding numbers costs nothing.
So a time is what one counts one after the other: rounds times alpha, and vectors' worth of bytes over beta. Where the vector
is cut into parts, that is exact if they are equally long; otherwise a round lasts as long as its longest part, which is less
than one element more. An empty vector has no sum and is not sent.

Symbols: K workers, n elements of ``itemsize`` bytes, ``nbytes`` bytes of the whole vector, alpha and beta of the link.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import amounts, integer, plain, workers
from labkit.collectives.arrays import copy, flat
from labkit.comm.base import Comm
from labkit.network.link import Link

Counts = NDArray[np.int64]
#: What counts of a message of so many elements: the elements (``np.positive``), or one if there are any (``np.sign``).
Of = Callable[[Any], Any]


class Collective(ABC):
    """Something that K workers do together, and what it costs."""

    name: ClassVar[str]

    def __str__(self) -> str:
        return self.name

    def time(self, K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
        """Seconds for a vector of ``nbytes`` bytes.

        K: workers, whole numbers >= 1. nbytes: finite, >= 0. They broadcast against each other.
        Returns a float for numbers, an array for arrays. Raises ValueError for anything else.

        >>> [round(each.time(K=4, nbytes=4e6, link=Link(alpha=1e-4, beta=1.25e8)), 4) for each in (naive, ring)]
        [0.1926, 0.0486]
        """
        Ks, size = workers(K), amounts("nbytes", nbytes)
        rounds, vectors = self._serial(Ks)
        return plain(rounds * link.alpha + vectors * size / link.beta)

    def rounds(self, K: ArrayLike) -> Any:
        """Messages that go one after the other: the time on a link with alpha = 1 s and no bytes to pay.

        >>> [int(each.rounds(8)) for each in (naive, tree, ring, doubling)]
        [14, 6, 14, 3]
        """
        return self._serial(workers(K))[0]

    def bytes(self, K: int, n: int, itemsize: int) -> Counts:
        """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K and n.

        >>> ring.bytes(K=4, n=1000, itemsize=4)
        array([6000, 6000, 6000, 6000])
        """
        K, n = integer("K", K, least=1), integer("n", n)
        return self._sent(K, n, np.positive) * integer("itemsize", itemsize)

    def messages(self, K: int, n: int) -> Counts:
        """Messages each rank sends, (K,), for n elements; what is empty is not sent."""
        return self._sent(integer("K", K, least=1), integer("n", n), np.sign)

    @abstractmethod
    def _serial(self, K: Counts) -> tuple[Any, Any]:
        """What goes one after the other: messages, and vectors' worth of bytes."""

    @abstractmethod
    def _sent(self, K: int, n: int, of: Of) -> Counts:
        """The sum of ``of`` the elements of each message that a rank sends, (K,)."""


class AllReduce(Collective):
    """Every worker ends with the sum of everyone's vector, and with the same bits."""

    def allreduce(self, comm: Comm, x: Any) -> Any:
        """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array."""
        total = copy(x)
        self.allreduce_inplace(comm, total)
        return total

    def allreduce_inplace(self, comm: Comm, x: Any) -> None:
        """Replace ``x`` (contiguous) by the sum of all workers' ``x``."""
        total = flat(x)
        with comm.collective(self._label(comm, x), x):
            if comm.K > 1 and len(total):
                self._add_up(comm, total)

    @abstractmethod
    def _add_up(self, comm: Comm, total: Any) -> None:
        """The algorithm: replace the vector ``total`` (n,), n > 0, of every one of K > 1 workers by the sum."""

    def _label(self, comm: Comm, x: Any) -> str:
        return f"{self.name} all-reduce"
