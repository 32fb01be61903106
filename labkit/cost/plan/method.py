"""A way to train, as a plan sees it: what a step takes, how many examples count in it, how many steps it needs.

A step is the time in which all workers together compute B = K b examples (or would, if none were dropped). Its seconds are
those of `labkit.timing`'s recurrences with the communication priced by `network`. What a method costs in *steps* is known
for few of them: each says in a sentence what is assumed, takes a ``steps_factor`` that the reader may have measured, and the
plan says how large it could be before the method loses (`labkit.cost.plan.why.break_even`).

Symbols: K workers, b examples each, B = K b.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from labkit.cost.plan.inputs import Cluster, Job, Target, finite_mean
from labkit.cost.plan.network import Wire
from labkit.cost.plan.pace import K_MAX, pace
from labkit.timing import expected_max
from labkit.timing._check import FloatArray, number


class Step(NamedTuple):
    """Mean seconds of a step, split: what an average worker computes, waits, and spends on communication.

    Communication is split too: messages (latency), bytes (bandwidth), encoding and decoding; what is hidden behind
    computation is not in it. error_s: standard error of the sum, where it is simulated. algorithm: of the communication.
    """

    compute_s: float
    wait_s: float
    latency_s: float = 0.0
    bandwidth_s: float = 0.0
    coding_s: float = 0.0
    error_s: float = 0.0
    algorithm: str = "none"

    @property
    def comm_s(self) -> float:
        return self.latency_s + self.bandwidth_s + self.coding_s

    @property
    def seconds(self) -> float:
        return self.compute_s + self.wait_s + self.comm_s


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to train. steps_factor: how many times the steps that ``steps`` states are needed, > 0; measured or guessed."""

    steps_factor: float = 1.0

    def __post_init__(self) -> None:
        number("steps_factor", self.steps_factor, above=0)

    @property
    @abstractmethod
    def name(self) -> str:
        """What tables call it, as `labkit.cost.plan.spelling` writes it."""

    @property
    @abstractmethod
    def assumption(self) -> str:
        """One sentence: what is assumed of its number of steps."""

    @abstractmethod
    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        """The step's seconds with K workers."""

    def floor_s(self, job: Job, cluster: Cluster, K: int) -> float:
        """Seconds that a step takes at least, told without a simulation; 0 where ``step`` needs none."""
        return 0.0

    def examples(self, job: Job, K: int) -> float:
        """Examples that count in a step."""
        return job.total(K)

    def steps(self, job: Job, target: Target, K: int) -> float:
        """Steps to the accuracy asked."""
        return self.steps_factor * float(target.steps(self.examples(job, K)))

    #: Whether chance is averaged over simulated steps, because there is no closed form.
    simulated: ClassVar[bool] = False

    def refusal(self, K: int) -> str | None:
        """Why it is not possible with K workers, if it isn't."""
        if self.simulated and K > K_MAX:
            return f"K must be at most {K_MAX} for {self.name}, whose steps are simulated, got {K}"
        return None


def mean_s(job: Job, K: int) -> float:
    """Mean seconds that a worker computes in a step, averaged over the workers."""
    finite_mean(job.law, K)
    mean = sum(n * one.mean for one, n in job.law.groups(K).items()) / K
    return job.compute_s(job.batch(K)) * mean


def slowest_s(job: Job, K: int) -> float:
    """Mean seconds that the slowest of them computes."""
    return max(job.compute_s(job.batch(K)) * expected_max(job.law, K), mean_s(job, K))


def steady_s(job: Job, K: int) -> float:
    """Mean seconds that the worker with the largest mean computes: nobody who needs every step of everyone is quicker."""
    return job.compute_s(job.batch(K)) * max(one.mean for one in job.law.groups(K))


def simulated(
    job: Job, K: int, wire: Wire, ends: Callable[[FloatArray], FloatArray], every: int = 1, memory: int = 0
) -> Step:
    """The step of a recurrence, whose communication is ``wire``: what is neither computing nor communicating is waiting."""
    finite_mean(job.law, K)
    t = job.compute_s(job.batch(K))
    found = pace(job.law, K, ends, every, memory)
    busy = t * found.mean - wire.seconds
    compute = min(mean_s(job, K), busy)  # a late worker's dropped work does not lengthen the round
    if math.isclose(compute, busy, rel_tol=1e-9):
        compute = busy  # rounding is not waiting
    return Step(
        compute,
        busy - compute,
        wire.latency_s,
        wire.bandwidth_s,
        error_s=t * found.error,
        algorithm=wire.algorithm,
    )
