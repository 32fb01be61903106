"""Accounts for recorded steps: one cause after another is taken out, and its row is what the mean step loses by that.

First calls that synchronise, then uneven batches, then ranks that surely work longer than others, last chance. What is left
is a mean worker's work: its phases are rows, computing split by what it takes alone, beside others, beside communication.
Rows are differences of neighbours, so they sum to the step whatever the data. And what would help: a cure is the recorded
steps with one change, and all else as it was. Symbols: K ranks, T steps, and those of ``peel``. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit.train.recorder import Phase
from labkit_book.why.answer import CAUSES, MATTERS, Row, Why
from labkit_book.why.peel import COMPUTE, Peeled, evened, like_the_others, peel, slowest
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
    cures = _cures(steps, peeled, samples)
    return Why(steps.K, steps.T, steps.where, steps.step_s, table, cause, rivals, cures, peeled.slow)


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


class _Tried(NamedTuple):
    """A cure of a cause: (T,) seconds of the steps with it, and what each sample's measurements add to their mean."""

    cause: str
    what: str
    steps_s: FloatArray
    more: list[float] | float = 0.0


def _cures(steps: Steps, peeled: Peeled, samples: list[Sample]) -> tuple[Row, ...]:
    """Those that make the mean step shorter, the best first."""
    now, found = peeled.layers[0], []
    tried = [*_cures_of_work(steps, peeled, samples), *_cures_of_sums(peeled, samples)]
    for cause, what, steps_s, more in tried:
        added = np.broadcast_to(more, len(samples))
        shares = [(steps_s @ s.weights + a) / (now @ s.weights) for s, a in zip(samples, added, strict=True)]
        between = np.quantile(spread(shares, steps.T), [0.05, 0.95]) * steps.step_s
        found.append(Row(cause, what, float(shares[0] * steps.step_s), *map(float, between)))
    return tuple(sorted((c for c in found if c.seconds < steps.step_s), key=lambda c: c.seconds))


def _cures_of_work(steps: Steps, peeled: Peeled, samples: list[Sample]) -> Iterator[_Tried]:
    P, x, found = peeled.recorded, peeled.x, samples[0]
    dearer = [peeled.calls * (found.prices.shortest - s.prices.shortest) for s in samples]
    yield _Tried("calls", "no calls that synchronise", slowest(peeled.quiet) + peeled.x_quiet, dearer)
    yield _Tried("data", "equal work for every rank", slowest(evened(P, steps.examples)) + x)
    # loaded while the step before goes on: no step is shorter than its loading
    loading, rest = P[..., Phase.BETWEEN], np.delete(P, Phase.BETWEEN, axis=-1)
    # A cure of the slow rank, if that loads long.
    whose = "rank" if peeled.slow_in == "loading" else "loading"
    yield _Tried(whose, "data loaded ahead", np.maximum(slowest(rest) + x, loading.max(axis=0)))
    if peeled.slow:
        cured = slowest(like_the_others(P, peeled.slow)) + x
        yield _Tried("rank", f"{peeled.slow_ranks} like the others", cured)
    if found.alone_s.size:
        compute, own = P[..., COMPUTE].sum(axis=-1).mean(axis=1), P.copy()
        own[..., COMPUTE] *= np.minimum(1.0, found.alone_s / np.maximum(compute, 1e-12))[:, None, None]
        alone = [float(np.minimum(s.alone_s, compute).mean()) for s in samples]
        more = [each - alone[0] for each in alone]
        yield _Tried("sharing", "cores of its own for each worker", slowest(own) + x, more)


def _cures_of_sums(peeled: Peeled, samples: list[Sample]) -> Iterator[_Tried]:
    base = slowest(peeled.recorded) + peeled.x
    prices = [s.prices.fitted(float(peeled.x @ s.weights)) for s in samples]
    if L := len(prices[0].n):
        few = prices[0].parts
        fewer = [min(0.0, p.exposed(parts=few) - p.exposed()) - p.sending_s * (L - few) for p in prices]
        yield _Tried("latency", f"{few} message{'s' * (few > 1)} in place of {L}", base, fewer)
        halved = [min(0.0, p.exposed(bandwidth=0.5) - p.exposed()) for p in prices]
        yield _Tried("bandwidth", "half the bytes", base, halved)
