"""All-reduces in few rounds: by doubling (Thakur et al. 2005, section 4), by halving (Rabenseifner 2004; Träff 2024).

Doubling: in round i every worker exchanges the sum that it has so far with the worker whose number differs from its own in
bit i: log2 K (alpha + n / beta) seconds for n bytes. That takes 2^m workers. Of K = 2^m + e the last e first send their
vectors to the first e, one each, and receive the sum from them at the end: two more messages of the whole vector.

Halving, for any K: the vector is cut into K chunks, and the workers stand in a circle. In each round a worker that has q
chunks left keeps the first h = ceil(q / 2) of them, sends the others to the worker h places on, and adds what comes from h
places back. When one chunk is left, it is finished. The same rounds backwards then hand the finished chunks to everybody.
2 ceil(log2 K) alpha + 2 (K-1)/K n / beta seconds: the ring's bytes in the tree's rounds.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from labkit.collectives.arrays import empty, exchange
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm
from labkit.network.link import least_rounds


class _Halving(AllReduce):
    name = "halving"

    def _add_up(self, comm: Comm, total: Any) -> None:
        n, K, r = len(total), comm.K, comm.rank
        # x begins with this worker's own chunk: then what travels lies in one piece.
        own = r * n // K
        x = empty(total, n)
        x[: n - own], x[n - own :] = total[own:], total[:own]
        at = [
            (r + i) * n // K - own for i in range(K + 1)
        ]  # where the i-th chunk begins
        inbox = empty(total, at[K // 2])
        for have, h in _halves(K):
            kept, out = x[: at[have - h]], x[at[h] : at[have]]
            theirs = inbox[: len(kept)]
            exchange(comm, out, (r + h) % K, theirs, (r - h) % K)
            kept += theirs
        for have, h in reversed(_halves(K)):
            out, into = x[: at[have - h]], x[at[h] : at[have]]
            exchange(comm, out, (r - h) % K, into, (r + h) % K)
        total[own:], total[:own] = x[: n - own], x[n - own :]

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 2 * least_rounds(K), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        r = np.arange(K)
        begins = np.array([i * n // K for i in range(2 * K + 1)])
        sent = np.zeros(K, np.int64)
        for have, h in _halves(K):
            sent += of(begins[r + have] - begins[r + h])
            sent += of(begins[r + have - h] - begins[r])
        return sent


def _halves(K: int) -> list[tuple[int, int]]:
    """Of each round how many chunks a worker has before, and after it: which is also how far its message goes."""
    hops = [K]
    while hops[-1] > 1:
        hops.append((hops[-1] + 1) // 2)
    return list(pairwise(hops))


#: Exchange halves, quarters, ..., and put them together again: the ring's bytes in the tree's rounds.
halving = _Halving()


class _Doubling(AllReduce):
    name = "doubling"

    def _add_up(self, comm: Comm, total: Any) -> None:
        r, bit = comm.rank, 1
        paired = 1 << (comm.K.bit_length() - 1)  # 2^m
        if r >= paired:
            comm.send(total, r - paired)
            comm.recv(total, r - paired)
            return
        inbox = empty(total, len(total))
        helped = r + paired < comm.K
        if helped:
            total += comm.recv(inbox, r + paired)
        while bit < paired:
            exchange(comm, total, r ^ bit, inbox, r ^ bit)
            total += inbox
            bit *= 2
        if helped:
            comm.send(total, r + paired)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        odd = K & (K - 1) > 0  # no power of two
        rounds = least_rounds(K) + odd
        return rounds, rounds

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        m = K.bit_length() - 1
        helped = K - (1 << m)
        each = np.where(np.arange(K) < 1 << m, m, 1)
        each[:helped] += 1
        return each * of(n)


#: Exchange whole sums with partners at distance 1, 2, 4, ...: the fewest rounds. Both ends of an exchange add the same two
#: sums, so all have the same bits (but for the payload of a NaN).
doubling = _Doubling()
