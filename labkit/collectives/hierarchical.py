"""All-reduce in two levels: inside each host, across the hosts, inside again.

Inside a host a binomial tree adds everything into its first rank, the leader; a ring joins the leaders; the tree brings the
sum back, as in Horovod (Sergeev and Del Balso 2018) and NCCL, which use other passes inside.
With H hosts of L workers, n bytes, and the link inside a host marked by ':
2 ceil(log2 L) (alpha' + n / beta') + 2 (H-1) (alpha + n / (H beta)) seconds.
The slow links carry H vectors' worth of ring instead of K. One host: a tree. One rank a host: a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer, workers
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.collectives.ring import ring
from labkit.collectives.tree import broadcast, tree
from labkit.comm.base import Comm
from labkit.network.link import Link


@dataclass(frozen=True)
class Hierarchical(AllReduce):
    """The leaders, the lowest rank of each host, have the same bits from the ring, and everyone else a copy.

    hosts: workers a host, in order of rank (the last host may have fewer), or the host of each rank, (K,), of which only the
    grouping counts; None: as ``comm.hosts`` says, and priced as one rank a host.
    inside: the ``Link`` between workers of one host; None: the same as between hosts.
    The time is exact if the hosts are equally full, but for the last.

    >>> two = Hierarchical(hosts=2, inside=Link(1e-6, 1e11))
    >>> two.bytes(K=4, n=100, itemsize=4).tolist(), round(two.time(4, 4e6, Link(1e-4, 1.25e8)), 4)
    ([800, 400, 800, 400], 0.0323)
    """

    name: ClassVar[str] = "hierarchical"
    hosts: int | tuple[int, ...] | None = None
    inside: Link | None = None

    def __post_init__(self) -> None:
        if isinstance(self.hosts, list | np.ndarray):
            object.__setattr__(self, "hosts", tuple(self.hosts))
        if self.hosts is not None and not isinstance(self.hosts, tuple):
            integer("hosts", self.hosts, least=1)

    def _add_up(self, comm: Comm, total: Any) -> None:
        of, leaders = _levels(self._hosts(comm.K) or comm.hosts)
        mine = of[comm.rank]
        tree.reduce_among(comm, total, mine)
        if comm.rank == mine[0]:
            ring.among(comm, total, leaders)
        broadcast.among(comm, total, mine)

    def time(self, K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
        """Seconds, as of any collective; ``link``: between hosts."""
        L, H = self._sizes(workers(K))
        return tree.time(L, nbytes, self.inside or link) + ring.time(H, nbytes, link)

    def _label(self, comm: Comm, x: Any) -> str:
        self._hosts(comm.K)
        return "hierarchical all-reduce"

    def _hosts(self, K: int) -> tuple[int, ...] | None:
        """The host of each rank, (K,); None where only ``comm`` knows."""
        if isinstance(self.hosts, tuple):
            self._sizes(np.array(K))
            return self.hosts
        return None if self.hosts is None else _in_turn(K, self.hosts)

    def _sizes(self, K: Counts) -> tuple[Any, Any]:
        """L, the workers of the fullest host, and H, the number of hosts, for each of K."""
        if isinstance(self.hosts, tuple):
            if not self.hosts or np.any(len(self.hosts) != K):
                raise ValueError(
                    f"hosts must name the host of each of the {K} ranks, got {len(self.hosts)}: {self.hosts}"
                )
            _, each = np.unique(self.hosts, return_counts=True)
            return np.full_like(K, each.max()), np.full_like(K, len(each))
        L = 1 if self.hosts is None else self.hosts
        return np.minimum(K, L), -(-K // L)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        L, H = self._sizes(K)
        inside, across = tree._serial(L), ring._serial(H)
        return inside[0] + across[0], inside[1] + across[1]

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        where = np.array(self._hosts(K) or range(K))
        _, leaders = np.unique(where, return_index=True)
        sent = np.zeros(K, dtype=np.int64)
        for leader in leaders:
            members = np.flatnonzero(where == where[leader])
            sent[members] += tree._sent(len(members), n, of)
        sent[np.sort(leaders)] += ring._sent(len(leaders), n, of)
        return sent


@lru_cache(maxsize=16)
def _in_turn(K: int, L: int) -> tuple[int, ...]:
    """The host of each of K ranks, L on each."""
    return tuple(k // L for k in range(K))


@lru_cache(maxsize=16)
def _levels(hosts: tuple[int, ...]) -> tuple[list[list[int]], list[int]]:
    """For each rank the ranks on its host; and the first rank of every host."""
    on: dict[int, list[int]] = {}
    for k, host in enumerate(hosts):
        on.setdefault(host, []).append(k)
    return [on[host] for host in hosts], [ranks[0] for ranks in on.values()]


#: A tree on each host, a ring of their leaders, wherever the ranks live.
hierarchical = Hierarchical()
