"""One row of a plan: a method with K workers. The seconds of a step, the steps that are needed, time, money, and the bill.

A step is the time in which all workers together compute B = K b examples (or would, if none were dropped). Its seconds are
those of `labkit.timing.policy`'s recurrences with the communication priced by `cluster`.

Symbols: K workers, b examples each, B = K b; L buckets, H local steps; S steps, E = B S examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from labkit.extras import scipy
from labkit.timing import expected_max
from labkit.timing.order import expected_shortfall
from labkit.timing.policy import LocalSteps, StaleSynchronous, Synchronous
from labkit_book.planner.case import Case
from labkit_book.planner.cluster import Exchange
from labkit_book.planner.estimate import estimate
from labkit_book.planner.memory import misfit
from labkit_book.planner.method import Method, parse_method

#: What each part of the bill, the worker-seconds, is, and what would make it smaller.
MEANING = {
    "examples": "computing the examples that have to be computed: more workers share it, and save no money",
    "critical batch": "computing examples that a batch this large wastes: more workers save little time, and cost",
    "overhead": "what a step costs whatever its batch: more examples per worker help",
    "wait": "waiting for the slowest worker: backup workers, more slack or local steps help",
    "latency": "messages: fewer of them (another all-reduce, larger buckets, local steps) help",
    "bandwidth": "bytes: a faster network, overlap or local steps help",
    "failures": "failures: writing checkpoints, computing anew what was lost, restarts: quicker ones help",
}
#: How the job was run whose step somebody measured: as frameworks do, in buckets of so many bytes.
AS_RUN = parse_method("overlapped:25MB")
#: Nine of ten published results (lab 10.10) lie between these: so many times the lost time that follows from data sheets,
#: and so many times the step that follows from one measured step. A published rate itself is good to ``CLOCKED`` of it.
LOST_RANGE, MEASURED_RANGE, CLOCKED = (0.25, 3.5), (0.8, 1.25), 0.03
_slowest = lru_cache(maxsize=64)(expected_max)


class Step(NamedTuple):
    """Mean seconds of a step: what an average worker computes, waits, and spends on communication that nothing hides.

    Communication is split: messages (latency) and bytes (bandwidth); all but computing is lost.
    """

    compute_s: float
    wait_s: float
    latency_s: float = 0.0
    bandwidth_s: float = 0.0

    @property
    def comm_s(self) -> float:
        return self.latency_s + self.bandwidth_s

    @property
    def lost_s(self) -> float:
        return self.wait_s + self.comm_s

    @property
    def seconds(self) -> float:
        return self.compute_s + self.lost_s

    def times(self, computing: float, lost: float) -> Step:
        """With computing and what is lost so many times as long."""
        return Step(computing * self.compute_s, *(lost * s for s in self[1:]))


@dataclass(frozen=True)
class Row:
    """``method`` with K workers on ``case``. Seconds, examples, and the currency of the case's price."""

    case: Case
    method: Method
    K: int

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def refusal(self) -> str | None:
        """Why there can be no such row, if there can't."""
        if self._backups >= self.K:
            return f"backups must be less than K = {self.K}, got {self._backups}"
        if self.goodput < 1e-3:
            return "less than a thousandth of the time is left between failures and restarts"
        return misfit(self.case, self.method, self.K)

    @property
    def B(self) -> float:
        """Examples that count in a step: as many as backups stand for don't."""
        return (self.K - self._backups) * self.case.b_examples

    @property
    def steps(self) -> float:
        """To the accuracy asked."""
        return self.method.steps_factor * self.case.steps(self.B)

    @cached_property
    def step(self) -> Step:
        """The middle of what is believed: of ``range_s``, where there is one, else ``unseen``.

        It is the geometric middle, which is the same for seconds, price and efficiency.
        """
        step = self.unseen
        if self.case.transport != "measured" and step.lost_s > 0:
            low, high = (step.compute_s + share * step.lost_s for share in LOST_RANGE)
            step = step.times(1.0, (math.sqrt(low * high) - step.compute_s) / step.lost_s)
        if not self.case.measured:
            return step
        K, seconds = min(self.case.measured, key=lambda one: abs(math.log(one[0] / self.K)))
        planned = Row(replace(self.case, measured=()), AS_RUN, K).step.seconds
        # of fewer workers than were measured a power of it that is 1 for one worker
        over = (seconds / planned) ** min(1.0, math.log(self.K) / math.log(K))
        return step.times(over, over)

    @property
    def range_s(self) -> tuple[float, float] | None:
        """Seconds of a step between which nine of ten published results lie; None where no published result says."""
        if self.case.measured:
            low, high = MEASURED_RANGE
            return low * self.step.seconds, high * self.step.seconds
        if self.case.transport == "measured":
            return None
        low, high = (self.unseen.compute_s + share * self.unseen.lost_s for share in LOST_RANGE)
        return low / (1 + CLOCKED), high * (1 + CLOCKED)

    @cached_property
    def unseen(self) -> Step:
        """The step that follows from the inputs, before what published results and measured steps say of such steps."""
        case, policy, sent, t = self.case, self.method.policy, self._exchange, self._compute_s
        mean = t * sum(n * law.mean for law, n in case.law.groups(self.K).items()) / self.K
        if self.K == 1:  # nobody to wait for and nothing to send
            return Step(mean, 0.0)
        if policy == Synchronous():
            wait = max(t * _slowest(case.law, self.K), mean) - mean
            hides = self._buckets and sent.seconds > 0
            shown = self._not_hidden(sent.seconds) / sent.seconds if hides else 1.0
            return Step(mean, wait, *(shown * s for s in sent))
        every = policy.H if isinstance(policy, LocalSteps) else 1
        slack = policy.slack if isinstance(policy, StaleSynchronous) else 0
        whole = t * estimate(case.law, self.K, lambda X: policy.ends(X, sent.seconds / t), every, slack)
        latency, bandwidth = (1 / every * s for s in sent)
        busy = whole - (latency + bandwidth)
        compute = min(mean, busy)  # a late worker's dropped work does not lengthen the round
        wait = 0.0 if math.isclose(compute, busy, rel_tol=1e-9) else busy - compute  # rounding is not waiting
        return Step(busy - wait, wait, latency, bandwidth)

    @property
    def time_s(self) -> float:
        """Seconds to the accuracy asked, failures included."""
        return self.steps * self.step.seconds / self.goodput

    @property
    def price(self) -> float:
        """Of all workers together; worker-hours where the case has no price."""
        return self.K * self.time_s / 3600 * (self.case.price_per_worker_hour or 1.0)

    @property
    def goodput(self) -> float:
        """The share of the time that failures, checkpoints and restarts leave; 1 where no failures are known."""
        if self.case.mtbf_s is None:
            return 1.0
        return _goodput(self.case.mtbf_s / self.K, self.case.checkpoint_s or 0.0, self.case.restart_s or 0.0)

    @property
    def efficiency(self) -> float:
        """Examples per second over K times those of one undisturbed worker alone."""
        alone_s = self._compute_s * self.case.law.worker(1).mean  # rank 0 straggles
        return self.B / self.step.seconds / (self.K * self.case.b_examples / alone_s)

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the bill, by the names of ``MEANING``, each from 0 to 1; they add up to 1.

        Where the hyperbola is known E / E_min - 1 examples are wasted (McCandlish et al. 2018, section 2).
        """
        case, step, needed = self.case, self.step, 1.0
        if case.S_min_steps is not None and case.B_crit_examples is not None:
            needed = min(1.0, case.S_min_steps * case.B_crit_examples / (self.B * self.steps))
        overhead = step.compute_s * case.passes * case.overhead_s / self._compute_s
        proper = step.compute_s - overhead
        seconds = (proper * needed, proper * (1 - needed), overhead, *step[1:])
        parts = [self.goodput * part / step.seconds for part in seconds]
        return dict(zip(MEANING, [*parts, 1 - self.goodput], strict=True))

    @property
    def _backups(self) -> int:
        return getattr(self.method.policy, "backups", 0)

    @property
    def _compute_s(self) -> float:
        return self.case.compute_s(self.case.b_examples)

    @cached_property
    def _exchange(self) -> Exchange:
        """What is sent at a meeting (of one bucket, where there are several)."""
        case, K, cluster = self.case, self.K, self.case.cluster
        if isinstance(self.method.policy, LocalSteps) or self.method.policy == Synchronous():
            return cluster.allreduce(K, case.nbytes / max(1, self._buckets), case.allreduce)
        return cluster.push_pull(K, case.nbytes)

    @property
    def _buckets(self) -> int:
        """L: as many as the method says, or as it takes for its bytes each."""
        size = 10**6 * self.method.bucket_MB
        return math.ceil(self.case.nbytes / size) if size else self.method.buckets

    def _not_hidden(self, bucket_s: float) -> float:
        """Mean seconds of a step's communication that no computation hides; ``bucket_s``: one bucket's all-reduce.

        Of m passes the last one's backward pass hides it; a framework that chooses its buckets by their bytes is never
        worse than one sum after all computing. ZeRO cuts it into halves: stage 1 reduce-scatters in the last pass, stages 2
        and 3 in each; stages 1 and 2 gather the parameters after the step, behind nothing, stage 3 for each pass's forward
        and backward, behind the computation of other units.
        """
        m, stage, case = self.case.passes, self.method.stage, self.case
        back = case.backward_share / m
        if stage == 3:
            return m * (self._exposed(bucket_s, back) + self._exposed(bucket_s / 2, 1 / m - back))
        if stage:
            sums_s = self._exposed(bucket_s / 2, back)
            return (m if stage == 2 else 1) * sums_s + self.method.buckets * bucket_s / 2
        exposed = self._exposed(bucket_s, back)
        if not self.method.bucket_MB:
            return exposed
        return min(exposed, case.cluster.allreduce(self.K, case.nbytes, case.allreduce).seconds)

    def _exposed(self, bucket_s: float, share: float) -> float:
        """Mean seconds of a pass in which nothing but communication happens; ``bucket_s``: one bucket's.

        share: of the computation, that of the pass that hides. Of max over l of (f_l p + (L - l + 1) a), p the
        slowest worker's pass, f_l the share of it after which bucket l is ready, the first or the last l attains the
        maximum, so the channel is late by max(0, (L - 1) a - (f_L - f_1) p) beyond the last bucket's own a.
        """
        L = self._buckets
        span = self.case.hidden_share * share * (1 - 1 / L) * self._compute_s
        backlog = (L - 1) * bucket_s
        late = span * expected_shortfall(self.case.law, self.K, backlog / span) if span > 0 else backlog
        return bucket_s + late


def _goodput(M: float, write_s: float, restart_s: float, interval_s: float | None = None) -> float:
    """The share of a long job's time that is work which counts: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)).

    Failures are exponential, M seconds apart on average. After tau seconds of work, interval_s, come delta of writing; what
    is not written is lost, and a restart of R seconds comes first (Daly 2006, equation 13). None: the best tau, the root
    x M of (1 - x) e^x = e^(-delta / M).
    """
    if interval_s is None:
        share = min(write_s / M, 30.0)  # below, of the logarithms, where nothing cancels
        root = scipy("optimize").brentq(lambda x: -math.log1p(-x) - x - share, 0.0, 1 - 1e-16, xtol=1e-20)
        interval_s = M * root
    if (restart_s + interval_s + write_s) / M > 700:
        return 0.0
    return interval_s / (M * math.exp(restart_s / M) * math.expm1((interval_s + write_s) / M))
