"""Accounts for recorded steps: one cause after another is taken out, and its row is what the mean step loses by that.

Calls that synchronise (their waiting, and a message's time each), uneven batches (work per example times the examples
beyond the mean), ranks that surely work longer than others (their phases scaled to others' mean), chance (max becomes mean).
What is left is a mean worker's work: its phases are rows, computing split by what it takes alone, beside others, and beside
communication. Rows that are differences of neighbours telescope, so they sum to the step whatever the data.
Communication x is split as ``prices`` does. **A cure** is the same sum over the recorded steps with that one change.

**Intervals** draw blocks of m, about sqrt(T), steps anew (moving-block bootstrap; Künsch 1989), as neighbouring steps may be
alike, and the rounds in which computing and prices were measured. Blocks cut from T steps differ by too little, and
n = T / m of them tell their own spread badly: it is taken times sqrt(T / (T - m)), and times 1 + 0.93 / (n - 1), which is
Student's quantile of 95 % over the normal one.

Symbols: K ranks, T steps. Times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit.extras import scipy
from labkit.train.prices import Prices
from labkit.train.steps import Phase, Steps
from labkit.train.why import CAUSES, MATTERS, MENTION, Cure, Row, Why

_GATHER = 4  # steps that accumulation brings together
_COMPUTE = [Phase.FORWARD, Phase.BACKWARD]
_DRAWS = 100


class _Sample(NamedTuple):
    """Steps and rounds drawn: weights (T,) of steps, sum 1; alone_s, together_s, half_s: (K,), or empty; prices clocked."""

    weights: FloatArray
    alone_s: FloatArray
    together_s: FloatArray
    half_s: FloatArray
    prices: Prices


def account(steps: Steps, false_alarm: float = 0.01, seed: int = 0) -> Why:
    """Account for recorded steps. false_alarm: of naming a rank where all are alike; seed: of what is drawn."""
    K, T = steps.seconds.shape[:2]
    P, now = steps.seconds[..., : Phase.STAY], steps.seconds.sum(axis=-1).mean(axis=0)
    samples = _samples(steps, np.random.default_rng(seed))
    x, found = now - _slowest(P), samples[0]

    # peel, from what was recorded down to a mean worker that waits for nobody
    calls, quiet, x_quiet = _without_calls(P, x, steps, found.prices.shortest)
    even = _evened(quiet, steps.examples)
    slow = _stragglers(even, false_alarm)
    cured = _cured(even, slow)
    layers = [now, *(_slowest(each) + x_quiet for each in (quiet, even, cured))]
    layers += [cured.sum(axis=-1).mean(axis=0) + x_quiet, x_quiet]
    series = np.concatenate([layers, cured.mean(axis=0).T])
    fine, parts = np.delete(np.arange(K), slow), found.prices.fitted(float(x_quiet.mean())).parts

    def seconds(s: _Sample) -> FloatArray:
        """Of the rows, in a sample."""
        *ends, x_s, after, optimizer, between, forward, loss, backward = series @ s.weights
        compute, prices = forward + backward, s.prices.fitted(x_s)
        alone, together = (float(of[fine].mean()) if of.size else compute for of in (s.alone_s, s.together_s))
        sending, split = prices.sending_s * len(prices.n), prices.split(parts)
        work = [between, alone, together - alone, compute - together - sending, loss, after, optimizer]
        waiting = -np.diff(ends) + [calls * (s.prices.shortest - found.prices.shortest), 0.0, 0.0, 0.0]
        return np.array([*work, *waiting, *split, x_s - prices.exposed()])

    rows, step_s = seconds(found), float(now.mean())
    shares = _spread([seconds(s) / (now @ s.weights) for s in samples], T)
    low, high = np.quantile(shares, [0.05, 0.95], axis=0)
    causes, said = [*CAUSES], {cause: what for cause, (what, _) in CAUSES.items()}
    if slow:
        said["rank"] = f"waiting for rank{'s' * (len(slow) > 1)} {', '.join(map(str, slow))}"
    expected = _expected(rows, cured, steps, found.prices.bare.split(parts))
    table = zip(causes, said.values(), rows, expected, low * step_s, high * step_s, strict=True)
    curable = [i for i, cause in enumerate(causes) if CAUSES[cause][1]]
    most = max((i for i in curable if low[i] > MATTERS), key=lambda i: rows[i], default=None)
    near = (shares > (MATTERS if most is None else shares[:, [most]])).mean(axis=0) > 0.05
    return Why(
        K, T, steps.where, step_s,
        rows=tuple(Row(cause, what, *map(float, of)) for cause, what, *of in table),
        cause="healthy" if most is None else causes[most],
        rivals=tuple(causes[i] for i in curable if near[i] and rows[i] > MATTERS * step_s and i != most),
        cures=_cures(P, x, now, steps, (calls, quiet, x_quiet), slow, samples),
        stragglers=slow,
        speedup=_speedup(quiet, x_quiet, steps, found),
        link=found.prices.link,
    )  # fmt: skip


def _samples(steps: Steps, rng: np.random.Generator) -> list[_Sample]:
    """The recording itself, and draws of it."""
    T, drawn = steps.seconds.shape[1], []
    m, (A, R) = _block(T), (len(steps.alone_s), len(steps.prices))
    for draw in range(1 + _DRAWS):
        which, passes, rounds = np.arange(T), np.arange(A), np.arange(R)
        if draw:
            which = (rng.integers(0, T - m + 1, (-(-T // m), 1)) + np.arange(m)).ravel()
            passes, rounds = rng.integers(0, A, A) if A else passes, rng.integers(0, R, R) if R else rounds
        weights = np.bincount(which, minlength=T) / len(which)
        clocked = steps.alone_s, steps.together_s, steps.half_s
        alone, together, half = (s[passes].mean(axis=0) if s.size else s for s in clocked)
        drawn.append(_Sample(weights, alone, together, half, Prices.of(steps, rounds)))
    return drawn


def _block(T: int) -> int:
    """Steps in a block."""
    return max(1, round(math.sqrt(T)))


def _spread(drawn: Sequence[FloatArray], T: int) -> FloatArray:
    """Draws around the first, the recording's own, with the spread that few blocks lack made good."""
    first, others, m = drawn[0], np.array(drawn[1:]), _block(T)
    few = math.sqrt(T / max(T - m, 1)) * (1 + 0.93 / max(T / m - 1, 1))
    spread: FloatArray = first + (others - others.mean(axis=0)) * few
    return spread


def _expected(rows: FloatArray, cured: FloatArray, steps: Steps, bare: Sequence[float]) -> list[float]:
    """What each row was to be; nan where nothing says. bare: of the sums, if nothing were hidden behind computing."""
    alone = float(rows[1]) if steps.alone_s.size else math.nan
    own = cured.sum(axis=-1)
    own = (own - own.mean(axis=0)) * math.sqrt(steps.K / max(steps.K - 1, 1))
    rng = np.random.default_rng(0)
    chance = float(np.stack([rng.permutation(w) for w in own]).max(axis=0).mean())
    crowd = max(0.0, float(steps.inside / steps.cores) - 1)
    return [0.0, alone, alone * crowd, 0.0, *[math.nan] * 3, 0.0, 0.0, 0.0, chance, *bare, 0.0]


# -- one cause out: functions of phases (K, T, 6) ---------------------------------------------------------------


def _slowest(P: FloatArray) -> FloatArray:
    """(T,) seconds of the slowest rank's work."""
    slowest: FloatArray = P.sum(axis=-1).max(axis=0)
    return slowest


def _without_calls(
    P: FloatArray, x: FloatArray, steps: Steps, shortest: float
) -> tuple[float, FloatArray, FloatArray]:
    """Collectives of a step outside the gradients' own; P and x without them: nobody waits in a phase that has one, and no
    message is paid there."""
    P, calls = P.copy(), 0.0
    for phase in (Phase.AFTER, Phase.OPTIMIZER, Phase.BETWEEN, Phase.FORWARD, Phase.LOSS):
        here = steps.calls[..., phase]
        if len(P) > 1 and here.mean() >= 0.5:
            least = P[..., phase].min(axis=0)
            P[..., phase] = np.where(here > 0, np.maximum(least - here * shortest, 0.0), P[..., phase])
            calls += float(
                (here * (P[..., phase] > 0)).mean()
            )  # the price of those that the phase has room for
    own = steps.calls[..., [Phase.BACKWARD, Phase.STAY]].sum(axis=-1).mean(axis=0) - len(steps.messages)
    own = np.maximum(own, 0.0) * (len(steps.messages) > 0)
    return calls + float(own.mean()), P, x - np.minimum(own * shortest, np.maximum(x, 0.0))


def _evened(P: FloatArray, examples: FloatArray) -> FloatArray:
    """With the mean number of examples on every rank: work per example is the slope within ranks, or else among them."""
    b, work = examples, P[..., _COMPUTE].sum(axis=-1)
    extra = b - b.mean(axis=0)
    if not extra.any():
        return P
    inside, w = b - b.mean(axis=1, keepdims=True), work - work.mean(axis=1, keepdims=True)
    if not inside.any():
        inside, w = b - b.mean(), work - work.mean()
    per_example = float((inside * w).sum() / (inside * inside).sum())
    P, cost = P.copy(), np.clip(per_example, 0.0, work.mean() / b.mean()) * extra
    P[..., Phase.BACKWARD] -= cost
    return P


def _stragglers(P: FloatArray, false_alarm: float) -> tuple[int, ...]:
    """The ranks whose work takes surely longer than the others' mean (Student's t of blocks of steps), and MENTION of it."""
    work, (K, T) = P.sum(axis=-1), P.shape[:2]
    n, m = T // _block(T), _block(T)
    if K == 1 or n < 2:
        return ()
    late = (work - work.mean(axis=0))[:, : n * m] * (K / (K - 1))
    blocks = late.reshape(K, n, m).mean(axis=2)
    least = scipy("special").stdtrit(n - 1, 1 - false_alarm / K) * blocks.std(axis=1, ddof=1) / math.sqrt(n)
    slow = blocks.mean(axis=1) > np.maximum(least, MENTION * work.mean())
    return tuple(int(k) for k in np.flatnonzero(slow))


def _cured(P: FloatArray, slow: tuple[int, ...]) -> FloatArray:
    """With every phase of the slow ranks scaled to the mean of the others', and its ups and downs with it."""
    P = P.copy()
    fine = np.delete(P, slow, axis=0).mean(axis=(0, 1))
    for k in slow:
        own = P[k].mean(axis=0)
        P[k] = np.where(own > 0, P[k] * fine / np.where(own > 0, own, 1.0), fine)
    return P


# -- what would help -----------------------------------------------------------------------------------------------


def _cures(
    P: FloatArray,
    x: FloatArray,
    now: FloatArray,
    steps: Steps,
    without_calls: tuple[float, FloatArray, FloatArray],
    slow: tuple[int, ...],
    samples: list[_Sample],
) -> tuple[Cure, ...]:
    found, (calls, quiet, x_quiet) = samples[0], without_calls
    fitted = {id(s): s.prices.fitted(float(x @ s.weights)) for s in samples}
    compute, own = P[..., _COMPUTE].sum(axis=-1).mean(axis=1), fitted[id(found)]

    def work(phases: Sequence[Phase], factors: FloatArray | float) -> FloatArray:
        """Steps in which these phases take so many times as long."""
        changed = P.copy()
        changed[..., phases] *= np.reshape(factors, (-1, 1, 1))
        return changed

    def beyond(of: Callable[[_Sample], float]) -> Callable[[_Sample], float]:
        """What a sample's measurements say beyond the recording's own."""
        return lambda s: float(of(s) - of(found))

    def saved(**change: Any) -> Callable[[_Sample], float]:
        return lambda s: min(0.0, fitted[id(s)].exposed(**change) - fitted[id(s)].exposed())

    # a cure: of what, its name, (T,) seconds with it, and what a sample's measurements add to their mean
    tried: list[tuple[str, str, FloatArray, Callable[[_Sample], float]]] = [
        ("calls", "no calls that synchronise", _slowest(quiet) + x_quiet, beyond(lambda s: -calls * s.prices.shortest)),
        ("data", "equal work for every rank", _slowest(_evened(P, steps.examples)) + x, _nothing),
        ("loading", "data loaded ahead", _slowest(work([Phase.BETWEEN], 0.0)) + x, _nothing),
        ("after", "nothing between backward and optimizer", _slowest(work([Phase.AFTER], 0.0)) + x, _nothing),
    ]  # fmt: skip
    if slow:
        what = f"rank {', '.join(map(str, slow))} like the others"
        tried.append(("rank", what, _slowest(_cured(P, slow)) + x, _nothing))
    rare, often = P, 1 - 1 / _GATHER
    spare: Callable[[_Sample], float] = _nothing
    if found.alone_s.size:  # cores of its own are not shared with communication either
        alone = work(_COMPUTE, np.minimum(1.0, found.alone_s / np.maximum(compute, 1e-12)))
        dearer = beyond(lambda s: np.minimum(s.alone_s, compute).mean())
        tried.append(("sharing", "cores of its own for each worker", _slowest(alone) + x, dearer))
        rare = P.copy()
        rare[..., Phase.BACKWARD] -= often * np.maximum(compute - found.together_s, 0.0)[:, None]
        spare = beyond(lambda s: often * np.minimum(s.together_s, compute).mean())
    if L := len(own.n):
        few, base = own.parts, _slowest(P) + x
        what, fewer = f"{few} message{'s' * (few > 1)} in place of {L}", saved(parts=few)
        tried += [
            ("messages", what, base, lambda s: fewer(s) - fitted[id(s)].sending_s * (L - few)),
            ("bandwidth", "half the bytes", base, saved(bandwidth=0.5)),
            ("latency", "another all-reduce", base, saved(way=own.best_ways)),
        ]
    # twice as many examples: on a straight line through half of them and all
    if found.half_s.size and len(P) > 1:
        longer = np.clip(3 - 2 * found.half_s / np.maximum(found.together_s, 1e-12), 1.0, 2.0)
        large, hidden = work([*_COMPUTE, Phase.LOSS], longer), saved(ends=float(longer.mean()))
        large[..., Phase.BETWEEN] *= 2
        halves = beyond(lambda s: (1.5 * s.together_s - s.half_s).mean())
        what, twice = "batches twice as large", (_slowest(large) + x) / 2
        tried.append(("latency", what, twice, lambda s: hidden(s) / 2 + halves(s)))
    if len(now) >= _GATHER and len(P) > 1:
        what, gathered = f"sums after every {_GATHER} batches", _gathered(rare, x)
        tried += [(cause, what, gathered, spare) for cause in ("latency", "chance", "rest")]
    cures: dict[str, Cure] = {}
    for cause, what, new, more in tried:
        shares = [(new @ s.weights + more(s)) / (now @ s.weights) for s in samples]
        between = np.quantile(_spread(shares, len(now)), [0.05, 0.95]) * now.mean()
        cure = Cure(cause, what, float(shares[0] * now.mean()), *map(float, between))
        if cure.seconds < float(now.mean()):
            cures.setdefault(what, cure)
    return tuple(sorted(cures.values(), key=lambda c: c.seconds))


def _nothing(sample: _Sample) -> float:
    return 0.0


def _gathered(P: FloatArray, x: FloatArray) -> FloatArray:
    """Seconds of a batch if _GATHER of them in a row are followed by one sum and one step of the optimizer."""
    T = P.shape[1] // _GATHER * _GATHER
    each = P[:, :T].reshape(len(P), -1, _GATHER, P.shape[2]).sum(axis=2)
    work = each[..., Phase.BETWEEN :].sum(axis=-1) + each[..., : Phase.BETWEEN].sum(axis=-1) / _GATHER
    groups = work.max(axis=0) + x[:T].reshape(-1, _GATHER).mean(axis=1)
    return np.append(np.repeat(groups, _GATHER), np.full(len(x) - T, groups.mean())) / _GATHER


def _speedup(P: FloatArray, x: FloatArray, steps: Steps, found: _Sample) -> tuple[float, ...]:
    """What K' = 1, ..., K workers do in a second, over what one does alone; the fastest are kept."""
    K, order = len(P), np.argsort(P.sum(axis=-1).mean(axis=1), kind="stable")
    prices = found.prices.fitted(float(x.mean()))
    if K == 1 or not found.alone_s.size or not len(prices.n):
        return (math.nan,) * K
    crowded = float((found.together_s / np.maximum(found.alone_s, 1e-12)).mean()) - 1
    fastest = P[order[0]]
    one = (fastest.sum(axis=-1) - fastest[:, _COMPUTE].sum(axis=-1)).mean() + found.alone_s[order[0]]
    rates = [1 / one]
    for k in range(2, K + 1):
        fewer = P[order[:k]].copy()
        fewer[..., _COMPUTE] *= (1 + crowded * (k - 1) / (K - 1)) / (1 + crowded)
        rounds, volume = (k - 1) / (K - 1), (k - 1) / k * K / (K - 1)
        more = prices.exposed(latency=rounds, bandwidth=volume) - prices.exposed()
        rates.append(k / float((_slowest(fewer) + x).mean() + more))
    rates[-1] = K / float(steps.seconds.sum(axis=-1).mean())
    return tuple(float(r * one) for r in rates)
