"""All-reduce by recursive halving and doubling (Rabenseifner 2004), in the form for any K (Träff 2024).

The vector is cut into K chunks, and the workers stand in a circle. In each round a worker that has q chunks left keeps the
first h = ceil(q / 2) of them, sends the others to the worker h places on, and adds what comes from h places back. When one
chunk is left, it is finished. The same rounds backwards then hand the finished chunks to everybody.
2 ceil(log2 K) alpha + 2 (K-1)/K n / beta seconds for n bytes: the ring's bytes in the tree's rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import empty, exchange
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm
from labkit.network.bounds import least_rounds


@dataclass(frozen=True)
class _Halving(AllReduce):
    """Each element is added up in one place and then copied.

    >>> from labkit import launch
    >>> launch(lambda comm: halving.allreduce(comm, np.ones(100)), 4).bytes_sent.tolist()
    [1200, 1200, 1200, 1200]
    """

    name: ClassVar[str] = "halving"

    def _add_up(self, comm: Comm, total: Any) -> None:
        """Works on a copy that begins with this worker's own chunk: then what travels lies in one piece."""
        n, K, r = len(total), comm.K, comm.rank
        own = r * n // K
        at = [(r + i) * n // K - own for i in range(K + 1)]  # where the i-th chunk from here on begins
        x, inbox = empty(total, n), empty(total, at[K // 2])
        x[: n - own], x[n - own :] = total[own:], total[:own]
        for have, h in _halves(K):
            exchange(comm, x[at[h] : at[have]], (r + h) % K, inbox[: at[have - h]], (r - h) % K)
            x[: at[have - h]] += inbox[: at[have - h]]
        for have, h in reversed(_halves(K)):
            exchange(comm, x[: at[have - h]], (r - h) % K, x[at[h] : at[have]], (r + h) % K)
        total[own:], total[:own] = x[: n - own], x[n - own :]

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * least_rounds(K), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        r = np.arange(K)
        begins = np.array([i * n // K for i in range(2 * K + 1)])
        sent = np.zeros(K, dtype=np.int64)
        for have, h in _halves(K):
            sent += of(begins[r + have] - begins[r + h]) + of(begins[r + have - h] - begins[r])
        return sent


def _halves(K: int) -> list[tuple[int, int]]:
    """Of each round how many chunks a worker has before, and after it: which is also how far its message goes."""
    hops = [K]
    while hops[-1] > 1:
        hops.append((hops[-1] + 1) // 2)
    return list(pairwise(hops))


#: Exchange halves, quarters, ..., and put them together again: the ring's bytes in the tree's rounds.
halving = _Halving()
