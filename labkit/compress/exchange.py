"""Compressed exchange over ``Comm``: the mean of what everyone's message says, with every byte counted.

What is summable goes round the ring (``labkit.collectives.ring``): each worker sends 2 (K - 1) / K of a message. All else is
gathered, every worker's message by every worker: (K - 1) messages each, *growing with K* where the ring's share does not.
"""

from __future__ import annotations

import numpy as np

from labkit.collectives import all_gather, ring_allreduce
from labkit.comm.base import Comm
from labkit.compress.base import Array, Compressor
from labkit.compress.scheme import Exchanged, Scheme, Wire, as_scheme, dice
from labkit.cost.closed_forms import Counts, ring_bytes
from labkit.cost.parts import all_gather_bytes


class OverComm(Wire):
    """The wire of a worker that has a ``Comm``: ring all-reduce and ring all-gather."""

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm.K, comm.now)
        self.comm = comm

    def _sum(self, x: Array) -> Array:
        return np.asarray(ring_allreduce(self.comm, x))

    def _gather(self, message: Array) -> Array:
        return np.asarray(all_gather(self.comm, message, self.K * len(message))).reshape(self.K, -1)


def compressed_mean(comm: Comm, g: Array, compressor: Compressor, seed: int = 0) -> Exchanged:
    """The mean over the workers of what their messages say, and what this worker's own says; nothing is remembered.

    g: (d,), this worker's; d and the dtype must be the same on every rank. seed: the same on every rank; each draws from
    it in its own way, or all alike where the compressor needs that. Every rank gets the same bits. Raises ValueError for a
    gradient that can't be compressed.
    """
    if not isinstance(compressor, Compressor):
        raise TypeError(f"compressor must be a compressor, as in QSGD(s=15), got {compressor!r}")
    return as_scheme(compressor).mean(OverComm(comm), g, None, dice(seed, comm.rank))[0]


def sent_bytes(how: Scheme | Compressor, K: int, d: int, itemsize: int, t: int = 0) -> Counts:
    """Bytes each rank sends at step t, (K,), for d elements of ``itemsize`` bytes; exact for every K and d.

    A sum of n numbers costs ``ring_bytes``, a message of n bytes that is gathered (K - 1) n.

    >>> sent_bytes(TopK(0.01), K=4, d=1000, itemsize=4)
    array([180, 180, 180, 180])
    """
    total = np.zeros(K, dtype=np.int64)
    for summed, n, size in as_scheme(how).crossings(d, itemsize, t):
        total += ring_bytes(K, n, size) if summed else all_gather_bytes(K, K * n, size)
    return total
