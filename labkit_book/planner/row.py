"""One row of a plan: a method with K workers. The seconds of a step, the steps that are needed, time, money, and the bill.

A step is the time in which all workers together compute B = K b examples (or would, if none were dropped). Its seconds are
those of `labkit.timing.policy`'s recurrences with the communication priced by `network`. Where servers decide who may go
on they are sharded over the workers: on a flat network a push and a pull then cost what a ring all-reduce does, on hosts
that share a port more.

The bill of a row, worker-seconds, is cut into parts that add up to it: examples that had to be computed, examples that a
large batch wastes (McCandlish et al. 2018, section 2: E / E_min - 1 of them), what every step costs whatever its batch,
waiting, messages, bytes, coding, failures. The largest part *binds*: to make it smaller is worth most.

Symbols: K workers, b examples each, B = K b; L buckets, H local steps; S steps, E = B S examples; omega:
E ||Q(x) - x||^2 <= omega ||x||^2 of an unbiased compressor Q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from labkit.timing.order import expected_shortfall
from labkit.timing.policy import Asynchronous, LocalSteps, StaleSynchronous, Synchronous
from labkit_book.planner.case import Case
from labkit_book.planner.estimate import K_MAX, estimate, means, slowest, undisturbed
from labkit_book.planner.failures import kept
from labkit_book.planner.goals import Goal
from labkit_book.planner.memory import misfit, need
from labkit_book.planner.method import Method, parse_method
from labkit_book.planner.network import Exchange, Network

#: What each part of the bill is, and what would make it smaller.
MEANING = {
    "examples": "computing the examples that have to be computed: more workers share it, and save no money",
    "critical batch": "computing examples that a batch this large wastes: more workers save little time, and cost",
    "overhead": "what a step costs whatever its batch: more examples per worker help",
    "wait": "waiting for the slowest worker: backup workers, more slack or local steps help",
    "latency": "messages: fewer of them (another all-reduce, larger buckets, local steps) help",
    "bandwidth": "bytes: a faster network, overlap, fewer bytes or local steps help",
    "coding": "encoding and decoding: a cheaper compressor helps",
    "failures": "failures: writing checkpoints, computing anew what was lost, restarts: quicker ones help",
}

#: How the job was run whose step somebody measured: as frameworks do, in buckets of so many bytes.
AS_RUN = "overlapped:25MB"
#: Nine of ten published results: so many times the lost time that is planned from data sheets, and so many times the step
#: that is planned from one measured step (lab 10.10). A published rate itself is good to this share of it: some
#: efficiencies are above 1.
LOST_RANGE, MEASURED_RANGE, CLOCKED = (0.25, 3.5), (0.75, 1.2), 0.03


class Step(NamedTuple):
    """Mean seconds of a step, split: what an average worker computes, waits, and spends on communication.

    Communication is split too: messages (latency), bytes (bandwidth), encoding and decoding; what is hidden behind
    computation is not in it. error_s: standard error of the sum, where it is simulated. algorithm: of the communication.
    """

    compute_s: float
    wait_s: float
    latency_s: float = 0.0
    bandwidth_s: float = 0.0
    coding_s: float = 0.0
    error_s: float = 0.0
    algorithm: str = "none"

    @property
    def comm_s(self) -> float:
        return self.latency_s + self.bandwidth_s + self.coding_s

    @property
    def seconds(self) -> float:
        return self.compute_s + self.wait_s + self.comm_s


@lru_cache(maxsize=16)
def _allreduce(network: Network, K: int, nbytes: float, algorithm: str) -> Exchange:
    """Once for all the methods that send alike."""
    return network.allreduce(K, nbytes, algorithm)


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
        K, B, backups = self.K, self.case.B_examples, self._backups
        if B is not None and K > B:
            return f"K must be at most the B = {B} examples that there are in a step, got {K}"
        if backups >= K:
            return f"backups must be less than K = {K}, got {backups}"
        if self.method.simulated and K > K_MAX:
            return f"K must be at most {K_MAX} for {self.name}, whose steps are simulated, got {K}"
        if self.b < self.case.passes:
            return f"K must leave an example for each of the {self.case.passes} passes of a step, got {K}"
        if self.goodput < 1e-3:
            return f"K must leave a thousandth of the time between failures and restarts, which {K} workers don't"
        return self.misfit

    @property
    def misfit(self) -> str | None:
        """Why it does not fit into the workers' memory, if it doesn't."""
        return misfit(self.case, self.method, self.K)

    @property
    def b(self) -> int:
        """Examples of the busiest worker in a step."""
        return self.case.batch(self.K)

    @property
    def B(self) -> float:
        """Examples that count in a step: as many as backups stand for don't."""
        K, backups = self.K, self._backups
        return self.case.total(K) * (K - backups) / K if backups else self.case.total(K)

    @cached_property
    def steps(self) -> float:
        """Steps to the accuracy asked; compressed without bias, those for gradients with the compressor's noise.

        A worker's gradient has E ||g_k||^2 = |g|^2 (1 + B_noise / b). Compressed it has (1 + omega) times the variance and
        omega |g|^2 on top, so the mean of K has the noise scale (1 + omega) B_noise + omega b, or + omega B where all
        workers draw alike and their errors don't average out. B_crit is taken to follow it (McCandlish et al. 2018,
        section 2.2, with the compressor's variance added).
        """
        method, plain = self.method, self.case.steps(self.B)
        if method.how is not None and method.omega and self.K > 1:
            least = self.case.S_min_steps or 0.0
            # as random-k's, whose workers draw the same coordinates
            alike = getattr(method.how, "common", False)
            plain += method.omega * (plain - least + least * (1.0 if alike else self.b / self.B))
        return method.steps_factor * plain

    @cached_property
    def step(self) -> Step:
        """The seconds of a step: as planned, times what the case's measured steps took over their plan."""
        planned, over = self._planned, self._correction
        return Step._make([*(over * seconds for seconds in planned[:6]), planned.algorithm])

    @property
    def range_s(self) -> tuple[float, float] | None:
        """Seconds of a step between which nine of ten published results lie; None where no published result says.

        With a measured step, so many times the plan; else what is lost beyond computing, so many times what is planned.
        """
        step, case = self.step, self.case
        if case.measured:
            return MEASURED_RANGE[0] * step.seconds, MEASURED_RANGE[1] * step.seconds
        if case.transport == "measured":
            return None
        low, high = (step.compute_s + share * (step.wait_s + step.comm_s) for share in LOST_RANGE)
        return (1 - CLOCKED) * low, (1 + CLOCKED) * high

    @property
    def _correction(self) -> float:
        """What the measured step of nearly as many workers took over its plan; of fewer workers than were measured, a power
        of it that is 1 for one worker."""
        if not self.case.measured:
            return 1.0
        asked = math.log(self.K)
        K, seconds = min(self.case.measured, key=lambda step: abs(math.log(step[0]) - asked))
        planned = Row(replace(self.case, measured=()), parse_method(AS_RUN), K).step.seconds
        return (seconds / planned) ** min(1.0, asked / math.log(K))

    @cached_property
    def _planned(self) -> Step:
        t, law, K, policy = self._compute_s, self.case.law, self.K, self.method.policy
        mean, sent = t * sum(n * each for each, n in means(law, K).items()) / K, self._exchange
        if isinstance(policy, Asynchronous):
            rate = sum(n / (t * each + sent.seconds) for each, n in means(law, K).items())
            return Step(K / rate - sent.seconds, 0.0, *sent[:2], algorithm=sent.algorithm)
        if not self.method.simulated:
            wait = max(t * slowest(law, K), mean) - mean
            if self._buckets and sent.seconds > 0:
                sent = sent.times(self._not_hidden(sent.seconds) / sent.seconds)
            coding = self.method.coding_s if K > 1 else 0.0
            return Step(mean, wait, *sent[:2], coding, algorithm=sent.algorithm)
        every = policy.H if isinstance(policy, LocalSteps) else 1
        memory = policy.slack if isinstance(policy, StaleSynchronous) else 0
        comm = sent.seconds / t
        found = estimate(law, K, lambda X: policy.ends(X, comm), every, memory, self._backups)
        sent = sent.times(1 / every)
        busy = t * found.mean - sent.seconds
        compute = min(mean, busy)  # a late worker's dropped work does not lengthen the round
        if math.isclose(compute, busy, rel_tol=1e-9):
            compute = busy  # rounding is not waiting
        return Step(compute, busy - compute, *sent[:2], error_s=t * found.error, algorithm=sent.algorithm)

    @property
    def floor_s(self) -> float:
        """Seconds that a step takes at least, told without a simulation; 0 where none is needed.

        Nobody who needs every step of everyone is quicker than the worker with the largest mean. Of a round with backups,
        K - b gradients are needed, of workers that make no more than one in each of their means.
        """
        if not self.method.simulated:
            return 0.0
        t, each, policy = self._compute_s, means(self.case.law, self.K), self.method.policy
        sent = self._exchange.times(1 / policy.H if isinstance(policy, LocalSteps) else 1.0).seconds
        if isinstance(policy, Synchronous):
            return t * (self.K - policy.backups) / sum(n / mean for mean, n in each.items()) + sent
        return t * max(each) + sent

    @property
    def time_s(self) -> float:
        """Seconds to the accuracy asked, failures included."""
        return self.steps * self.step.seconds / self.goodput

    @cached_property
    def goodput(self) -> float:
        """The share of the time that failures, checkpoints and restarts leave; 1 where no failures are known."""
        return kept(self.case, self.K)

    @property
    def worker_s(self) -> float:
        """Seconds to the accuracy asked, of all workers together."""
        return self.K * self.time_s

    @property
    def price(self) -> float:
        return self.worker_s / 3600 * self.case.price_per_worker_hour

    @property
    def examples_per_s(self) -> float:
        return self.B / self.step.seconds

    @property
    def efficiency(self) -> float:
        """Examples per second over K times those of one undisturbed worker alone, with as many examples of its own (weak
        scaling) or with all of them (strong scaling)."""
        return self.examples_per_s / (self.K * self.case.batch(1) / self._alone_s)

    @property
    def speedup(self) -> float:
        """Time to the accuracy of one such worker over this time."""
        return self.case.steps(self.case.batch(1)) * self._alone_s / self.time_s

    def value(self, goal: Goal) -> float:
        """What is to be small under ``goal``; ``math.inf`` where the goal does not allow the row."""
        return goal.value(self.time_s, self.K, self.efficiency)

    @property
    def shares(self) -> dict[str, float]:
        """The parts of the bill, by the names of ``MEANING``, each from 0 to 1; they add up to 1.

        Examples are wasted where the hyperbola says that fewer would do with small batches.
        """
        case, step, needed = self.case, self.step, 1.0
        if case.S_min_steps is not None and case.B_crit_examples is not None:
            needed = min(1.0, case.S_min_steps * case.B_crit_examples / (self.B * self.steps))
        overhead = step.compute_s * case.passes * case.overhead_s / self._compute_s
        proper = step.compute_s - overhead
        seconds = (proper * needed, proper * (1 - needed), overhead, step.wait_s, *step[2:5])
        parts = [self.goodput * part / step.seconds for part in seconds]
        return dict(zip(MEANING, [*parts, 1 - self.goodput], strict=True))

    @property
    def binds(self) -> str:
        """The largest part of the bill."""
        parts = self.shares
        return max(parts, key=lambda name: parts[name])

    def to_dict(self) -> dict[str, Any]:
        """What is told of a row, by the names of its columns, with their units: table, CSV and JSON take it from here."""
        step, method = self.step, self.method
        return {
            "method": self.name, "K_workers": self.K, "b_examples": self.b, "B_examples": self.B, "step_s": step.seconds,
            "compute_s": step.compute_s, "wait_s": step.wait_s, "communicate_s": step.comm_s, "latency_s": step.latency_s,
            "bandwidth_s": step.bandwidth_s, "coding_s": step.coding_s, "error_s": step.error_s, "steps": self.steps,
            "steps_factor": method.steps_factor, "time_s": self.time_s, "worker_s": self.worker_s,
            "price_currency": self.price, "efficiency": self.efficiency, "speedup": self.speedup, "goodput": self.goodput,
            "memory_bytes": sum(need(self.case, method, self.K)), "certain": method.certain,
            "examples_per_s": self.examples_per_s, "allreduce": step.algorithm, "binds": self.binds,
            "assumption": method.assumption,
        }  # fmt: skip

    @property
    def _backups(self) -> int:
        return self.method.policy.backups if isinstance(self.method.policy, Synchronous) else 0

    @property
    def _compute_s(self) -> float:
        return self.case.compute_s(self.b)

    @property
    def _alone_s(self) -> float:
        return self.case.compute_s(self.case.batch(1)) * undisturbed(self.case.law, self.K)

    @cached_property
    def _exchange(self) -> Exchange:
        """What is sent at a meeting (of one bucket, where there are several)."""
        case, K, method, network = self.case, self.K, self.method, self.case.network
        if method.how is not None:
            found = [
                network.allreduce(K, n * size, case.allreduce) if summed else network.all_gather(K, n * size)
                for summed, n, size in method.how.crossings(case.parameters, case.element_bytes)
            ]
            used = " + ".join(dict.fromkeys(each.algorithm for each in found)) or "none"
            latency, bandwidth = (sum(part) for part in list(zip(*found, strict=True))[:2])
            return Exchange(latency, bandwidth, used)
        if isinstance(method.policy, LocalSteps) or method.policy == Synchronous():
            return _allreduce(network, K, case.nbytes / max(1, self._buckets), case.allreduce)
        return network.push_pull(K, case.nbytes)

    @property
    def _buckets(self) -> int:
        """L: as many as the method says, or as it takes for its bytes each."""
        size = self.method.bucket_bytes
        return math.ceil(self.case.nbytes / size) if size else self.method.buckets

    def _not_hidden(self, bucket_s: float) -> float:
        """Mean seconds of a step's communication that no computation hides; ``bucket_s``: one bucket's all-reduce.

        Of m passes, those of an all-reduce hide it behind the last one's backward pass; a framework that chooses its
        buckets by their bytes is never worse than one sum after all computing. Stages 1 to 3 halve it: stage 1
        reduce-scatters in the last, stages 2 and 3 in each; stages 1 and 2 gather the parameters after the step, in the
        open, stage 3 for each pass's forward and backward, behind the computation of other units (`zero_factor`'s bytes).
        """
        m, stage, case = self.case.passes, self.method.stage, self.case
        back = case.backward_share
        if stage == 3:
            half_s = self._exposed(bucket_s / 2, (1 - back) / m)
            return m * (self._exposed(bucket_s, back / m) + half_s)
        if stage:
            after_s = self.method.buckets * bucket_s / 2
            return (m if stage == 2 else 1) * self._exposed(bucket_s / 2, back / m) + after_s
        exposed = self._exposed(bucket_s, back / m)
        if not self.method.bucket_bytes:
            return exposed
        return min(exposed, _allreduce(case.network, self.K, case.nbytes, case.allreduce).seconds)

    def _exposed(self, bucket_s: float, share: float) -> float:
        """Mean seconds of a pass in which nothing but communication happens; ``bucket_s``: one bucket's.

        share: of the computation, that of the pass that hides. Of max over l of (f_l p + (L - l + 1) a), p the
        slowest worker's pass, f_l the share of it after which bucket l is ready, with equal buckets the first or
        the last l attains the maximum, so the channel is late by max(0, (L - 1) a - (f_L - f_1) p) beyond the last
        bucket's own a; p is random, its law known. What is hidden slows the computation that hides it.
        """
        L, case = self._buckets, self.case
        span = case.hidden_share * share * (1 - 1 / L) * self._compute_s
        backlog = (L - 1) * bucket_s
        late = span * expected_shortfall(case.law, self.K, backlog / span) if span > 0 else backlog
        return bucket_s + late + case.sending_slows * (backlog - late)
