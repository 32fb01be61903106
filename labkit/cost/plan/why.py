"""Why a row takes as long as it does, and how sure its place in the ranking is.

The bill of a row, worker-seconds, is cut into parts that add up to it: examples that had to be computed, examples that a
large batch wastes (McCandlish et al. 2018, section 2: E / E_min - 1 of them), what every step costs whatever its batch,
waiting, messages, bytes, coding. The largest part *binds*: to make it smaller is worth most.

Symbols: K workers, B = K b examples per step, S steps, E = B S examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from labkit.cost.plan.goals import Goal
from labkit.cost.plan.plan import Plan, Row

#: What each part of the bill is, and what would make it smaller.
MEANING = {
    "examples": "computing the examples that have to be computed: more workers share it, and save no money",
    "critical batch": "computing examples that a batch this large wastes: more workers save little time, and cost",
    "overhead": "what a step costs whatever its batch: more examples per worker help",
    "wait": "waiting for the slowest worker: backup workers, more slack or local steps help",
    "latency": "messages: fewer of them (another all-reduce, larger buckets, local steps) help",
    "bandwidth": "bytes: a faster network, overlap, fewer bytes or local steps help",
    "coding": "encoding and decoding: a cheaper compressor helps",
}


def shares(made: Plan, row: Row) -> dict[str, float]:
    """The parts of the row's bill, by the names of ``MEANING``, each from 0 to 1; they add up to 1.

    Examples are wasted where fewer would do with small batches; for targets without a ``B_crit`` none are.
    """
    step, job = row.step, made.job
    total = step.seconds
    overhead = step.compute_s * job.overhead_s / job.compute_s(row.b)
    proper = step.compute_s - overhead
    least = getattr(made.target, "E_min", None)
    needed = 1.0 if least is None else min(1.0, least / (row.B * row.steps))
    parts = {
        "examples": proper * needed,
        "critical batch": proper * (1 - needed),
        "overhead": overhead,
        "wait": step.wait_s,
        "latency": step.latency_s,
        "bandwidth": step.bandwidth_s,
        "coding": step.coding_s,
    }
    return {name: seconds / total for name, seconds in parts.items()}


def binds(made: Plan, row: Row) -> str:
    """The largest part of the row's bill."""
    parts = shares(made, row)
    return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True)
class Even:
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


def break_even(made: Plan, goal: Goal | None = None, K: int | None = None) -> list[Even]:
    """The tie of every method with the best other one, each at its own best K (or all at the K given); best first.

    Under an efficiency goal steps don't change who is allowed, so a method that nothing allows is left out.
    ValueError where fewer than two methods are left.
    """
    goal = goal or made.goal
    best: dict[str, float] = {}
    rows: dict[str, Row] = {}
    for name in made.names:
        at = [row for row in made.of(name) if K in (None, row.K) and goal.value(row) < float("inf")]
        if at:
            rows[name] = min(at, key=goal.value)
            best[name] = goal.value(rows[name])
    if len(best) < 2:
        raise ValueError(f"plan must hold two methods that the goal allows to compare them, got {list(best)}")
    found = []
    for name, row in rows.items():
        rival = min((other for other in best if other != name), key=lambda other: best[other])
        now = row.method.steps_factor
        found.append(Even(name, now * (best[rival] / best[name]) ** (1 / goal.power), now, rival))
    return sorted(found, key=lambda even: -even.room)


def too_close(made: Plan, goal: Goal | None = None) -> list[str]:
    """Methods whose best row can't be told from the best one's: nearer than two standard errors of what was simulated."""
    goal = goal or made.goal
    best = made.best(goal)
    found = []
    for name in made.names:
        row = min(made.of(name), key=goal.value)
        error = 2 * math.hypot(row.step.error_s / row.step.seconds, best.step.error_s / best.step.seconds)
        if name != best.name and goal.value(row) <= goal.value(best) * (1 + goal.power * error):
            found.append(name)
    return found


class Verdict(NamedTuple):
    """The best row, what binds it and by which share, and the sentence that says so."""

    row: Row
    term: str
    share: float
    sentence: str


def verdict(made: Plan, goal: Goal | None = None) -> Verdict:
    """Who is best, with how many workers, and why."""
    row = made.best(goal)
    term = binds(made, row)
    share = shares(made, row)[term]
    sentence = f"{row.name} with K = {row.K} has {goal or made.goal}; {100 * share:.0f} % of its bill is {MEANING[term]}."
    return Verdict(row, term, share, sentence)
