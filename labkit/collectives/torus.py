"""All-reduce on a two-dimensional torus (Ying et al. 2018; Mikami et al. 2018), as on TPU pods.

K = rows x cols workers; rank k stands in row k // cols and column k % cols. A ring reduce-scatter along each row leaves a
worker with one of cols chunks; a ring all-reduce along its column finishes that chunk; a ring all-gather along the row
brings the others. 2 (cols-1) (alpha + n / (cols beta)) + 2 (rows-1) (alpha + n / (K beta)) seconds for n bytes where K
divides the number of elements: the ring's 2 (K-1)/K n bytes in 2 (rows + cols - 2) rounds. One row is the ring itself.
"""

from __future__ import annotations

from typing import Any

from labkit.collectives.arrays import chunk_bounds, copy, flat
from labkit.collectives.rings import all_gather_among, allreduce_among, reduce_scatter_among
from labkit.comm.base import Comm
from labkit.cost.torus import torus_cols


def torus_allreduce(comm: Comm, x: Any, cols: int | None = None) -> Any:
    """The sum of all workers' ``x`` (numpy or torch, any shape, the same on every rank), as a new array.

    cols: workers in a row, a divisor of K; None: the most square torus, with at least as many columns as rows.
    Each element is added up once and then copied, so every rank gets the same bits. Raises ValueError for other ``cols``.

    >>> from labkit import launch
    >>> run = launch(lambda comm: torus_allreduce(comm, np.ones(6), cols=3), 6)
    >>> run.results[0].tolist(), run.messages_sent.tolist()
    ([6.0, 6.0, 6.0, 6.0, 6.0, 6.0], [6, 6, 6, 6, 6, 6])
    """
    total = copy(x)
    torus_allreduce_inplace(comm, total, cols)
    return total


def torus_allreduce_inplace(comm: Comm, x: Any, cols: int | None = None) -> None:
    """Replace ``x`` (contiguous) by the sum of all workers' ``x``; ``cols`` as in ``torus_allreduce``."""
    total = flat(x)
    cols = torus_cols(comm.K, cols)
    with comm.collective(f"torus all-reduce, {comm.K // cols} x {cols}", x):
        at = comm.rank % cols
        row = range(comm.rank - at, comm.rank - at + cols)
        column = range(at, comm.K, cols)
        low, high = chunk_bounds(len(total), cols)[at : at + 2]
        reduce_scatter_among(comm, total, row)
        allreduce_among(comm, total[low:high], column)
        all_gather_among(comm, total, row)
