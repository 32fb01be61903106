"""The plan: every method with every number of workers, in seconds, steps, money and efficiency; and the best of them.

    time to accuracy = steps(B) x seconds per step(K, network, stragglers, method)

Symbols: K workers, b examples each, B = K b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from labkit.cost.plan.goals import Goal, Least
from labkit.cost.plan.inputs import Cluster, Job, Target, undisturbed
from labkit.cost.plan.method import Method, Step
from labkit.cost.plan.methods import defaults
from labkit.timing._check import integer


@dataclass(frozen=True)
class Row:
    """One method with K workers. Seconds, examples, and the currency of ``Cluster.price_per_hour``.

    b: examples of the busiest worker. B: examples that count in a step. steps: to the accuracy asked.
    efficiency: examples per second over K times those of one undisturbed worker alone, with the same b (weak scaling) or
    with all of B (strong scaling). speedup: time to the accuracy of one such worker over this time.
    """

    method: Method
    K: int
    b: int
    B: float
    step: Step
    steps: float
    efficiency: float
    speedup: float
    price: float

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def time_s(self) -> float:
        """Seconds to the accuracy asked."""
        return self.steps * self.step.seconds

    @property
    def worker_s(self) -> float:
        """Seconds to the accuracy asked, of all workers together."""
        return self.K * self.time_s

    @property
    def examples_per_s(self) -> float:
        return self.B / self.step.seconds


class LeftOut(NamedTuple):
    """What could not be planned, and why."""

    name: str
    K: int
    why: str


@dataclass(frozen=True)
class Plan:
    """All rows, in the order of the methods and then of K. goal: what "best" means unless another is given."""

    job: Job
    cluster: Cluster
    target: Target
    goal: Goal
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()

    def best(self, goal: Goal | None = None, name: str | None = None, K: int | None = None) -> Row:
        """The row with the least ``goal.value``, of one method or one K if that is given; of equals the first.

        ValueError where there is no such row, or none that the goal allows.
        """
        goal = goal or self.goal
        rows = self.of(name, K)
        value, _, row = min((goal.value(row), i, row) for i, row in enumerate(rows))
        if math.isinf(value):
            raise ValueError(
                f"goal must be within reach of some row, but {goal} is not: {goal.nearest(rows)}"
            )
        return row

    def of(self, name: str | None = None, K: int | None = None) -> tuple[Row, ...]:
        """The rows of one method, of one K, or of both. ValueError where there is none."""
        rows = tuple(row for row in self.rows if name in (None, row.name) and K in (None, row.K))
        if not rows:
            names, Ks = dict.fromkeys(row.name for row in self.rows), sorted({row.K for row in self.rows})
            raise ValueError(
                f"name and K must be in the plan ({', '.join(names)}; K = {Ks}), got {name!r}, {K!r}"
            )
        return rows

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that have a row."""
        return tuple(dict.fromkeys(row.name for row in self.rows))

    def __str__(self) -> str:
        from labkit.cost.plan.text import table

        return table(self)


def plan(
    job: Job,
    cluster: Cluster,
    target: Target,
    K: int | Iterable[int],
    methods: Iterable[Method] | None = None,
    goal: Goal | None = None,
) -> Plan:
    """Every one of ``methods`` (None: one of each) with every number of workers in ``K``.

    What is impossible (as many backups as workers, more workers than examples) is left out, and said. ValueError where
    nothing is left, for bad numbers, and for two methods of the same name.
    """
    Ks = workers(K)
    chosen = defaults() if methods is None else tuple(methods)
    names = [method.name for method in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ValueError(f"methods must be one at least, each with a name of its own, got {names}")
    rows, left_out = [], []
    for method in chosen:
        for each in Ks:
            why = refusal(job, method, each)
            if why is None:
                rows.append(one(job, cluster, target, method, each))
            else:
                left_out.append(LeftOut(method.name, each, why))
    if not rows:
        raise ValueError(f"K must leave some method possible, but {left_out[0].why}")
    return Plan(job, cluster, target, goal or Least("time"), tuple(rows), tuple(left_out))


def one(job: Job, cluster: Cluster, target: Target, method: Method, K: int) -> Row:
    """One row."""
    step, b, B = method.step(job, cluster, K), job.batch(K), method.examples(job, K)
    steps = method.steps(job, target, K)
    b_alone = job.batch(1)
    alone_s = job.compute_s(b_alone) * undisturbed(job.law, K)
    time_s = steps * step.seconds
    return Row(
        method, K, b, B, step, steps,
        efficiency=B / step.seconds / (K * b_alone / alone_s),
        speedup=float(target.steps(b_alone)) * alone_s / time_s,
        price=K * time_s / 3600 * cluster.price_per_hour,
    )  # fmt: skip


def refusal(job: Job, method: Method, K: int) -> str | None:
    """Why there is no such row, if there is none."""
    if job.B is not None and K > job.B:
        return f"K must be at most the B = {job.B} examples that there are in a step, got {K}"
    return method.refusal(K)


def workers(K: int | Iterable[int]) -> tuple[int, ...]:
    """Numbers of workers in rising order, each once."""
    given = [K] if not isinstance(K, Iterable) else list(K)
    if not given:
        raise ValueError("K must hold at least one number of workers, got none")
    return tuple(sorted({integer("K", each, least=1) for each in given}))
