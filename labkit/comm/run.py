"""What a launch gives back, the same in every world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from labkit.timing.timeline import Kind, Timeline

#: What a rank is doing: its own code, one end of a message, waiting in a barrier, nothing any more.
RUNNING, SENDING, RECEIVING, MEETING, FINISHED = range(5)


class Record(NamedTuple):
    """What one worker's ``Comm`` noted, in seconds since the common start.

    spans: (step, kind, start, end), as rows of an array or one by one; arrivals: (name, time) at each synchronisation point.
    messages: (op, peer, posted, wait begun, wait ended, step), of which the spans are not known before both ends are.
    """

    spans: Sequence[tuple[int, int, float, float]] | np.ndarray
    arrivals: list[tuple[str, float]]
    messages: list[tuple[int, int, float, float, float, int]]
    bytes_sent: int
    messages_sent: int
    ended_s: float


@dataclass(frozen=True)
class Run:
    """The outcome of one launch.

    results: what each rank returned, in order of rank.
    timeline: compute, wait and communicate, per rank and step.
    bytes_sent, messages_sent: (K,) integers, payload only.
    elapsed_s: seconds from the common start to the last rank's end; virtual in a simulation.
    world: ``"simulated"``, ``"processes"`` or ``"emulated"``.
    where: the model the times come from, or the machine, backend and date they were measured on.

    >>> run = launch(lambda comm: comm.compute(seconds=1.0 + comm.rank), 3)
    >>> run.elapsed_s, run.bytes_sent.tolist(), run.world
    (3.0, [0, 0, 0], 'simulated')
    """

    results: list[Any]
    timeline: Timeline
    bytes_sent: np.ndarray
    messages_sent: np.ndarray
    elapsed_s: float
    world: str
    where: str

    @classmethod
    def of(cls, results: list[Any], records: list[Record], world: str, where: str) -> Run:
        """One ``Run`` of what the workers of ``world`` returned and recorded."""
        how = "simulated" if world == "simulated" else "measured"
        own = np.concatenate([np.reshape(r.spans, (-1, 4)) for r in records])
        rank = np.repeat(np.arange(len(records)), [len(r.spans) for r in records])
        of_messages = np.reshape(_message_spans(records), (-1, 5))
        timeline = Timeline.from_spans(
            len(records),
            np.concatenate([np.column_stack([rank, own]), of_messages]),
            arrivals=_arrivals([r.arrivals for r in records]),
            measured=how == "measured",
            where=where,
        )
        sent = np.array([(r.bytes_sent, r.messages_sent) for r in records], dtype=np.int64)
        elapsed_s = max(r.ended_s for r in records)
        return cls(results, timeline, sent[:, 0], sent[:, 1], elapsed_s, world, f"{how}: {where}")

    @property
    def K(self) -> int:
        """Number of workers."""
        return len(self.results)

    @property
    def measured(self) -> bool:
        """Whether the times come from a clock (True) or from a model (False)."""
        return self.world != "simulated"

    def __repr__(self) -> str:
        how = "measured" if self.measured else "simulated"
        return (
            f"Run of {self.K} workers, {how}: {self.elapsed_s * 1e3:.3g} ms, "
            f"{int(self.bytes_sent.sum()):,} bytes in {int(self.messages_sent.sum()):,} messages\n  {self.where}"
        )


def _arrivals(each: list[list[tuple[str, float]]]) -> list[tuple[str, np.ndarray]]:
    """Per synchronisation point its name and the (K,) arrival times, nan for who never came."""
    longest = max(each, key=len)
    times = zip_longest(*([t for _, t in own] for own in each), fillvalue=np.nan)
    return [(name, np.array(t)) for (name, _), t in zip(longest, times, strict=True)]


def _message_spans(records: list[Record]) -> list[tuple[int, int, int, float, float]]:
    """Split each wait for a message at the moment when both ends had posted it: waiting before, communicating after."""
    posts: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for k, r in enumerate(records):
        for op, peer, posted, *_ in r.messages:
            posts[op, k, peer].append(posted)
    spans = []
    for k, r in enumerate(records):
        seen: dict[tuple[int, int], int] = defaultdict(int)
        for op, peer, _, begun, ended, step in r.messages:
            other = posts[SENDING + RECEIVING - op, peer, k]
            i = seen[op, peer]
            seen[op, peer] += 1
            both = min(max(other[i] if i < len(other) else begun, begun), ended)
            spans.append((k, step, int(Kind.WAIT), begun, both))
            spans.append((k, step, int(Kind.COMMUNICATE), both, ended))
    return [s for s in spans if s[4] > s[3]]
