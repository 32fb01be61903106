"""Why isn't it faster? One account of a recorded step that adds up to it, and what each cure would bring.

A synchronous step ends when the slowest rank has arrived and the gradients have been summed. With w_k(t) the work of rank k
in step t, from leaving one synchronisation to arriving at the next, and x(t) what the step takes beyond the slowest work,

    step(t) = max over k of w_k(t) + x(t).

**The account peels.** One cause after another is taken out of the recorded steps, and its row is what the mean step loses by
that: calls that synchronise (their waiting, and a message's time each), uneven batches (work per example times the examples
beyond the mean), ranks that a test over blocks names (their phases scaled to other ranks' mean), chance (max becomes mean).
What is left is a mean worker's work: its phases are rows, computing split by what it takes alone, beside others, and beside
communication. Rows that are differences of neighbours telescope, so they sum to the step whatever the data.

**Communication** x is held against a schedule on measured prices (Li et al. 2020, *PyTorch Distributed*, section 3.2.3):
message l of n_l bytes may leave r_l seconds before the backward pass ends, messages leave one after the other, and one
of n bytes takes a(n). What the schedule exposes is peeled too: down to the best number of messages (many messages), down to
messages without latency (latency), and the rest (bandwidth). What x has beyond the schedule is *unexplained*.

**A cure** is the same sum over the recorded steps with that one change. Its interval resamples blocks of about sqrt(T) steps
(moving-block bootstrap; Künsch 1989), as neighbouring steps may be alike.

Symbols: K ranks, T steps, L messages of n_l bytes; ``alpha`` s per message, ``beta`` bytes per second of a ring's links.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from labkit.checks import FloatArray
from labkit.collectives import ALLREDUCES, ring
from labkit.network import Link
from labkit.timing import Kind, Timeline, straggler_report
from labkit.train.steps import Phase, Steps

#: A cause is named from this share of the step on; a cure is shown from MENTION on; so much of the work is "enough".
MATTERS, MENTION, ENOUGH = 0.1, 0.02, 0.95
#: Steps that accumulation brings together.
GATHER = 4


_COMPUTE = [Phase.FORWARD, Phase.BACKWARD]


class Row(NamedTuple):
    """A line of the account: mean seconds of a step, and what was to be expected, nan where nothing says."""

    cause: str
    what: str
    seconds: float
    expected: float


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

    rows sum to step_s. cause: of the largest row that can be cured, if it is MATTERS of the step; "healthy" otherwise.
    cures: the best first. speedup: what K' = 1, 2, ..., K workers do, in one worker's work; nan where that was not measured.
    """

    K: int
    T: int
    where: str
    step_s: float
    rows: tuple[Row, ...]
    cures: tuple[Cure, ...]
    stragglers: tuple[int, ...]
    speedup: tuple[float, ...]
    link: Link | None

    @property
    def cause(self) -> str:
        row = max((r for r in self.rows if r.cause in _CURABLE), key=lambda r: r.seconds)
        return row.cause if row.seconds >= MATTERS * self.step_s else "healthy"

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
        if self.cause == "healthy":
            return f"Healthy: nothing that could be cured takes {100 * MATTERS:.0f} % of the step."
        row = next(r for r in self.rows if r.cause == self.cause)
        said = f"Mostly {row.what}: {1e3 * row.seconds:.1f} ms of {1e3 * self.step_s:.1f}. {_CURABLE[self.cause]}"
        cure = self.cure(self.cause)
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
            lines += [
                "",
                f"{'what would help, alone':<44}{'ms':>9}{'90 % interval':>17}{'times as fast':>15}",
            ]
        for c in useful:
            between = f"{1e3 * c.low:.2f} to {1e3 * c.high:.2f}"
            lines.append(f"{c.what:<44}{1e3 * c.seconds:>9.2f}{between:>17}{self.step_s / c.seconds:>15.2f}")
        lines.append("")
        if self.K > 1 and math.isfinite(self.speedup[0]):
            few = f"; {self.enough} would have been enough" if self.enough < self.K else ""
            lines.append(f"These {self.K} workers do {self.speedup[-1]:.2f} times what one does alone{few}.")
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__


_CURABLE = {
    "calls": "Log less often, or sum what is logged at the end.",
    "data": "Deal examples out by their cost, or drop the short batch.",
    "rank": "Look at that machine: clock, heat, neighbours, its own loader.",
    "chance": "Nobody is to blame: longer steps average it out.",
    "loading": "Load ahead, in other processes.",
    "sharing": "Give each worker cores of its own (OMP_NUM_THREADS), or start fewer on a host.",
    "beside": "Communication takes cores or memory from computing: fewer bytes, or a core for it.",
    "messages": "Send fewer, larger messages (bucket_cap_mb).",
    "latency": "A step computes too little for what one message takes: a larger batch, accumulation, fewer workers.",
    "bandwidth": "Fewer bytes (16-bit gradients, compression), rarer sums, or a faster link.",
    "rest": "Neither the phases nor the prices account for it: what lies between backward pass and step (clipping, logs)?",
}


def account(steps: Steps, false_alarm: float = 0.01, seed: int = 0) -> Why:
    """Account for recorded steps. false_alarm: of naming a rank, as in ``straggler_report``; seed: of what is drawn."""
    K, T = steps.seconds.shape[:2]
    rng = np.random.default_rng(seed)
    P, now = steps.seconds[..., : Phase.STAY], steps.seconds.sum(axis=-1).mean(axis=0)
    x = now - _slowest(P)
    net = _Network.of(steps).lowered(float(x.mean()))

    # peel, from what was recorded down to a mean worker that waits for nobody
    quiet, x_quiet = _without_calls(P, x, steps, net)
    even = _evened(quiet, steps.examples)
    slow = _stragglers(even, false_alarm)
    cured = _cured(even, slow)
    layers = [now, _slowest(quiet) + x_quiet, _slowest(even) + x_quiet, _slowest(cured) + x_quiet]
    layers.append(cured.sum(axis=-1).mean(axis=0) + x_quiet)
    calls, data, rank, chance = -np.diff([float(layer.mean()) for layer in layers])
    between, optimizer, loss = (
        float(cured[..., p].mean()) for p in (Phase.BETWEEN, Phase.OPTIMIZER, Phase.LOSS)
    )
    compute = float(cured[..., _COMPUTE].sum(axis=-1).mean())
    alone, together = (_others(s, slow, compute) for s in (steps.alone_s, steps.together_s))
    own = cured.sum(axis=-1)
    own = (own - own.mean(axis=0)) * math.sqrt(K / max(K - 1, 1))
    by_chance = float(np.stack([rng.permutation(w) for w in own]).max(axis=0).mean())
    unhidden = net.unhidden
    full, merged, smooth = net.layers
    sending, few = net.sending_s * len(net.n), net.sending_s * net.parts
    names = ", ".join(map(str, slow))
    crowd = max(0.0, float(steps.inside / steps.cores) - 1) if steps.alone_s.size else math.nan
    rows = (
        Row("loading", "between steps, loading data", between, 0.0),
        Row("compute", "forward and backward, alone", alone, alone if steps.alone_s.size else math.nan),
        Row("sharing", "slower beside other workers", together - alone, alone * crowd),
        Row("beside", "slower beside communication", compute - together - sending, 0.0),
        Row("loss", "the loss, and your code before backward", loss, math.nan),
        Row("optimizer", "the optimizer", optimizer, math.nan),
        Row("calls", "calls that synchronise", calls, 0.0),
        Row("data", "waiting for uneven batches", data, 0.0),
        Row(
            "rank",
            f"waiting for rank{'s' * (len(slow) > 1)} {names}" if slow else "waiting for one rank",
            rank,
            0.0,
        ),
        Row("chance", "waiting, by chance", chance, by_chance),
        Row("messages", "latency of many messages", full - merged + sending - few, unhidden[0]),
        Row("latency", "latency of the fewest messages", merged - smooth + few, unhidden[1]),
        Row("bandwidth", "bandwidth", smooth, unhidden[2]),
        Row("rest", "unexplained, before the optimizer steps", float(x_quiet.mean()) - full, 0.0),
    )
    cures = _cures(P, x, now, steps, net, (quiet, x_quiet), slow, rng)
    return Why(
        K,
        T,
        steps.where,
        float(now.mean()),
        rows,
        cures,
        slow,
        _speedup(quiet, x_quiet, steps, net),
        net.link,
    )


# -- one cause out: functions of phases (K, T, 5) ---------------------------------------------------------------


def _slowest(P: FloatArray) -> FloatArray:
    """(T,) seconds of the slowest rank's work."""
    slowest: FloatArray = P.sum(axis=-1).max(axis=0)
    return slowest


def _others(each: FloatArray, slow: tuple[int, ...], unknown: float) -> float:
    """The mean over the ranks that are not slow."""
    kept = np.delete(each, slow) if each.size else each
    return float(kept.mean()) if kept.size and np.isfinite(kept).all() else unknown


def _without_calls(
    P: FloatArray, x: FloatArray, steps: Steps, net: _Network
) -> tuple[FloatArray, FloatArray]:
    """Without collectives outside the gradients' own: nobody waits in a phase that has one, and no message is paid there."""
    P = P.copy()
    for phase in (Phase.OPTIMIZER, Phase.BETWEEN, Phase.FORWARD, Phase.LOSS):
        here = steps.calls[..., phase]
        if len(P) > 1 and here.mean() >= 0.5:
            least = P[..., phase].min(axis=0)
            P[..., phase] = np.where(here > 0, np.maximum(least - here * net.shortest, 0.0), P[..., phase])
    own = steps.calls[..., [Phase.BACKWARD, Phase.STAY]].sum(axis=-1).mean(axis=0) - len(steps.messages)
    return P, x - np.minimum(np.maximum(own, 0.0) * net.shortest, np.maximum(x, 0.0)) * (
        len(steps.messages) > 0
    )


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
    """The ranks that are last more often than chance explains."""
    work = P.sum(axis=-1)
    work = work - min(0.0, work.min())
    marks = np.zeros_like(work), work
    line = Timeline.from_marks(*marks, kinds=(Kind.COMPUTE,), where="recorded", measured=True)
    slow = straggler_report(line, false_alarm).stragglers
    return slow if len(slow) < len(P) else ()


def _cured(P: FloatArray, slow: tuple[int, ...]) -> FloatArray:
    """With every phase of the slow ranks scaled to the mean of the others', and its ups and downs with it."""
    P = P.copy()
    fine = np.delete(P, slow, axis=0).mean(axis=(0, 1))
    for k in slow:
        own = P[k].mean(axis=0)
        P[k] = np.where(own > 0, P[k] * fine / np.where(own > 0, own, 1.0), fine)
    return P


# -- what messages cost ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Network:
    """Prices of this step's messages: latency of the first byte, and a measured curve for the rest."""

    K: int
    n: FloatArray
    before_s: FloatArray
    sizes: FloatArray
    prices: FloatArray
    pipelined_s: float
    sending_s: float  # of one, in the backward pass; 0 where they are sent behind it

    @classmethod
    def of(cls, steps: Steps) -> _Network:
        n, known = steps.messages, steps.sizes.size > 0 and steps.K > 1
        backward = float(steps.seconds[..., Phase.BACKWARD].mean())
        self = cls(
            steps.K,
            n if known else np.empty(0),
            (1 - steps.ready) * backward,
            steps.sizes,
            steps.prices,
            0.0,
            0.0,
        )
        if not known or not len(n):
            return self
        # messages sent at once share their latencies: what the burst took beyond its bytes, at most one's each
        spare = (steps.burst_s - sum(self.volume_s(b) for b in n)) / len(n)
        self = replace(self, pipelined_s=float(np.clip(spare, 0.0, self.shortest)))
        if not steps.calls[..., Phase.BACKWARD].any():
            return self
        one = steps.sending_s / len(n)
        return replace(self, sending_s=one, before_s=self.before_s + one * np.arange(len(n) - 1, -1, -1))

    def lowered(self, seen_s: float) -> _Network:
        """With all prices lowered by one factor, where they promise more exposed seconds than were seen."""
        low, high = 0.0, 1.0
        for _ in range(40 if self.exposed() > seen_s else 0):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if self.exposed(latency=middle, bandwidth=middle) > seen_s else (middle, high)
            )
        return replace(self, prices=self.prices * high, pipelined_s=self.pipelined_s * high)

    @property
    def shortest(self) -> float:
        """Seconds of an all-reduce of next to nothing."""
        return float(self.prices[0]) if self.prices.size else 0.0

    @property
    def link(self) -> Link | None:
        """Alpha and beta of a ring that takes as long for the shortest and for the longest vector."""
        if not self.prices.size or self.K == 1:
            return None
        slope = self.volume_s(self.sizes[-1]) / self.sizes[-1]
        rounds = 2 * (self.K - 1)
        return Link(self.shortest / rounds, rounds / self.K / slope if slope > 0 else math.inf)

    def volume_s(self, nbytes: float) -> float:
        """Seconds of a message beyond the shortest's."""
        beyond = self.prices[-1] - self.shortest
        if nbytes > self.sizes[-1]:
            return float(beyond * nbytes / self.sizes[-1])
        return float(np.interp(nbytes, self.sizes, self.prices) - self.shortest)

    def exposed(
        self,
        parts: int = 0,
        latency: float = 1.0,
        bandwidth: float = 1.0,
        way: Callable[[float], float] = lambda n: 1.0,
    ) -> float:
        """Seconds of communication that stand out behind the backward pass.

        parts: messages it goes in, 0 for those recorded. latency, bandwidth: factors. way: factor of a message of n bytes.
        """
        groups = np.array_split(np.arange(len(self.n)), min(parts or len(self.n), len(self.n)) or 1)
        free = -math.inf
        each = self.shortest if len(groups) == 1 else self.pipelined_s
        for group in groups:
            if len(group):
                nbytes = float(self.n[group].sum())
                seconds = (latency * each + bandwidth * self.volume_s(nbytes)) * way(nbytes)
                free = max(free, -float(self.before_s[group[-1]])) + seconds
        return max(0.0, free)

    @property
    def parts(self) -> int:
        """The best number of messages."""
        L = len(self.n)
        return min([L, *(p for p in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if p < L)], key=self.exposed)

    @property
    def layers(self) -> tuple[float, float, float]:
        """Exposed as recorded, with the best number of messages, and that without latency."""
        full, merged = self.exposed(), self.exposed(self.parts)
        return full, merged, min(merged, self.exposed(self.parts, latency=0.0))

    @property
    def unhidden(self) -> tuple[float, float, float]:
        """The three rows of communication if nothing were hidden behind the backward pass."""
        bare = replace(self, before_s=np.zeros(len(self.n)))
        few = bare.exposed(self.parts)
        return bare.exposed() - few, few - bare.exposed(self.parts, latency=0.0), bare.exposed(latency=0.0)

    def best_way(self, nbytes: float) -> float:
        """What the best all-reduce of labkit takes, over what a ring takes."""
        if self.link is None or nbytes <= 0:
            return 1.0
        own = ring.time(self.K, nbytes, self.link)
        return (
            min(each.time(self.K, nbytes, self.link) for each in ALLREDUCES.values()) / own
            if own > 0
            else 1.0
        )


# -- what would help -----------------------------------------------------------------------------------------------


def _cures(
    P: FloatArray,
    x: FloatArray,
    now: FloatArray,
    steps: Steps,
    net: _Network,
    quiet: tuple[FloatArray, FloatArray],
    slow: tuple[int, ...],
    rng: np.random.Generator,
) -> tuple[Cure, ...]:
    work, full, L = _slowest(P), net.layers[0], len(net.n)
    ahead = P.copy()
    ahead[..., Phase.BETWEEN] = 0.0
    tried: list[tuple[str, str, FloatArray]] = [
        ("calls", "no calls that synchronise", _slowest(quiet[0]) + quiet[1]),
        ("data", "equal work for every rank", _slowest(_evened(P, steps.examples)) + x),
        ("loading", "data loaded ahead", _slowest(ahead) + x),
    ]
    if slow:
        names = ", ".join(map(str, slow))
        tried.append(("rank", f"rank {names} like the others", _slowest(_cured(P, slow)) + x))
    if steps.alone_s.size and np.isfinite(steps.alone_s / steps.together_s).all():
        spread = P.copy()
        spread[..., _COMPUTE] *= np.minimum(1.0, steps.alone_s / steps.together_s)[:, None, None]
        tried.append(("sharing", "cores of its own for each worker", _slowest(spread) + x))
    if L:
        for cause, what, exposed in (
            (
                "messages",
                f"{net.parts} message{'s' * (net.parts > 1)} in place of {L}",
                net.exposed(net.parts),
            ),
            ("bandwidth", "half the bytes", net.exposed(bandwidth=0.5)),
            ("latency", "another all-reduce", min(full, net.exposed(way=net.best_way))),
        ):
            sending = net.sending_s * (L - net.parts) if cause == "messages" else 0.0
            tried.append((cause, what, work - sending + _scaled(x, exposed - full)))
    if len(now) >= GATHER and len(P) > 1:
        rare = P.copy()
        if (
            steps.together_s.size and np.isfinite(steps.together_s).all()
        ):  # without sums nothing slows the backward pass
            spare = P[..., _COMPUTE].sum(axis=-1).mean(axis=1) - steps.together_s
            rare[..., Phase.BACKWARD] -= (1 - 1 / GATHER) * np.maximum(spare, 0.0)[:, None]
        gathered = _gathered(rare, x)
        for cause in ("latency", "chance", "rest"):
            tried.append((cause, f"sums after every {GATHER} batches", gathered))
    found: dict[str, Cure] = {}
    for cause, what, new in tried:
        cure = Cure(cause, what, float(new.mean()), *_interval(now, new, rng))
        if cure.seconds < float(now.mean()) and (what not in found):
            found[what] = cure
    return tuple(sorted(found.values(), key=lambda c: c.seconds))


def _scaled(x: FloatArray, more_s: float) -> FloatArray:
    """``x`` by a factor, so that its mean is ``more_s`` more, but not below 0."""
    mean = float(x.mean())
    return x * max(0.0, mean + more_s) / mean if mean > 0 else x


def _gathered(P: FloatArray, x: FloatArray) -> FloatArray:
    """Seconds of a batch if GATHER of them in a row are followed by one sum and one step of the optimizer."""
    T = P.shape[1] // GATHER * GATHER
    inner, last = (
        _sum(P[:, :T, phases].sum(axis=-1)) for phases in (slice(Phase.BETWEEN, None), [Phase.OPTIMIZER])
    )
    groups = (inner + last / GATHER).max(axis=0) + x[:T].reshape(-1, GATHER).mean(axis=1)
    return np.repeat(groups / GATHER, GATHER)


def _sum(x: FloatArray) -> FloatArray:
    """(K, T / GATHER) sums over GATHER steps in a row."""
    sums: FloatArray = x.reshape(len(x), -1, GATHER).sum(axis=-1)
    return sums


def _interval(now: FloatArray, new: FloatArray, rng: np.random.Generator) -> tuple[float, float]:
    """Of the mean of ``new``: the recorded mean times the ratio of the two in resampled blocks, 5 % and 95 %."""
    T = min(len(now), len(new))
    m = max(1, round(math.sqrt(T)))
    first = rng.integers(0, T - m + 1, (400, -(-T // m)))
    blocks = [np.convolve(each[:T], np.ones(m), "valid")[first].sum(axis=1) for each in (now, new)]
    low, high = np.quantile(blocks[1] / blocks[0], [0.05, 0.95]) * now.mean()
    return float(low), float(high)


def _speedup(P: FloatArray, x: FloatArray, steps: Steps, net: _Network) -> tuple[float, ...]:
    """What K' = 1, ..., K workers do in a second, over what one does alone; the fastest are kept."""
    K, order = len(P), np.argsort(P.sum(axis=-1).mean(axis=1), kind="stable")
    if K == 1 or not (
        steps.alone_s.size and np.isfinite(steps.alone_s / steps.together_s).all() and len(net.n)
    ):
        return (math.nan,) * K
    crowded = float((steps.together_s / steps.alone_s).mean()) - 1
    one = (
        P[order[0]].sum(axis=-1).mean()
        - P[order[0]][:, _COMPUTE].sum(axis=-1).mean()
        + steps.alone_s[order[0]]
    )
    rates = [1 / one]
    for k in range(2, K + 1):
        fewer = P[order[:k]].copy()
        fewer[..., _COMPUTE] *= (1 + crowded * (k - 1) / (K - 1)) / (1 + crowded)
        rounds, volume = (k - 1) / (K - 1), (k - 1) / k * K / (K - 1)
        more = net.exposed(latency=rounds, bandwidth=volume) - net.layers[0]
        rates.append(k / float((_slowest(fewer) + _scaled(x, more)).mean()))
    rates[-1] = K / float(steps.seconds.sum(axis=-1).mean())
    return tuple(float(r * one) for r in rates)
