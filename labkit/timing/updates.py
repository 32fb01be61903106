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
        if applied.ndim != 1:
            raise ValueError(f"applied_s must be a 1-D array, one time an update, got shape {applied.shape}")
        if not np.isfinite(applied).all():
            raise ValueError(f"applied_s must be finite seconds, got {applied[~np.isfinite(applied)][0]}")
        if (np.diff(applied) < 0).any():
            u = int(np.argmax(np.diff(applied) < 0))
            raise ValueError(
                f"applied_s must be seconds that never decrease, got {applied[u + 1]} after {applied[u]}"
            )
        self._set("applied_s", applied)
        for name in ("into", "rank", "step", "read"):
            self._set(name, self._whole(name))
        if (np.diff(self.into) < 0).any() or not np.array_equal(np.unique(self.into), np.arange(self.U)):
            raise ValueError(
                f"into must count up from 0 to {self.U - 1} with a gradient in each update, got {_short(self.into)}"
                if self.U
                else f"into must be empty where there are no updates, got {_short(self.into)}"
            )
        for name, ok, right in (
            ("rank", (self.rank >= 0) & (self.rank < self.K), f"between 0 and {self.K - 1}"),
            ("step", self.step >= 0, "a step >= 0"),
            (
                "read",
                (self.read >= 0) & (self.read <= self.into),
                "a version that was there: 0 <= read <= into",
            ),
        ):
            if not ok.all():
                g = int(np.argmin(ok))
                raise ValueError(f"{name} must be {right}, got {getattr(self, name)[g]} for gradient {g}")

    def _set(self, name: str, array: NDArray[np.generic]) -> None:
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    def _whole(self, name: str) -> IntArray:
        given, n = np.asarray(getattr(self, name)), np.size(self.into)
        what = f"{name} must be a 1-D array of whole numbers, one for each of {n} gradients"
        if given.shape != (n,):
            raise ValueError(f"{what}, got shape {given.shape}")
        if given.dtype.kind not in "iuf" or not np.isfinite(given).all():
            bad = given[~np.isfinite(given)][0] if given.dtype.kind == "f" else given.dtype
            raise ValueError(f"{what}, got {bad}")
        whole = given.astype(np.int64)
        if (whole != given).any():
            raise ValueError(f"{what}, got {given[whole != given][0]}")
        return whole

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


def _short(array: IntArray) -> str:
    return np.array2string(array, threshold=8)
