"""The plan: every method with every number of workers, in seconds, steps, money and efficiency; and the best of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from labkit.checks import one_of
from labkit_book.planner.case import Case
from labkit_book.planner.row import Row

#: What "best" may mean: the powers of (seconds, workers) in the number that is to be small; price is worker-seconds times a
#: constant. At the knee one per cent of time costs one per cent of money.
_GOALS = {"time": (1, 0), "price": (1, 1), "knee": (2, 1)}


class _Even(NamedTuple):
    """A tie: ``name`` needs ``factor`` times the steps of sync to be as quick as ``rival``, the best other method."""

    name: str
    factor: float
    rival: str


@dataclass(frozen=True)
class Plan:
    """All rows, in the order of the methods and then of K, and the impossible ones, each of which has a ``refusal``."""

    case: Case
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...] = ()

    def best(self, goal: str = "time", name: str | None = None) -> Row:
        """The row with the least "time", "price" or product of both ("knee"), of one method or all; of equals the first."""
        one_of("goal", goal, tuple(_GOALS))
        seconds, workers = _GOALS[goal]
        return min(self.of(name), key=lambda row: row.time_s**seconds * row.K**workers)

    def of(self, name: str | None = None, K: int | None = None) -> tuple[Row, ...]:
        """The rows of one method, of one K, or of both. ValueError where there is none."""
        rows = tuple(row for row in self.rows if name in (None, row.name) and K in (None, row.K))
        if not rows:
            there = ", ".join(f"{row.name} with K = {row.K}" for row in self.rows)
            raise ValueError(f"name and K must be in the plan ({there}), got {name!r}, {K!r}")
        return rows

    @property
    def ranking(self) -> list[Row]:
        """The row of every method's best K, best first."""
        names = dict.fromkeys(row.name for row in self.rows)
        return sorted((self.best(name=name) for name in names), key=lambda row: row.time_s)


def plan(case: Case, **changes: Any) -> Plan:
    """Every one of the case's methods with every number of its workers. changes: fields of the case to be changed first.

    What is impossible (as many backups as workers, say) is left out. ValueError where nothing is left.
    """
    case = replace(case, **changes)
    wanted = [Row(case, method, K) for method in case.methods for K in case.K_workers]
    rows = tuple(row for row in wanted if row.refusal is None)
    left_out = tuple(row for row in wanted if row not in rows)
    if not rows:
        raise ValueError(
            f"K must leave some method possible, but {wanted[0].name} with K = {wanted[0].K}: {wanted[0].refusal}. Cutting "
            f"layers or operations over workers is not planned here: Megatron-LM, DeepSpeed and torchtitan do it"
        )
    return Plan(case, rows, left_out)


def break_even(made: Plan) -> list[_Even]:
    """The steps factor at which every method ties with the best other one, each at its own best K; best first.

    ValueError where fewer than two methods are left.
    """
    ranked = made.ranking
    if len(ranked) < 2:
        raise ValueError(f"plan must hold two methods to compare them, got {[row.name for row in ranked]}")
    pairs = zip(ranked, [ranked[1], *[ranked[0]] * (len(ranked) - 1)], strict=True)
    return [_Even(a.name, a.method.steps_factor * b.time_s / a.time_s, b.name) for a, b in pairs]
