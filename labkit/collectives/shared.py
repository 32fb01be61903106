"""All-reduce through shared memory: on one host nobody needs to send anything.

Each rank puts its vector where all can read it; each then adds up its own 1/K of everybody's, straight from their memory,
puts the sum where all can read it, and takes the others' sums. Long vectors go through in pieces, so that the windows
stay in the cache; what is in a rank's own part is never copied for the others, since nobody else reads it. Tiny vectors
are added up whole by everyone: one meeting instead of two. No message is sent: ``bytes_sent`` stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import chunk_bounds
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm, is_torch

#: Bytes up to which every rank adds up everything.
WHOLE = 1 << 13


@dataclass(frozen=True)
class _Shared(AllReduce):
    """Added in order of rank, so the bits are ``naive``'s; what is on a GPU is staged through host memory.

    Its price on any link is nothing. Raises LaunchError where the ranks share no memory.
    """

    name: ClassVar[str] = "shared-memory"

    def _add_up(self, comm: Comm, total: Any) -> None:
        host = (total.cpu() if total.is_cuda else total).numpy() if is_torch(total) else total
        if host.nbytes <= WHOLE:
            _whole(comm, host)
        else:
            step = comm.windows.half // host.itemsize
            for i in range(0, len(host), step):
                _piece(comm, host[i : i + step])
        if is_torch(total) and total.is_cuda:
            import torch

            total.copy_(torch.from_numpy(host))

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 0 * K, 0 * K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        return np.zeros(K, dtype=np.int64)


def _whole(comm: Comm, x: np.ndarray) -> None:
    windows = comm.windows
    shown = windows.views(x.size, x.dtype)
    shown[comm.rank][:] = x
    windows.sync()
    np.add(shown[0], shown[1], out=x)
    for other in shown[2:]:
        x += other


def _piece(comm: Comm, x: np.ndarray) -> None:
    windows, rank = comm.windows, comm.rank
    shown = windows.views(x.size, x.dtype)
    bounds = chunk_bounds(len(x), comm.K)
    low, high = bounds[rank], bounds[rank + 1]
    shown[rank][:low] = x[:low]
    shown[rank][high:] = x[high:]
    windows.sync()
    parts = [x[low:high] if k == rank else shown[k][low:high] for k in range(comm.K)]
    mine = shown[rank][low:high]  # free: nobody reads a rank's own part before it is summed
    np.add(parts[0], parts[1], out=mine)
    for part in parts[2:]:
        mine += part
    windows.sync()
    for k in range(comm.K):
        x[bounds[k] : bounds[k + 1]] = shown[k][bounds[k] : bounds[k + 1]]


#: Through memory that all ranks of one host share.
shared = _Shared()
