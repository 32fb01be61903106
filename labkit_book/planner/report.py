"""All that a plan says, as text: the answer, every row that matters, why, and how sure it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from labkit_book.planner.plan import DIALS, Plan, break_even, sensitivity
from labkit_book.planner.row import MEANING, Row

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
_LEGEND = "step = compute + wait + comm, in ms; effic.: examples a second, of what K undisturbed workers alone would make."


def as_text(made: Plan) -> str:
    """The answer, warnings, the table, why the best is best, how many more steps each could need, where it flips."""
    best, ranked, case = made.best(), made.ranking, made.case
    lines = [_wrapped(_answer(made))]
    for K in case.K_workers:
        doubt = case.sweep.doubt(K, case.nbytes) if case.sweep and K > 1 else ""
        lines += [_wrapped(f"Warning: {doubt}")] if doubt else []
    lines += ["", "Every method with its best K:", *_table(made, ranked)]
    lines += ["", f"{best.name} with every K:", *_table(made, made.of(best.name)), "", _wrapped(_LEGEND)]
    lines += [_wrapped(f"Left out: {row.name} with K = {row.K}: {row.refusal}.") for row in made.left_out]
    assumed = [f"  {row.name:<16} {row.method.assumption}" for row in ranked]
    lines += ["", "What is assumed of the number of steps:", *assumed]
    part, most = max(best.shares.items(), key=lambda each: each[1])
    why = f"{best.name} with K = {best.K} has the least time; {100 * most:.0f} % of its bill"
    bill = ", ".join(f"{name} {100 * share:.1f} %" for name, share in best.shares.items() if share >= 0.0005)
    lines += ["", _wrapped(f"Why: {why} is {MEANING[part]}."), _wrapped(f"Its bill: {bill}.")]
    if len(ranked) > 1:
        lines += ["", "A method ties with the best other one if it needs so many times the steps of sync:"]
        lines += [f"  {even.name:<16} {even.factor:<6.3g} ({even.rival})" for even in break_even(made)]
        lines += ["", f"Where another method is quickest, at K = {best.K} and with one input changed:"]
        lines += [f"  {flip}" for dial in DIALS for flip in sensitivity(made, dial)]
    return "\n".join(lines)


def _answer(made: Plan) -> str:
    """The choice, its time and money, and what the answer rests on, in a sentence."""
    row, case = made.best(), made.case
    unit, per = _unit(row.time_s)
    low, high = (row.time_s / row.step.seconds / per * s for s in row.range_s or (0.0, 0.0))
    span = f" ({low:.4g} to {high:.4g} {unit})" if low < high else ""
    money = f"{row.price:,.0f} {'in all' if case.price_per_worker_hour else 'worker-hours'}"
    sheet = f" and links that give what a data sheet's do over {case.transport}"
    return (
        f"Answer: {row.name} with K = {row.K}, {row.time_s / per:.4g} {unit}{span}, {money}, if it takes "
        f"{row.steps:,.0f} steps ({row.method.assumption}){'' if case.transport == 'measured' else sheet}."
    )


def _table(made: Plan, rows: Iterable[Row]) -> list[str]:
    """A header and a line a row; a column is as wide as its widest entry."""
    unit, per = _unit(made.best().time_s)
    bill = "price" if made.case.price_per_worker_hour else "worker-h"
    cells = [["method", "K", "step ms", "compute", "wait", "comm", "steps", f"time {unit}", bill, "effic."]]
    for row in rows:
        step = row.step
        numbers = [1e3 * s for s in (step.seconds, step.compute_s, step.wait_s, step.comm_s)]
        numbers += [row.steps, row.time_s / per, row.price]
        share = f"{100 * row.efficiency:.1f} %"
        cells.append([row.name[:24], str(row.K), *map(_number, numbers), share])
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]) for line in cells]


def _unit(seconds: float) -> tuple[str, float]:
    return next((each for each in _UNITS if seconds >= 3 * each[1]), ("s", 1.0))


def _number(x: float) -> str:
    return f"{x:.0f}" if 1000 <= abs(x) < 1e8 else f"{x:.4g}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 98, subsequent_indent="  ")
