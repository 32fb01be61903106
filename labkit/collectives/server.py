"""All-reduce by a sharded parameter server (Li et al. 2014, section 3): push, add, pull.

The first S ranks are servers (and workers too); server s keeps the s-th of S parts of the vector. Everyone pushes each part
to its server, which adds them up and answers everyone: 2 (K-1) (alpha + n / (S beta)) seconds for n bytes. S = 1 is the
naive all-reduce. S = K spreads the load as evenly as the ring does, each with each.

So that no two workers want one server's port at a time: in round j = 1, ..., K-1 worker k pushes to server k - j, if there
is one, and server s hears from s + 1, s + 2, ..., and round. The pull keeps the same rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.checks import integer
from labkit.collectives.arrays import chunk_bounds, chunks, empty
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm


@dataclass(frozen=True)
class Server(AllReduce):
    """Each of S servers adds in order of rank, from itself on and round, and sends copies of the sum out.

    servers: S, from 1 to K; None: every worker is one. Raises ValueError for another number.

    >>> from labkit import launch
    >>> launch(lambda comm: Server(2).allreduce(comm, np.ones(100)), 4).bytes_sent.tolist()
    [1600, 1600, 800, 800]
    """

    name: ClassVar[str] = "server"
    servers: int | None = None

    def __post_init__(self) -> None:
        if self.servers is not None:
            integer("servers", self.servers, least=1)

    def _add_up(self, comm: Comm, total: Any) -> None:
        servers = int(self._serving(comm.K))
        part = chunks(total, servers)
        round_about = [(comm.rank + j) % comm.K for j in range(1, comm.K)]
        mine = part[comm.rank] if comm.rank < servers else total[:0]
        clients = round_about if len(mine) else []
        pushed_to = [s for s in reversed(round_about) if s < servers and len(part[s])]

        # With one server two receives are posted ahead. With more, that would let a worker in before its round.
        ahead = 2 if servers == 1 else 1
        inbox = [empty(mine, len(mine)) for _ in clients[:ahead]]
        arriving = [comm.irecv(into, source) for into, source in zip(inbox, clients, strict=False)]
        leaving = [comm.isend(part[s], s) for s in pushed_to]  # push
        for i in range(len(clients)):
            mine += arriving[i].wait()
            if i + ahead < len(clients):
                arriving.append(comm.irecv(inbox[i % ahead], clients[i + ahead]))
        answers = [comm.irecv(part[s], s) for s in pushed_to]  # pull
        for to in clients:
            comm.send(mine, to)
        for request in answers + leaving:
            request.wait()

    def _label(self, comm: Comm, x: Any) -> str:
        return f"server all-reduce, {self._serving(comm.K)} servers"

    def _serving(self, K: Any) -> Any:
        """S, for K workers."""
        if self.servers is None:
            return K
        if np.any(self.servers > K):
            raise ValueError(f"servers must be a whole number from 1 to K = {K}, got {self.servers!r}")
        return self.servers

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * (K - 1), 2 * (K - 1) / self._serving(K)

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        part = np.zeros(K, dtype=np.int64)
        S = self._serving(K)
        part[:S] = of(np.diff(chunk_bounds(n, S)))
        return (
            part.sum() - part + (K - 1) * part
        )  # push all parts but one's own, and answer everyone with that


#: Every worker is a server of one part.
server = Server()
