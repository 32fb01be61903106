"""All-reduce by recursive doubling (Thakur et al. 2005, section 4): whole sums, in the fewest rounds.

In round i every worker exchanges the sum that it has so far with the worker whose number differs from its own in bit i. So
sums of 2, 4, 8, ... vectors arise everywhere at once, in log2 K (alpha + n / beta) seconds for n bytes.

That takes 2^m workers. Of K = 2^m + e workers the last e first send their vectors to the first e, one each, and receive the
sum from them at the end: two more messages of the whole vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import empty, exchange
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm


@dataclass(frozen=True)
class _Doubling(AllReduce):
    """Both ends of an exchange add the same two sums, so they have the same bits (but for the payload of a NaN).

    >>> from labkit import launch
    >>> launch(lambda comm: doubling.allreduce(comm, np.ones(100)), 8).messages_sent.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3]
    """

    name: ClassVar[str] = "doubling"

    def _add_up(self, comm: Comm, total: Any) -> None:
        r, paired = comm.rank, 1 << (comm.K.bit_length() - 1)
        if r >= paired:
            comm.send(total, r - paired)
            comm.recv(total, r - paired)
            return
        inbox, helped, bit = empty(total, len(total)), r + paired < comm.K, 1
        if helped:
            total += comm.recv(inbox, r + paired)
        while bit < paired:
            exchange(comm, total, r ^ bit, inbox, r ^ bit)
            total += inbox
            bit *= 2
        if helped:
            comm.send(total, r + paired)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        m = np.frexp(K)[1].astype(np.int64) - 1
        m -= (np.int64(1) << m) > K  # a large K may have been rounded up to the next power
        rounds = m + 2 * ((np.int64(1) << m) != K)
        return rounds, rounds

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        m = K.bit_length() - 1
        helped = K - (1 << m)
        each = np.where(np.arange(K) < 1 << m, m, 1)
        each[:helped] += 1
        return each * of(n)


#: Exchange whole sums with partners at distance 1, 2, 4, ...: the fewest rounds.
doubling = _Doubling()
