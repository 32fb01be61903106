"""What happened when: spans of compute, wait and communicate for each worker, and who arrived when.

Recurrences, simulations and real runs all produce a `Timeline`; plots and reports read nothing else.
Symbols: K workers, T steps, S synchronisation points. Times are seconds on one clock shared by all workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import FloatArray, every, freeze, integer

IntArray = NDArray[np.int64]
_ROWS = 8  # workers a printed timeline shows one by one


class Kind(IntEnum):
    """What a worker does during a span."""

    COMPUTE = 0
    WAIT = 1
    COMMUNICATE = 2


@dataclass(frozen=True, eq=False)
class Timeline:
    """Spans and arrivals of one run. Arrays are copied, read-only; bad ones are refused with ValueError.

    rank, step, kind, start_s, end_s: 1-D arrays, one entry a span; step >= 0, or -1 for what lies outside all steps; kind a
    `Kind`; end_s >= start_s. A worker's spans may overlap. arrivals_s: (K, S) seconds at which each worker reached each
    synchronisation point; nan where it did not; names: of the points. measured: whether a clock measured these times; where:
    the machine and day, or the model.
    """

    K: int
    rank: IntArray
    step: IntArray
    kind: IntArray
    start_s: FloatArray
    end_s: FloatArray
    arrivals_s: FloatArray
    names: tuple[str, ...]
    measured: bool
    where: str

    def __post_init__(self) -> None:
        K = integer("K", self.K, least=1)
        freeze(self, ("rank", "step", "kind"), int)
        freeze(self, ("start_s", "end_s"), float)
        arrivals = np.array(self.arrivals_s, float)
        arrivals.setflags(write=False)
        object.__setattr__(self, "arrivals_s", arrivals)
        object.__setattr__(self, "names", tuple(self.names))
        shape = K, len(self.names)
        if arrivals.shape != shape or np.isinf(arrivals).any():
            right = f"{shape} seconds, a column for each name, nan for no arrival"
            raise ValueError(f"arrivals_s must be {right}, got {arrivals}")
        known = (self.rank >= 0) & (self.rank < K) & (self.step >= -1)
        known &= (self.kind >= 0) & (self.kind <= 2)
        ordered = np.isfinite(self.start_s) & np.isfinite(self.end_s)
        ordered &= self.start_s <= self.end_s
        right = (
            f"a rank below {K}, a step >= -1, a kind 0 to 2, finite seconds in order"
        )
        every(
            "span",
            known & ordered,
            right,
            self,
            ("rank", "step", "kind", "start_s", "end_s"),
        )

    @classmethod
    def from_spans(
        cls,
        K: int,
        spans: ArrayLike,
        *,
        arrivals: Iterable[tuple[str, ArrayLike]] = (),
        measured: bool,
        where: str,
    ) -> Timeline:
        """From ``(rank, step, kind, start_s, end_s)``, tuples or an (n, 5) array, and ``(name, K arrival times)`` pairs."""
        columns: Any = np.asarray(spans, float).reshape(-1, 5).T
        points = list(arrivals)
        times = [np.asarray(each, float) for _, each in points]
        reached = np.stack(times, axis=1) if times else np.empty((K, 0))
        names = tuple(name for name, _ in points)
        rank, step, kind, start, end = columns
        return cls(K, rank, step, kind, start, end, reached, names, measured, where)

    @classmethod
    def from_marks(
        cls,
        *marks: ArrayLike,
        kinds: Sequence[Kind] = (Kind.COMPUTE, Kind.WAIT, Kind.COMMUNICATE),
        arrivals_s: ArrayLike | None = None,
        where: str,
        measured: bool = False,
    ) -> Timeline:
        """From (K, T) matrices of times, one more than there are kinds: in each step every worker does ``kinds[i]`` from
        ``marks[i]`` to ``marks[i + 1]``; nan where there was nothing. Spans of no time are left out, but for computing.
        arrivals_s: (K, T) arrivals at each step's synchronisation point; None: when computing ends.
        """
        times = [np.asarray(m, float) for m in marks]
        start = np.stack(times[:-1], axis=-1)
        end = np.stack(times[1:], axis=-1)
        of_kind = np.broadcast_to(np.array(kinds, np.int64), start.shape)
        there = ~np.isnan(start + end) & ((end != start) | (of_kind == Kind.COMPUTE))
        rank, step, _ = np.nonzero(there)
        spans = np.stack(
            [rank, step, of_kind[there], start[there], end[there]], axis=1
        )
        arrived = times[1] if arrivals_s is None else np.asarray(arrivals_s)
        K, T = start.shape[:2]
        points = [(f"step {t}", arrived[:, t]) for t in range(T)]
        return cls.from_spans(
            K, spans, arrivals=points, measured=measured, where=where
        )

    @property
    def T(self) -> int:
        """Number of steps: one more than the largest step of any span."""
        return int(self.step.max(initial=-1)) + 1

    @property
    def begin_s(self) -> float:
        """When the first span starts; 0 without spans."""
        return float(self.start_s.min()) if len(self.start_s) else 0.0

    @property
    def finish_s(self) -> float:
        """When the last span ends; 0 without spans."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first span's start to the last one's end."""
        return self.finish_s - self.begin_s

    @property
    def idle_s(self) -> float:
        """Seconds spent waiting, summed over the workers."""
        return float(self.totals()[:, Kind.WAIT].sum())

    def totals(self) -> FloatArray:
        """(K, 3) seconds each worker spent computing, waiting, communicating."""
        seconds = np.zeros((self.K, 3))
        np.add.at(seconds, (self.rank, self.kind), self.end_s - self.start_s)
        return seconds

    def per_step(self, kind: Kind) -> FloatArray:
        """(K, T) seconds each worker spent on ``kind`` in each step."""
        of = (self.kind == Kind(kind)) & (self.step >= 0)
        cell = self.rank[of], self.step[of]
        seconds = np.zeros((self.K, self.T))
        np.add.at(seconds, cell, self.end_s[of] - self.start_s[of])
        return seconds

    def utilisation(self) -> FloatArray:
        """(K,) share of the elapsed time each worker computed; 0 if no time elapsed."""
        return self.totals()[:, Kind.COMPUTE] / (self.elapsed_s or 1.0)

    def steps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(K, T) each, nan where nothing was computed: when the first compute span starts, when the last one ends, and when
        the last compute or communicate span does."""
        inside = self.step >= 0
        compute = inside & (self.kind == Kind.COMPUTE)
        busy = inside & (self.kind != Kind.WAIT)
        cell = self.rank[compute], self.step[compute]
        start, computed, end = np.full((3, self.K, self.T), np.nan)
        np.fmin.at(start, cell, self.start_s[compute])
        np.fmax.at(computed, cell, self.end_s[compute])
        np.fmax.at(end, (self.rank[busy], self.step[busy]), self.end_s[busy])
        end[np.isnan(start)] = np.nan
        return start, computed, end

    def __str__(self) -> str:
        source = "measured on" if self.measured else "simulated:"
        took = f"{1e3 * self.elapsed_s:.2f} ms ({source} {self.where})"
        head = f"{self.K} workers, {self.T} steps, {took}"
        rows = [["rank", "compute ms", "wait ms", "communicate ms", "busy"]]
        shown = self.K if self.K <= _ROWS + 1 else _ROWS
        totals, busy = self.totals(), self.utilisation()
        for k in range(shown):
            ms = [f"{1e3 * s:.2f}" for s in totals[k]]
            rows.append([str(k), *ms, f"{100 * busy[k]:.1f} %"])
        if shown < self.K:
            rows.append([f"... {self.K - shown} more"])
        table = ["".join(f"{cell:>15}" for cell in row) for row in rows]
        return "\n".join([head, *table])

    __repr__ = __str__
