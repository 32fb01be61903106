"""A closed queue: workers that push to a server, which serves one at a time, first come, first served.

With A_i the times of arrival in this order and c = ``server_s``, the server is done with the i-th, i = 0, 1, ..., at

    D_i = max(A_i, D_(i-1)) + c = c (i + 1) + max over j <= i of (A_j - c j)

(Lindley 1952, *The theory of queues with a single server*). The right-hand side is one cumulative maximum, but each arrival
is caused by an earlier departure. So with many workers the queue goes in batches: of the pending arrivals in order, those
that come before any arrival which the ones ahead of them can cause; their order cannot change any more.
"""

from __future__ import annotations

import heapq

import numpy as np

from labkit.checks import FloatArray
from labkit.timing.timeline import IntArray

_MANY = 1000  # workers from which on batches are the quicker way


def serve(X: FloatArray, comm_s: float, server_s: float) -> FloatArray:
    """(3, K, T) seconds at which each push came to the server, its turn came, and the server was done with it.

    X: (K, T) compute times, checked already. server_s > 0.
    """
    return (_in_batches if len(X) >= _MANY else _one_by_one)(X, comm_s, server_s)


def _one_by_one(X: FloatArray, comm_s: float, server_s: float) -> FloatArray:
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
    return out


def _in_batches(X: FloatArray, comm_s: float, server_s: float) -> FloatArray:
    """The queue in batches whose order is settled. Equals `_one_by_one` to the last bit."""
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
    return np.stack([sent, turn, end])


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
