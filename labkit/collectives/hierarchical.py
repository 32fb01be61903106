"""All-reduce in two levels: inside each host, across the hosts, inside again.

Inside a host a binomial tree adds everything into its first rank, the leader; a ring joins the leaders; the tree brings the
sum back, as in Horovod (Sergeev and Del Balso 2018) and NCCL, which use other passes inside.
With H hosts of L workers, n bytes, and the link inside a host marked by ':
2 ceil(log2 L) (alpha' + n / beta') + 2 (H-1) (alpha + n / (H beta)) seconds.
The slow links carry H vectors' worth of ring instead of K. One host: a tree. One rank a host: a ring.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from labkit.collectives.arrays import copy, flat
from labkit.collectives.rings import allreduce_among
from labkit.collectives.tree import broadcast_among, reduce_among
from labkit.comm.base import Comm


def hierarchical_allreduce(comm: Comm, x: Any, hosts: tuple[int, ...] | None = None) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    hosts: (K,) the host of each rank; None: ``comm.hosts``. Only the grouping counts; leaders are the lowest ranks.
    The leaders have the same bits from the ring, and everyone else a copy. Raises ValueError for another number of hosts.
    """
    total = copy(x)
    hierarchical_allreduce_inplace(comm, total, hosts)
    return total


def hierarchical_allreduce_inplace(comm: Comm, x: Any, hosts: tuple[int, ...] | None = None) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``; ``hosts`` as in ``hierarchical_allreduce``."""
    total = flat(x)
    hosts = comm.hosts if hosts is None else tuple(hosts)
    if len(hosts) != comm.K:
        raise ValueError(f"hosts must name the host of each of the {comm.K} ranks, got {len(hosts)}: {hosts}")
    with comm.collective("hierarchical all-reduce", x):
        mine, leaders = _levels(hosts, comm.rank)
        reduce_among(comm, total, mine)
        if comm.rank == mine[0]:
            allreduce_among(comm, total, leaders)
        broadcast_among(comm, total, mine)


@lru_cache(maxsize=256)
def _levels(hosts: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks on this rank's host, and the first rank of every host."""
    mine = tuple(k for k, host in enumerate(hosts) if host == hosts[rank])
    return mine, tuple(k for k, host in enumerate(hosts) if hosts.index(host) == k)
