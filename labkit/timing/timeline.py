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

from labkit.timing._check import FloatArray, integer, matrix

IntArray = NDArray[np.int64]
_MARKS = ("start", "arrive", "leave", "end")
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
        integer("K", self.K, least=1)
        for name, dtype in [
            ("rank", int),
            ("step", int),
            ("kind", int),
            ("start_s", float),
            ("end_s", float),
        ]:
            given = np.asarray(getattr(self, name))
            array = given.astype(np.int64 if dtype is int else np.float64)
            if array.ndim != 1 or len(array) != len(np.atleast_1d(self.rank)):
                raise ValueError(
                    f"{name} must be a 1-D array with one entry a span like rank, got shape {array.shape}"
                )
            _all(name, given, array == given if dtype is int else np.full(array.shape, True), "whole numbers")
            self._set(name, array)
        self._set("arrivals_s", np.array(self.arrivals_s, dtype=np.float64))
        object.__setattr__(self, "names", tuple(self.names))
        _all("rank", self.rank, (self.rank >= 0) & (self.rank < self.K), f"between 0 and {self.K - 1}")
        _all("step", self.step, self.step >= -1, "a step >= 0, or -1 outside all steps")
        _all("kind", self.kind, (self.kind >= 0) & (self.kind <= 2), "0 compute, 1 wait or 2 communicate")
        _all("start_s", self.start_s, np.isfinite(self.start_s), "finite seconds")
        ordered = np.isfinite(self.end_s) & (self.end_s >= self.start_s)
        _all("end_s", self.end_s, ordered, "finite seconds, no earlier than its start_s")
        if self.arrivals_s.shape != (self.K, len(self.names)):
            raise ValueError(
                f"arrivals_s must have shape (K, S) = ({self.K}, {len(self.names)}), S the number of names, "
                f"got {self.arrivals_s.shape}"
            )
        _all("arrivals_s", self.arrivals_s, ~np.isinf(self.arrivals_s), "seconds, or nan for no arrival")

    def _set(self, name: str, array: NDArray[np.generic]) -> None:
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    @classmethod
    def from_spans(
        cls,
        K: int,
        spans: Iterable[tuple[int, int, int, float, float]],
        *,
        arrivals: Iterable[tuple[str, ArrayLike]] = (),
        measured: bool,
        where: str,
    ) -> Timeline:
        """From ``(rank, step, kind, start_s, end_s)`` tuples and ``(name, K arrival times)`` pairs."""
        rows = list(spans)
        if any(len(row) != 5 for row in rows):
            raise ValueError("spans must be tuples (rank, step, kind, start_s, end_s), got another length")
        rank, step, kind, start, end = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        points = [(name, np.asarray(times, dtype=np.float64)) for name, times in arrivals]
        for name, times in points:
            if times.shape != (K,):
                raise ValueError(
                    f"arrivals must give K = {K} times for {name!r} (nan for no arrival), got {times.shape}"
                )
        columns = np.stack([times for _, times in points], axis=1) if points else np.empty((K, 0))
        return cls(
            K, np.array(rank), np.array(step), np.array(kind), np.array(start), np.array(end), columns,
            tuple(name for name, _ in points), measured, where,
        )  # fmt: skip

    @classmethod
    def from_marks(
        cls,
        start_s: ArrayLike,
        arrive_s: ArrayLike,
        leave_s: ArrayLike,
        end_s: ArrayLike,
        *,
        where: str,
        measured: bool = False,
    ) -> Timeline:
        """From four (K, T) matrices of times: each step computes from start to arrive, waits at the
        synchronisation point from arrive to leave, and communicates from leave to end."""
        marks = [
            matrix(f"{n}_s", m) for n, m in zip(_MARKS, (start_s, arrive_s, leave_s, end_s), strict=True)
        ]
        K, T = marks[0].shape
        for name, m in zip(_MARKS, marks, strict=True):
            if m.shape != (K, T):
                raise ValueError(f"{name}_s must have the shape of start_s, ({K}, {T}), got {m.shape}")
        return cls(
            K, *spans(marks[:3], marks[1:], (Kind.COMPUTE, Kind.WAIT, Kind.COMMUNICATE)),
            arrivals_s=marks[1], names=tuple(f"step {t}" for t in range(T)), measured=measured, where=where,
        )  # fmt: skip

    @classmethod
    def from_steps(
        cls,
        compute: ArrayLike,
        wait: ArrayLike,
        communicate: ArrayLike,
        *,
        where: str,
        measured: bool = False,
    ) -> Timeline:
        """From three (K, T) matrices of durations laid end to end for each worker, from time 0. A worker
        arrives at a step's synchronisation point when its compute ends."""
        given = {"compute": compute, "wait": wait, "communicate": communicate}
        durations = [matrix(name, x) for name, x in given.items()]
        for name, x in zip(given, durations, strict=True):
            if x.shape != durations[0].shape:
                raise ValueError(f"{name} must have compute's shape {durations[0].shape}, got {x.shape}")
        ends = np.cumsum(np.stack(durations, axis=-1).reshape(len(durations[0]), -1), axis=1)
        marks = np.concatenate([np.zeros((len(ends), 1)), ends], axis=1)
        starts = [marks[:, i : i + ends.shape[1] : 3] for i in range(4)]
        return cls.from_marks(*starts, where=where, measured=measured)

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


def spans(
    starts: Sequence[FloatArray], ends: Sequence[FloatArray], kinds: Sequence[Kind]
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """The first five columns of a timeline in which every worker does the same things in every step: the i-th is of
    ``kinds[i]`` and lasts from ``starts[i]`` to ``ends[i]``, (K, T) matrices of times, nan where there was nothing.
    Spans of no time are left out, but for those of computing."""
    start, end = np.stack(starts, axis=-1), np.stack(ends, axis=-1)
    rank, step = np.indices(start.shape)[:2]
    kind = np.broadcast_to(np.array(kinds, dtype=np.int64), start.shape)
    there = ~(np.isnan(start) | np.isnan(end))
    keep = there & ((end != start) | (kind == Kind.COMPUTE))
    return rank[keep], step[keep], kind[keep], start[keep], end[keep]


def _all(name: str, array: NDArray[np.generic], ok: NDArray[np.bool_], right: str) -> None:
    if not ok.all():
        raise ValueError(f"{name} must be {right}, got {array[~ok].flat[0]!r}")
