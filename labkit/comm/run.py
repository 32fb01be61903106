"""What a launch gives back, the same in every world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.timing.timeline import Timeline


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


def arrival_points(arrivals: list[list[tuple[str, float]]]) -> list[tuple[str, np.ndarray]]:
    """Per synchronisation point its name and the (K,) arrival times, from each rank's own (name, time) list."""
    points = []
    longest = max(arrivals, key=lambda own: len(own))
    for i, (name, _) in enumerate(longest):
        points.append((name, np.array([own[i][1] if i < len(own) else np.nan for own in arrivals])))
    return points
