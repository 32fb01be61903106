"""The plan: every method with every number of workers, in seconds, steps, money and efficiency; and the best of them.

    time to accuracy = steps(B) x seconds per step(K, network, stragglers, method)

Symbols: K workers, b examples each, B = K b.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from labkit.plan.case import Case
from labkit.plan.goals import Goal, parse_goal
from labkit.plan.row import Row


@dataclass(frozen=True)
class Plan:
    """All rows, in the order of the methods and then of K, and the impossible ones; as text, a table of 100 columns."""

    case: Case
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...] = ()

    def best(self, goal: Goal | str | None = None, name: str | None = None, K: int | None = None) -> Row:
        """The row best under ``goal`` (None: the case's), of one method or one K if that is given; of equals the first.

        ValueError where there is no such row, or none that the goal allows.
        """
        aim = self.case.goal if goal is None else parse_goal(goal)
        rows = self.of(name, K)
        value, _, row = min((row.value(aim), i, row) for i, row in enumerate(rows))
        if math.isinf(value):
            top = max(rows, key=lambda row: row.efficiency)
            raise ValueError(
                f"goal must be within reach of some row, but {aim} is not: the most efficient, {top.name} with "
                f"K = {top.K}, has {top.efficiency:.3f}"
            )
        return row

    def of(self, name: str | None = None, K: int | None = None) -> tuple[Row, ...]:
        """The rows of one method, of one K, or of both. ValueError where there is none."""
        rows = tuple(row for row in self.rows if name in (None, row.name) and K in (None, row.K))
        if not rows:
            raise ValueError(
                f"name and K must be in the plan ({', '.join(self.names)}; K = {sorted({row.K for row in self.rows})}), "
                f"got {name!r}, {K!r}"
            )
        return rows

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that have a row."""
        return tuple(dict.fromkeys(row.name for row in self.rows))

    @property
    def ranking(self) -> list[Row]:
        """The row of every method's best K, best first; without the methods that the goal does not allow.

        ValueError where it allows none.
        """
        self.best()  # refuses such a goal
        goal = self.case.goal
        allowed = [name for name in self.names if any(row.value(goal) < math.inf for row in self.of(name))]
        return sorted((self.best(name=name) for name in allowed), key=lambda row: row.value(goal))

    def __str__(self) -> str:
        return _table(self)


def plan(case: Case, **changes: Any) -> Plan:
    """Every one of the case's methods with every number of its workers. changes: fields of the case to be changed first.

    What is impossible (as many backups as workers, more workers than examples) is left out, and said. ValueError where
    nothing is left.
    """
    case = replace(case, **changes)
    wanted = [Row(case, method, K) for method in case.methods for K in case.K_workers]
    left_out = tuple(row for row in wanted if row.refusal is not None)
    if len(left_out) == len(wanted):
        raise ValueError(f"K must leave some method possible, but {left_out[0].refusal}")
    rows = tuple(row for row in wanted if row.refusal is None)
    for row in rows:
        row.step  # now, so that what has no expected time is refused here  # noqa: B018
    return Plan(case, rows, left_out)


def _table(made: Plan) -> str:
    """The best K of every method under the plan's goal, best first, and every K of the best of them."""
    case, best, ranked = made.case, made.best(), made.ranking
    priced = case.price_per_worker_hour > 0
    unit = next((each for each in _UNITS if best.time_s >= 3 * each[1]), ("s", 1.0))
    bill = "price: of all workers together, in the currency given" if priced else "worker-h: hours x K"
    legend = (
        f"Every method with its best K. step = compute + wait + comm, in ms; {bill}; effic.: examples a second, of "
        f"what K undisturbed workers would make that need not communicate."
    )
    scaling = (
        f"Weak scaling: b = {case.b_examples} examples per worker and step, B = K b."
        if case.b_examples is not None
        else f"Strong scaling: B = {case.B_examples} examples per step, b = B / K."
    )
    lines = [textwrap.fill(f"Goal: {case.goal}. {scaling}", 98), "", *_rows(ranked, priced, unit), ""]
    lines.append(textwrap.fill(legend, 98))
    if beyond := [name for name in made.names if name not in [row.name for row in ranked]]:
        lines.append(textwrap.fill(f"No K reaches the goal with {', '.join(beyond)}.", 98))
    lines += ["", f"{best.name} with every K:", *_rows(made.of(best.name), priced, unit)]
    ways = ", ".join(f"{row.name} {row.step.algorithm}" for row in ranked)
    lines += ["", textwrap.fill(f"Communication by: {ways}.", 98, subsequent_indent="  ")]
    for name, why in {left.name: left.refusal for left in reversed(made.left_out)}.items():
        Ks = ", ".join(str(left.K) for left in made.left_out if left.name == name)
        lines.append(textwrap.fill(f"Left out: {name} with K = {Ks} ({why}).", 98, subsequent_indent="  "))
    lines += ["", "What is assumed of the number of steps:"]
    lines += [f"  {row.name:<16} {row.method.assumption}" for row in ranked]
    return "\n".join(lines)


#: Units in which so many seconds are easy to read, and how many seconds each is.
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def _rows(rows: Iterable[Row], priced: bool, time: tuple[str, float]) -> list[str]:
    unit, per = time
    lines = [
        f"{'method':<16}{'K':>6}{'step ms':>10}{'compute':>9}{'wait':>8}{'comm':>8}{'steps':>10}"
        f"{'time ' + unit:>10}{'price' if priced else 'worker-h':>11}{'effic.':>8}"
    ]
    for row in rows:
        s = row.step
        money = row.price if priced else row.worker_s / 3600
        lines.append(
            f"{row.name[:15]:<16}{row.K:>6}{_n(1e3 * s.seconds):>10}{_n(1e3 * s.compute_s):>9}"
            f"{_n(1e3 * s.wait_s):>8}{_n(1e3 * s.comm_s):>8}{row.steps:>10.0f}{_n(row.time_s / per):>10}"
            f"{_n(money):>11}{100 * row.efficiency:>6.1f} %"
        )
    return lines


def _n(x: float) -> str:
    """Four digits, or three below 1."""
    if x == 0:
        return "0"
    if abs(x) >= 1000:
        return f"{x:.0f}"
    return f"{x:#.3g}" if abs(x) < 1 else f"{x:#.4g}".rstrip(".")
