"""What a plan starts from: the job, the cluster, and the number of steps to the accuracy asked.

Everything is in SI units: seconds, bytes, bytes per second. `labkit.cost.plan.units` reads what people write ("25 Gbit/s").

Symbols: P parameters, b examples per worker and step, B = K b all workers' together, K workers, alpha and beta of a link.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from labkit.cost.link import Link
from labkit.timing._check import integer, number
from labkit.timing.groups import OneStraggler
from labkit.timing.laws import Constant, Law


class Target(Protocol):
    """Steps to the accuracy asked, as a function of the batch; `labkit.learn.Hyperbola` is one, `Examples` another."""

    def steps(self, B: float) -> float:
        """Steps with B examples each, B > 0."""
        ...


@dataclass(frozen=True)
class Examples:
    """So many examples in all, whatever the batch: right far below the critical batch size, optimistic beyond it.

    total: examples, > 0; epochs times the size of the data set.
    """

    total: float

    def __post_init__(self) -> None:
        number("total", self.total, above=0)

    def steps(self, B: float) -> float:
        """``total / B``."""
        return self.total / number("B", B, above=0)


@dataclass(frozen=True)
class Job:
    """One training job.

    P: parameters. example_s: seconds that one worker computes for one example, forward and backward.
    b or B: examples per step, of each worker (weak scaling: B = K b grows with K) or of all (strong scaling: b = B / K).
    itemsize: bytes of an element of the gradient on the wire. overhead_s: seconds of a step that don't depend on b.
    law: the law of the *factor* by which a worker's step is longer than ``compute_s(b)``: ``LogNormal(1.0, 0.1)``,
        ``OneStraggler(Constant(1.0), 1.43)``. ``Constant(1.0)``: all alike.
    backward_share: the share of the computation that is the backward pass, in which the gradient appears layer by layer.
    Raises ValueError for anything else.
    """

    P: int
    example_s: float
    b: int | None = None
    B: int | None = None
    itemsize: int = 4
    overhead_s: float = 0.0
    law: Law = field(default_factory=lambda: Constant(1.0))
    backward_share: float = 2 / 3

    def __post_init__(self) -> None:
        integer("P", self.P, least=1)
        integer("itemsize", self.itemsize, least=1)
        number("example_s", self.example_s, above=0)
        number("overhead_s", self.overhead_s, least=0)
        number("backward_share", self.backward_share, least=0, most=1)
        if (self.b is None) == (self.B is None):
            raise ValueError(
                f"b or B must be given, and only one of them: b fixes each worker's batch and B all workers' together, "
                f"got b = {self.b!r}, B = {self.B!r}"
            )
        integer("b" if self.B is None else "B", self.b if self.B is None else self.B, least=1)
        if not isinstance(self.law, Law):
            raise ValueError(
                f"law must be a law of compute time such as LogNormal(1.0, 0.1), got {self.law!r}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of one gradient."""
        return self.P * self.itemsize

    @property
    def strong(self) -> bool:
        """Whether B is fixed (strong scaling) and not b (weak scaling)."""
        return self.b is None

    def batch(self, K: int) -> int:
        """Examples that the busiest of K workers computes in a step: b, or B / K rounded up. ValueError where K > B."""
        integer("K", K, least=1)
        if self.b is not None:
            return self.b
        assert self.B is not None
        if K > self.B:
            raise ValueError(f"K must be at most the B = {self.B} examples that there are in a step, got {K}")
        return -(-self.B // K)

    def total(self, K: int) -> int:
        """B, the examples that K workers compute in a step."""
        return self.B if self.B is not None else K * self.batch(K)

    def compute_s(self, b: float) -> float:
        """Seconds that one undisturbed worker computes for b examples: ``overhead_s + b example_s``."""
        return self.overhead_s + number("b", b, above=0) * self.example_s


@dataclass(frozen=True)
class TwoLevel:
    """A network of hosts: ``inside`` is the link between workers of one host, ``across`` that between hosts.

    per_host: workers of each host (the last may have fewer). The host's workers share its one port to the others.
    """

    inside: Link
    across: Link
    per_host: int

    def __post_init__(self) -> None:
        for name in ("inside", "across"):
            if not isinstance(getattr(self, name), Link):
                raise ValueError(
                    f"{name} must be a Link such as Link(20e-6, 3.125e9), got {getattr(self, name)!r}"
                )
        integer("per_host", self.per_host, least=1)

    def __str__(self) -> str:
        return f"hosts of {self.per_host} (inside {self.inside}), between them {self.across}"


Network = Link | TwoLevel


@dataclass(frozen=True)
class Cluster:
    """The machines: a network, what a worker costs, and how gradients are summed.

    network: a ``Link`` between any two workers, or ``TwoLevel``. price_per_hour: of one worker, in any currency, >= 0.
    allreduce: "best", whichever costs least (`labkit.cost.best`), or the name of an algorithm (`network.names`).
    """

    network: Network
    price_per_hour: float = 0.0
    allreduce: str = "best"

    def __post_init__(self) -> None:
        from labkit.cost.plan.network import names

        if not isinstance(self.network, Link | TwoLevel):
            raise ValueError(f"network must be a Link or a TwoLevel, got {self.network!r}")
        number("price_per_hour", self.price_per_hour, least=0)
        known = ("best", *names(self.network))
        if self.allreduce not in known:
            raise ValueError(f"allreduce must be one of {', '.join(known)}, got {self.allreduce!r}")


def finite_mean(law: Law, K: int) -> None:
    """ValueError unless all K workers' laws have a mean > 0: without one no step has an expected time."""
    if not all(0 < one.mean < math.inf for one in law.groups(K)):
        raise ValueError(
            f"law must have a finite mean > 0, or the slowest worker has none either, got {law!r}"
        )


def undisturbed(law: Law, K: int) -> float:
    """The mean factor of the least disturbed of K workers; where one straggles, of the others, even if it is alone."""
    base = law.base if isinstance(law, OneStraggler) else law
    return min(one.mean for one in (*law.groups(K), *base.groups(K)))
