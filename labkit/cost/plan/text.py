"""The plan as a table that fits 100 columns."""

from __future__ import annotations

import textwrap

from labkit.cost.plan.plan import Plan, Row


def table(made: Plan) -> str:
    """The best K of every method under the plan's goal, best first, and every K of the best of them."""
    best, ranked = made.best(), ranking(made)
    priced = made.cluster.price_per_hour > 0
    unit = time_unit(best.time_s)
    bill = "price: of all workers together, in the currency given" if priced else "worker-h: hours x K"
    legend = (
        f"Every method with its best K. step = compute + wait + comm, in ms; {bill}; effic.: examples a second, of "
        f"what K undisturbed workers would make that need not communicate."
    )
    lines = [
        textwrap.fill(f"Goal: {made.goal}. {_scaling(made)}", 98),
        "",
        *_rows(ranked, priced, unit),
        "",
        textwrap.fill(legend, 98),
    ]
    if beyond := [name for name in made.names if not _possible(made, name)]:
        lines.append(textwrap.fill(f"No K reaches the goal with {', '.join(beyond)}.", 98))
    lines += ["", f"{best.name} with every K:", *_rows(list(made.of(best.name)), priced, unit)]
    ways = ", ".join(f"{row.name} {row.step.algorithm}" for row in ranked)
    lines += ["", textwrap.fill(f"Communication by: {ways}.", 98, subsequent_indent="  ")]
    for name, why in {left.name: left.why for left in reversed(made.left_out)}.items():
        Ks = ", ".join(str(left.K) for left in made.left_out if left.name == name)
        lines.append(textwrap.fill(f"Left out: {name} with K = {Ks} ({why}).", 98, subsequent_indent="  "))
    lines += ["", "What is assumed of the number of steps:"]
    lines += [f"  {row.name:<16} {row.method.assumption}" for row in ranked]
    return "\n".join(lines)


def ranking(made: Plan) -> list[Row]:
    """The row of every method's best K, best first; without the methods that the goal does not allow."""
    return sorted((made.best(name=name) for name in made.names if _possible(made, name)), key=made.goal.value)


def _possible(made: Plan, name: str) -> bool:
    return any(made.goal.value(row) < float("inf") for row in made.of(name))


def _scaling(made: Plan) -> str:
    job = made.job
    if job.strong:
        return f"Strong scaling: B = {job.B} examples per step, b = B / K."
    return f"Weak scaling: b = {job.b} examples per worker and step, B = K b."


def _rows(rows: list[Row], priced: bool, time: tuple[str, float]) -> list[str]:
    unit, per = time
    bill = "price" if priced else "worker-h"
    head = (
        f"{'method':<16}{'K':>6}{'step ms':>10}{'compute':>9}{'wait':>8}{'comm':>8}{'steps':>10}"
        f"{'time ' + unit:>10}{bill:>11}{'effic.':>8}"
    )
    lines = [head]
    for row in rows:
        s = row.step
        money = row.price if priced else row.worker_s / 3600
        lines.append(
            f"{row.name[:15]:<16}{row.K:>6}{_n(1e3 * s.seconds):>10}{_n(1e3 * s.compute_s):>9}"
            f"{_n(1e3 * s.wait_s):>8}{_n(1e3 * s.comm_s):>8}{row.steps:>10.0f}{_n(row.time_s / per):>10}"
            f"{_n(money):>11}{100 * row.efficiency:>6.1f} %"
        )
    return lines


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which as many seconds are easy to read, and how many seconds it is."""
    for unit, per in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 3 * per:
            return unit, per
    return "s", 1.0


def _n(x: float) -> str:
    """Four digits, or three below 1."""
    if x == 0:
        return "0"
    if abs(x) >= 1000:
        return f"{x:.0f}"
    return f"{x:#.3g}" if abs(x) < 1 else f"{x:#.4g}".rstrip(".")
