"""What a launch gives back, the same in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
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
        spans = [
            (k, *span) for k, record in enumerate(records) for span in record.spans
        ]
        spans += _message_spans(records)
        timeline = Timeline.from_spans(
            len(records),
            np.reshape(spans, (-1, 5)),
            arrivals=_arrivals([record.arrivals for record in records]),
            measured=how == "measured",
            where=where,
        )
        sent = np.array([(r.bytes_sent, r.messages_sent) for r in records], np.int64)
        elapsed_s = max(record.ended_s for record in records)
        said = f"{how}: {where}"
        nbytes, messages = sent.T
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


def _arrivals(each: list[list[tuple[str, float]]]) -> list[tuple[str, np.ndarray]]:
    """Per synchronisation point its name and the (K,) arrival times, nan for who never came."""
    names = [name for name, _ in max(each, key=len)]
    times = zip_longest(*([t for _, t in own] for own in each), fillvalue=np.nan)
    return [(name, np.array(t)) for name, t in zip(names, times, strict=True)]


def _message_spans(records: list[Record]) -> list[tuple[int, int, int, float, float]]:
    """Split each wait for a message at the moment when both ends had posted it: waiting before, communicating after."""
    messages = [
        (k, *message) for k, r in enumerate(records) for message in r.messages
    ]
    posts = {(op, k, *to): posted for k, op, *to, posted, _, _, _ in messages}
    spans = []
    for k, op, peer, number, _, begun, ended, step in messages:
        other = posts.get((OPPOSITE[op], peer, k, number), begun)
        both = min(max(other, begun), ended)
        spans.append((k, step, int(Kind.WAIT), begun, both))
        spans.append((k, step, int(Kind.COMMUNICATE), both, ended))
    return [span for span in spans if span[4] > span[3]]
