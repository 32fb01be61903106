"""What a launch gives back, the same in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from labkit.timing.timeline import Kind, Timeline

#: What a rank is doing: its own code, one end of a message, waiting in a barrier, nothing any more.
RUNNING, SENDING, RECEIVING, MEETING, FINISHED = range(5)
OPPOSITE = {SENDING: RECEIVING, RECEIVING: SENDING}


class Task(NamedTuple):
    """What every rank is to run: ``f(comm, *args, **kwargs)``."""

    f: Callable[..., Any]
    args: tuple
    kwargs: dict


class Site(NamedTuple):
    """Where K workers live: a device and a host a rank; the emulated network that joins them; None: this host's own."""

    backend: str
    devices: list[str]
    hosts: tuple[int, ...]
    network: Any = None


class Record(NamedTuple):
    """What one worker's ``Comm`` noted, in seconds since the common start.

    spans: (step, kind, start, end); arrivals: (name, time) at each synchronisation point.
    messages: (op, peer, number, posted, wait begun, wait ended, step); their spans show when both ends are known.
    """

    spans: Sequence[tuple[int, int, float, float]]
    arrivals: list[tuple[str, float]]
    messages: Sequence[tuple[int, int, int, float, float, float, int]]
    bytes_sent: int
    messages_sent: int
    ended_s: float


@dataclass(frozen=True, eq=False)
class Run:
    """The outcome of one launch.

    results: what each rank returned, in order of rank. timeline: compute, wait and communicate, per rank and step.
    bytes_sent, messages_sent: (K,) integers, payload only. elapsed_s: seconds from the common start to the last rank's end;
    virtual in a simulation. world: ``"simulated"``, ``"processes"`` or ``"emulated"``. where: the model the times come from,
    or the machine, backend and date they were measured on.

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
    def of(
        cls, results: list[Any], records: list[Record], world: str, where: str
    ) -> Run:
        """One ``Run`` of what the workers of ``world`` returned and recorded."""
        how = "simulated" if world == "simulated" else "measured"
        timeline = Timeline.from_spans(
            len(records),
            _spans(records),
            arrivals=_arrivals(records),
            measured=how == "measured",
            where=where,
        )
        nbytes = np.array([record.bytes_sent for record in records])
        messages = np.array([record.messages_sent for record in records])
        elapsed_s = max(record.ended_s for record in records)
        said = f"{how}: {where}"
        return cls(results, timeline, nbytes, messages, elapsed_s, world, said)

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
        sent = f"{int(self.bytes_sent.sum()):,} bytes in {int(self.messages_sent.sum()):,} messages"
        return f"Run of {self.K} workers, {how}: {self.elapsed_s * 1e3:.3g} ms, {sent}\n  {self.where}"


def _arrivals(records: list[Record]) -> Iterator[tuple[str, Any]]:
    """Per synchronisation point its name and the K arrival times, nan for who never came."""
    each = [record.arrivals for record in records]
    for point in zip_longest(*each, fillvalue=("", np.nan)):
        names, times = zip(*point, strict=True)
        yield max(names), times


def _spans(records: list[Record]) -> list[tuple]:
    """Of all ranks. A wait for a message is split when both ends had posted it: waiting before, communicating after."""
    spans: list[tuple] = []
    posts = {}
    for k, record in enumerate(records):
        spans += [(k, *span) for span in record.spans]
        for op, peer, number, posted, *_ in record.messages:
            posts[op, k, peer, number] = posted
    for k, record in enumerate(records):
        for op, peer, number, _, begun, ended, step in record.messages:
            other = posts.get((OPPOSITE[op], peer, k, number), begun)
            both = min(max(other, begun), ended)
            if both > begun:
                spans.append((k, step, Kind.WAIT, begun, both))
            if ended > both:
                spans.append((k, step, Kind.COMMUNICATE, both, ended))
    return spans
