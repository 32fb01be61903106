"""The planner beside published scaling efficiencies: one rule for all rows, the inputs as published, nothing tuned.

The rule: synchronous training, gradients of fp32 (or as the row says) summed by a ring in 8 buckets while the backward pass,
two thirds of the computation, goes on; the link between hosts gives all of its rate, and a message on it takes as long as on
the Ethernet of the simulated world (25 us), which no source states; inside a host nothing is paid for; nobody straggles.
Where a row misses by more than 10 points, it says what would have to be different: `Compared.link_share`.

Symbols: K workers, P parameters, b examples of each; efficiency: examples per second over K times those of one worker (or
over K / base times those of ``base`` workers, where the source counts so).
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from labkit.cost.link import Link
from labkit.cost.plan.inputs import Cluster, Job
from labkit.cost.plan.method import Method
from labkit.cost.plan.published_rows import ROWS, Published
from labkit.cost.plan.summed import Overlapped, Sync

#: Points by which a row may miss before it owes a reason.
CLOSE = 10.0


@dataclass(frozen=True)
class Rule:
    """What is assumed of all rows alike. alpha: s per message; link_share: of its rate that a link gives."""

    alpha: float = 25e-6
    link_share: float = 1.0
    backward_share: float = 2 / 3
    method: Method = field(default_factory=lambda: Overlapped(8))


@dataclass(frozen=True)
class Compared:
    """A published row, what the plan predicts under ``Rule()``, and what it would predict under others. Shares of 1.

    link_share: the share of the link's rate with which the plan would agree; None where no share would (the row is better
    than predicted, or worse than a link can explain with a thousandth of its rate).
    """

    row: Published
    predicted: float
    without_overlap: float
    without_latency: float
    link_share: float | None

    @property
    def error_points(self) -> float:
        """Predicted less published, in points."""
        return 100 * (self.predicted - self.row.published)

    @property
    def close(self) -> bool:
        return abs(self.error_points) <= CLOSE


def efficiency(row: Published, rule: Rule | None = None) -> float:
    """The plan's efficiency for the row's own inputs."""
    rule = rule or Rule()
    job = Job(
        P=row.P,
        example_s=1 / row.examples_per_s,
        b=row.b,
        itemsize=row.itemsize,
        backward_share=rule.backward_share
        / row.passes,  # only the last of several passes has gradients to send
    )
    link = Link(rule.alpha, rule.link_share * row.bits_per_s / 8)
    step = rule.method.step(job, Cluster(link, allreduce="ring"), row.K)
    return job.compute_s(row.b) / step.seconds


@cache
def compare(row: Published) -> Compared:
    """The row beside the plan."""
    return Compared(
        row,
        efficiency(row),
        efficiency(row, Rule(method=Sync())),
        efficiency(row, Rule(alpha=0.0)),
        _link_share(row),
    )


def published() -> list[Compared]:
    """All rows beside the plan, in the order of `published_rows.ROWS`."""
    return [compare(row) for row in ROWS]


def table() -> str:
    """Published, predicted, error in points, and for those that miss the reason."""
    lines = [
        f"{'system':<30}{'model':<14}{'K':>5}{'published':>11}{'predicted':>11}{'error':>8}{'no overlap':>12}{'link':>7}",
        f"{'':<30}{'':<14}{'':>5}{'%':>11}{'%':>11}{'points':>8}{'%':>12}{'%':>7}",
    ]
    found = published()
    for each in found:
        row = each.row
        share = "-" if each.link_share is None else f"{100 * each.link_share:.0f}"
        lines.append(
            f"{row.system[:29]:<30}{row.model:<14}{row.K:>5}{100 * row.published:>11.1f}{100 * each.predicted:>11.1f}"
            f"{each.error_points:>+8.1f}{100 * each.without_overlap:>12.1f}{share:>7}"
        )
    lines += [
        "",
        "no overlap: predicted if nothing could be sent during the backward pass. link: the share of the",
        "link's rate with which the plan would agree with what was published.",
    ]
    idle = sum(100 * (1 - each.row.published) <= CLOSE for each in found)
    lines += [
        f"A network that costs nothing would be within {CLOSE:g} points of {idle} of the {len(found)} rows, so light",
        "models prove little: VGG-16 is the test.",
    ]
    missed = [each for each in found if not each.close]
    if missed:
        lines += ["", f"Off by more than {CLOSE:g} points:"]
        reasons: dict[str, list[str]] = {}
        for each in missed:
            reasons.setdefault(each.row.reason, []).append(f"{each.row.system}, {each.row.model}")
        for reason, names in reasons.items():
            lines.append(
                textwrap.fill(
                    f"{'; '.join(names)}: {reason}.", 98, initial_indent="  ", subsequent_indent="    "
                )
            )
    return "\n".join(lines)


def as_rows() -> list[dict[str, Any]]:
    """The table as JSON can hold it, every input with where it stands."""
    return [
        {
            "system": each.row.system, "model": each.row.model, "K_workers": each.row.K,
            "base_workers": each.row.base, "parameters": each.row.P, "element_bytes": each.row.itemsize,
            "b_examples": each.row.b, "examples_per_s": each.row.examples_per_s,
            "link_bits_per_s": each.row.bits_per_s, "published_efficiency": each.row.published,
            "predicted_efficiency": each.predicted, "error_points": each.error_points,
            "without_overlap_efficiency": each.without_overlap,
            "without_latency_efficiency": each.without_latency, "link_share": each.link_share,
            "reason": None if each.close else each.row.reason, "key": each.row.key, "sources": dict(each.row.sources),
        }
        for each in published()
    ]  # fmt: skip


def _link_share(row: Published) -> float | None:
    """The share of the link's rate with which the plan agrees with the row, by bisection of its logarithm."""

    def ahead(share: float) -> bool:
        return efficiency(row, replace(Rule(), link_share=share)) > row.published

    low, high = 1e-3, 1.0
    if not ahead(high) or ahead(low):
        return None
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if ahead(middle) else (middle, high)
    return high
