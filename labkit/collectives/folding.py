"""A power of two out of any number of workers (Thakur, Rabenseifner and Gropp 2005).

Recursive algorithms pair workers whose numbers differ in one bit, which needs 2^m of them. Of K = 2^m + e workers the
even ones among the first 2 e hand their vector to the next rank, stand by, and get the result from it at the end. That
costs two more messages of the whole vector, one before and one after.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from labkit.comm.base import Comm


class Seat(NamedTuple):
    """One worker's place among the 2^m that remain.

    deputy: the rank that this one hands its vector to, if it stands by; extra: the rank whose vector it takes over.
    number: its number among the ``size`` = 2^m that remain (-1 if it stands by).
    peers: (m,) the ranks whose number differs in bit 0, 1, ...
    """

    deputy: int | None
    extra: int | None
    number: int
    size: int
    peers: tuple[int, ...]


@lru_cache(maxsize=256)
def seat(rank: int, K: int) -> Seat:
    """The place of ``rank`` of K workers."""
    m = K.bit_length() - 1
    size = 1 << m
    extras = K - size
    if rank < 2 * extras and rank % 2 == 0:
        return Seat(rank + 1, None, -1, size, ())
    number = rank // 2 if rank < 2 * extras else rank - extras
    others = [number ^ (1 << bit) for bit in range(m)]
    peers = tuple(2 * v + 1 if v < extras else v + extras for v in others)
    return Seat(None, rank - 1 if rank < 2 * extras else None, number, size, peers)


def stand_by(comm: Comm, total: Any, deputy: int) -> None:
    """Hand the vector ``total`` to the deputy, and get the result in its place."""
    result = comm.irecv(total, deputy)
    comm.send(total, deputy)
    result.wait()
