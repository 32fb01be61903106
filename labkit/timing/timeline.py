"""What happened when: spans of compute, wait and communicate for each worker, and who arrived when.

Recurrences, simulations and real runs all produce a `Timeline`; plots and reports read nothing else.
Symbols: K workers, T steps, S synchronisation points. Times are seconds on one clock shared by all workers.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import FloatArray, column, every, integer

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

    K: number of workers.
    rank, step, kind, start_s, end_s: equal-length 1-D arrays, one entry a span; 0 <= rank < K; step >= 0, or
        -1 for what lies outside all steps; kind a `Kind`; end_s >= start_s. A worker's spans may overlap
        (communication hidden behind compute does).
    arrivals_s: (K, S) seconds at which each worker reached each synchronisation point; nan where it did not.
    names: S names of the synchronisation points.
    measured: True if a clock measured these times, False if a model made them.
    where: the machine and the day, or the model.
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
        K, n = integer("K", self.K, least=1), np.size(self.rank)
        names = tuple(self.names)
        for name in ("rank", "step", "kind"):
            object.__setattr__(self, name, column(name, getattr(self, name), n, whole=True))
        for name in ("start_s", "end_s"):
            object.__setattr__(self, name, column(name, getattr(self, name), n))
        arrivals = np.array(self.arrivals_s, dtype=np.float64)
        arrivals.setflags(write=False)
        object.__setattr__(self, "arrivals_s", arrivals)
        object.__setattr__(self, "names", names)
        every("rank", self.rank, (self.rank >= 0) & (self.rank < K), f"between 0 and {K - 1}")
        every("step", self.step, self.step >= -1, "a step >= 0, or -1 outside all steps")
        every("kind", self.kind, (self.kind >= 0) & (self.kind <= 2), "0 compute, 1 wait or 2 communicate")
        every("start_s", self.start_s, np.isfinite(self.start_s), "finite seconds")
        ordered = np.isfinite(self.end_s) & (self.end_s >= self.start_s)
        every("end_s", self.end_s, ordered, "finite seconds, no earlier than its start_s")
        if arrivals.shape != (K, len(names)):
            raise ValueError(
                f"arrivals_s must have shape (K, S) = ({K}, {len(names)}), S the number of names, got {arrivals.shape}"
            )
        every("arrivals_s", arrivals, ~np.isinf(arrivals), "seconds, or nan for no arrival")

    @classmethod
    def from_spans(
        cls,
        K: int,
        spans: Iterable[tuple[int, int, int, float, float]] | FloatArray,
        *,
        arrivals: Iterable[tuple[str, ArrayLike]] = (),
        measured: bool,
        where: str,
    ) -> Timeline:
        """From ``(rank, step, kind, start_s, end_s)``, tuples or an (n, 5) array, and ``(name, K arrival times)`` pairs."""
        if not isinstance(spans, np.ndarray):
            rows = list(spans)
            if any(len(row) != 5 for row in rows):
                raise ValueError(
                    "spans must be tuples (rank, step, kind, start_s, end_s), got another length"
                )
            spans = np.array(rows, dtype=np.float64).reshape(-1, 5)
        rank, step, kind, start, end = spans.T
        points = [(name, np.asarray(times, dtype=np.float64)) for name, times in arrivals]
        for name, times in points:
            if times.shape != (K,):
                raise ValueError(
                    f"arrivals must give K = {K} times for {name!r} (nan for no arrival), got {times.shape}"
                )
        columns = np.stack([times for _, times in points], axis=1) if points else np.empty((K, 0))
        return cls(
            K, rank, step, kind, start, end, columns,
            tuple(name for name, _ in points), measured, where,
        )  # fmt: skip

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
        arrivals_s: (K, T) arrivals at each step's synchronisation point; None: when computing ends."""
        times = [np.asarray(m, dtype=np.float64) for m in marks]
        if len(times) != len(kinds) + 1 or any(m.ndim != 2 or m.shape != times[0].shape for m in times):
            shapes = ", ".join(str(m.shape) for m in times)
            raise ValueError(f"marks must be {len(kinds) + 1} matrices of one shape (K, T), got {shapes}")
        start, end = np.stack(times[:-1], axis=-1), np.stack(times[1:], axis=-1)
        rank, step = np.indices(start.shape)[:2]
        kind = np.broadcast_to(np.array(kinds, dtype=np.int64), start.shape)
        keep = ~(np.isnan(start) | np.isnan(end)) & ((end != start) | (kind == Kind.COMPUTE))
        arrived = times[1] if arrivals_s is None else np.asarray(arrivals_s)
        return cls(
            len(start), rank[keep], step[keep], kind[keep], start[keep], end[keep], arrived,
            tuple(f"step {t}" for t in range(start.shape[1])), measured, where,
        )  # fmt: skip

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
        cells = np.bincount(self.rank * 3 + self.kind, self.end_s - self.start_s, minlength=3 * self.K)
        return cells.astype(np.float64).reshape(self.K, 3)

    def per_step(self, kind: Kind) -> FloatArray:
        """(K, T) seconds each worker spent on ``kind`` in each step."""
        of = (self.kind == Kind(kind)) & (self.step >= 0)
        seconds = (self.end_s - self.start_s)[of]
        cells = np.bincount(self.rank[of] * self.T + self.step[of], seconds, minlength=self.K * self.T)
        return cells.astype(np.float64).reshape(self.K, self.T)

    def utilisation(self) -> FloatArray:
        """(K,) share of the elapsed time each worker computed; 0 if no time elapsed."""
        return self.totals()[:, Kind.COMPUTE] / (self.elapsed_s or 1.0)

    def computing(self, at_s: ArrayLike) -> FloatArray:
        """Share of the workers that compute at each of the times at_s, of at_s's shape. Falling to zero in
        unison, again and again, is the sawtooth of a barrier that waits for one worker."""
        of = self.kind == Kind.COMPUTE
        started = np.searchsorted(np.sort(self.start_s[of]), at_s, side="right")
        ended = np.searchsorted(np.sort(self.end_s[of]), at_s, side="right")
        return (started - ended) / self.K

    def steps(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(K, T) start of the first compute span, its last one's end, and the end of the last compute or communicate span;
        nan where nothing was computed."""
        shape = self.K, self.T
        start, computed, end = np.full(shape, np.inf), np.full(shape, -np.inf), np.full(shape, -np.inf)
        inside = self.step >= 0
        compute = inside & (self.kind == Kind.COMPUTE)
        for into, ufunc, of, value in (
            (start, np.minimum, compute, self.start_s),
            (computed, np.maximum, compute, self.end_s),
            (end, np.maximum, inside & (self.kind != Kind.WAIT), self.end_s),
        ):
            ufunc.at(into, (self.rank[of], self.step[of]), value[of])
        nothing = np.isinf(start)
        for one in (start, computed, end):
            one[nothing] = np.nan
        return start, computed, end

    def lead(self) -> IntArray:
        """(K, T) steps by which each worker is ahead of the slowest as it starts to compute each step.

        Worker k starts step t when everyone has computed t - lead[k, t] steps. ValueError unless every worker computes in
        every step.
        """
        start, computed, _ = self.steps()
        if np.isnan(start).any():
            k, t = np.argwhere(np.isnan(start))[0]
            raise ValueError(
                f"timeline must have a compute span for every worker and step, got none for worker {k}, step {t}"
            )
        everyone = computed.max(axis=0)  # when the slowest has computed step t
        return np.arange(self.T) - np.searchsorted(everyone, start, side="right")

    def _table(self) -> tuple[str, list[list[str]]]:
        source = "measured on" if self.measured else "simulated:"
        head = f"{self.K} workers, {self.T} steps, {1e3 * self.elapsed_s:.2f} ms ({source} {self.where})"
        rows = [["rank", "compute ms", "wait ms", "communicate ms", "busy"]]
        for k, (seconds, busy) in enumerate(zip(self.totals(), self.utilisation(), strict=True)):
            if k == _ROWS and self.K > _ROWS + 1:
                rows.append([f"... {self.K - _ROWS} more", "", "", "", ""])
                break
            rows.append([str(k), *(f"{1e3 * s:.2f}" for s in seconds), f"{100 * busy:.1f} %"])
        return head, rows

    def __str__(self) -> str:
        head, rows = self._table()
        return "\n".join([head, *("".join(f"{cell:>15}" for cell in row) for row in rows)])

    def __repr__(self) -> str:
        return f"<Timeline: {self._table()[0]}>"

    def _repr_html_(self) -> str:
        head, (first, *rest) = self._table()
        top = "".join(f"<th>{cell}</th>" for cell in first)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rest)
        return f"<table><caption>{html.escape(head)}</caption><tr>{top}</tr>{body}</table>"
