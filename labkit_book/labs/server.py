"""A parameter server: the parameters w live with rank 0, workers push gradients and pull w.

Downpour SGD (Dean et al. 2012, *Large scale distributed deep networks*, section 4.1) with n_push = n_fetch = 1, and the same
with a barrier, or with slack. Rank 0 is the server and computes no gradients, so K workers need K + 1 ranks; worker k is
rank k + 1. A step is one message each way, float64:

    push  [g, version read, examples]          pull  [w, version, or -1 when there is nothing more to do]

Nobody pulls at the start, when everyone holds w0, version 0.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit import machine
from labkit.checks import integer, number, one_of
from labkit.comm.base import Comm
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start
from labkit.learn.sync import Shards, schedule
from labkit.timing import Asynchronous, StaleSynchronous, Synchronous, Updates

Versions = NDArray[np.int64]


class Served(NamedTuple):
    """What the server returns. iterates: (U + 1, d) every version of w, w0 first. updates: which gradients made them, and
    when (seconds since the launch began)."""

    iterates: Array
    updates: Updates


def parameter_server(
    comm: Comm, problem: Problem, w0: ArrayLike, eta: Rate, shards: Shards, T: int,
    policy: Synchronous | StaleSynchronous | Asynchronous = Asynchronous(),  # noqa: B008 - nobody can change it
    *, server_s: float = 0.0, budget: int | None = None,
) -> Served | Versions:  # fmt: skip
    """Run SGD with a parameter server as one rank sees it. A worker returns the version that each of its gradients read.

    w0: (d,), the same on every rank. eta: a number, or a function of the update's number; an update is
    w - eta * (mean over its gradients' examples). shards: the example numbers that worker k uses in its step t,
    ``shards[t][k]`` or ``shards(t, k)``; at least one. T: steps of each worker, or rounds under ``Synchronous()``.
    server_s: seconds for which an update keeps the server busy; 0: as long as it takes. budget: stop everyone after so many
    updates; what is still under way then is dropped. ValueError for bad input, Diverged when w stops being finite.
    """
    if comm.K < 2:
        raise ValueError("K must be at least 2 ranks, the server and a worker, got 1")
    integer("T", T, least=1), number("server_s", server_s, least=0)
    slack = policy.slack if isinstance(policy, StaleSynchronous) else T
    one_of("policy", policy, (Synchronous(), StaleSynchronous(slack), Asynchronous()))
    w = start(problem, w0).astype(np.float64)
    if comm.rank:
        return _work(comm, problem, w, shards, T)
    together = comm.K - 1 if policy == Synchronous() else 1
    end = T * (comm.K - 1) // together
    if budget is not None:
        end = min(end, integer("budget", budget, least=1))
    return _serve(comm, w, eta, T, (together, slack), server_s, end)


def _work(comm: Comm, problem: Problem, w: Array, shards: Shards, T: int) -> Versions:
    """A worker: compute, push, pull, T times or until the server says stop."""
    pick, _ = schedule(shards, T, comm.K - 1)
    read, version, pull = [], 0, np.empty(len(w) + 1)
    for t in comm.steps(T):
        rows = np.asarray(pick(t, comm.rank - 1))
        with QUIETLY():  # the server says it when w overflows
            g = comm.compute(partial(problem.grad, w, rows))
        read.append(version)
        comm.send(np.append(g, [version, rows.size]), 0)
        comm.recv(pull, 0)
        w, version = pull[:-1].copy(), int(pull[-1])
        if version < 0:
            break
    return np.array(read)


def _serve(
    comm: Comm, w: Array, eta: Rate, T: int, rule: tuple[int, int], server_s: float, end: int
) -> Served:
    """The server: an update for each ``together`` gradients, ``end`` of them. Whose answer isn't due waits: a barrier, or
    who has handed in more than ``slack`` gradients more than the slowest."""
    together, slack = rule
    K, working, inbox = comm.K - 1, comm.K - 1, np.empty(len(w) + 2)
    received = np.zeros(K, dtype=np.int64)
    iterates, applied_s, waiting = [w], list[float](), list[int]()
    log: list[tuple[int, int, int, float]] = []  # update, worker, its step, the version it read
    collected: list[tuple[float, Array]] = []  # (examples, gradient) of the update to come
    while working:
        k = comm.recv_any(inbox) - 1
        waiting.append(k)
        if len(applied_s) < end:
            log.append((len(applied_s), k, received[k], inbox[-2]))
            collected.append((inbox[-1], inbox[:-2].copy()))
        received[k] += 1
        if len(collected) == together:
            w = comm.compute(partial(_update, w, eta, collected, len(applied_s)), seconds=server_s)
            iterates.append(w)
            applied_s.append(comm.now())
            collected = []
        if not collected:
            for k in tuple(waiting):
                over = len(applied_s) == end or received[k] == T
                if over or received[k] - received.min() <= slack:
                    working -= over
                    comm.send(np.append(w, -1 if over else len(applied_s)), k + 1)
                    waiting.remove(k)
    into, rank, step, read = np.array(log, dtype=np.int64).T
    said = f"parameter server, {machine.describe() if comm.measured else 'simulated'}"
    updates = Updates(K, into, rank, step, read, np.array(applied_s), comm.measured, said)
    return Served(np.array(iterates), updates)


def _update(w: Array, eta: Rate, gradients: list[tuple[float, Array]], u: int) -> Array:
    M = sum(examples for examples, _ in gradients)
    with QUIETLY():
        g = np.sum([examples / M * g for examples, g in gradients], axis=0)
    return descend(w, rate(eta, u), g, u)
