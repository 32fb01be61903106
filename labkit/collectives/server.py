"""All-reduce by a sharded parameter server (Li et al. 2014, section 3): push, add, pull.

The first S ranks are servers (and workers too); server s keeps the s-th of S parts of the vector. Everyone pushes each part
to its server, which adds them up and answers everyone: 2 (K-1) (alpha + n / (S beta)) seconds for n bytes where S divides
the number of elements. S = 1 is the naive all-reduce. S = K spreads the load as evenly as the ring does, each with each.

So that no two workers want one server's port at a time: in round j = 1, ..., K-1 worker k pushes to server k - j, if there
is one, and server s hears from s + 1, s + 2, ..., and round. The pull keeps the same rounds.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import chunks, copy, empty, flat
from labkit.comm.base import Comm


def server_allreduce(comm: Comm, x: Any, servers: int = 1) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    servers: how many, 1 to K. Each adds in order of rank, from itself on and round, and sends copies of the sum out, so
    every rank gets the same bits. Raises ValueError for another number of servers.

    >>> from labkit import launch
    >>> run = launch(lambda comm: server_allreduce(comm, np.ones(100), servers=2), 4)
    >>> run.bytes_sent.tolist()
    [1600, 1600, 800, 800]
    """
    total = copy(x)
    server_allreduce_inplace(comm, total, servers)
    return total


def server_allreduce_inplace(comm: Comm, x: Any, servers: int = 1) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``; ``servers`` as in ``server_allreduce``."""
    total = flat(x)
    if isinstance(servers, bool) or not isinstance(servers, int) or not 1 <= servers <= comm.K:
        raise ValueError(f"servers must be a whole number from 1 to K = {comm.K}, got {servers!r}")
    with comm.collective(f"server all-reduce, {servers} servers", x):
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
