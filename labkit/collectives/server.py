"""All-reduce by servers (Li et al. 2014, section 3): push, add, pull.

``naive``: everyone sends to rank 0, which adds and sends the sum back: 2 (K-1) (alpha + n / beta) seconds for n bytes.
``server``: every worker is the server of one part: 2 (K-1) (alpha + n / (K beta)) seconds, the ring's. So that no two
workers want one server's port at a time, in round j worker k pushes to k - j and hears from k + j.
"""

from typing import Any

import numpy as np

from labkit.collectives.arrays import chunk_bounds, chunks, empty, exchange
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm


class _Naive(AllReduce):
    name = "naive"

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


class _Server(AllReduce):
    name = "server"

    def _add_up(self, comm: Comm, total: Any) -> None:
        K, r = comm.K, comm.rank
        part = chunks(total, K)
        inbox = empty(total, len(part[r]))
        for j in range(1, K):  # push
            before, after = (r - j) % K, (r + j) % K
            exchange(comm, part[before], before, inbox, after)
            part[r] += inbox
        for j in range(1, K):  # pull
            before, after = (r - j) % K, (r + j) % K
            exchange(comm, part[r], after, part[before], before)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * (K - 1), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        part = of(np.diff(chunk_bounds(n, K)))
        pushed = part.sum() - part
        return pushed + (K - 1) * part


#: Everyone sends to rank 0, which adds in order of rank and answers everyone.
naive = _Naive()
#: Every worker is a server of one part, which it adds in order of rank, from itself on and round.
server = _Server()
