"""The plan: every method with every number of workers, in seconds, steps, money and efficiency; and the best of them.

    time to accuracy = steps(B) x seconds per step(K, network, stragglers, method)

Symbols: K workers, b examples each, B = K b.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from labkit_book.planner.case import Case
from labkit_book.planner.goals import Goal, parse_goal
from labkit_book.planner.memory import NOT_OURS
from labkit_book.planner.method import DEFAULTS
from labkit_book.planner.row import Row


@dataclass(frozen=True)
class Plan:
    """All rows, in the order of the methods and then of K, and the impossible ones; as text, a table of 100 columns."""

    case: Case
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...] = ()

    def best(self, goal: Goal | str | None = None, name: str | None = None, K: int | None = None) -> Row:
        """The row best under ``goal`` (None: the case's), of one method or one K if that is given; of equals the first.

        Of methods that nobody has named, only one whose number of steps is known (``certain``) is the best.
        ValueError where there is no such row, or none that the goal allows.
        """
        aim = self.case.goal if goal is None else parse_goal(goal)
        rows = self.of(name, K)
        if name is None:  # of no such method with that K, of all
            rows = tuple(row for row in rows if row.name in self.certain) or rows
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

    @cached_property
    def certain(self) -> tuple[str, ...]:
        """The methods that may be the answer: all that the case names, of ``DEFAULTS`` those that are `Method.certain`."""
        named = tuple(method.name for method in self.case.methods) != DEFAULTS
        known = {method.name for method in self.case.methods if named or method.certain}
        return tuple(name for name in self.names if name in known) or self.names

    @property
    def ranking(self) -> list[Row]:
        """The row of every method's best K, ``certain`` ones first, best first; without what the goal does not allow.

        ValueError where it allows none.
        """
        self.best()  # refuses such a goal
        goal = self.case.goal
        allowed = [name for name in self.names if any(row.value(goal) < math.inf for row in self.of(name))]
        best = (self.best(name=name) for name in allowed)
        return sorted(best, key=lambda row: (row.name not in self.certain, row.value(goal)))

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
        row = left_out[0]
        why = f"{row.name} with K = {row.K} {row.refusal}; {NOT_OURS}" if row.misfit else row.refusal
        raise ValueError(f"K must leave some method possible, but {why}")
    rows = tuple(row for row in wanted if row.refusal is None)
    for row in sorted(rows, key=lambda row: row.K):  # by K, whose methods share their draws
        row.time_s  # now, so that what has no expected time is refused here  # noqa: B018
    return Plan(case, rows, left_out)


def readable(seconds: float) -> tuple[str, float]:
    """The unit in which so many seconds are easy to read, and how many seconds it is."""
    return next((each for each in _UNITS if seconds >= 3 * each[1]), ("s", 1.0))


def _table(made: Plan) -> str:
    """The best K of every method under the plan's goal, best first, and every K of the best of them."""
    case, best, ranked = made.case, made.best(), made.ranking
    priced = case.price_per_worker_hour > 0
    unit = readable(best.time_s)
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
    sure = sum(row.name in made.certain for row in ranked)
    first = _rows(ranked, priced, unit)
    if sure < len(ranked):
        said = "counted optimistically (below), so never the answer unless --methods names them:"
        first.insert(1 + sure, said)
    lines = [textwrap.fill(f"Goal: {case.goal}. {scaling}", 98), "", *first, ""]
    lines.append(textwrap.fill(legend, 98))
    if beyond := [name for name in made.names if name not in [row.name for row in ranked]]:
        lines.append(textwrap.fill(f"No K reaches the goal with {', '.join(beyond)}.", 98))
    lines += ["", f"{best.name} with every K:", *_rows(made.of(best.name), priced, unit)]
    ways = ", ".join(f"{row.name} {row.step.algorithm}" for row in ranked)
    lines += ["", textwrap.fill(f"Communication by: {ways}.", 98, subsequent_indent="  ")]
    lines += [textwrap.fill(line, 98, subsequent_indent="  ") for line in _left_out(made)]
    lines += ["", "What is assumed of the number of steps:"]
    lines += [f"  {row.name:<16} {row.method.assumption}" for row in ranked]
    return "\n".join(lines)


def _left_out(made: Plan) -> list[str]:
    """What is impossible, a sentence for all methods of which it is said with the same K; of what K alters, the last."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(row.name for row in made.left_out):
        rows = [row for row in made.left_out if row.name == name]
        found.setdefault((", ".join(str(row.K) for row in rows), rows[-1].refusal or ""), []).append(name)
    return [f"Left out: {', '.join(names)} with K = {Ks} ({why})." for (Ks, why), names in found.items()]


#: Units in which so many seconds are easy to read, and how many seconds each is.
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def _rows(rows: Iterable[Row], priced: bool, time: tuple[str, float]) -> list[str]:
    """A header and a line a row, of 100 characters at most; a column is as wide as its widest entry."""
    unit, per = time
    columns = {
        "step ms": ("step_s", 1e-3), "compute": ("compute_s", 1e-3), "wait": ("wait_s", 1e-3),
        "comm": ("communicate_s", 1e-3), "steps": ("steps", 1.0), f"time {unit}": ("time_s", per),
        **({"price": ("price_currency", 1.0)} if priced else {"worker-h": ("worker_s", 3600.0)}),
    }  # fmt: skip
    cells = [["method", "K", *columns, "effic."]]
    for row in rows:
        said, name = row.to_dict(), row.name if len(row.name) <= 24 else f"{row.name[:23]}~"
        numbers = (_n(said[key] / size) for key, size in columns.values())
        cells.append([name, str(row.K), *numbers, f"{100 * row.efficiency:.1f} %"])
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    wide[1:] = [w + (2 if sum(wide) <= 82 else 1) for w in wide[1:]]
    lines = ([f"{line[0]:<{wide[0]}}", *map(str.rjust, line[1:], wide[1:])] for line in cells)
    return ["".join(line) for line in lines]


def _n(x: float) -> str:
    """Four digits, or three below 1."""
    if x == 0:
        return "0"
    if abs(x) >= 1e8:
        return f"{x:.3g}".replace("e+0", "e").replace("e+", "e")
    if abs(x) >= 1000:
        return f"{x:.0f}"
    return f"{x:#.3g}" if abs(x) < 1 else f"{x:#.4g}".rstrip(".")
