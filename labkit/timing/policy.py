"""Barrier policies: who may go on, and when. One object each, for recurrences, servers, planner, figures and command line.

From a matrix of compute times a policy says what happens when, as a recurrence: ``timeline(X, comm_s)`` in full, and
``ends(X, comm_s)`` for big problems: when the slowest worker has finished each step, for R replicas at once where X is
(K, T, R). Communication adds the same seconds to every step: an all-reduce follows the wait; at a server a worker pushes its
gradient as soon as it has it, and waits for the answer. What a run means for learning is its ``updates``.

Symbols: X (K, T) compute times, K workers, T steps, b ``backups``, s ``slack``, H local steps. All times are seconds.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import FloatArray, integer, matrix, number
from labkit.timing.timeline import Kind, Timeline
from labkit.timing.updates import Updates

#: How policies are written, and what each says.
POLICIES = {
    "sync": "everybody waits for the slowest in every step",
    "backup:b": "a round is over with the first K - b gradients",
    "ssp:s": "nobody more than s steps ahead of the slowest",
    "async": "nobody waits",
    "local:H": "H steps on one's own, then the average",
}


@dataclass(frozen=True)
class Synchronous:
    """T rounds of one update each, made of the first K - backups gradients that were computed for it.

    With no backups it is BSP (Valiant 1990, *A bridging model for parallel computation*). With some (Chen et al. 2016,
    *Revisiting distributed synchronous SGD*, section 3.2) a late worker is not interrupted: it finishes, its gradient is
    dropped, and it joins the round that is current by then. With f_k the time at which worker k is free, S the round's start
    and n_k the number of times that worker k has computed before,

        a_k = max(S, f_k) + X[k, n_k],     E = the (K - b)-th smallest a_k.

    Of gradients that arrive at the same time those of smaller ranks count, and a late worker that is free at the very
    moment at which a round ends joins the next.

    >>> timeline = Synchronous().timeline([[1.0, 2.0], [3.0, 1.0]], comm_s=0.5)
    >>> timeline.finish_s, timeline.arrivals_s.tolist()
    (6.0, [[1.0, 5.5], [3.0, 4.5]])
    """

    backups: int = 0

    def __post_init__(self) -> None:
        integer("backups", self.backups)

    def __str__(self) -> str:
        return f"backup:{self.backups}" if self.backups else "sync"

    def timeline(self, X: ArrayLike, comm_s: float = 0.0) -> Timeline:
        """Timeline of T rounds; X[k, n] is worker k's n-th computation, in whatever round it falls.

        A span's step is the round in which it began. ``arrivals_s`` is nan for those whose gradient was not used. Who is
        late in the last round finishes: the run is over before, at ``ends(...)[-1]``.
        """
        marks, arrivals = [], []
        for begin, computed, used, started, end in self._rounds(
            matrix("X", X), comm_s
        ):
            over = end + comm_s
            # who is late, but free before the next round starts, waits for it
            leave = np.where(used, end, np.maximum(computed, over))
            stop = np.where(used, over, leave)
            start = np.where(started, begin, np.nan)
            marks.append([start, computed, leave, stop])
            arrivals.append(np.where(used, computed, np.nan))
        of_workers = np.moveaxis(np.array(marks), 0, -1)
        used_s = np.transpose(arrivals)
        return Timeline.from_marks(*of_workers, arrivals_s=used_s, where=_where(self))

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which each round is over, communication included; (T, R) for X (K, T, R).

        >>> X = [[1.0, 1.0], [2.0, 2.0], [9.0, 1.0]]
        >>> Synchronous().ends(X, comm_s=0.5), Synchronous(backups=1).ends(X)
        (array([ 9.5, 12. ]), array([2., 4.]))
        """
        rounds = self._rounds(matrix("X", X, replicas=True), comm_s)
        return np.array([end + comm_s for *_, end in rounds])

    def updates(self, X: ArrayLike, comm_s: float = 0.0) -> Updates:
        """One update a round: `Updates.synchronous`."""
        return Updates.synchronous(self.timeline(X, comm_s))

    def _rounds(
        self, X: FloatArray, comm_s: float
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Of each round, (K,) when a worker starts if it does, when it has its gradient, whether that counts, whether it
        starts, and (), when the last gradient that counts is there."""
        K, T, *replicas = X.shape
        number("comm_s", comm_s, least=0)
        if self.backups >= K:
            raise ValueError(
                f"backups must be below the K = {K} workers, got {self.backups}"
            )
        last = K - 1 - self.backups
        free = np.zeros((K, *replicas))
        over = np.zeros(replicas)
        # Computations that each worker has begun.
        begun = np.zeros((K, 1, *replicas), np.int64)
        for _ in range(T):
            begin = np.maximum(over, free)
            done = begin + np.take_along_axis(X, begun, axis=1)[:, 0]
            end = np.partition(done, last, axis=0)[last]
            used = done <= end
            if used.sum() > (last + 1) * end.size:
                # Some came together: the smaller ranks count.
                order = np.argsort(done, axis=0, kind="stable")
                used = np.argsort(order, axis=0) <= last
            started = used | (free <= over) | (free < end)
            computed = np.where(started, done, free)
            yield begin, computed, used, started, end
            over = end + comm_s
            free = np.maximum(computed, over)
            begun[:, 0] += started


@dataclass(frozen=True)
class StaleSynchronous:
    """No worker starts step t before the slowest has finished step t - slack - 1. Every worker takes T steps.

    slack: steps, >= 0. 0 gives rounds, as `Synchronous`, but with an update for each gradient; T or more never waits.
    With F the times at which steps are finished (Ho et al. 2013, *More effective distributed ML via a stale synchronous
    parallel parameter server*, section 3),

        F[k, t] = max(F[k, t-1], M[t-1-s]) + X[k, t],     M[t] = max over k of F[k, t].
    """

    slack: int

    def __post_init__(self) -> None:
        integer("slack", self.slack)

    def __str__(self) -> str:
        return f"ssp:{self.slack}"

    def timeline(self, X: ArrayLike, comm_s: float = 0.0) -> Timeline:
        """Timeline of T steps: compute, ``comm_s`` of communication, the wait for who is too far behind."""
        X = matrix("X", X)
        number("comm_s", comm_s, least=0)
        K, T = X.shape
        start, arrive, pushed, leave = np.empty((4, T, K))
        clock = np.zeros(K)
        for t in range(T):
            start[t] = clock
            arrive[t] = clock + X[:, t]
            pushed[t] = arrive[t] + comm_s
            admitted = pushed[t - self.slack].max() if t >= self.slack else 0.0
            clock = leave[t] = np.maximum(pushed[t], admitted)
        marks = start.T, arrive.T, pushed.T, leave.T
        kinds = Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT
        return Timeline.from_marks(*marks, kinds=kinds, where=_where(self))

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest worker has finished and communicated each step; (T, R) for X (K, T, R).

        Fastest where step t of all workers lies together in memory, as `draw` makes it.
        """
        X = matrix("X", X, replicas=True)
        number("comm_s", comm_s, least=0)
        steps = np.require(np.moveaxis(X, 1, 0), requirements=["C", "A"])
        M = np.empty((len(steps), *steps.shape[2:]))
        F = np.zeros(steps.shape[1:])
        for t, x in enumerate(steps):
            if t > self.slack:
                np.maximum(F, M[t - 1 - self.slack], out=F)
            F += x
            if comm_s:
                F += comm_s
            M[t] = F.max(axis=0)
        return M

    def updates(self, X: ArrayLike, comm_s: float = 0.0) -> Updates:
        """An update for each gradient: `Updates.asynchronous`."""
        return Updates.asynchronous(self.timeline(X, comm_s))

    def staleness_bound(self, K: int) -> int:
        """The most versions by which a gradient can be stale among K workers: tau <= (K - 1) (2 s + 1), attained (lab 10.6).

        >>> StaleSynchronous(slack=2).staleness_bound(K=4)
        15
        """
        others = integer("K", K, least=1) - 1
        return others * (2 * self.slack + 1)


@dataclass(frozen=True)
class Asynchronous:
    """No barrier: every worker takes T steps at its own pace (Dean et al. 2012, *Large scale distributed deep networks*).

    A push and pull keeps the worker's own wire busy for ``comm_s`` and then the server for ``server_s``; it serves one at a
    time, first come, first served, and of those who come together the smaller rank first.
    """

    def __str__(self) -> str:
        return "async"

    def timeline(
        self, X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0
    ) -> Timeline:
        """Timeline of T steps: compute, ``comm_s`` of communication, the wait for a turn, ``server_s`` of communication."""
        X = matrix("X", X)
        number("comm_s", comm_s, least=0)
        if not number("server_s", server_s, least=0):
            free = StaleSynchronous(X.size).timeline(X, comm_s)
            return replace(free, where=_where(self))
        sent, turn, end = _serve(X, comm_s, server_s)
        start = np.zeros_like(X)
        start[:, 1:] = end[:, :-1]
        marks = start, start + X, sent, turn, end
        kinds = Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT, Kind.COMMUNICATE
        where = f"{_where(self)}, {server_s:g} s of a server's time"
        return Timeline.from_marks(*marks, kinds=kinds, where=where)

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest worker has finished each step, at a server that is never busy."""
        return StaleSynchronous(np.size(X)).ends(X, comm_s)

    def updates(
        self, X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0
    ) -> Updates:
        """An update for each gradient: `Updates.asynchronous`.

        >>> Asynchronous().updates([[1.0, 1.0], [1.5, 1.5]]).tau
        array([0, 1, 1, 1])
        """
        return Updates.asynchronous(self.timeline(X, comm_s, server_s))


def _serve(X: FloatArray, comm_s: float, server_s: float) -> FloatArray:
    """(3, K, T) seconds at which each push came to the server, its turn came, and the server was done with it: a push that
    comes at A finds the server busy until D, and is done at max(A, D) + server_s (Lindley 1952); then its worker computes
    again.
    """
    K, T = X.shape
    times, out = X.tolist(), np.empty((3, K, T))
    pending = [(times[k][0] + comm_s, k, 0) for k in range(K)]
    heapq.heapify(pending)
    since = done = 0.0  # since when the server has been busy, and until when
    served = 0  # since then
    while pending:
        came, k, t = heapq.heappop(pending)
        turn = max(came, done)
        if came >= done:
            since, served = came, 0
        served += 1
        # Not done + server_s: a million of these would add up their rounding.
        done = since + served * server_s
        out[:, k, t] = came, turn, done
        if t + 1 < T:
            heapq.heappush(pending, (done + times[k][t + 1] + comm_s, k, t + 1))
    return out


@dataclass(frozen=True)
class LocalSteps:
    """Each worker takes H steps on its own; then all of them meet and average their parameters. H = 1 is BSP.

    Between two meetings lies, for each worker, a *sum* of H times: chance evens out before the slowest counts (Stich 2019,
    *Local SGD converges fast and communicates little*, algorithm 1). In between there are no updates of a common w.
    """

    H: int

    def __post_init__(self) -> None:
        integer("H", self.H, least=1)

    def __str__(self) -> str:
        return f"local:{self.H}"

    def timeline(self, X: ArrayLike, comm_s: float = 0.0) -> Timeline:
        """Timeline of T steps; after every H-th and the last come a barrier, its synchronisation point, and ``comm_s``."""
        steps = list(self._steps(matrix("X", X), comm_s))
        timeline = Timeline.from_marks(*np.stack(steps, axis=-1), where=_where(self))
        (met,) = np.nonzero(self._meets(timeline.T))
        names = tuple(f"step {t}" for t in met)
        return replace(timeline, arrivals_s=timeline.arrivals_s[:, met], names=names)

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest has finished each step, the communication after it included; (T, R) for X (K, T,
        R)."""
        steps = self._steps(matrix("X", X, replicas=True), comm_s)
        return np.array([end.max(axis=0) for *_, end in steps])

    def _steps(self, X: FloatArray, comm_s: float) -> Iterator[FloatArray]:
        """(4, K) of each step: when the workers start, have computed, have waited, and go on."""
        number("comm_s", comm_s, least=0)
        clock = np.zeros_like(X[:, 0])
        for t, meet in enumerate(self._meets(X.shape[1])):
            arrive = clock + X[:, t]
            leave = np.maximum(arrive, arrive.max(axis=0)) if meet else arrive
            end = leave + comm_s if meet else leave
            yield np.stack([clock, arrive, leave, end])
            clock = end

    def _meets(self, T: int) -> NDArray[np.bool_]:
        """(T,) whether the workers meet after step t."""
        t = np.arange(1, T + 1)
        return (t % self.H == 0) | (t == T)


#: Any of the policies.
Policy = Synchronous | StaleSynchronous | Asynchronous | LocalSteps


def parse_policy(text: str) -> Policy:
    """The policy that ``text`` names, as in `POLICIES`; ``str`` of a policy is such a text. ValueError for another.

    >>> parse_policy("ssp:3"), str(Synchronous(backups=1)), str(parse_policy("backup:0"))
    (StaleSynchronous(slack=3), 'backup:1', 'sync')
    """
    plain: dict[str, Policy] = {"sync": Synchronous(), "async": Asynchronous()}
    of_number = {"backup": Synchronous, "ssp": StaleSynchronous, "local": LocalSteps}
    word, _, argument = text.strip().partition(":")
    if text.strip() in plain:
        return plain[text.strip()]
    if word in of_number and argument.isdecimal():
        return of_number[word](int(argument))
    raise ValueError(f"policy must be of {', '.join(POLICIES)}, got {text!r}")


def _where(policy: Policy) -> str:
    return f"recurrence of {policy}"
