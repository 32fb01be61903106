"""Barrier policies: who may go on, and when. One object each, for recurrences, servers, planner, figures and command line.

- `Synchronous`: bulk synchronous (BSP; Valiant 1990, *A bridging model for parallel computation*), with b backup workers
  (Chen et al. 2016, *Revisiting distributed synchronous SGD*): a round is over with the first K - b gradients.
- `StaleSynchronous`: nobody more than s steps ahead of the slowest (SSP; Ho et al. 2013, *More effective distributed ML via
  a stale synchronous parallel parameter server*).
- `Asynchronous`: nobody waits (Dean et al. 2012, *Large scale distributed deep networks*, section 4.1).
- `LocalSteps`: a barrier after every H-th step only (Stich 2019, *Local SGD converges fast and communicates little*).

From nothing but a matrix of compute times each says what happens when, as a recurrence: ``timeline(X, comm_s)`` in full, and
``ends(X, comm_s)``, the quick form for big problems: when the slowest worker has finished each step, for R independent
replicas at once. Communication adds the same seconds to every step. Where it is an all-reduce it follows the wait; at a
server a worker pushes its gradient as soon as it has it, and it is the server's answer that it waits for.

Three of them are also the rule of a parameter server (`labkit.learn.parameter_server`): it tells the policy of every
gradient that arrives; the policy says what becomes of it and whose answer is due. A worker whose answer is held back waits:
that is all a barrier is. What a run means for learning, which gradient makes which version of w, is its ``updates``.

Written, a policy is a word and a number, ``str(StaleSynchronous(3)) == "ssp:3"``, which `parse_policy` reads.

Symbols: X (K, T) compute times, K workers, T steps, b ``backups``, s ``slack``, H local steps. All times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import FloatArray, integer, matrix, number
from labkit.timing.queue import serve
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


class Push(NamedTuple):
    """A gradient that has arrived at a server: g (d,), mean over some ``examples``, which ``worker`` computed in its own
    ``step`` at version ``read``."""

    worker: int
    step: int
    read: int
    examples: int
    g: FloatArray


class Server(Protocol):
    """What a policy may see and do at the server.

    K: workers. version: updates so far. received: gradients that have come, per worker. waiting: the workers whose
    answer is due, in order of arrival.
    """

    K: int
    version: int
    received: list[int]
    waiting: list[int]

    def apply(self, pushes: list[Push]) -> None:
        """One update with the mean over these gradients' examples."""

    def drop(self, push: Push) -> None:
        """Count a gradient as not used."""

    def answer(self, workers: list[int]) -> None:
        """Send w to these workers, who then go on."""


class Policy(Protocol):
    """A barrier policy; a frozen dataclass, and ``str`` of it what `parse_policy` reads."""

    def timeline(self, X: ArrayLike, comm_s: float = 0.0) -> Timeline:
        """What happens when. X: (K, T) seconds of computing. comm_s: seconds of communication."""

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest has finished each step, communication included; (T, R) for X (K, T, R)."""


class ServerPolicy(Policy, Protocol):
    """A policy under which all gradients go into one w, as a parameter server keeps it."""

    def updates(self, X: ArrayLike, comm_s: float = 0.0) -> Updates:
        """Which gradients make which version of w, and when. X, comm_s: as for ``timeline``."""

    def versions(self, K: int, T: int) -> int:
        """How many updates there are when all is done; ValueError if the policy doesn't fit K workers."""

    def arrived(self, server: Server, push: Push, collected: list[Push]) -> None:
        """A gradient has come from a worker that now waits. collected: the server's, for gradients kept for later."""


@dataclass(frozen=True)
class Synchronous:
    """T rounds of one update each, made of the first K - backups gradients that were computed for it.

    backups: workers that a round does without, from 0 to K - 1. With none it is BSP: a superstep lasts as long as its
    slowest worker's compute, plus communication. With some, a late worker is not interrupted: it finishes,
    its gradient is dropped as being of a round that is over, and it joins the round that is current by then (Chen et al.
    2016, section 3.2, algorithms 3 and 4). With f_k the time at which worker k is free, S the round's start and n_k the
    number of times that worker k has computed before,

        a_k = max(S, f_k) + X[k, n_k],     E = the (K - b)-th smallest a_k.

    Workers with f_k > E sort behind by themselves: they never started in this round. Who started and is not among the
    first K - b stays busy until a_k. Of gradients that arrive at the same time those of smaller ranks count, and a late
    worker that is free at the very moment at which a round ends joins the next. A worker computes at most once in a
    round, so T rounds never ask for more than the T times of a row of X.

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
        """Timeline of T rounds, each over with the first K - backups gradients; then ``comm_s`` of communication.

        X: (K, T) seconds; X[k, n] is worker k's n-th computation, in whatever round it falls. A span's step is the round
        in which it began. ``arrivals_s`` (K, T) is nan for those whose gradient was not used. Workers that are late in the
        last round finish what they have begun, so the timeline may end after the run, which is over at ``ends(...)[-1]``.
        """
        X = matrix("X", X)
        K, T = X.shape
        self._door(K, comm_s)
        start, arrive, leave, end, arrivals = np.full((5, T, K), np.nan)
        free, n, S, every = np.zeros(K), np.zeros(K, dtype=np.int64), 0.0, np.arange(K)
        for r in range(T):
            begin = np.maximum(S, free)
            a = begin + X[every, n]
            used = np.zeros(K, dtype=bool)
            used[np.argsort(a, kind="stable")[: K - self.backups]] = True
            E = a[used].max()
            started = used | (free <= S) | (free < E)
            start[r, started] = begin[started]
            arrivals[r, used] = a[used]
            free = arrive[r] = np.where(started, a, free)
            S = E + comm_s
            # who is late, but free before the next round starts, waits for it
            leave[r] = np.where(used, E, np.maximum(free, S))
            end[r] = free = np.where(used, S, leave[r])
            n += started
        marks = start.T, arrive.T, leave.T, end.T
        return Timeline.from_marks(*marks, arrivals_s=arrivals.T, where=_where(self))

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which each round is over, communication included; (T, R) for X (K, T, R), R replicas.

        >>> X = [[1.0, 1.0], [2.0, 2.0], [9.0, 1.0]]
        >>> Synchronous().ends(X, comm_s=0.5), Synchronous(backups=1).ends(X)
        (array([ 9.5, 12. ]), array([2., 4.]))
        """
        X = matrix("X", X, replicas=True)
        K, T = X.shape[:2]
        self._door(K, comm_s)
        if not self.backups:
            slowest = X.max(axis=0)
            # compute and communication are added one by one, as a clock would
            laid = np.stack([slowest, np.full_like(slowest, comm_s)], axis=1)
            return np.cumsum(laid.reshape(-1, *slowest.shape[1:]), axis=0)[1::2]
        last, shape = K - self.backups - 1, X.shape[2:]
        ends, free = np.empty((T, *shape)), np.zeros((K, *shape))
        n, S = np.zeros((K, 1, *shape), dtype=np.int64), np.zeros(shape)
        for r in range(T):
            a = np.maximum(S, free)
            a += np.take_along_axis(X, n, axis=1)[:, 0]
            E = np.partition(a, last, axis=0)[last]
            started = (free <= S) | (free < E)
            surplus = (a == E) & ~started  # free just as the round ends, with a gradient that takes no time
            if surplus.any():
                used = np.argsort(np.argsort(a, axis=0, kind="stable"), axis=0) <= last
                started |= used
            np.copyto(free, a, where=started)
            n[:, 0] += started
            S = ends[r] = E + comm_s
        return ends

    def updates(self, X: ArrayLike, comm_s: float = 0.0) -> Updates:
        """One update a round: `Updates.synchronous`."""
        return Updates.synchronous(self.timeline(X, comm_s))

    def versions(self, K: int, T: int) -> int:
        self._door(K, 0.0)
        return T

    def arrived(self, server: Server, push: Push, collected: list[Push]) -> None:
        if push.read < server.version:  # its round is over
            server.drop(push)
            server.answer([push.worker])
            return
        collected.append(push)
        if len(collected) == server.K - self.backups:
            server.apply(collected)
            collected.clear()
            server.answer(list(server.waiting))

    def _door(self, K: int, comm_s: float) -> None:
        if self.backups >= K:
            raise ValueError(f"backups must be below the K = {K} workers, got {self.backups}")
        number("comm_s", comm_s, least=0)


@dataclass(frozen=True)
class StaleSynchronous:
    """No worker starts step t before the slowest has finished step t - slack - 1. Every worker takes T steps.

    slack: steps, >= 0. 0 gives rounds, as `Synchronous`, but with an update for each gradient; T or more never waits.
    With F the times at which steps are finished (Ho et al. 2013, section 3),

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
        kinds = Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT
        return Timeline.from_marks(start.T, arrive.T, pushed.T, leave.T, kinds=kinds, where=_where(self))

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest worker has finished each step, communication included.

        Same recurrence, for big K and T: no timeline, one vector in place. X is (K, T), or (K, T, R) for R independent
        replicas, and the answer then (T, R). Fastest where step t of all workers lies together in memory, as `draw` makes
        it. ValueError for a time that is negative or not finite.

        >>> X = [[1.0, 3.0, 1.0], [3.0, 1.0, 1.0]]
        >>> StaleSynchronous(0).ends(X), StaleSynchronous(1).ends(X)
        (array([3., 6., 7.]), array([3., 4., 5.]))
        """
        X = np.asarray(X, dtype=np.float64)
        if X.ndim not in (2, 3) or 0 in X.shape:
            raise ValueError(f"X must have shape (K, T) or (K, T, R) with no empty axis, got {X.shape}")
        number("comm_s", comm_s, least=0)
        steps = np.require(np.moveaxis(X, 1, 0), requirements=["C", "A"])
        M = np.empty((len(steps), *steps.shape[2:]))
        F = np.zeros(steps.shape[1:])
        for t, x in enumerate(steps):
            if not x.min() >= 0:  # refuses nan too; here, where x is about to be read anyway
                raise ValueError(f"X must hold finite seconds >= 0, got {x.min()!r} at step {t}")
            if t > self.slack:
                np.maximum(F, M[t - 1 - self.slack], out=F)
            F += x
            if comm_s:
                F += comm_s
            M[t] = F.max(axis=0)
        if not np.isfinite(M).all():
            raise ValueError("X must hold finite seconds >= 0, got inf")
        return M

    def updates(self, X: ArrayLike, comm_s: float = 0.0) -> Updates:
        """An update for each gradient: `Updates.asynchronous`."""
        return Updates.asynchronous(self.timeline(X, comm_s))

    def versions(self, K: int, T: int) -> int:
        return K * T

    def arrived(self, server: Server, push: Push, collected: list[Push]) -> None:
        server.apply([push])
        slowest = min(server.received)
        server.answer([k for k in server.waiting if server.received[k] - slowest <= self.slack])

    def staleness_bound(self, K: int) -> int:
        """The most versions by which a gradient can be stale among K workers: tau <= (K - 1) (2 s + 1).

        Let worker k compute in step t, and look at another worker j. When k starts, the slowest has finished step
        t - s - 1, so j's steps 0 to t - s - 1 are in: at least t - s updates. How many may be in when k's own is applied?
        Before j starts its step u, k has finished its step u - s - 1. If j then finishes before k finishes step t,
        u - s - 1 < t: at most j's steps 0 to t + s are in, t + s + 1 updates. The difference is 2 s + 1 for each of the
        others. It is attained: a worker that was s steps behind when k started can be s steps ahead, and through with that
        step too, when k is done. (At one and the same instant all updates count as read, so the first count holds; the
        second one needs compute times > 0.)

        >>> StaleSynchronous(slack=2).staleness_bound(K=4)
        15
        """
        return (integer("K", K, least=1) - 1) * (2 * self.slack + 1)


@dataclass(frozen=True)
class Asynchronous:
    """No barrier: every worker takes T steps at its own pace, at a server that may be busy.

    A push and pull keeps the worker's own wire busy for ``comm_s`` and then the server for ``server_s``; the server serves
    one at a time, first come, first served, and of those who come together the smaller rank first (a closed queue; Lindley
    1952, *The theory of queues with a single server*).
    """

    def __str__(self) -> str:
        return "async"

    def timeline(self, X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0) -> Timeline:
        """Timeline of T steps for each worker.

        A step is compute, ``comm_s`` of communication, the wait for the server's turn, ``server_s`` of communication.
        server_s = 0 is `StaleSynchronous` with a slack of T or more.
        """
        X = matrix("X", X)
        number("comm_s", comm_s, least=0)
        if not number("server_s", server_s, least=0):
            return replace(StaleSynchronous(X.shape[1]).timeline(X, comm_s), where=_where(self))
        sent, turn, end = serve(X, comm_s, server_s)
        start = np.concatenate([np.zeros_like(X[:, :1]), end[:, :-1]], axis=1)
        arrive = start + X
        kinds = Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT, Kind.COMMUNICATE
        where = f"{_where(self)}, {server_s:g} s of a server's time"
        return Timeline.from_marks(start, arrive, sent, turn, end, kinds=kinds, where=where)

    def ends(self, X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest worker has finished each step; (T, R) for X (K, T, R), R replicas.

        >>> Asynchronous().ends([[1.0, 1.0], [3.0, 3.0]])
        array([3., 6.])
        """
        if not number("server_s", server_s, least=0):
            return StaleSynchronous(np.shape(X)[1] if np.ndim(X) > 1 else 0).ends(X, comm_s)
        X = matrix("X", X, replicas=True)
        number("comm_s", comm_s, least=0)
        if X.ndim == 2:
            return serve(X, comm_s, server_s)[2].max(axis=0)
        each = [serve(one, comm_s, server_s)[2].max(axis=0) for one in np.moveaxis(X, 2, 0)]
        return np.stack(each, axis=1)

    def updates(self, X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0) -> Updates:
        """An update for each gradient: `Updates.asynchronous`.

        >>> Asynchronous().updates([[1.0, 1.0], [1.5, 1.5]]).tau
        array([0, 1, 1, 1])
        """
        return Updates.asynchronous(self.timeline(X, comm_s, server_s))

    def versions(self, K: int, T: int) -> int:
        return K * T

    def arrived(self, server: Server, push: Push, collected: list[Push]) -> None:
        server.apply([push])
        server.answer([push.worker])


@dataclass(frozen=True)
class LocalSteps:
    """Each worker takes H steps on its own; then all of them meet and average their parameters. H = 1 is BSP.

    Between two meetings lies, for each worker, a *sum* of H times: chance evens out within a worker before the slowest
    counts, and communication is paid for once in H steps (Stich 2019, algorithm 1). In between each worker has a w of its
    own, so there are no updates of a common one, and no server.
    """

    H: int

    def __post_init__(self) -> None:
        integer("H", self.H, least=1)

    def __str__(self) -> str:
        return f"local:{self.H}"

    def timeline(self, X: ArrayLike, comm_s: float = 0.0) -> Timeline:
        """Timeline of T steps with a barrier, and ``comm_s`` of communication, after every H-th step and after the last.

        Its synchronisation points are the barriers.
        """
        X = matrix("X", X)
        number("comm_s", comm_s, least=0)
        K, T = X.shape
        meets = self._meets(T)
        start, arrive, leave, end = np.empty((4, T, K))
        clock = np.zeros(K)
        for t in range(T):
            start[t] = clock
            arrive[t] = clock + X[:, t]
            leave[t] = arrive[t].max() if meets[t] else arrive[t]
            clock = end[t] = leave[t] + comm_s if meets[t] else leave[t]
        timeline = Timeline.from_marks(start.T, arrive.T, leave.T, end.T, where=_where(self))
        names = tuple(name for name, meet in zip(timeline.names, meets, strict=True) if meet)
        return replace(timeline, arrivals_s=timeline.arrivals_s[:, meets], names=names)

    def ends(self, X: ArrayLike, comm_s: float = 0.0) -> FloatArray:
        """(T,) seconds at which the slowest worker has finished each step, the communication after it included.

        (T, R) for X of shape (K, T, R), R independent replicas. ``[H - 1::H]`` are the barriers (and the last entry).

        >>> LocalSteps(H=2).ends(np.ones((2, 4)), comm_s=0.5)
        array([1. , 2.5, 3.5, 5. ])
        """
        X = matrix("X", X, replicas=True)
        number("comm_s", comm_s, least=0)
        steps = np.moveaxis(X, 1, 0)
        M = np.empty((len(steps), *steps.shape[2:]))
        F = np.zeros(steps.shape[1:])
        for t, meet in enumerate(self._meets(len(steps))):
            F += steps[t]
            M[t] = F.max(axis=0)
            if meet:
                M[t] += comm_s
                F[:] = M[t]
        return M

    def _meets(self, T: int) -> np.ndarray:
        """(T,) whether the workers meet after step t."""
        t = np.arange(1, T + 1)
        return (t % self.H == 0) | (t == T)


def parse_policy(text: str) -> Policy:
    """The policy that ``text`` names, as in `POLICIES`; ``str`` of a policy is such a text. ValueError for another.

    >>> parse_policy("ssp:3"), str(Synchronous(backups=1)), str(parse_policy("backup:0"))
    (StaleSynchronous(slack=3), 'backup:1', 'sync')
    """
    word, colon, argument = text.strip().partition(":")
    if not colon and word in ("sync", "async"):
        return Synchronous() if word == "sync" else Asynchronous()
    makes: dict[str, type[Synchronous | StaleSynchronous | LocalSteps]] = {
        "backup": Synchronous,
        "ssp": StaleSynchronous,
        "local": LocalSteps,
    }
    if word in makes and argument.isdecimal():
        return makes[word](int(argument))
    raise ValueError(f"policy must be of {', '.join(POLICIES)}, got {text!r}")


def _where(policy: Policy) -> str:
    return f"recurrence of {policy}"
