"""Accounts for recorded steps: one cause after another is taken out, and its row is what the mean step loses by that.

First calls that synchronise, then uneven batches, then ranks that surely work longer than others, last chance. What is left
is a mean worker's work: its phases are rows, computing split by what it takes alone, beside others, beside communication.
Rows are differences of neighbours, so they sum to the step whatever the data. Symbols: K ranks, T steps. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.checks import FloatArray
from labkit.train.recorder import Phase
from labkit_book.why.answer import CAUSES, MATTERS, Row, Why
from labkit_book.why.cures import cures
from labkit_book.why.peel import COMPUTE, Peeled, peel
from labkit_book.why.samples import Sample, drawn, spread
from labkit_book.why.steps import Steps


def account(steps: Steps, false_alarm: float = 0.01, seed: int = 0) -> Why:
    """Account for recorded steps. false_alarm: of naming a rank where all are alike; seed: of what is drawn."""
    samples = drawn(steps, seed)
    found = samples[0]
    peeled = peel(steps, found.prices.shortest, false_alarm)
    rows = _Rows(steps, peeled, found)
    now = peeled.layers[0]
    shares = spread([rows.seconds(s) / (now @ s.weights) for s in samples], steps.T)
    table = rows.table(shares)
    cause, rivals = _named(table, shares, steps.step_s)
    found_cures = cures(steps, peeled, samples)
    return Why(steps.K, steps.T, steps.where, steps.step_s, table, cause, rivals, found_cures, peeled.slow)


@dataclass(frozen=True)
class _Rows:
    """The rows of an account, in the order of CAUSES. found: the sample that is the recording itself."""

    steps: Steps
    peeled: Peeled
    found: Sample

    def seconds(self, s: Sample) -> FloatArray:
        """Of each row, in a sample."""
        x_s = float(self.peeled.x_quiet @ s.weights)
        prices = s.prices.fitted(x_s)
        lost = -np.diff([layer @ s.weights for layer in self.peeled.layers]) + 0.0  # no -0
        rows = dict(zip(("calls", "data", "rank", "chance"), lost, strict=True))
        rows["calls"] += self.peeled.calls * (s.prices.shortest - self.found.prices.shortest)
        rows |= self._of_work(s, prices.sending_s * len(prices.n))
        rows["latency"], rows["bandwidth"] = prices.split()
        rows["rest"] = x_s - prices.exposed()
        return np.array([rows[cause] for cause in CAUSES])

    def _of_work(self, s: Sample, sending_s: float) -> dict[str, float]:
        work = self.peeled.cured.mean(axis=0).T @ s.weights  # (6,) of a mean worker
        compute = float(work[COMPUTE].sum())
        fine = np.delete(np.arange(self.steps.K), self.peeled.slow)
        alone = float(s.alone_s[fine].mean()) if s.alone_s.size else compute
        together = float(s.together_s[fine].mean()) if s.together_s.size else compute
        rows = {"compute": alone, "sharing": together - alone, "beside": compute - together - sending_s}
        rows |= {"loading": work[Phase.BETWEEN], "loss": work[Phase.LOSS]}
        return rows | {"after": work[Phase.AFTER], "optimizer": work[Phase.OPTIMIZER]}

    def table(self, shares: FloatArray) -> tuple[Row, ...]:
        """shares: (draws, rows) of the step."""
        said = {cause: what for cause, (what, _) in CAUSES.items()}
        if self.peeled.slow:
            said["rank"] = f"waiting for {self.peeled.slow_ranks}, slow in {self.peeled.slow_in}"
        low, high = np.quantile(shares, [0.05, 0.95], axis=0) * self.steps.step_s
        columns = zip(self.seconds(self.found), low, high, strict=True)
        return tuple(Row(c, said[c], *map(float, of)) for c, of in zip(CAUSES, columns, strict=True))


def _named(table: tuple[Row, ...], shares: FloatArray, step_s: float) -> tuple[str, tuple[str, ...]]:
    """The cause to name, and those that cannot be told from it."""
    curable = [i for i, row in enumerate(table) if CAUSES[row.cause][1]]
    sure = [i for i in curable if table[i].low > MATTERS * step_s]
    most = max(sure, key=lambda i: table[i].seconds, default=None)
    limit = MATTERS if most is None else shares[:, [most]]
    near = (shares > limit).mean(axis=0) > 0.05
    large = [i for i in curable if near[i] and i != most and table[i].seconds > MATTERS * step_s]
    return "healthy" if most is None else table[most].cause, tuple(table[i].cause for i in large)
