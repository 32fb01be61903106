"""Where the ranking flips: the nearest value of each dial at which another method gets best.

A dial is turned from where it stands, up and down, at fixed K (but for the dial K itself), until another method has the
least time; then the place is found by bisection. Nothing is drawn anew on the way: every value sees the same times.

Symbols: K workers, P parameters, alpha and beta of the link (between hosts), ``slowdown`` of one straggler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from labkit.cost.plan.inputs import Cluster, Job, Target, finite_mean
from labkit.cost.plan.method import Method
from labkit.cost.plan.network import outer, scaled
from labkit.cost.plan.plan import Plan, one, refusal
from labkit.timing import OneStraggler
from labkit.timing._check import integer

#: A dial is turned by as much up and as much down, in steps of this factor, and a flip is found to this precision.
RANGE, STRIDE, PRECISION = 1000.0, 2.0, 1e-6
#: What the dials are called where somebody reads, and the units in which the command line takes their values.
_NAMES = {"beta": "bandwidth beta", "alpha": "latency alpha", "P": "parameters P"}
_SCALES = {
    "bytes/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "parameters": ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")),
}
#: A floor so many times the least time is above it beyond all chance in the simulation.
BEYOND = 1.05


@dataclass(frozen=True)
class Flip:
    """One direction of one dial. dial and unit: what is turned. now: where it stands, with ``best`` the best method there.

    at: the nearest value at which another is best, ``other``; None: never up to ``until``.
    """

    dial: str
    unit: str
    now: float
    best: str
    at: float | None
    other: str | None
    until: float

    def __str__(self) -> str:
        of = f" {self.unit}" if self.unit.startswith("of ") else ""
        name = f"{_NAMES.get(self.dial, self.dial)}{of}, turned {'up' if self.until > self.now else 'down'}"
        if self.at is None:
            return f"{name}: {self.best} stays best, as far as {_said(self.until, self.unit)}"
        return (
            f"{name}: {self.other} overtakes {self.best} at {_said(self.at, self.unit)} "
            f"(now {_said(self.now, self.unit)})"
        )


@dataclass(frozen=True)
class Dial:
    """A number that can be turned. ``set(value)`` gives the job, the cluster and the K that it then is."""

    name: str
    unit: str
    now: float
    low: float
    high: float
    set: Callable[[float], tuple[Job, Cluster, int]]
    whole: bool = False


def dials(job: Job, cluster: Cluster, K: int, K_max: int) -> list[Dial]:
    """The dials of a job on a cluster: K, beta, alpha, P and the slowdown of one straggler."""
    link = outer(cluster.network)
    found = [Dial("K", "workers", K, 1, K_max, lambda v: (job, cluster, round(v)), whole=True)]
    if math.isfinite(link.beta):
        found.append(
            Dial(
                "beta", "bytes/s", link.beta, link.beta / RANGE, link.beta * RANGE,
                lambda v: (job, replace(cluster, network=scaled(cluster.network, beta=v / link.beta)), K),
            )
        )  # fmt: skip
    if link.alpha > 0:
        found.append(
            Dial(
                "alpha", "s", link.alpha, link.alpha / RANGE, link.alpha * RANGE,
                lambda v: (job, replace(cluster, network=scaled(cluster.network, alpha=v / link.alpha)), K),
            )
        )  # fmt: skip
    found.append(
        Dial(
            "P", "parameters", job.P, max(1.0, job.P / RANGE), job.P * RANGE,
            lambda v: (replace(job, P=round(v)), cluster, K), whole=True,
        )
    )  # fmt: skip
    law = job.law
    base, slowdown = (law.base, law.slowdown) if isinstance(law, OneStraggler) else (law, 1.0)
    rank = law.rank if isinstance(law, OneStraggler) else 0
    found.append(
        Dial(
            "slowdown", "of one straggler", slowdown, 1.0, max(100.0, slowdown),
            lambda v: (replace(job, law=OneStraggler(base, v, rank)), cluster, K),
        )
    )  # fmt: skip
    return found


def flips(made: Plan, K: int | None = None, only: Iterable[str] | None = None) -> list[Flip]:
    """For every dial (or ``only`` those named), up and down, where another method than now has the least time.

    K: at which; None: that of the plan's best row. The dial K goes from 1 to the largest K of the plan. One more dial is
    the steps_factor of the method that is best, up: where that loses its place.
    ValueError for a K at which no method of the plan is possible, and for a dial that there is not.
    """
    K = made.best().K if K is None else integer("K", K, least=1)
    methods = [next(row.method for row in made.rows if row.name == name) for name in made.names]
    all_dials = dials(made.job, made.cluster, K, max(K, *(row.K for row in made.rows)))
    names = [*(dial.name for dial in all_dials), "steps_factor"]
    wanted = names if only is None else list(only)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ValueError(f"only must name dials of {', '.join(names)}, got {unknown[0]!r}")
    found = []
    for dial in all_dials:
        if dial.name in wanted:
            ends = [end for end in (dial.low, dial.high) if end != dial.now]
            found += [_flip(dial, end, made.target, methods) for end in ends]
    if "steps_factor" in wanted and len(methods) > 1:
        found.append(_of_steps(made, methods, K))
    return found


def _of_steps(made: Plan, methods: list[Method], K: int) -> Flip:
    """The steps_factor at which the best method ties with the next: time is proportional to it, so no search."""
    times = _times(made.job, made.cluster, made.target, methods, K)
    first, *others = sorted(times, key=lambda name: times[name])
    now = next(method.steps_factor for method in methods if method.name == first)
    until, unit = now * RANGE, f"of {first}"
    at = now * times[others[0]] / times[first] if others else math.inf
    if at > until:
        return Flip("steps_factor", unit, now, first, None, None, until)
    return Flip("steps_factor", unit, now, first, at, others[0], until)


def _times(
    job: Job, cluster: Cluster, target: Target, methods: Iterable[Method], K: int, only_best: bool = False
) -> dict[str, float]:
    """Seconds to the accuracy of every method that is possible; ValueError where none is.

    only_best: methods that can't be best are left out, unsimulated: their floor is well above another's time.
    """
    possible = [method for method in methods if refusal(job, method, K) is None]
    if not possible:
        raise ValueError(f"K must leave some method possible, got {K}")
    finite_mean(job.law, K)
    floors = {m.name: m.steps(job, target, K) * m.floor_s(job, cluster, K) for m in possible}
    times: dict[str, float] = {}
    for method in sorted(possible, key=lambda m: floors[m.name]):
        if only_best and floors[method.name] > BEYOND * min(times.values(), default=math.inf):
            break
        times[method.name] = one(job, cluster, target, method, K).time_s
    return {m.name: times[m.name] for m in possible if m.name in times}


def winner(
    job: Job,
    cluster: Cluster,
    target: Target,
    methods: Iterable[Method],
    K: int,
    favourite: str | None = None,
) -> str:
    """The method with the least time; of equals (to 1e-12, relatively) the favourite, or the first.

    ValueError where none is possible.
    """
    times = _times(job, cluster, target, methods, K, only_best=True)
    least = min(times.values())
    equals = [name for name, seconds in times.items() if math.isclose(seconds, least, rel_tol=1e-12)]
    return favourite if favourite in equals else equals[0]


def _flip(dial: Dial, end: float, target: Target, methods: list[Method]) -> Flip:
    """Stride from now to ``end``; where the winner has changed, bisect."""

    def best(value: float, favourite: str | None = None) -> str:
        job, cluster, K = dial.set(value)
        return winner(job, cluster, target, methods, K, favourite)

    now = best(dial.now)
    same, other, at = dial.now, now, None
    while same != end:
        ahead = min(same * STRIDE, end) if end > same else max(same / STRIDE, end)
        if dial.whole:  # K - 1 and K + 1 count too
            ahead = (
                min(max(round(ahead), same + 1), end) if end > same else max(min(round(ahead), same - 1), end)
            )
        other = best(ahead, now)  # a tie is no flip
        if other != now:
            at = ahead
            break
        same = ahead
    if at is None:
        return Flip(dial.name, dial.unit, dial.now, now, None, None, end)
    while not _close(same, at, dial.whole):
        middle = round((same + at) / 2) if dial.whole else math.sqrt(same * at)
        there = best(middle, now)
        same, at, other = (middle, at, other) if there == now else (same, middle, there)
    return Flip(dial.name, dial.unit, dial.now, now, at, other, end)


def _said(value: float, unit: str) -> str:
    """A value as the command line would take it: 628MB/s, 20us, 25.6M."""
    scales = _SCALES.get(unit, ((1.0, ""),))
    scale, letters = next((each for each in scales if value >= each[0]), scales[-1])
    return f"{value / scale:.4g}{letters}"


def _close(a: float, b: float, whole: bool) -> bool:
    return abs(a - b) <= (1 if whole else PRECISION * max(a, b))
