"""The methods that a plan compares if nothing else is said."""

from __future__ import annotations

from labkit.compress import ErrorFeedback, TopK
from labkit.cost.plan.compressed import Compressed
from labkit.cost.plan.method import Method
from labkit.cost.plan.served import SSP, Backup
from labkit.cost.plan.summed import LocalSGD, Overlapped, Sync


def defaults() -> tuple[Method, ...]:
    """What a plan compares if nothing else is said: one of each."""
    return (
        Sync(),
        Overlapped(),
        Backup(1),
        SSP(3),
        LocalSGD(8),
        Compressed(ErrorFeedback(TopK(0.01)), label="topk:0.01"),
    )
