"""Methods that need servers to decide who may go on: backup workers, stale synchronous, asynchronous.

The servers are sharded over the workers: on a flat network a push and a pull then cost what a ring all-reduce does, on
hosts that share a port more (`network.push_pull`).
Symbols: K workers, s ``slack``.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.cost.plan.inputs import Cluster, Job, finite_mean
from labkit.cost.plan.method import Method, Step, simulated, steady_s
from labkit.cost.plan.network import push_pull
from labkit.timing import backup_ends, ssp_ends
from labkit.timing._check import integer


@dataclass(frozen=True)
class Backup(Method):
    """A round is over with the first K - backups gradients (Chen et al. 2016); servers collect them."""

    backups: int = 1
    simulated = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("backups", self.backups, least=0)

    @property
    def name(self) -> str:
        return f"backup:{self.backups}"

    @property
    def assumption(self) -> str:
        return f"(K - {self.backups}) / K of the batch counts; that no kind of example is dropped is assumed"

    def examples(self, job: Job, K: int) -> float:
        return job.total(K) * (K - self.backups) / K

    def refusal(self, K: int) -> str | None:
        if self.backups >= K:
            return f"backups must be less than K = {K}, got {self.backups}"
        return super().refusal(K)

    def floor_s(self, job: Job, cluster: Cluster, K: int) -> float:
        """K - backups gradients a round, of workers that make no more than one in each of their means."""
        rate = sum(n / one.mean for one, n in job.law.groups(K).items())
        computing = (K - self.backups) / rate * job.compute_s(job.batch(K))
        return computing + push_pull(cluster.network, K, job.nbytes).seconds

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        wire = push_pull(cluster.network, K, job.nbytes)
        c = wire.seconds / job.compute_s(job.batch(K))
        return simulated(job, K, wire, lambda X: backup_ends(X, self.backups, c))


@dataclass(frozen=True)
class SSP(Method):
    """Nobody more than ``slack`` steps ahead of the slowest (Ho et al. 2013); servers sharded over the workers."""

    slack: int = 3
    simulated = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("slack", self.slack, least=0)

    @property
    def name(self) -> str:
        return f"ssp:{self.slack}"

    @property
    def assumption(self) -> str:
        return "optimistic: as many steps as sync; stale gradients may need a smaller step size"

    def floor_s(self, job: Job, cluster: Cluster, K: int) -> float:
        return steady_s(job, K) + push_pull(cluster.network, K, job.nbytes).seconds

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        wire = push_pull(cluster.network, K, job.nbytes)
        c = wire.seconds / job.compute_s(job.batch(K))
        return simulated(job, K, wire, lambda X: ssp_ends(X, self.slack, c), memory=self.slack)


@dataclass(frozen=True)
class Async(Method):
    """Nobody waits for anybody (Dean et al. 2012): each worker k makes 1 / (its compute + communication) steps a second."""

    @property
    def name(self) -> str:
        return "async"

    @property
    def assumption(self) -> str:
        return "optimistic: as many steps as sync, however stale the gradients are"

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        finite_mean(job.law, K)
        wire, t = push_pull(cluster.network, K, job.nbytes), job.compute_s(job.batch(K))
        rate = sum(n / (t * one.mean + wire.seconds) for one, n in job.law.groups(K).items())
        seconds = K / rate
        return Step(seconds - wire.seconds, 0.0, wire.latency_s, wire.bandwidth_s, algorithm=wire.algorithm)
