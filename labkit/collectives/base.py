"""What every collective is: an algorithm and its price, in one file, as one object; and which to choose when.

Times are alpha-beta times (Hockney 1994): a message costs ``alpha + nbytes / beta`` and keeps the sender's outgoing and the
receiver's incoming port busy for all of it; all workers start together, adding numbers costs nothing. If vectors are cut
into parts a time is exact where these are equally long. An empty vector has no sum and is not sent.

Symbols: K workers, n elements of ``itemsize`` bytes, ``nbytes`` bytes of the whole vector, alpha and beta of the link.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import amounts, integer, plain, workers
from labkit.collectives.arrays import copy, flat
from labkit.comm.base import Comm
from labkit.network.link import Form, Link, evaluate

Counts = NDArray[np.int64]
#: What counts of a message of so many elements: the elements (``np.positive``), or one if there are any (``np.sign``).
Of = Callable[[Any], Any]


class Collective(ABC):
    """Something that K workers do together, and what it costs."""

    name: ClassVar[str]

    def time(self, K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
        """Seconds for a vector of ``nbytes`` bytes; K and nbytes may be arrays. ValueError unless K >= 1, nbytes >= 0.

        >>> [round(each.time(K=4, nbytes=4e6, link=Link(alpha=1e-4, beta=1.25e8)), 4) for each in (naive, ring)]
        [0.1926, 0.0486]
        """
        rounds, vectors = self._serial(workers(K))
        sent = vectors * amounts("nbytes", nbytes)
        return plain(rounds * link.alpha + sent / link.beta)

    def rounds(self, K: ArrayLike) -> Any:
        """Messages that go one after the other."""
        return self._serial(workers(K))[0]

    def bytes(self, K: int, n: int, itemsize: int) -> Counts:
        """Bytes each rank sends, (K,), for n elements of ``itemsize`` bytes; exact for every K and n."""
        return (
            self._sent(integer("K", K, least=1), integer("n", n), np.positive)
            * itemsize
        )

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
        with comm.collective(self._label(comm, total), x):
            if comm.K > 1 and len(total):
                self._add_up(comm, total)

    @abstractmethod
    def _add_up(self, comm: Comm, total: Any) -> None:
        """The algorithm: replace the vector ``total`` (n,), n > 0, of every one of K > 1 workers by the sum."""

    def _label(self, comm: Comm, total: Any) -> str:
        """What all workers must call alike."""
        return f"{self.name} all-reduce"


def best(K: int, nbytes: float, link: Link, forms: Mapping[str, Form]) -> str:
    """The name of the price in ``forms`` that is least for ``nbytes`` bytes; of equals (to 1e-12), the first.

    >>> best(16, 1e3, Link(1e-4, 1.25e8), ALLREDUCES), best(16, 1e8, Link(1e-4, 1.25e8), ALLREDUCES)
    ('doubling', 'halving')
    """
    seconds = {name: evaluate(form, K, nbytes, link) for name, form in forms.items()}
    least = min(seconds.values())
    return next(name for name, s in seconds.items() if s <= least * (1 + 1e-12))
