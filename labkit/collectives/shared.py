"""All-reduce through shared memory: on one host nobody needs to send anything.

What lies in symmetric memory (``comm.windows.empty``) can be read and written by all: each rank adds up its own 1/K of
everybody's vectors and writes the sum back to everybody's, in blocks that stay in its cache. That is as many bytes as
copying the vector once. What lies elsewhere is copied into a window of such memory, and the sum out again, in pieces.
"""

from typing import Any

import numpy as np

from labkit.collectives.arrays import chunk_bounds
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm, is_torch

#: Bytes that are added up, and written to all, before the next.
BLOCK = 1 << 17


class _Shared(AllReduce):
    name = "shared-memory"

    def _add_up(self, comm: Comm, total: Any) -> None:
        if (vectors := _everyones(comm, total)) is not None:
            _add_in_place(comm, vectors)
            return
        # Of a tensor on the CPU this is the same memory.
        host = total.cpu().numpy() if is_torch(total) else total
        step = comm.windows.bytes // host.itemsize
        for i in range(0, len(host), step):
            piece = host[i : i + step]
            vectors = comm.windows.views(len(piece), host.dtype)
            vectors[comm.rank][:] = piece
            _add_in_place(comm, vectors)
            piece[:] = vectors[comm.rank]
        if is_torch(total) and not total.is_cpu:
            total.copy_(total.new_tensor(host))

    def _label(self, comm: Comm, total: Any) -> str:
        symmetric = comm.K > 1 and _everyones(comm, total) is not None
        return f"{self.name} all-reduce{' in symmetric memory' if symmetric else ''}"

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 0 * K, 0 * K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        return np.zeros(K, np.int64)


def _everyones(comm: Comm, x: Any) -> list[np.ndarray] | None:
    """Everyone's vector ``x``, if it lies in symmetric memory."""
    if is_torch(x) and not x.is_cpu:
        return None
    return comm.windows.everyones(x.numpy() if is_torch(x) else x)


def _add_in_place(comm: Comm, vectors: list[np.ndarray]) -> None:
    """Replace the vectors, one of each rank, by their sum; this rank writes its chunk of all."""
    low, high = chunk_bounds(len(vectors[0]), comm.K)[comm.rank : comm.rank + 2]
    step = BLOCK // vectors[0].itemsize
    comm.windows.sync()  # everybody's vector is complete
    for i in range(low, high, step):
        total, *others = (vector[i : min(i + step, high)] for vector in vectors)
        for other in others:
            total += other
        for other in others:
            other[:] = total
    comm.windows.sync()  # everybody's sum is complete


#: Through memory that all ranks of one host share, else LaunchError. Added in order of rank, so the bits are ``naive``'s.
#: It sends no message and costs nothing on any link. What is on a GPU is staged through host memory.
shared = _Shared()
