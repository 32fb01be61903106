"""The planner held against published results: sources split in two before it was made, and the test half told once.

What is in ``published.toml`` says its head. `half` deals out the sources by how many rows each has, and nothing else. On
the development half `labkit.plan.case.USUAL` and the ranges of `labkit.plan.row` were chosen; the test half was not looked
at meanwhile. One rule feeds all rows: the data sheet's rates, the transport, the batch of a GPU, and of the base its rate.
Beside the plan stand three predictions that anybody could make (`errors`): that a sum gets all of the rate and nothing
overlaps, that every row scales perfectly, and the one constant that suits these rows best.

Symbols: K workers, b examples of each; efficiency: examples per second of a worker among K over those among the base.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit.plan.case import FIXED_SHARE, Case
from labkit.plan.method import parse_method
from labkit.plan.row import AS_RUN, CLOCKED, LOST_RANGE, MEASURED_RANGE, Row

#: A data sheet's rate between two GPUs of a host, one way, bytes a second: PCIe 3.0 x16 (4.0 for an A100 or H100), six links
#: of a V100, twelve of an A100 through a switch; where nobody says, a guess.
INSIDE = {"pcie": 15.75e9, "nvlink": 150e9, "nvswitch": 300e9, "unknown": 50e9}
HALVES = ("development", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """One published result; ``published.toml`` has the same names and says what they mean.

    source: its key; half: "development" or "test"; series: alike for rows that differ in K and batch only.
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
    tokens_per_example: int = 1

    @property
    def efficiency(self) -> float:
        """As published: rate / K over base_rate / base_workers."""
        return self.rate / self.K_workers / (self.base_rate / self.base_workers)

    @cached_property
    def predicted(self) -> float:
        return self._efficiency("zero3" if self.method == "zero3" else AS_RUN)

    @cached_property
    def without_overlap(self) -> float:
        """If examples took as long in every batch, a sum got all of the link's rate and came after all computing."""
        plain = {
            "transport": None, "rate_share": 1.0, "inside_share": 1.0, "law": "none", "overhead_s": 0.0,
            "example_s": self.base_workers / self.base_rate,
        }  # fmt: skip
        return self._efficiency("sync", **plain)

    @property
    def range(self) -> tuple[float, float]:
        """Efficiencies between which nine of ten are to lie."""
        lost = 1 / self.predicted - 1
        high, low = (1 / (1 + share * lost) for share in LOST_RANGE)
        return low / (1 + CLOCKED), high / (1 - CLOCKED)

    def after(self, one: Published) -> float:
        """The plan's efficiency corrected by one measured row of the same series, as ``measured`` corrects it."""
        return self.predicted * one.efficiency / one.predicted

    def range_after(self, one: Published) -> tuple[float, float]:
        low, high = (self.after(one) / times for times in reversed(MEASURED_RANGE))
        return low, high

    def case(self, K: int) -> Case:
        """What the planner is fed, for the row or for its base."""
        b, passes = self._base if self.base_workers == K else (self.b_examples, self.passes)
        base_b = self._base[0]
        pass_s = base_b * self.base_workers / self.base_rate
        overhead_s = FIXED_SHARE * pass_s
        inside = INSIDE[self.inside] * (
            2 if self.inside == "pcie" and self.gpu[:4] in ("A100", "H100") else 1
        )
        hosts = {"per_host_workers": self.per_host, "inside_alpha_s": 5e-6, "inside_beta_bytes_per_s": inside}
        return Case(
            parameters=self.parameters, element_bytes=self.element_bytes, example_s=(pass_s - overhead_s) / base_b,
            overhead_s=overhead_s, b_examples=b * passes, passes=passes, total_examples=1, K_workers=(K,),
            transport=self.transport, beta_bytes_per_s=self.link_bits_per_s / 8, **(hosts if self.per_host > 1 else {}),
        )  # fmt: skip

    @property
    def _base(self) -> tuple[int, int]:
        return self.base_b_examples or self.b_examples, self.base_passes or self.passes

    def _efficiency(self, method: str, **changes: Any) -> float:
        Ks = self.K_workers, self.base_workers
        rows = [Row(replace(self.case(K), **changes), parse_method(method), K) for K in Ks]
        mine, its = (row.examples_per_s / row.K for row in rows)
        return mine / its


@cache
def published() -> tuple[Published, ...]:
    """All rows, in the order of ``published.toml``."""
    data = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    dealt = [s for s in data["sources"] if not s.get("added")]
    sizes = {s["key"]: sum(len(group["rows"]) for group in s["groups"]) for s in dealt}
    halves = dict.fromkeys((s["key"] for s in data["sources"]), "development")
    halves |= half(sizes, [s["key"] for s in dealt if s["held_before"]])
    found = []
    for source in data["sources"]:
        for i, group in enumerate(source["groups"]):
            common = {
                "source": source["key"],
                "half": halves[source["key"]],
                "series": f"{source['key']} {i}",
            }
            found += [
                Published(
                    **common, **{name: each for name, each in {**group, **row}.items() if name != "rows"}
                )
                for row in group["rows"]
            ]
    return tuple(found)


def half(rows: Mapping[str, int], held_before: Iterable[str] = ()) -> dict[str, str]:
    """The half of each source: rows: source -> how many it has.

    Sources that the planner had been held against before are development. The others follow by number of rows, the most
    first (ties by name), each into the half that has fewer rows by then (ties: test).

    >>> half({"a": 5, "b": 3, "c": 2}, held_before=["c"])
    {'c': 'development', 'a': 'test', 'b': 'development'}
    """
    halves = dict.fromkeys(held_before, "development")
    size = Counter({"development": sum(rows[each] for each in halves)})
    for each in sorted(rows.keys() - halves.keys(), key=lambda each: (-rows[each], each)):
        halves[each] = "test" if size["test"] <= size["development"] else "development"
        size[halves[each]] += rows[each]
    return halves


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
    for each in found:
        least = first.setdefault(each.series, each)
        first[each.series] = min(least, each, key=lambda row: row.K_workers)
    return [(each, first[each.series]) for each in found if each.K_workers > first[each.series].K_workers]


def table() -> str:
    """Points off on average by half and by source, how often the ranges hold, and the worst rows."""
    names = ["the plan", "nothing overlaps", "always 100 %", "best constant"]
    lines = [
        "Published efficiencies of data-parallel training on several hosts: points off on average.",
        "",
        f"{'':<20}{'rows':>5}{'K':>9}" + "".join(f"{name:>18}" for name in names) + f"{'in range':>10}",
    ]
    for which in HALVES:
        rows = [each for each in published() if each.half == which]
        groups = {f"{which} half": rows}
        groups |= {
            f"  {key}": [r for r in rows if r.source == key] for key in sorted({r.source for r in rows})
        }
        for said, of in groups.items():
            off = errors(of)
            Ks = [each.K_workers for each in of]
            inside = np.mean([low <= each.efficiency <= high for each in of for low, high in [each.range]])
            lines.append(
                f"{said:<20}{len(of):>5}{f'{min(Ks)}-{max(Ks)}':>9}"
                + "".join(f"{np.abs(off[name]).mean():>18.1f}" for name in names)
                + f"{100 * inside:>8.0f} %"
            )
        off_after = [100 * abs(each.after(one) - each.efficiency) for each, one in pairs(rows)]
        held = [
            low <= each.efficiency <= high
            for each, one in pairs(rows)
            for low, high in [each.range_after(one)]
        ]
        lines += [
            f"  with one measured step: {np.mean(off_after):.1f} points off on the {len(held)} other rows of its series, "
            f"{100 * np.mean(held):.0f} % in range",
            "",
        ]
    lines += [f"The worst: {'':<38}{'K':>6}{'published %':>13}{'predicted %':>13}{'range %':>14}"]
    for each in sorted(published(), key=lambda row: -abs(row.predicted - row.efficiency))[:10]:
        low, high = (100 * x for x in each.range)
        lines.append(
            f"  {f'{each.source}, {each.model}'[:45]:<47}{each.K_workers:>6}{100 * each.efficiency:>13.1f}"
            f"{100 * each.predicted:>13.1f}{f'{low:.0f} to {high:.0f}':>14}"
        )
    return "\n".join(lines)


def as_rows() -> list[dict[str, Any]]:
    """Every row as JSON can hold it, with its prediction and range, and where each input stands."""
    return [
        {each.name: getattr(row, each.name) for each in fields(Published)} | {
            "efficiency": row.efficiency, "predicted_efficiency": row.predicted, "range_efficiency": list(row.range),
            "without_overlap_efficiency": row.without_overlap,
        }
        for row in published()
    ]  # fmt: skip
