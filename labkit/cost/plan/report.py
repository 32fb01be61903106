"""All that a plan says, as text and as JSON."""

from __future__ import annotations

import math
import textwrap
from typing import Any

from labkit.cost.plan.case import Case, to_dict
from labkit.cost.plan.flips import Flip, flips
from labkit.cost.plan.plan import Plan, Row
from labkit.cost.plan.text import ranking, table
from labkit.cost.plan.why import MEANING, Even, binds, break_even, shares, too_close, verdict

SCHEMA = "labkit-plan-1"


def as_text(made: Plan, with_flips: bool = True) -> str:
    """The table, why the best is best, how many more steps each could need, and where the ranking flips."""
    found = verdict(made)
    parts = {name: share for name, share in shares(made, found.row).items() if share >= 0.0005}
    bill = ", ".join(f"{name} {100 * share:.1f} %" for name, share in parts.items())
    lines = [table(made), "", _wrapped(f"Why: {found.sentence}"), _wrapped(f"Its bill: {bill}.")]
    if others := [row for row in ranking(made) if row.name != found.row.name]:
        largest = (
            f"{row.name} {(term := binds(made, row))} {100 * shares(made, row)[term]:.0f} %" for row in others
        )
        lines += [_wrapped(f"The largest part of the others' bills: {', '.join(largest)}.")]
    if near := too_close(made):
        lines += [
            _wrapped(f"Too close to call, within two standard errors of it or equal: {', '.join(near)}.")
        ]
    if len(made.names) > 1:
        lines += [
            "",
            "The steps factor (1: the steps assumed above) at which each method ties with the best other one:",
        ]
        lines += [f"  {_even(even)}" for even in _evens(made)]
        if with_flips:
            K = found.row.K  # with one worker all methods are the same, whatever else is turned
            lines += ["", f"Where the ranking by time flips, at K = {K}:"]
            lines += [f"  {flip}" for flip in flips(made, only=["K"] if K == 1 else None)]
    return "\n".join(lines)


def as_dict(case: Case, made: Plan, warnings: list[str], with_flips: bool = True) -> dict[str, Any]:
    """The stable form of ``--json``; see the command's help for its keys."""
    found = verdict(made)
    several = len(made.names) > 1
    return {
        "schema": SCHEMA,
        "inputs": to_dict(case),
        "best": _row(made, found.row),
        "why": {
            "binds": found.term, "meaning": MEANING[found.term], "sentence": found.sentence,
            "shares": shares(made, found.row), "too_close": too_close(made),
        },
        "rows": [_row(made, row) for row in made.rows],
        "break_even": [
            {"method": e.name, "steps_factor": e.factor, "rival": e.rival} for e in (_evens(made) if several else ())
        ],
        "flips": [_flip(flip) for flip in (flips(made) if several and with_flips else ())],
        "left_out": [{"method": name, "K_workers": K, "why": why} for name, K, why in made.left_out],
        "warnings": warnings,
    }  # fmt: skip


def _row(made: Plan, row: Row) -> dict[str, Any]:
    step = row.step
    return {
        "method": row.name, "K_workers": row.K, "b_examples": row.b, "B_examples": row.B, "step_s": step.seconds,
        "compute_s": step.compute_s, "wait_s": step.wait_s, "communicate_s": step.comm_s, "latency_s": step.latency_s,
        "bandwidth_s": step.bandwidth_s, "coding_s": step.coding_s, "error_s": step.error_s, "steps": row.steps,
        "steps_factor": row.method.steps_factor, "time_s": row.time_s, "worker_s": row.worker_s,
        "price_currency": row.price, "efficiency": row.efficiency, "speedup": row.speedup,
        "examples_per_s": row.examples_per_s, "allreduce": step.algorithm, "binds": binds(made, row),
        "assumption": row.method.assumption,
    }  # fmt: skip


def _flip(flip: Flip) -> dict[str, Any]:
    return {
        "dial": flip.dial, "unit": flip.unit, "now": flip.now, "best": flip.best, "at": flip.at, "other": flip.other,
        "until": flip.until,
    }  # fmt: skip


def _evens(made: Plan) -> list[Even]:
    try:
        return break_even(made)
    except ValueError:  # the goal allows one method only
        return []


def _even(even: Even) -> str:
    now = "" if even.now == 1 else f", now {even.now:.3g}"
    if math.isclose(even.room, 1, rel_tol=1e-9):
        said = f"ties with {even.rival} as it is"
    elif even.room > 1:
        said = f"best below it; then {even.rival}"
    else:
        said = f"would have to save steps to beat {even.rival}"
    return f"{even.name:<16} {even.factor:<6.3g} ({said}{now})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 98, subsequent_indent="  ")
