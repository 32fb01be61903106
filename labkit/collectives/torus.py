"""All-reduce on a two-dimensional torus (Ying et al. 2018; Mikami et al. 2018), as on TPU pods.

K = rows x cols workers, as square as it goes; rank k stands in row k // cols and column k % cols. A ring reduce-scatter
along each row leaves a worker with one of cols chunks; a ring all-reduce along its column finishes it; a ring all-gather
along the row brings the others: the ring's 2 (K-1)/K n bytes in 2 (rows + cols - 2) rounds. For a prime K it is the ring.
"""

from math import isqrt
from typing import Any

import numpy as np

from labkit.collectives.arrays import chunk_bounds
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.collectives.ring import all_gather, reduce_scatter, ring
from labkit.comm.base import Comm


class _Torus(AllReduce):
    name = "torus"

    def _add_up(self, comm: Comm, total: Any) -> None:
        cols = _columns(comm.K)
        at = comm.rank % cols
        row = range(comm.rank - at, comm.rank - at + cols)
        column = range(at, comm.K, cols)
        low, high = chunk_bounds(len(total), cols)[at : at + 2]
        reduce_scatter.among(comm, total, row)
        ring.among(comm, total[low:high], column)
        all_gather.among(comm, total, row)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        cols = np.vectorize(_columns, otypes=[np.int64])(K)
        rows = K // cols
        return 2 * (rows + cols - 2), 2 * (K - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        cols = _columns(K)
        along_row = reduce_scatter._sent(cols, n, of) + all_gather._sent(cols, n, of)
        chunk = np.diff(chunk_bounds(n, cols)).tolist()
        along_column = [ring._sent(K // cols, part, of) for part in chunk]
        return (along_row + np.stack(along_column, axis=1)).ravel()


def _columns(K: int) -> int:
    """Of the most square rectangle of K."""
    return int(K) // next(rows for rows in range(isqrt(K), 0, -1) if K % rows == 0)


#: The most square torus; each element is added up once and then copied.
torus = _Torus()
