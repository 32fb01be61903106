"""Published efficiencies of data-parallel training on several hosts, and what the planner says of each; for lab 10.10.

What is in ``published.toml``, and how it was split, says its head. One rule feeds all rows: the data sheet's rates, the
transport, the batch of a GPU, and the rate of the base.

Symbols: K workers, b examples of each; efficiency: examples per second of a worker among K over those among the base.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit_book.planner.case import FIXED_SHARE, Case
from labkit_book.planner.method import Method, parse_method
from labkit_book.planner.row import AS_RUN, CLOCKED, LOST_RANGE, Row

#: A data sheet's rate between two GPUs of a host, one way, bytes a second: PCIe 3.0 x16 (4.0 for an A100 or H100), six links
#: of a V100, twelve of an A100 through a switch; where nobody says, a guess.
INSIDE = {"pcie": 15.75e9, "nvlink": 150e9, "nvswitch": 300e9, "unknown": 50e9}
HALVES = ("development", "first test", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """One published result; ``published.toml`` has the same names and says what they mean.

    source: its key; half: one of HALVES, or on record; series: alike for rows that differ in K and batch only.
    said: what was put on record of it, per cent.
    """

    source: str
    half: str
    series: str
    system: str
    framework: str
    model: str
    parameters: int
    element_bytes: int
    method: str
    gpu: str
    per_host: int
    link_bits_per_s: float
    transport: str
    inside: str
    b_examples: int
    passes: int
    base_workers: int
    base_rate: float
    K_workers: int
    rate: float
    stated: Mapping[str, str]
    unit: str = "examples/s"
    base_b_examples: int = 0
    base_passes: int = 0
    said: Sequence[float] = ()

    @property
    def efficiency(self) -> float:
        """As published: rate / K over base_rate / base_workers."""
        return self.rate / self.K_workers / (self.base_rate / self.base_workers)

    @property
    def predicted(self) -> float:
        """The geometric middle of the range."""
        low, high = self.range
        return math.sqrt(low * high)

    @cached_property
    def unseen(self) -> float:
        """What follows from the inputs alone; the range is made of it."""
        return self._efficiency(parse_method("zero3") if self.method == "zero3" else AS_RUN)

    @cached_property
    def without_overlap(self) -> float:
        """If examples took as long in every batch, a sum got all of the link's rate and came after all computing."""
        plain = {
            "transport": "measured", "rate_share": 1.0, "inside_share": 1.0, "spread": 0.0, "overhead_s": 0.0,
            "example_s": self.base_workers / self.base_rate,
        }  # fmt: skip
        return self._efficiency(parse_method("sync"), **plain)

    @property
    def range(self) -> tuple[float, float]:
        """Efficiencies between which nine of ten are to lie."""
        lost = 1 / self.unseen - 1
        high, low = (1 / (1 + share * lost) for share in LOST_RANGE)
        return low / (1 + CLOCKED), high * (1 + CLOCKED)

    def after(self, one: Published) -> float:
        """The plan's efficiency corrected by one measured row of the same series, as ``measured`` corrects it."""
        return self.predicted * one.efficiency / one.predicted

    def case(self, K: int) -> Case:
        """What the planner is fed, for the row or for its base."""
        b, passes = self._base if self.base_workers == K else (self.b_examples, self.passes)
        base_b = self._base[0]
        pass_s = base_b * self.base_workers / self.base_rate
        overhead_s = FIXED_SHARE * pass_s
        newer = self.inside == "pcie" and self.gpu[:4] in ("A100", "H100")
        inside = INSIDE[self.inside] * (2 if newer else 1)
        hosts: dict[str, Any] = {"per_host_workers": self.per_host}
        hosts |= {"inside_alpha_s": 5e-6, "inside_beta_bytes_per_s": inside}
        return Case(
            parameters=self.parameters, element_bytes=self.element_bytes, example_s=(pass_s - overhead_s) / base_b,
            overhead_s=overhead_s, b_examples=b * passes, passes=passes, total_examples=1, K_workers=(K,),
            transport=self.transport, beta_bytes_per_s=self.link_bits_per_s / 8, **(hosts if self.per_host > 1 else {}),
        )  # fmt: skip

    @property
    def _base(self) -> tuple[int, int]:
        return self.base_b_examples or self.b_examples, self.base_passes or self.passes

    def _efficiency(self, method: Method, **changes: Any) -> float:
        mine, its = (replace(self.case(K), **changes) for K in (self.K_workers, self.base_workers))
        step_s, base_s = (Row(case, method, *case.K_workers).unseen.seconds for case in (mine, its))
        return mine.b_examples / step_s / (its.b_examples / base_s)


@cache
def published(file: str = "published.toml") -> tuple[Published, ...]:
    """All rows of a file, in their order. file: or ``on_record.toml``."""
    data = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return tuple(
        Published(source=source["key"], half=source["half"], series=f"{source['key']} {i}", **group | row)
        for source in data["sources"]
        for i, group in enumerate(source["groups"])
        for row in group.pop("rows")
    )


def errors(found: Sequence[Published]) -> dict[str, FloatArray]:
    """Points by which each row is predicted too high: by the plan, and by three that anybody could make."""
    efficiency = 100 * np.array([each.efficiency for each in found])
    return {
        "the plan": 100 * np.array([each.predicted for each in found]) - efficiency,
        "nothing overlaps": 100 * np.array([each.without_overlap for each in found]) - efficiency,
        "always 100 %": 100 - efficiency,
        "best constant": np.median(efficiency) - efficiency,
    }


def pairs(found: Sequence[Published]) -> list[tuple[Published, Published]]:
    """(row, measured row): each with the row of its series that has the fewest workers, where that has fewer than it."""
    first: dict[str, Published] = {}
    for each in sorted(found, key=lambda row: row.K_workers):
        first.setdefault(each.series, each)
    return [(each, first[each.series]) for each in found if each.K_workers > first[each.series].K_workers]
