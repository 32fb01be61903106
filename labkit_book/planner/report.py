"""All that a plan says, as text and as JSON: the rows, why the best is best, and how sure its place in the ranking is."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from labkit_book.planner.failures import interval_s
from labkit_book.planner.plan import Plan, readable
from labkit_book.planner.row import MEANING
from labkit_book.planner.sensitivity import sensitivity
from labkit_book.planner.units import written

SCHEMA = "labkit-plan-1"


def verdict(made: Plan) -> str:
    """Who is best, with how many workers, and why, in a sentence."""
    row = made.best()
    share = 100 * row.shares[row.binds]
    return f"{row.name} with K = {row.K} has {made.case.goal}; {share:.0f} % of its bill is {MEANING[row.binds]}."


def _answer(made: Plan, carried: Iterable[str] = ()) -> str:
    """The choice, its time and money, and what the answer rests on, in a sentence. carried: assumptions made before."""
    row, case = made.best(), made.case
    unit, per = readable(row.time_s)
    low, high = (row.time_s / row.step.seconds / per * s for s in row.range_s or (0.0, 0.0))
    span = f" ({low:.4g} to {high:.4g} {unit})" if low < high else ""
    priced = case.price_per_worker_hour > 0
    money = f"{row.price:,.0f} in all" if priced else f"{row.worker_s / 3600:,.0f} worker-hours"
    steps = f"{row.steps:,.0f} steps ({row.method.assumption})"
    return (
        f"Answer: {row.name} with K = {row.K}, {row.time_s / per:.4g} {unit}{span}, {money}, if it takes "
        f"{' and '.join([steps, *carried])}."
    )


class _Even(NamedTuple):
    """How many steps a method could need before it ties with the best of the others.

    name: the method. factor: the steps_factor of the tie. now: its present one. rival: the best other one.
    """

    name: str
    factor: float
    now: float
    rival: str

    @property
    def room(self) -> float:
        """``factor / now``: how many times more steps than planned; below 1 for a method that loses as it is."""
        return self.factor / self.now


def break_even(made: Plan) -> list[_Even]:
    """The tie of every method with the best other one, each at its own best K; best first.

    Under an efficiency goal steps don't change who is allowed, so a method that nothing allows is left out.
    ValueError where fewer than two methods are left.
    """
    goal, ranked = made.case.goal, made.ranking
    if len(ranked) < 2:
        names = [row.name for row in ranked]
        raise ValueError(f"plan must hold two methods that the goal allows to compare them, got {names}")
    found = []
    for row in ranked:
        rival = ranked[1] if row is ranked[0] else ranked[0]
        now = row.method.steps_factor
        factor = now * (rival.value(goal) / row.value(goal)) ** (1 / goal.power)
        found.append(_Even(row.name, factor, now, rival.name))
    return found


def as_text(
    made: Plan, with_flips: bool = True, warnings: Iterable[str] = (), carried: Iterable[str] = ()
) -> str:
    """The answer, warnings, the table, why the best is best, how many more steps each could need, where it flips."""
    best, *others = made.ranking
    bill = ", ".join(f"{name} {100 * share:.1f} %" for name, share in best.shares.items() if share >= 0.0005)
    lines = [_wrapped(_answer(made, carried)), *(_wrapped(f"Warning: {each}.") for each in warnings), ""]
    lines += [str(made), "", _wrapped(f"Why: {verdict(made)}"), _wrapped(f"Its bill: {bill}.")]
    if made.case.mtbf_s is not None and made.case.checkpoint_s is not None:
        M = made.case.mtbf_s / best.K
        fails, every = (written(x, "s", " ") for x in (M, interval_s(made.case.checkpoint_s, M)))
        said = f"A failure in {fails}: a checkpoint each {every} of work leaves {100 * best.goodput:.1f} % of the time."
        lines.append(_wrapped(said))
    if others:
        said = ", ".join(f"{row.name} {row.binds} {100 * row.shares[row.binds]:.0f} %" for row in others)
        lines.append(_wrapped(f"The largest part of the others' bills: {said}."))
    if near := _too_close(made):
        said = f"Too close to call, within two standard errors of it or equal: {', '.join(near)}."
        lines.append(_wrapped(said))
    if others:
        said = (
            "The steps factor (1: the steps assumed above) at which each method ties with the best other one:"
        )
        lines += ["", said]
        lines += [f"  {_even(even, even.name == best.name)}" for even in break_even(made)]
    if len(made.names) > 1 and with_flips:
        K = best.K  # with one worker all methods are the same, whatever else is turned
        lines += ["", f"Where the ranking by time flips, at K = {K}:"]
        lines += [f"  {flip}" for flip in sensitivity(made, only=["K"] if K == 1 else None)]
    return "\n".join(lines)


def as_dict(made: Plan, warnings: list[str], with_flips: bool = True) -> dict[str, Any]:
    """The stable form of ``--json``; see the command's help for its keys."""
    best = made.best()
    evens = break_even(made) if len(made.ranking) > 1 else []
    flips = sensitivity(made) if len(made.names) > 1 and with_flips else []
    return {
        "schema": SCHEMA,
        "inputs": made.case.to_dict(),
        "best": best.to_dict(),
        "why": {
            "binds": best.binds, "meaning": MEANING[best.binds], "sentence": verdict(made), "shares": best.shares,
            "too_close": _too_close(made),
        },
        "rows": [row.to_dict() for row in made.rows],
        "break_even": [{"method": e.name, "steps_factor": e.factor, "rival": e.rival} for e in evens],
        "flips": [asdict(flip) for flip in flips],
        "left_out": [{"method": row.name, "K_workers": row.K, "why": row.refusal} for row in made.left_out],
        "warnings": warnings,
    }  # fmt: skip


def as_csv(made: Plan) -> str:
    """A line a row, after a header; the columns are the keys of a row of ``--json``, with their units."""
    out = io.StringIO()
    rows = [row.to_dict() for row in made.rows]
    table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def _too_close(made: Plan) -> list[str]:
    """Methods whose best row can't be told from the best one's: nearer than two standard errors of what was simulated."""
    goal = made.case.goal
    best, *others = made.ranking
    found = []
    for row in others:
        if row.name not in made.certain:
            continue
        error = 2 * math.hypot(row.step.error_s / row.step.seconds, best.step.error_s / best.step.seconds)
        if row.value(goal) <= best.value(goal) * (1 + goal.power * error):
            found.append(row.name)
    return found


def _even(even: _Even, first: bool) -> str:
    now = "" if even.now == 1 else f", now {even.now:.3g}"
    if math.isclose(even.room, 1, rel_tol=1e-9):
        said = f"ties with {even.rival} as it is"
    elif even.room > 1:
        said = f"best below it; then {even.rival}" if first else f"below it quicker than {even.rival}"
    else:
        said = f"would have to save steps to beat {even.rival}"
    return f"{even.name:<16} {even.factor:<6.3g} ({said}{now})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 98, subsequent_indent="  ")
