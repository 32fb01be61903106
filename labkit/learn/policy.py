"""Who may go on: the barrier policies that a parameter server enforces.

The server tells a policy of every gradient that arrives; the policy says what becomes of it and whose answer is due. A
worker whose answer is held back waits: that is all a barrier is.

- Asynchronous (Dean et al. 2012, *Large scale distributed deep networks*, section 4.1): used and answered at once.
- Stale synchronous (Ho et al. 2013, section 3): used at once, answered when the slowest is at most s steps behind.
- Synchronous, with b backup workers (Chen et al. 2016, *Revisiting distributed synchronous SGD*, section 3): the first
  K - b gradients of a round make one update, then all who wait are answered; a late one is dropped when it arrives.

Symbols: K workers, T steps, s ``slack``, b ``backups``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from labkit.learn.problems import Array
from labkit.timing._check import integer


class Push(NamedTuple):
    """A gradient that has arrived: g (d,), mean over some ``examples``, which ``worker`` computed in its own ``step``
    at version ``read``."""

    worker: int
    step: int
    read: int
    examples: int
    g: Array


class Desk(Protocol):
    """What a policy may see and do at the server.

    K: workers. version: updates so far. received: gradients that have come, per worker. waiting: the workers whose
    answer is due, in order of arrival.
    """

    K: int
    version: int
    received: list[int]
    waiting: list[int]

    def apply(self, pushes: list[Push]) -> None:
        """One update with the mean over these gradients' examples."""

    def drop(self, push: Push) -> None:
        """Count a gradient as not used."""

    def answer(self, workers: list[int]) -> None:
        """Send w to these workers, who then go on."""


class Policy(Protocol):
    """A barrier policy; a frozen dataclass."""

    def updates(self, K: int, T: int) -> int:
        """After how many updates all is done; ValueError if the policy doesn't fit K workers."""

    def arrived(self, desk: Desk, push: Push, collected: list[Push]) -> None:
        """A gradient has come from a worker that now waits. collected: the server's, for gradients kept for later."""


@dataclass(frozen=True)
class Asynchronous:
    """No barrier: every worker takes T steps at its own pace."""

    def updates(self, K: int, T: int) -> int:
        return K * T

    def arrived(self, desk: Desk, push: Push, collected: list[Push]) -> None:
        desk.apply([push])
        desk.answer([push.worker])


@dataclass(frozen=True)
class StaleSynchronous:
    """No worker starts step t before the slowest has finished step t - slack - 1. Every worker takes T steps.

    slack: steps, >= 0. 0 gives rounds, as ``Synchronous``, but with an update for each gradient; T or more never waits.
    """

    slack: int

    def __post_init__(self) -> None:
        integer("slack", self.slack)

    def updates(self, K: int, T: int) -> int:
        return K * T

    def arrived(self, desk: Desk, push: Push, collected: list[Push]) -> None:
        desk.apply([push])
        slowest = min(desk.received)
        desk.answer([k for k in desk.waiting if desk.received[k] - slowest <= self.slack])


@dataclass(frozen=True)
class Synchronous:
    """T rounds of one update each, made of the first K - backups gradients that were computed for it.

    backups: workers that a round does without, from 0 to K - 1.
    """

    backups: int = 0

    def __post_init__(self) -> None:
        integer("backups", self.backups)

    def updates(self, K: int, T: int) -> int:
        if self.backups >= K:
            raise ValueError(f"backups must be below the K = {K} workers, got {self.backups}")
        return T

    def arrived(self, desk: Desk, push: Push, collected: list[Push]) -> None:
        if push.read < desk.version:  # its round is over
            desk.drop(push)
            desk.answer([push.worker])
            return
        collected.append(push)
        if len(collected) == desk.K - self.backups:
            desk.apply(collected)
            collected.clear()
            desk.answer(list(desk.waiting))
