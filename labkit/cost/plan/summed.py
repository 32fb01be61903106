"""Methods that sum over all workers: synchronous training, its overlapped form, and local steps with an average.

Symbols: K workers, L buckets, H local steps, p the slowest worker's pass, f_l the share of it after which bucket l is ready.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.cost.plan.inputs import Cluster, Job
from labkit.cost.plan.method import Method, Step, mean_s, simulated, slowest_s, steady_s
from labkit.cost.plan.network import Wire, allreduce
from labkit.timing import local_ends
from labkit.timing._check import integer
from labkit.timing.order import expected_shortfall


@dataclass(frozen=True)
class Sync(Method):
    """Compute, wait for the slowest, sum."""

    @property
    def name(self) -> str:
        return "sync"

    @property
    def assumption(self) -> str:
        return "exact: the steps of one worker with the batch B"

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        mean, slowest = mean_s(job, K), slowest_s(job, K)
        wire = allreduce(cluster.network, K, job.nbytes, cluster.allreduce)
        return Step(mean, slowest - mean, wire.latency_s, wire.bandwidth_s, algorithm=wire.algorithm)


@dataclass(frozen=True)
class Overlapped(Method):
    """Sync whose gradient is summed in L equal buckets while the backward pass goes on (Li et al. 2020, section 3.2.3)."""

    L: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("L", self.L, least=1)

    @property
    def name(self) -> str:
        return f"overlapped:{self.L}"

    @property
    def assumption(self) -> str:
        return "exact, as sync; that sending slows no computation down is assumed"

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        mean, slowest = mean_s(job, K), slowest_s(job, K)
        wire = allreduce(cluster.network, K, job.nbytes / self.L, cluster.allreduce)
        exposed = self.exposed(job, K, wire.seconds)
        part = exposed / wire.seconds if wire.seconds > 0 else 0.0
        return Step(
            mean, slowest - mean, part * wire.latency_s, part * wire.bandwidth_s, algorithm=wire.algorithm
        )

    def exposed(self, job: Job, K: int, bucket_s: float) -> float:
        """Mean seconds of a step in which nothing but communication happens; ``bucket_s``: one bucket's all-reduce.

        Of max over l of (f_l p + (L - l + 1) a) with equal buckets the first or the last l attains the maximum, so the
        channel is late by max(0, (L - 1) a - (f_L - f_1) p) beyond the last bucket's own a; p is random, its law known.
        """
        span = job.backward_share * (1 - 1 / self.L) * job.compute_s(job.batch(K))
        backlog = (self.L - 1) * bucket_s
        late = span * expected_shortfall(job.law, K, backlog / span) if span > 0 else backlog
        return bucket_s + late


@dataclass(frozen=True)
class LocalSGD(Method):
    """H steps on one's own, then an all-reduce of the parameters (Stich 2019)."""

    H: int = 8
    simulated = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("H", self.H, least=1)

    @property
    def name(self) -> str:
        return f"local:{self.H}"

    @property
    def assumption(self) -> str:
        return "optimistic: H local steps are worth H steps of sync"

    def floor_s(self, job: Job, cluster: Cluster, K: int) -> float:
        return (
            steady_s(job, K) + allreduce(cluster.network, K, job.nbytes, cluster.allreduce).seconds / self.H
        )

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        wire = allreduce(cluster.network, K, job.nbytes, cluster.allreduce)
        each = Wire(wire.latency_s / self.H, wire.bandwidth_s / self.H, wire.algorithm)
        c = wire.seconds / job.compute_s(job.batch(K))
        return simulated(job, K, each, lambda X: local_ends(X, self.H, c), every=self.H)
