"""Synchronous training that sends something shorter than the gradient, and what its noise costs in steps.

Symbols: K workers, b examples each, g the gradient, omega: E ||Q(x) - x||^2 <= omega ||x||^2 of an unbiased compressor Q.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.compress import Compressor, Identity, Scheme, as_scheme
from labkit.cost.plan.inputs import Cluster, Job, Target
from labkit.cost.plan.method import Method, Step, mean_s, slowest_s
from labkit.cost.plan.network import all_gather, allreduce
from labkit.timing._check import number


@dataclass(frozen=True)
class Compressed(Method):
    """Sync that sends what ``how`` makes of a gradient: summed in flight where that is possible, else gathered.

    coding_s: seconds to encode and decode a step's gradient; 0 is optimistic. omega: the variance that an unbiased
    compressor adds, E ||Q(x) - x||^2 <= omega ||x||^2; 0 for a biased one with error feedback.
    label: what tables call it; None: made of ``how``.
    """

    how: Scheme | Compressor = field(default_factory=Identity)
    coding_s: float = 0.0
    omega: float = 0.0
    label: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        as_scheme(self.how)
        number("coding_s", self.coding_s, least=0)
        number("omega", self.omega, least=0)

    @property
    def name(self) -> str:
        return self.label if self.label is not None else type(self.how).__name__.lower()

    @property
    def assumption(self) -> str:
        free = "" if self.coding_s else ", and coding takes no time"
        if self.omega:
            return f"at worst as gradients noisier by omega = {self.omega:.3g} need{free}"
        return f"optimistic: as many steps as sync{free}"

    def step(self, job: Job, cluster: Cluster, K: int) -> Step:
        mean, slowest = mean_s(job, K), slowest_s(job, K)
        latency = bandwidth = 0.0
        done = []
        for summed, n, size in as_scheme(self.how).crossings(job.P, job.itemsize):
            wire = (
                allreduce(cluster.network, K, n * size, cluster.allreduce)
                if summed
                else all_gather(cluster.network, K, n * size)
            )
            latency, bandwidth = latency + wire.latency_s, bandwidth + wire.bandwidth_s
            done.append(wire.algorithm)
        coding = self.coding_s if K > 1 else 0.0
        used = " + ".join(dict.fromkeys(done)) or "none"
        return Step(mean, slowest - mean, latency, bandwidth, coding, algorithm=used)

    def steps(self, job: Job, target: Target, K: int) -> float:
        """Steps of the hyperbola whose noise scale is the compressed gradients'.

        A worker's gradient has E ||g_k||^2 = |g|^2 (1 + B_noise / b). Compressed it has (1 + omega) times the variance and
        omega |g|^2 on top, so the mean of K has the noise scale (1 + omega) B_noise + omega b, or + omega B where all
        workers draw alike and their errors don't average out. B_crit is taken to follow it (McCandlish et al. 2018,
        section 2.2, with the compressor's variance added).
        """
        B = self.examples(job, K)
        plain = float(target.steps(B))
        if self.omega == 0 or K == 1:
            return self.steps_factor * plain
        least = getattr(target, "S_min", 0.0)
        alike = getattr(getattr(as_scheme(self.how), "compressor", None), "common", False)
        averaged = 1.0 if alike else job.batch(K) / B
        return self.steps_factor * (plain + self.omega * (plain - least) + least * self.omega * averaged)
