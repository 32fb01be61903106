"""All-reduce along a binomial tree: reduce to rank 0, then broadcast (Chan et al. 2007, section 4).

In round i of the reduction every rank whose lowest set bit is 2^i sends its partial sum to the rank without that bit.
The broadcast runs the same tree backwards. Each takes ceil(log2 K) (alpha + n / beta) seconds for n bytes and any K.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from labkit.checks import integer
from labkit.collectives.arrays import copy, empty, flat
from labkit.collectives.base import AllReduce, Collective, Counts, Of
from labkit.comm.base import Comm
from labkit.network.link import least_rounds


class _Tree(AllReduce):
    name = "tree"

    def _add_up(self, comm: Comm, total: Any) -> None:
        self.reduce_among(comm, total, range(comm.K))
        broadcast.among(comm, total, range(comm.K))

    def reduce_among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace the vector ``total`` (n,) of the first of ``ranks`` by the sum over them; the others' are used up."""
        i, K, bit = ranks.index(comm.rank), len(ranks), 1
        inbox = empty(total, len(total))
        while bit < K and not i & bit:
            if i + bit < K:
                total += comm.recv(inbox, ranks[i + bit])
            bit *= 2
        if i > 0:
            comm.send(total, ranks[i - bit])

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * least_rounds(K), 2 * least_rounds(K)

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        up = np.arange(K) > 0  # one message of each to its parent
        return up * of(n) + broadcast._sent(K, n, of)


class _Broadcast(Collective):
    name = "broadcast"

    def __call__(self, comm: Comm, x: Any, root: int = 0) -> Any:
        """Rank ``root``'s ``x`` (numpy or torch, any shape, the same on every rank), as a new array on every rank."""
        total = copy(x)
        self.inplace(comm, total, root)
        return total

    def inplace(self, comm: Comm, x: Any, root: int = 0) -> None:
        """Replace ``x`` (contiguous) by that of rank ``root``. Raises ValueError if there is no such rank."""
        total = flat(x)
        root = integer("root", root, most=comm.K - 1)
        with comm.collective(f"broadcast from rank {root}", x):
            if len(total):
                self.among(comm, total, [(root + i) % comm.K for i in range(comm.K)])

    def among(self, comm: Comm, total: Any, ranks: Sequence[int]) -> None:
        """Replace the vector ``total`` (n,), n > 0, of all ``ranks`` by that of the first."""
        i, K = ranks.index(comm.rank), len(ranks)
        bit = i & -i or 1 << least_rounds(K)  # the lowest bit of i; rank 0 has none
        if i > 0:
            comm.recv(total, ranks[i - bit])
        while bit > 1:
            bit //= 2
            if i + bit < K:
                comm.send(total, ranks[i + bit])

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return least_rounds(K), least_rounds(K)

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        node = np.arange(1, K)
        parent = node & (node - 1)  # lacks its child's lowest bit
        return np.bincount(parent, minlength=K) * of(n)


#: Reduce along a binomial tree to rank 0, and broadcast back along it.
tree = _Tree()
#: The tree's second half, ``broadcast(comm, x, root=0)``: everyone gets one rank's vector. Priced for root 0.
broadcast = _Broadcast()
