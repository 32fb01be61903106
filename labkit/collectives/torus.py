"""All-reduce on a two-dimensional torus (Ying et al. 2018; Mikami et al. 2018), as on TPU pods.

K = rows x cols workers; rank k stands in row k // cols and column k % cols. A ring reduce-scatter along each row leaves a
worker with one of cols chunks; a ring all-reduce along its column finishes that chunk; a ring all-gather along the row
brings the others. 2 (cols-1) (alpha + n / (cols beta)) + 2 (rows-1) (alpha + n / (K beta)) seconds for n bytes: the ring's
2 (K-1)/K n bytes in 2 (rows + cols - 2) rounds. One row is the ring itself.

With a row on each of H hosts of L workers, and the link inside a host marked by ', it is what libraries for GPUs do on
hosts: reduce-scatter inside, all L chunks summed across the hosts at once, all-gather inside. Those L rings share the
host's port, as one ring of whole vectors would have it: 2 (L-1) (alpha' + n / (L beta')) + 2 (H-1) (alpha + n / (H beta)).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer, workers
from labkit.collectives.arrays import chunk_bounds
from labkit.collectives.base import AllReduce, Counts, Of
from labkit.collectives.ring import all_gather, reduce_scatter, ring
from labkit.comm.base import Comm
from labkit.network.link import Link


@dataclass(frozen=True)
class Torus(AllReduce):
    """Each element is added up once and then copied.

    cols: workers in a row, a divisor of K; None: the most square torus, with at least as many columns as rows (a ring, for a
    prime K). Raises ValueError for another number.
    inside: the ``Link`` along a row, where each row is a host whose workers share its one port, which ``link`` is then in a
    time. None: all links are alike and every worker has a port.

    >>> from labkit import launch
    >>> launch(lambda comm: Torus(cols=3).allreduce(comm, np.ones(6)), 6).messages_sent.tolist()
    [6, 6, 6, 6, 6, 6]
    """

    name: ClassVar[str] = "torus"
    cols: int | None = None
    inside: Link | None = None

    def __post_init__(self) -> None:
        if self.cols is not None:
            integer("cols", self.cols, least=1)

    def _add_up(self, comm: Comm, total: Any) -> None:
        cols = self._columns(comm.K)
        at = comm.rank % cols
        row = range(comm.rank - at, comm.rank - at + cols)
        column = range(at, comm.K, cols)
        low, high = chunk_bounds(len(total), cols)[at : at + 2]
        reduce_scatter.among(comm, total, row)
        ring.among(comm, total[low:high], column)
        all_gather.among(comm, total, row)

    def time(self, K: ArrayLike, nbytes: ArrayLike, link: Link) -> Any:
        """Seconds, as of any collective; ``link``: between hosts, if ``inside`` is given."""
        if self.inside is None:
            return super().time(K, nbytes, link)
        cols = self._each(workers(K))
        return ring.time(cols, nbytes, self.inside) + ring.time(workers(K) // cols, nbytes, link)

    def _label(self, comm: Comm, x: Any) -> str:
        cols = self._columns(comm.K)
        return f"torus all-reduce, {comm.K // cols} x {cols}"

    def _columns(self, K: int) -> int:
        if self.cols is None:
            return K // next(rows for rows in range(isqrt(K), 0, -1) if K % rows == 0)
        if K % self.cols:
            raise ValueError(f"cols must divide the number of workers, K = {K}, got {self.cols!r}")
        return self.cols

    def _each(self, K: Counts) -> Counts:
        return np.vectorize(lambda each: self._columns(int(each)), otypes=[np.int64])(K)

    def _serial(self, K: Counts) -> tuple[Any, Any]:
        cols = self._each(K)
        rows = K // cols
        return 2 * (rows + cols - 2), 2 * (cols - 1) / cols + 2 * (rows - 1) / K

    def _sent(self, K: int, n: int, of: Of) -> Counts:
        cols = self._columns(K)
        along_row = reduce_scatter._sent(cols, n, of) + all_gather._sent(cols, n, of)
        chunk = np.diff(chunk_bounds(n, cols)).tolist()
        along_column = np.stack([ring._sent(K // cols, part, of) for part in chunk], axis=1)
        return (along_row + along_column).ravel()


#: The most square torus.
torus = Torus()
