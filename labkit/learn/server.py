"""A parameter server: the parameters live with rank 0, workers push gradients and pull parameters.

Downpour SGD (Dean et al. 2012, *Large scale distributed deep networks*, section 4.1), with n_push = n_fetch = 1, under
any `labkit.timing.ServerPolicy`. Rank 0 is the server and computes no gradients, so K workers need K + 1
ranks; worker k = 0..K-1 is rank k + 1.

A step is one message each way, numbers of w's dtype:

    push  [g, step, version read, examples]          pull  [w, version, gradients of yours received]

The version in a pull is -1 - version when there is nothing more to do. Nobody pulls at the start, when everyone holds w0,
version 0. So a gradient costs d + 3 numbers there and d + 2 back, whatever becomes of it.

No update is lost unnoticed: the server refuses a push that is not its worker's next, a worker a pull that doesn't count
all its pushes, and at the end applied + dropped = received for every worker.

Symbols: K workers, T steps, w (d,), ``eta`` the learning rate, ``tau`` staleness in versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import integer, number
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate
from labkit.learn.sync import Shards, schedule
from labkit.timing.policy import Asynchronous, Push, ServerPolicy
from labkit.timing.updates import Updates

if TYPE_CHECKING:
    from labkit.comm.base import Comm, Request

PUSH, PULL = 3, 2  # numbers that travel with a gradient, and with w
IntArray = NDArray[np.int64]


class LostUpdate(RuntimeError):
    """Server and worker disagree on how many gradients have travelled."""


@dataclass(frozen=True, eq=False)
class Served:
    """What the server returns.

    iterates: (U + 1, d) every version of w, w0 first. updates: which gradients made them, and when (seconds since the
    launch began). received, applied, dropped: (K,) gradients per worker; applied + dropped = received.
    """

    iterates: Array
    updates: Updates
    received: IntArray
    applied: IntArray
    dropped: IntArray

    @property
    def w(self) -> Array:
        """(d,) the last version."""
        return np.asarray(self.iterates[-1])


@dataclass(frozen=True, eq=False)
class Worked:
    """What a worker returns. w: (d,) as last pulled. pushed: its gradients. read: (pushed,) the version of each."""

    w: Array
    pushed: int
    read: IntArray


def parameter_server(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    T: int,
    policy: ServerPolicy | None = None,
    *,
    scale: Callable[[int], float] | None = None,
    server_s: float = 0.0,
    budget: int | None = None,
) -> Served | Worked:
    """Run SGD with a parameter server as one rank sees it: ``serve`` on rank 0, ``work`` on all others.

    w0: (d,) float32 or float64 on every rank. shards: the example numbers that worker k uses in its step t,
    ``shards[t][k]`` or ``shards(t, k)``; at least one. The rest as in ``serve``. Returns ``Served`` on rank 0,
    ``Worked`` on the workers. Raises ValueError for bad input, Diverged when w stops being finite, LostUpdate if
    the two sides' counts differ.
    """
    w = _start(comm, w0, T)
    if w.shape != (problem.d,):
        raise ValueError(f"w0 must be {problem.d} finite numbers, got shape {w.shape}")
    if comm.rank == 0:
        return serve(comm, w, eta, T, policy, scale=scale, server_s=server_s, budget=budget)
    pick, _ = schedule(shards, T, comm.K - 1)

    def gradient(w: Array, t: int) -> tuple[Array, int]:
        idx = np.asarray(pick(t, comm.rank - 1))
        return problem.grad(w, idx), idx.size

    return work(comm, gradient, w, T)


def work(comm: Comm, gradient: Callable[[Array, int], tuple[Array, int]], w0: ArrayLike, T: int) -> Worked:
    """A worker: compute, push, pull, T times or until the server says stop.

    gradient: ``gradient(w, step)`` gives a mean gradient, (d,), and the number of its examples; its time is
    ``comm.compute``'s. Raises LostUpdate if the server has not counted every push.
    """
    w = _start(comm, w0, T)
    d, version = len(w), 0
    push, pull = np.empty(d + PUSH, w.dtype), np.empty(d + PULL, w.dtype)
    read = []
    for t in comm.steps(T):
        with QUIETLY():  # the server says it when w overflows
            push[:d], b = comm.compute(partial(gradient, w, t))
        push[d:] = t, version, b
        read.append(version)
        comm.send(push, 0)
        comm.recv(pull, 0)
        w, version, counted = pull[:d].copy(), int(pull[d]), int(pull[d + 1])
        if counted != len(read):
            raise LostUpdate(f"worker {comm.rank - 1} pushed {len(read)} gradients, the server got {counted}")
        if version < 0:
            break
    return Worked(w, len(read), np.array(read, dtype=np.int64))


def serve(
    comm: Comm,
    w0: ArrayLike,
    eta: Rate,
    T: int,
    policy: ServerPolicy | None = None,
    *,
    scale: Callable[[int], float] | None = None,
    server_s: float = 0.0,
    budget: int | None = None,
) -> Served:
    """The server, rank 0: apply what workers push, answer when the policy allows, end when all is done.

    eta: a number, or a function of the update's number; an update is w - eta * (mean over its gradients' examples).
    T: steps of each worker, or rounds, as the policy says. policy: None for ``Asynchronous()``. scale: a factor on eta
    as a function of a gradient's staleness tau, as ``lambda tau: 1 / max(1, tau)``. server_s: seconds for which an
    update keeps the server busy; 0: as long as it takes. budget: stop everyone after so many updates; what is still
    under way then is dropped. Raises as ``parameter_server``.
    """
    server = _Server(comm, _start(comm, w0, T), eta, T, policy or Asynchronous(), scale, server_s, budget)
    inbox = np.empty(len(server.w) + PUSH, server.w.dtype)
    while server.working:
        worker = comm.recv_any(inbox) - 1
        step, read, examples = (int(x) for x in inbox[-PUSH:])
        server.receive(Push(worker, step, read, examples, inbox[:-PUSH].copy()))
    return server.close()


@dataclass(eq=False)
class _Server:
    """The server's state, and what a policy may do with it (`labkit.timing.policy.Server`)."""

    comm: Comm
    w: Array
    eta: Rate
    T: int
    policy: ServerPolicy
    scale: Callable[[int], float] | None
    server_s: float
    budget: int | None

    def __post_init__(self) -> None:
        policy = self.policy
        if isinstance(policy, type) or not hasattr(policy, "arrived"):
            raise ValueError(f"policy must be a barrier policy such as Synchronous(), got {policy!r}")
        number("server_s", self.server_s, least=0)
        K = self.K = self.comm.K - 1
        self.end = policy.versions(K, self.T)
        if self.budget is not None:
            self.end = min(self.end, integer("budget", self.budget, least=1))
        self.version, self.working = 0, K
        self.received, self.applied, self.dropped = [0] * K, [0] * K, [0] * K
        self.waiting: list[int] = []
        self.collected: list[Push] = []
        self.outbox = np.empty((K, len(self.w) + PULL), self.w.dtype)
        self.leaving: dict[int, Request] = {}
        self.iterates = [self.w]
        self.log: list[tuple[int, int, int, int]] = []
        self.applied_s: list[float] = []

    def receive(self, push: Push) -> None:
        k = push.worker
        if push.step != self.received[k]:
            raise LostUpdate(
                f"worker {k} pushed its gradient {push.step}, but {self.received[k]} is its next"
            )
        self.received[k] += 1
        self.waiting.append(k)
        if self.version < self.end:
            self.policy.arrived(self, push, self.collected)
        else:
            self.drop(push)
        if self.version == self.end:
            self.answer(list(self.waiting))

    def apply(self, pushes: list[Push]) -> None:
        self.comm.compute(partial(self._update, pushes), seconds=self.server_s)
        self.applied_s.append(self.comm.now())
        for p in pushes:
            self.applied[p.worker] += 1
            self.log.append((self.version, p.worker, p.step, p.read))
        self.iterates.append(self.w)
        self.version += 1

    def _update(self, pushes: list[Push]) -> None:
        M = sum(p.examples for p in pushes)
        with QUIETLY():
            parts = [p.examples / M * (self._factor(self.version - p.read) * p.g) for p in pushes]
            g = sum(parts[1:], parts[0])
        self.w = descend(self.w, rate(self.eta, self.version), g, self.version)

    def _factor(self, tau: int) -> float:
        c = 1.0 if self.scale is None else self.scale(tau)
        if not (math.isfinite(c) and c >= 0):
            raise ValueError(f"scale must be finite and >= 0, got {c!r} for tau = {tau}")
        return c

    def drop(self, push: Push) -> None:
        self.dropped[push.worker] += 1

    def answer(self, workers: list[int]) -> None:
        d = len(self.w)
        for k in workers:
            self.waiting.remove(k)
            if k in self.leaving:
                self.leaving[k].wait()  # done long ago: this worker has pushed since
            over = self.version == self.end or self.received[k] == self.T
            self.working -= over
            self.outbox[k, :d] = self.w
            self.outbox[k, d:] = -1 - self.version if over else self.version, self.received[k]
            self.leaving[k] = self.comm.isend(self.outbox[k], k + 1)

    def close(self) -> Served:
        for request in self.leaving.values():
            request.wait()
        received, applied, dropped = (
            np.array(c, dtype=np.int64) for c in (self.received, self.applied, self.dropped)
        )
        if not np.array_equal(received, applied + dropped):
            raise LostUpdate(
                f"of {received} gradients received, {applied} were applied and {dropped} dropped"
            )
        into, who, step, read = np.array(self.log, dtype=np.int64).T
        measured, where = _clock(self.comm)
        updates = Updates(self.K, into, who, step, read, np.array(self.applied_s), measured, where)
        return Served(np.array(self.iterates), updates, received, applied, dropped)


def _start(comm: Comm, w0: ArrayLike, T: int) -> Array:
    """A copy of w0; ValueError for what server and workers can't agree on."""
    if comm.K < 2:
        raise ValueError("K must be at least 2 ranks, the server and a worker, got 1")
    integer("T", T, least=1)
    w = np.array(w0)
    if w.dtype not in (np.float32, np.float64):
        w = w.astype(np.float64) if w.dtype.kind in "iub" else w
    if w.ndim != 1 or w.dtype not in (np.float32, np.float64) or not np.isfinite(w).all():
        raise ValueError(
            f"w0 must be a vector of finite float32 or float64, got shape {w.shape} of {w.dtype}"
        )
    if w.dtype == np.float32 and comm.K * T >= 2**24:
        raise ValueError(f"w0 must be float64 where versions pass 2**24, got float32 and T = {T}")
    return w


def _clock(comm: Comm) -> tuple[bool, str]:
    """Whether this rank's clock is a real one, and which."""
    from labkit import machine

    where = machine.describe() if comm.measured else "simulated"
    return comm.measured, f"parameter server of {comm.K - 1} workers, {where}"
