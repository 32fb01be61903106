"""Asynchronous workers and a parameter server that takes its time: a closed queue.

Each worker computes a gradient, pushes it to the server, pulls the parameters and goes on, without a look at the others
(Dean et al. 2012, *Large scale distributed deep networks*, section 4.1). A push and pull keeps the worker's own wire busy
for ``comm_s`` and then the server for ``server_s``; the server serves one at a time, first come, first served, and of
those who come together the smaller rank first. With A_i the times of arrival in this order and c = ``server_s``, it is done
with the i-th, i = 0, 1, ..., at

    D_i = max(A_i, D_(i-1)) + c = c (i + 1) + max over j <= i of (A_j - c j)

(Lindley 1952, *The theory of queues with a single server*). The right-hand side is one cumulative maximum, but each arrival
is caused by an earlier departure. So the quick form goes in batches: of the pending arrivals in order, those that come
before any arrival which the ones ahead of them can cause; their order cannot change any more.

Symbols: X (K, T) compute times. All times are seconds.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.timing._check import FloatArray, matrix, number, replicas
from labkit.timing.barriers import ssp_ends
from labkit.timing.timeline import IntArray, Kind, Timeline, spans


def asynchronous(X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0) -> Timeline:
    """Timeline of workers that each take T steps at their own pace, at a server that may be busy.

    A step is compute, ``comm_s`` of communication, the wait for the server's turn, ``server_s`` of communication.
    server_s = 0 is `ssp` with a slack of T or more.
    """
    X = matrix("X", X)
    number("comm_s", comm_s, least=0)
    number("server_s", server_s, least=0)
    T = X.shape[1]
    sent, turn, end = serve(X, comm_s, server_s) if server_s else _unhindered(X, comm_s)
    start = np.concatenate([np.zeros_like(X[:, :1]), end[:, :-1]], axis=1)
    arrive = start + X
    kinds = (Kind.COMPUTE, Kind.COMMUNICATE, Kind.WAIT, Kind.COMMUNICATE)
    return Timeline(
        len(X), *spans([start, arrive, sent, turn], [arrive, sent, turn, end], kinds),
        arrivals_s=arrive, names=tuple(f"step {t}" for t in range(T)), measured=False,
        where="asynchronous recurrence" + (f", {server_s:g} s of a server's time" if server_s else ""),
    )  # fmt: skip


def asynchronous_ends(X: ArrayLike, comm_s: float = 0.0, server_s: float = 0.0) -> FloatArray:
    """(T,) seconds at which the slowest worker of `asynchronous` has finished each step, communication included.

    (T, R) for X of shape (K, T, R), R independent replicas.

    >>> asynchronous_ends([[1.0, 1.0], [3.0, 3.0]])
    array([3., 6.])
    """
    number("server_s", server_s, least=0)
    if not server_s:
        return ssp_ends(X, np.shape(X)[1] if np.ndim(X) > 1 else 0, comm_s)
    X = replicas("X", X)
    number("comm_s", comm_s, least=0)
    if X.ndim == 2:
        return serve(X, comm_s, server_s).end.max(axis=0)
    return np.stack([serve(one, comm_s, server_s).end.max(axis=0) for one in np.moveaxis(X, 2, 0)], axis=1)


_MANY = 1000  # workers from which on batches are the quicker way


class Served(NamedTuple):
    """(K, T) seconds at which each push came to the server, its turn came, and the server was done with it."""

    sent: FloatArray
    turn: FloatArray
    end: FloatArray


def _unhindered(X: FloatArray, comm_s: float) -> Served:
    laid = np.stack([X, np.full_like(X, comm_s)], axis=2).reshape(len(X), -1)
    end = np.cumsum(laid, axis=1)[:, 1::2]
    return Served(end, end, end)


def serve_one_by_one(X: FloatArray, comm_s: float, server_s: float) -> Served:
    """The queue, one push after the other."""
    K, T = X.shape
    times = X.tolist()
    served: list[tuple[int, int, float, float, float]] = []
    pending = [(times[k][0] + comm_s, k, 0) for k in range(K)]
    heapq.heapify(pending)
    since, n, done = 0.0, 0, 0.0  # since when the server has been busy, and how many it has served since
    while pending:
        came, k, t = heapq.heappop(pending)
        turn = max(came, done)
        if came >= done:
            since, n = came, 0
        n += 1
        done = since + n * server_s  # not done + server_s: a million of these would add up their rounding
        served.append((k, t, came, turn, done))
        if t + 1 < T:
            heapq.heappush(pending, (done + times[k][t + 1] + comm_s, k, t + 1))
    out = np.empty((3, K, T))
    rank, step, *columns = map(np.array, zip(*served, strict=True))
    out[:, rank, step] = columns
    return Served(*out)


def serve_in_batches(X: FloatArray, comm_s: float, server_s: float) -> Served:
    """The queue in batches whose order is settled. Equals `serve_one_by_one` to the last bit."""
    K, T = X.shape
    sent, turn, end = np.empty((3, K, T))
    t = np.zeros(K, dtype=np.int64)  # each worker's step
    came, who = _in_order(X[:, 0] + comm_s, np.arange(K))
    since, n, done, look = 0.0, 0, 0.0, K
    while len(came):
        a, k = came[:look], who[:look]
        head, D = _departures(a, since, n, done, server_s)
        on = t[k] + 1
        again = np.where(on < T, D + X[k, np.minimum(on, T - 1)] + comm_s, np.inf)  # what each will cause
        late = a[1:] >= np.minimum.accumulate(again)[:-1]
        size = 1 + int(late.argmax()) if late.any() else len(a)
        k = k[:size]
        sent[k, t[k]], end[k, t[k]] = a[:size], D[:size]
        turn[k, t[k]] = np.maximum(a[:size], np.append(done, D[: size - 1]))
        since, n = (a[head[size - 1]], size - head[size - 1]) if head[size - 1] >= 0 else (since, n + size)
        done = D[size - 1]
        t[k] += 1
        more = again[:size] < np.inf
        came = np.concatenate([came[size:], again[:size][more]])
        came, who = _in_order(came, np.concatenate([who[size:], k[more]]))
        look = 2 * size + 16
    return Served(sent, turn, end)


def serve(X: FloatArray, comm_s: float, server_s: float) -> Served:
    """The queue, the quicker way."""
    return (serve_in_batches if len(X) >= _MANY else serve_one_by_one)(X, comm_s, server_s)


def _departures(
    a: FloatArray, since: float, n: int, done: float, server_s: float
) -> tuple[IntArray, FloatArray]:
    """Lindley's recursion for sorted arrivals a at a server busy since ``since`` with n served until ``done``.

    Returns who opened the busy period that each is served in (-1: it is the old one), and when each is served.
    """
    i = np.arange(len(a))
    about = server_s * (i + 1) + np.maximum.accumulate(np.maximum(a, done) - server_s * i)
    opens = a >= np.append(done, about[:-1])
    while True:  # once, unless rounding makes a difference: then from left to right, until all is consistent
        head = np.maximum.accumulate(np.where(opens, i, -1))
        D = np.where(head >= 0, a[head], since) + np.where(head >= 0, i - head + 1, n + i + 1) * server_s
        before, opens = opens, a >= np.append(done, D[:-1])
        if (opens == before).all():
            return head, D


def _in_order(came: FloatArray, who: IntArray) -> tuple[FloatArray, IntArray]:
    """By time, then by rank."""
    order = np.argsort(came, kind="stable")  # quick where most of it is in order already
    came, who = came[order], who[order]
    if (came[1:] == came[:-1]).any():
        order = np.lexsort((who, came))
        came, who = came[order], who[order]
    return came, who
