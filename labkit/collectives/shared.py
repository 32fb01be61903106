"""All-reduce through shared memory: on one host nobody needs to send anything.

Each rank puts its vector where all can read it; each then adds up its own 1/K of everybody's, straight from their memory,
puts the sum where all can read it, and takes the others' sums. Long vectors go through in pieces, so that the windows
stay in the cache; what is in a rank's own part is never copied for the others, since nobody else reads it. Tiny vectors
are added up whole by everyone: one meeting instead of two. No message is sent: ``bytes_sent`` stays as it was.

What lies in symmetric memory (``comm.windows.empty``) is there for all already. Then nothing is copied in or out: each rank
reads its 1/K of everybody's and writes the sum back to everybody's, in blocks that stay in its own cache. That is as many
bytes as copying the vector once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from labkit.collectives.arrays import chunk_bounds, flat
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.comm.base import Comm, is_torch

#: Bytes up to which every rank adds up everything.
WHOLE = 1 << 13
#: Bytes that are added up, and written to all, before the next.
BLOCK = 1 << 17


@dataclass(frozen=True)
class _Shared(AllReduce):
    """Added in order of rank, so the bits are ``naive``'s; what is on a GPU is staged through host memory.

    Its price on any link is nothing. Raises LaunchError where the ranks share no memory.
    """

    name: ClassVar[str] = "shared-memory"

    def reduce_scatter_inplace(self, comm: Comm, x: Any) -> tuple[int, int]:
        """Replace this rank's chunk of ``x`` (in symmetric memory) by the sum of all workers'; the rest stays as it is.

        Returns ``(low, high)``, where the chunk lies in the flattened ``x``. ValueError for other memory.
        """
        with comm.collective("shared-memory reduce-scatter", x):
            return _at_once(comm, _shown(comm, x), everywhere=False)

    def all_gather_inplace(self, comm: Comm, x: Any) -> None:
        """Replace all of ``x`` (in symmetric memory) but this rank's chunk by the chunks of their owners.

        ValueError for other memory.
        """
        with comm.collective("shared-memory all-gather", x):
            shown = _shown(comm, x)
            comm.windows.sync()
            bounds = chunk_bounds(len(shown[0]), comm.K)
            for k, (low, high) in enumerate(pairwise(bounds)):
                if k != comm.rank:
                    shown[comm.rank][low:high] = shown[k][low:high]
            comm.windows.sync()

    def _add_up(self, comm: Comm, total: Any) -> None:
        host = total.cpu().numpy() if is_torch(total) else total
        if host.nbytes <= WHOLE:
            _whole(comm, host)
        elif (shown := _everyones(comm, total)) is not None:
            _at_once(comm, shown)
        else:
            step = comm.windows.half // host.itemsize
            for i in range(0, len(host), step):
                _piece(comm, host[i : i + step])
        if is_torch(total) and not total.is_cpu:
            import torch

            total.copy_(torch.from_numpy(host))

    def _label(self, comm: Comm, x: Any) -> str:
        symmetric = comm.K > 1 and _everyones(comm, flat(x)) is not None
        return f"{self.name} all-reduce{' in symmetric memory' if symmetric else ''}"

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        return 0 * K, 0 * K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        return np.zeros(K, dtype=np.int64)


def _everyones(comm: Comm, x: Any) -> list[np.ndarray] | None:
    """Everyone's vector ``x``, if it lies in symmetric memory."""
    if is_torch(x):
        if not x.is_cpu:
            return None
        x = x.numpy()
    return comm.windows.everyones(x)


def _shown(comm: Comm, x: Any) -> list[np.ndarray]:
    """Everyone's ``x``, as vectors. ValueError where the others can't reach it."""
    if (shown := _everyones(comm, flat(x))) is None:
        raise ValueError("x must lie in symmetric memory, as comm.windows.empty(shape, dtype) makes it")
    return shown


def _at_once(comm: Comm, shown: list[np.ndarray], everywhere: bool = True) -> tuple[int, int]:
    """Sum this rank's chunk of all vectors into its own, and into everybody's if so asked; where the chunk lies."""
    bounds = chunk_bounds(len(shown[0]), comm.K)
    low, high = bounds[comm.rank : comm.rank + 2]
    comm.windows.sync()
    if comm.K > 1:
        step = BLOCK // shown[0].itemsize
        inbox = np.empty(min(step, high - low) if comm.K > 2 else 0, shown[0].dtype)
        for i in range(low, high, step):
            parts = [one[i : min(i + step, high)] for one in shown]
            have = parts[0]
            for part in parts[1:-1]:
                have = np.add(have, part, out=inbox[: high - i])
            mine = np.add(have, parts[-1], out=parts[comm.rank])  # last: until here it was a part itself
            for k, part in enumerate(parts):
                if everywhere and k != comm.rank:
                    part[:] = mine
        comm.windows.sync()
    return low, high


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
