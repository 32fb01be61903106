"""Why isn't it faster? The answer: an account of the mean step that adds up to it, and what each cure would bring.

With w_k(t) the work of rank k in step t, from leaving one synchronisation to arriving at the next, and x(t) the rest,

    step(t) = max over k of w_k(t) + x(t).

``account`` peels rows off this sum until nothing is left. **What is named** is the largest row that can be cured and is
surely more than MATTERS of the step: the lower end of its interval of 90 % lies above. Where no row is that large the job is
called healthy; where another is larger in more than 5 % of the draws, both are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: A cause is named from this share of the step on; a cure is shown from MENTION on.
MATTERS, MENTION = 0.1, 0.02

#: The rows of an account: what each is called, and what to do about it, "" where that is none of ours.
CAUSES = {
    "loading": ("between steps, loading data", "Load ahead, in other processes."),
    "compute": ("forward and backward, alone", ""),
    "sharing": ("slower beside other workers", "Give each worker cores of its own (OMP_NUM_THREADS)."),
    "beside": ("slower beside communication", "Send fewer bytes, or keep a core for communication."),
    "loss": ("the loss, and your code before backward", ""),
    "after": ("your code between backward and optimizer", "Clip and log less often, or on the device."),
    "optimizer": ("the optimizer", ""),
    "calls": ("calls that synchronise", "Log less often, or sum what is logged at the end."),
    "data": ("waiting for uneven batches", "Deal examples out by their cost, or drop the short batch."),
    "rank": ("waiting for one rank", "Look at that machine: clock, heat, neighbours, its own loader."),
    "chance": ("waiting, by chance", "Nobody is to blame: longer steps average it out."),
    "latency": ("latency of messages", "Send fewer, larger messages (bucket_cap_mb), or compute more in a step."),
    "bandwidth": ("bandwidth", "Send fewer bytes, more rarely, or over a faster link."),
    "rest": ("unexplained, before the optimizer steps", "Look at what is done there: sums, clipping, logs?"),
}  # fmt: skip


class Row(NamedTuple):
    """Seconds in an interval of 90 %: of the mean step, those of a cause, or all of it with a cure of that cause."""

    cause: str
    what: str
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Why:
    """The account of a step, and what would help. ``str()`` is a page, the verdict first.

    rows sum to step_s. cause: the one that is named, or "healthy". rivals: the causes that this recording cannot tell from
    it; or, of a "healthy" job, those whose rows may be MATTERS after all. cures: the steps with each; the best first.
    """

    K: int
    T: int
    where: str
    step_s: float
    rows: tuple[Row, ...]
    cause: str
    rivals: tuple[str, ...]
    cures: tuple[Row, ...]
    stragglers: tuple[int, ...]

    def cure(self, cause: str) -> Row | None:
        """The best that is known."""
        return next((c for c in self.cures if c.cause == cause), None)

    @property
    def verdict(self) -> str:
        of = {row.cause: row for row in self.rows}
        others = " or ".join(of[rival].what for rival in self.rivals)
        if self.cause == "healthy":
            said = f"Healthy: nothing that could be cured surely takes {100 * MATTERS:.0f} % of the step."
            return f"{said} More steps would tell of {others}." if others else said
        row, cure = of[self.cause], self.cure(self.cause)
        said = f"Mostly {row.what}: {1e3 * row.seconds:.1f} ms of {1e3 * self.step_s:.1f}."
        if others:
            said = f"Mostly {row.what} or {others}: this recording cannot tell which is more."
        said = f"{said} {CAUSES[self.cause][1]}"
        return said + (f" With {cure.what}, {self.step_s / cure.seconds:.2f} times as fast." if cure else "")

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        lines.append(f"{f'{self.T} steps of {self.K} workers':<50}{'ms':>9}{'share':>8}")
        for row in self.rows:
            lines.append(f"{row.what:<50}{1e3 * row.seconds:>9.2f}{100 * row.seconds / self.step_s:>6.1f} %")
        lines.append(f"{'together':<50}{1e3 * sum(r.seconds for r in self.rows):>9.2f}")
        useful = [c for c in self.cures if self.step_s - c.seconds >= MENTION * self.step_s]
        if useful:
            lines += ["", f"{'what would help, alone':<40}{'ms':>8}{'90 % interval':>17}{'speedup':>9}"]
        for c in useful:
            between = f"{1e3 * c.low:.2f} to {1e3 * c.high:.2f}"
            lines.append(f"{c.what:<40}{1e3 * c.seconds:>8.2f}{between:>17}{self.step_s / c.seconds:>9.2f}")
        return "\n".join([*lines, self.where])

    __repr__ = __str__
