"""What would help: a cure is the recorded steps with one change, and all else as it was. Symbols as in ``peel``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit.train.recorder import Phase
from labkit_book.why.answer import Row
from labkit_book.why.peel import COMPUTE, Peeled, evened, like_the_others, slowest
from labkit_book.why.samples import Sample, spread
from labkit_book.why.steps import Steps


class _Tried(NamedTuple):
    """A cure of a cause: (T,) seconds of the steps with it, and what each sample's measurements add to their mean."""

    cause: str
    what: str
    steps_s: FloatArray
    more: list[float] | float = 0.0


def cures(steps: Steps, peeled: Peeled, samples: list[Sample]) -> tuple[Row, ...]:
    """Those that make the mean step shorter, the best first."""
    now, found = peeled.layers[0], []
    tried = [*_of_work(steps, peeled, samples), *_of_sums(peeled, samples)]
    for cause, what, steps_s, more in tried:
        added = np.broadcast_to(more, len(samples))
        shares = [(steps_s @ s.weights + a) / (now @ s.weights) for s, a in zip(samples, added, strict=True)]
        between = np.quantile(spread(shares, steps.T), [0.05, 0.95]) * steps.step_s
        found.append(Row(cause, what, float(shares[0] * steps.step_s), *map(float, between)))
    return tuple(sorted((c for c in found if c.seconds < steps.step_s), key=lambda c: c.seconds))


def _of_work(steps: Steps, peeled: Peeled, samples: list[Sample]) -> Iterator[_Tried]:
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


def _of_sums(peeled: Peeled, samples: list[Sample]) -> Iterator[_Tried]:
    base = slowest(peeled.recorded) + peeled.x
    prices = [s.prices.fitted(float(peeled.x @ s.weights)) for s in samples]
    if L := len(prices[0].n):
        few = prices[0].parts
        fewer = [min(0.0, p.exposed(parts=few) - p.exposed()) - p.sending_s * (L - few) for p in prices]
        yield _Tried("latency", f"{few} message{'s' * (few > 1)} in place of {L}", base, fewer)
        halved = [min(0.0, p.exposed(bandwidth=0.5) - p.exposed()) for p in prices]
        yield _Tried("bandwidth", "half the bytes", base, halved)
