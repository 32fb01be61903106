"""The planner beside published scaling efficiencies: one rule for all rows, the inputs as published, nothing tuned.

The rule: synchronous training, gradients of fp32 (or as the row says) summed by a ring in 8 buckets while the backward pass,
two thirds of the computation, goes on; the link between hosts gives all of its rate, and a message on it takes as long as on
the Ethernet of the simulated world (25 us), which no source states; inside a host nothing is paid for; nobody straggles.
Where a row misses by more than 10 points, it says what would have to be different: `Published.link_share`. Beside the plan
stand two predictions that anybody could make (`errors`): that nothing overlaps, and that every row scales perfectly.

Symbols: K workers, P parameters, b examples of each; efficiency: examples per second over K times those of one worker (or
over K / base times those of ``base`` workers, where the source counts so).
"""

from __future__ import annotations

import math
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit.plan.case import Case
from labkit.plan.method import parse_method
from labkit.plan.row import Row

#: Points by which a row may miss before it owes a reason.
CLOSE = 10.0
#: What is assumed of all rows alike: seconds of a message, and the backward pass' share of the computation.
ALPHA_S, BACKWARD = 25e-6, 2 / 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """One published efficiency; ``published.toml`` has the same names.

    examples_per_s: of one worker alone (with base_workers > 1: of each of those on one host); link_bits_per_s: of all links
    of one host together; passes: forward and backward passes of which a step is made. published_efficiency: a share of 1,
    against ``base_workers``. key: in references.bib. reason: what a miss means. sources: input -> where it stands.
    """

    system: str
    model: str
    K_workers: int
    parameters: int
    b_examples: int
    examples_per_s: float
    link_bits_per_s: float
    published_efficiency: float
    key: str
    sources: Mapping[str, str]
    base_workers: int = 1
    element_bytes: int = 4
    passes: int = 1
    reason: str = ""

    @property
    def from_memory(self) -> bool:
        """Whether one of its inputs is quoted from memory."""
        return any("from memory" in source for source in self.sources.values())

    def efficiency(
        self, method: str = "overlapped:8", alpha_s: float = ALPHA_S, link_share: float = 1.0
    ) -> float:
        """The plan's, for the row's own inputs. link_share: of its rate that a link gives."""
        case = Case(
            parameters=self.parameters,
            element_bytes=self.element_bytes,
            example_s=1 / self.examples_per_s,
            b_examples=self.b_examples,
            # only the last of several passes has gradients to send
            backward_share=BACKWARD / self.passes,
            alpha_s=alpha_s,
            beta_bytes_per_s=link_share * self.link_bits_per_s / 8,
            allreduce="ring",
            total_examples=1,
            K_workers=(self.K_workers,),
        )
        return Row(case, parse_method(method), self.K_workers).efficiency

    @cached_property
    def predicted(self) -> float:
        return self.efficiency()

    @cached_property
    def without_overlap(self) -> float:
        return self.efficiency("sync")

    @cached_property
    def link_share(self) -> float | None:
        """The share of the link's rate with which the plan would agree, by bisection of its logarithm.

        None where no share would: the row is better than predicted, or worse than a thousandth of the rate can explain.
        """

        def ahead(share: float) -> bool:
            return self.efficiency(link_share=share) > self.published_efficiency

        low, high = 1e-3, 1.0
        if not ahead(high) or ahead(low):
            return None
        while high / low > 1 + 1e-9:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if ahead(middle) else (middle, high)
        return high

    @property
    def error_points(self) -> float:
        """Predicted less published, in points."""
        return 100 * (self.predicted - self.published_efficiency)

    @property
    def close(self) -> bool:
        return abs(self.error_points) <= CLOSE


@cache
def published() -> tuple[Published, ...]:
    """All rows, in the order of ``published.toml``."""
    data = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    found = []
    for group in data["groups"]:
        for own in group.pop("rows"):
            row = {"parameters": data["parameters"][own["model"]], **group, **own}
            if (total := row.pop("total_examples_per_s", None)) is not None:
                row["published_efficiency"] = total / (row["K_workers"] * row["examples_per_s"])
            found.append(Published(**row))
    return tuple(found)


def errors(found: Sequence[Published]) -> dict[str, FloatArray]:
    """Points by which each row is predicted too high: by the plan, and by two that anybody could make."""
    published = 100 * np.array([each.published_efficiency for each in found])
    return {
        "the plan": np.array([100 * each.predicted for each in found]) - published,
        "nothing overlaps": np.array([100 * each.without_overlap for each in found]) - published,
        "always 100 %": 100 - published,
    }


def table() -> str:
    """Published, predicted, error in points, and for those that miss the reason."""
    found = published()
    lines = [
        f"{'system':<30}{'model':<14}{'K':>5}{'published':>11}{'predicted':>11}{'error':>8}{'no overlap':>12}{'link':>7}",
        f"{'':<30}{'':<14}{'':>5}{'%':>11}{'%':>11}{'points':>8}{'%':>12}{'%':>7}",
    ]
    for each in found:
        share = "-" if each.link_share is None else f"{100 * each.link_share:.0f}"
        lines.append(
            f"{each.system[:28] + '*' * each.from_memory:<30}{each.model:<14}{each.K_workers:>5}"
            f"{100 * each.published_efficiency:>11.1f}{100 * each.predicted:>11.1f}"
            f"{each.error_points:>+8.1f}{100 * each.without_overlap:>12.1f}{share:>7}"
        )
    lines += [
        "",
        "*: an input is quoted from memory. no overlap: predicted if nothing were sent during the backward",
        "pass. link: the share of the link's rate with which the plan would agree with what was published.",
        "",
        f"{'points off on average, rows within ' + format(CLOSE, 'g'):<42}"
        + "".join(f"{name:>18}" for name in errors(found)),
    ]
    for part, word in (
        ("all rows", ""), ("over RDMA", "RDMA"), ("over TCP", "TCP"), ("VGG-16, most bytes for its computing", "VGG-16"),
    ):  # fmt: skip
        off = errors([each for each in found if word in each.system + each.model]).values()
        said = [f"{np.abs(e).mean():.1f}, {(np.abs(e) <= CLOSE).sum()} of {len(e)}" for e in off]
        lines.append(f"{part:<42}" + "".join(f"{each:>18}" for each in said))
    reasons: dict[str, list[str]] = {}
    for each in found:
        if not each.close:
            reasons.setdefault(each.reason, []).append(f"{each.system}, {each.model}")
    if reasons:
        lines += ["", f"Off by more than {CLOSE:g} points:"]
    for reason, names in reasons.items():
        lines.append(textwrap.fill(f"  {'; '.join(names)}: {reason}.", 98, subsequent_indent="    "))
    return "\n".join(lines)


def as_rows() -> list[dict[str, Any]]:
    """The table as JSON can hold it, every input with where it stands."""
    return [
        asdict(each) | {
            "predicted_efficiency": each.predicted, "error_points": each.error_points,
            "without_overlap_efficiency": each.without_overlap, "without_latency_efficiency": each.efficiency(alpha_s=0.0),
            "link_share": each.link_share, "reason": None if each.close else each.reason,
            "from_memory": each.from_memory,
        }
        for each in published()
    ]  # fmt: skip
