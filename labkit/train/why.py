"""Why isn't it faster? The answer: an account of the mean step that adds up to it, and what each cure would bring.

A synchronous step ends when the slowest rank has arrived and the gradients have been summed. With w_k(t) the work of rank k
in step t, from leaving one synchronisation to arriving at the next, and x(t) what the step takes beyond the slowest work,

    step(t) = max over k of w_k(t) + x(t).

``account`` peels rows off this sum until nothing is left. **What is named** is the largest row that can be cured and is
surely more than MATTERS of the step: the lower end of its interval of 90 % lies above. So one that takes no more is named
with a probability of about 5 %, also where steps are few and resemble their neighbours (``tests/train/test_why.py`` counts).
Where no row is that large the job is called healthy; where another is larger in more than 5 % of the draws, both are named.

Symbols: K ranks, T steps. Times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from labkit.network import Link

#: A cause is named from this share of the step on; a cure is shown from MENTION on; so much of the work is "enough".
MATTERS, MENTION, ENOUGH = 0.1, 0.02, 0.95

#: The rows of an account: what each is called, and what to do about it, "" where that is none of ours.
CAUSES = {
    "loading": ("between steps, loading data", "Load ahead, in other processes."),
    "compute": ("forward and backward, alone", ""),
    "sharing": (
        "slower beside other workers",
        "Give each worker cores of its own (OMP_NUM_THREADS), or start fewer on a host.",
    ),
    "beside": (
        "slower beside communication",
        "Communication takes cores or memory from computing: fewer bytes, or a core for it.",
    ),
    "loss": ("the loss, and your code before backward", ""),
    "after": ("your code between backward and optimizer", "Clip and log less often, or on the device."),
    "optimizer": ("the optimizer", ""),
    "calls": ("calls that synchronise", "Log less often, or sum what is logged at the end."),
    "data": ("waiting for uneven batches", "Deal examples out by their cost, or drop the short batch."),
    "rank": ("waiting for one rank", "Look at that machine: clock, heat, neighbours, its own loader."),
    "chance": ("waiting, by chance", "Nobody is to blame: longer steps average it out."),
    "messages": ("latency of many messages", "Send fewer, larger messages (bucket_cap_mb)."),
    "latency": (
        "latency of the fewest messages",
        "A step computes too little for what one message takes: a larger batch, accumulation, fewer workers.",
    ),
    "bandwidth": ("bandwidth", "Fewer bytes (16-bit gradients, compression), rarer sums, or a faster link."),
    "rest": (
        "unexplained, before the optimizer steps",
        "Which messages there are is unknown: what lies between backward pass and step (sums, clipping, logs)?",
    ),
}


class Row(NamedTuple):
    """A line of the account: mean seconds of a step, what was to be expected (nan where nothing says), a 90 % interval."""

    cause: str
    what: str
    seconds: float
    expected: float
    low: float
    high: float


class Cure(NamedTuple):
    """One change, and the mean seconds of a step (of as many examples) with it, in an interval of 90 %."""

    cause: str
    what: str
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Why:
    """The account of a step, what would help, and how few workers were enough. ``str()`` is a page.

    rows sum to step_s. cause: of the largest row that can be cured and is surely MATTERS of the step; "healthy" otherwise.
    rivals: the causes that this recording cannot tell from it, as their rows may be the larger ones; or, of a
    "healthy" job, those whose rows may be MATTERS after all.
    cures: the best first. speedup: what K' = 1, 2, ..., K workers do, in one worker's work; nan where that was not measured.
    """

    K: int
    T: int
    where: str
    step_s: float
    rows: tuple[Row, ...]
    cause: str
    rivals: tuple[str, ...]
    cures: tuple[Cure, ...]
    stragglers: tuple[int, ...]
    speedup: tuple[float, ...]
    link: Link | None

    @property
    def enough(self) -> int:
        """The fewest workers that do ENOUGH of what the best number up to K does."""
        most = max(self.speedup)
        return next((k for k, s in enumerate(self.speedup, 1) if s >= ENOUGH * most), self.K)

    def cure(self, cause: str) -> Cure | None:
        """The best cure of a cause; None where none is known."""
        return next((c for c in self.cures if c.cause == cause), None)

    @property
    def verdict(self) -> str:
        of = {row.cause: row for row in self.rows}
        others = "".join(f" or {of[rival].what}" for rival in self.rivals)
        if self.cause == "healthy":
            said = f"Healthy: nothing that could be cured surely takes {100 * MATTERS:.0f} % of the step."
            return f"{said} More steps would tell of{others.removeprefix(' or')}." if others else said
        row = of[self.cause]
        said = f"Mostly {row.what}: {1e3 * row.seconds:.1f} ms of {1e3 * self.step_s:.1f}."
        if others:
            said = f"Mostly {row.what}{others}: this recording cannot tell which is more."
        said, cure = f"{said} {CAUSES[self.cause][1]}", self.cure(self.cause)
        return (
            said
            if cure is None
            else f"{said} With {cure.what}, {self.step_s / cure.seconds:.2f} times as fast."
        )

    def __str__(self) -> str:
        lines = [f"{self.K} workers, {self.T} steps, {1e3 * self.step_s:.2f} ms a step ({self.where})", ""]
        lines.append(f"{'a step is':<44}{'ms':>9}{'share':>8}{'expected ms':>13}")
        for row in self.rows:
            expected = "-" if math.isnan(row.expected) else f"{1e3 * row.expected:.2f}"
            share = row.seconds / self.step_s
            lines.append(f"{row.what:<44}{1e3 * row.seconds:>9.2f}{100 * share:>6.1f} %{expected:>13}")
        lines.append(f"{'together':<44}{1e3 * sum(r.seconds for r in self.rows):>9.2f}")
        if self.link is not None:
            speed = math.inf if math.isinf(self.link.beta) else self.link.beta / 1e6
            lines.append(
                f"(alpha = {1e6 * self.link.alpha:.4g} µs, beta = {speed:.4g} MB/s between these workers)"
            )
        useful = [c for c in self.cures if self.step_s - c.seconds >= MENTION * self.step_s]
        if useful:
            lines += ["", f"{'what would help, alone':<40}{'ms':>8}{'90 % interval':>17}{'speedup':>9}"]
        for c in useful:
            between = f"{1e3 * c.low:.2f} to {1e3 * c.high:.2f}"
            lines.append(f"{c.what:<40}{1e3 * c.seconds:>8.2f}{between:>17}{self.step_s / c.seconds:>9.2f}")
        lines.append("")
        if self.K > 1 and math.isfinite(self.speedup[0]):
            few = f"; {self.enough} would have been enough" if self.enough < self.K else ""
            lines.append(f"These {self.K} workers do {self.speedup[-1]:.2f} times what one does alone{few}.")
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__
