"""Which gradients made which version of w, and when: the schedule of updates that learning follows.

A timeline says when workers computed, waited and communicated; its `Updates` say what that means for learning:
version u is w after u updates, update u turns version u into version u + 1, and every gradient in it was computed
at some older version, the one its worker had read. The staleness of a gradient (Dean et al. 2012; Ho et al. 2013;
Zhang et al. 2016, *Staleness-aware async-SGD*, section 3.1) is the number of updates between the two.

Symbols: K workers, U updates, G gradients, ``tau`` staleness in versions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labkit.timing._check import FloatArray, integer

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Updates:
    """A schedule of updates. Arrays are copied, read-only; bad ones are refused with ValueError.

    K: number of workers.
    into, rank, step, read: (G,) whole numbers, one entry for each gradient that was used, ordered by ``into``: the
        update it went into, who computed it, in which of that worker's steps, and the version it was computed at
        (``0 <= read <= into``).
    applied_s: (U,) seconds at which each update was applied, never decreasing; every update has a gradient.
    measured: True if a clock measured these times, False if a model made them.
    where: the machine and the day, or the model.
    """

    K: int
    into: IntArray
    rank: IntArray
    step: IntArray
    read: IntArray
    applied_s: FloatArray
    measured: bool
    where: str

    def __post_init__(self) -> None:
        integer("K", self.K, least=1)
        applied = np.array(self.applied_s, dtype=np.float64)
        if applied.ndim != 1 or not np.isfinite(applied).all() or (np.diff(applied) < 0).any():
            raise ValueError("applied_s must be a 1-D array of finite seconds that never decrease")
        self._set("applied_s", applied)
        for name in ("into", "rank", "step", "read"):
            given = np.asarray(getattr(self, name))
            whole = given.astype(np.int64)
            if whole.ndim != 1 or len(whole) != len(np.atleast_1d(self.into)) or (whole != given).any():
                raise ValueError(
                    f"{name} must be a 1-D array of whole numbers, one for each gradient, got {given!r}"
                )
            self._set(name, whole)
        if (np.diff(self.into) < 0).any() or not np.array_equal(np.unique(self.into), np.arange(self.U)):
            raise ValueError(f"into must count up from 0 to {self.U - 1} with a gradient in each update")
        for name, ok, right in (
            ("rank", (self.rank >= 0) & (self.rank < self.K), f"between 0 and {self.K - 1}"),
            ("step", self.step >= 0, "a step >= 0"),
            ("read", (self.read >= 0) & (self.read <= self.into), "a version that was there: 0 <= read <= into"),
        ):
            if not ok.all():
                g = int(np.argmin(ok))
                raise ValueError(f"{name} must be {right}, got {getattr(self, name)[g]} for gradient {g}")

    def _set(self, name: str, array: NDArray[np.generic]) -> None:
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    @property
    def U(self) -> int:
        """Number of updates."""
        return len(self.applied_s)

    @property
    def tau(self) -> IntArray:
        """(G,) staleness of each gradient: how many updates came between the version it was computed at and its own."""
        return self.into - self.read

    def staleness(self) -> IntArray:
        """Histogram of tau: entry i is the number of gradients that were i versions old."""
        return np.bincount(self.tau)

    def used(self) -> IntArray:
        """(K,) gradients of each worker that went into an update."""
        return np.bincount(self.rank, minlength=self.K)
