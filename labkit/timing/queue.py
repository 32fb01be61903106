"""A closed queue: workers that push to a server, which serves one at a time, first come, first served.

A push that comes at A finds the server free or busy until D, and is done at max(A, D) + ``server_s`` (Lindley 1952, *The
theory of queues with a single server*). Its worker then computes its next step, and comes again.
"""

from __future__ import annotations

import heapq

import numpy as np

from labkit.checks import FloatArray


def serve(X: FloatArray, comm_s: float, server_s: float) -> FloatArray:
    """(3, K, T) seconds at which each push came to the server, its turn came, and the server was done with it.

    X: (K, T) compute times, checked already. server_s > 0.
    """
    K, T = X.shape
    times, out = X.tolist(), np.empty((3, K, T))
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
        out[:, k, t] = came, turn, done
        if t + 1 < T:
            heapq.heappush(pending, (done + times[k][t + 1] + comm_s, k, t + 1))
    return out
