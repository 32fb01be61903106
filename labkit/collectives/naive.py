"""All-reduce by a server: everyone sends to rank 0, which adds and sends the sum back.

With K workers and n bytes the server's port carries (K-1) n bytes in and as many out, one message after another:
2 (K-1) (alpha + n / beta) seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import empty
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm


@dataclass(frozen=True)
class _Naive(AllReduce):
    """Added in order of rank, in one place.

    >>> from labkit import launch
    >>> launch(lambda comm: naive.allreduce(comm, np.ones(100)), 4).bytes_sent.tolist()
    [2400, 800, 800, 800]
    """

    name: ClassVar[str] = "naive"

    def _add_up(self, comm: Comm, total: Any) -> None:
        if comm.rank == 0:
            inbox = empty(total, len(total))
            for source in range(1, comm.K):
                total += comm.recv(inbox, source)
            for to in range(1, comm.K):
                comm.send(total, to)
        else:
            comm.send(total, 0)
            comm.recv(total, 0)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * (K - 1), 2 * (K - 1)

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        return np.where(np.arange(K) == 0, K - 1, 1) * of(n)


#: Everyone sends to rank 0, which adds and answers everyone.
naive = _Naive()
