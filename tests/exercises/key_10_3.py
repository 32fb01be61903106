"""Key of problem set 10.3: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import ring
from labkit.exercises import Case
from labkit.exercises.sets.s10_3 import _step_judge


def grad_sum(X, y, w):
    return 2 * X.T @ (X @ w - y)


# -- 1 --------------------------------------------------------------------------------------------------------------


def sync_step(comm, X, y, w, eta):
    total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
    return w - eta * total[:-1] / total[-1]


def step_alone(comm, X, y, w, eta):
    return w - eta * grad_sum(X, y, w) / max(len(y), 1)


def step_mean_of_means(comm, X, y, w, eta):
    return w - eta * ring.allreduce(comm, grad_sum(X, y, w) / max(len(y), 1)) / comm.K


def step_of_the_sum(comm, X, y, w, eta):
    return w - eta * ring.allreduce(comm, grad_sum(X, y, w))


def step_own_count(comm, X, y, w, eta):
    return w - eta * ring.allreduce(comm, grad_sum(X, y, w)) / (comm.K * max(len(y), 1))


def step_half(comm, X, y, w, eta):
    total = ring.allreduce(comm, np.append(grad_sum(X, y, w) / 2, len(y)))
    return w - eta * total[:-1] / total[-1]


def step_uphill(comm, X, y, w, eta):
    total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
    return w + eta * total[:-1] / total[-1]


def step_nan_for_nobody(comm, X, y, w, eta):
    with np.errstate(invalid="ignore"):
        mean = grad_sum(X, y, w) / np.float64(len(y))
    total = ring.allreduce(comm, np.append(mean * len(y), len(y)))
    return w - eta * total[:-1] / total[-1]


def step_server_keeps_it(comm, X, y, w, eta):
    """Rank 0 adds, but the others never hear of it."""
    mine = np.append(grad_sum(X, y, w), len(y))
    if comm.rank:
        comm.send(mine, 0)
        return w - eta * mine[:-1] / max(mine[-1], 1)
    for k in range(1, comm.K):
        mine += comm.recv(np.empty_like(mine), k)
    return w - eta * mine[:-1] / mine[-1]


def step_deadlock(comm, X, y, w, eta):
    total = passing = np.append(grad_sum(X, y, w), len(y))
    for _ in range(comm.K - 1):
        comm.send(passing, (comm.rank + 1) % comm.K)
        passing = comm.recv(np.empty_like(total), (comm.rank - 1) % comm.K)
        total = total + passing
    return w - eta * total[:-1] / total[-1]


def step_sends_examples(comm, X, y, w, eta):
    """Everyone sends its rows to everyone: right, and as expensive as having no gradients at all."""
    counts = np.zeros(comm.K)
    counts[comm.rank] = len(y)
    counts = ring.allreduce(comm, counts).astype(int)
    table, at = np.zeros((counts.sum(), len(w) + 1)), counts[: comm.rank].sum()
    table[at : at + len(y)] = np.column_stack([X, y])
    table = ring.allreduce(comm, table)
    return w - eta * grad_sum(table[:, :-1], table[:, -1], w) / len(table)


def step_in_place(comm, X, y, w, eta):
    total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
    w -= eta * total[:-1] / total[-1]
    return w


def step_drifts(comm, X, y, w, eta):
    """Every rank adds in another order: the right sum, but not the same bits."""
    total = np.append(grad_sum(X, y, w), len(y))
    passing = total
    for _ in range(comm.K - 1):
        passing = comm.sendrecv(
            passing, (comm.rank + 1) % comm.K, np.empty_like(total), (comm.rank - 1) % comm.K
        )
        total = total + passing
    return w - eta * total[:-1] / total[-1]


# -- 2 --------------------------------------------------------------------------------------------------------------


def combine(means, sizes):
    some = sizes > 0
    return sizes[some] @ means[some] / sizes.sum()


# -- 3 --------------------------------------------------------------------------------------------------------------


def harmonic(K):
    return sum(1 / k for k in range(1, K + 1))


def expected_slowest(law, K, a, b):
    return a + (b - a) * K / (K + 1) if law == "uniform" else a + b * harmonic(K)


def slowest_simulated(law, K, a, b):
    rng = np.random.default_rng(0)
    n = max(2000 // K, 20)
    times = rng.uniform(a, b, (n, K)) if law == "uniform" else a + rng.exponential(b, (n, K))
    return times.max(axis=1).mean()


# -- 4 --------------------------------------------------------------------------------------------------------------


def communication(K, P, itemsize, t_comp, beta):
    n = P * itemsize / beta
    comm = 2 * (K - 1) / K * n
    first = None
    if 2 * n > t_comp:
        first = 1
        while 2 * (first - 1) / first * n <= t_comp:
            first += 1
    return comm / (comm + t_comp), first


def communication_at_the_tie(K, P, itemsize, t_comp, beta):
    share, _ = communication(K, P, itemsize, t_comp, beta)
    n, first = P * itemsize / beta, None
    if 2 * n > t_comp:
        first = math.ceil(2 * n / (2 * n - t_comp))
    return share, first


def communication_of(K, P, itemsize, t_comp, beta, factor, bits=1):
    n = P * itemsize * bits / beta
    comm = factor(K) * n
    return comm / (comm + t_comp), communication(K, P * bits, itemsize, t_comp, beta)[1]


# -- 5 --------------------------------------------------------------------------------------------------------------


def clip(g, c):
    return g * min(1.0, c / np.linalg.norm(g))


def clipped_step(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    return w - eta * clip(total[:-1] / total[-1], c)


def clips_each(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(clip(g_sum / count, c) * count, count))
    return w - eta * total[:-1] / total[-1]


def clips_the_plain_mean(comm, g_sum, count, w, eta, c):
    return w - eta * clip(ring.allreduce(comm, g_sum / count) / comm.K, c)


def clips_the_sum(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    return w - eta * clip(total[:-1], c) / total[-1]


def always_rescales(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    g = total[:-1] / total[-1]
    return w - eta * g * c / np.linalg.norm(g)


def clips_by_element(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    return w - eta * np.clip(total[:-1] / total[-1], -c, c)


def clips_the_step(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    return w - clip(eta * total[:-1] / total[-1], c)


def clips_with_the_count(comm, g_sum, count, w, eta, c):
    total = ring.allreduce(comm, np.append(g_sum, count))
    return w - eta * clip(total / total[-1], c)[:-1]


def clips_alone(comm, g_sum, count, w, eta, c):
    return w - eta * clip(g_sum / count, c)


# -- 6 --------------------------------------------------------------------------------------------------------------


def audit(before_min, after_min, clock, comm_share):
    explained = before_min * (comm_share + (1 - comm_share) / clock)
    return explained, after_min - explained, (1 - comm_share) / (after_min / before_min - comm_share)


def all_of_it_slows(before, after, clock, f):
    return before / clock, after - before / clock, before / after


def adds_percent(before, after, clock, f):
    explained = before * (f + (1 - f) * (1 + 1 - clock))
    return explained, after - explained, audit(before, after, clock, f)[2]


def counts_only_the_increase(before, after, clock, f):
    explained, rest, needed = audit(before, after, clock, f)
    return explained - before, rest, needed


def gives_the_drop(before, after, clock, f):
    explained, rest, needed = audit(before, after, clock, f)
    return explained, rest, 1 - needed


SOLUTIONS = {
    "10.3-1": sync_step,
    "10.3-2": combine,
    "10.3-3": expected_slowest,
    "10.3-4": communication,
    "10.3-5": clipped_step,
    "10.3-6": audit,
}

MUTANTS = {
    "10.3-1": [
        step_alone,
        step_mean_of_means,
        step_of_the_sum,
        step_own_count,
        step_half,
        step_uphill,
        step_nan_for_nobody,
        step_server_keeps_it,
        step_deadlock,
        step_sends_examples,
        step_in_place,
        step_drifts,
    ],
    "10.3-2": [
        lambda means, sizes: means.mean(axis=0),
        lambda means, sizes: sizes @ means / sizes.sum(),
        lambda means, sizes: np.nanmean(means, axis=0),
        lambda means, sizes: sizes @ np.nan_to_num(means),
        lambda means, sizes: sizes @ np.nan_to_num(means) / len(sizes),
        lambda means, sizes: sizes[:, None] * np.nan_to_num(means) / sizes.sum(),
    ],
    "10.3-3": [
        slowest_simulated,
        lambda law, K, a, b: b if law == "uniform" else a + b * math.log(K),
        lambda law, K, a, b: a + (b - a) * K / (K + 1) if law == "uniform" else (a + b) * harmonic(K),
        lambda law, K, a, b: (a + b) / 2 if law == "uniform" else a + b,
        lambda law, K, a, b: a + b * K / (K + 1) if law == "uniform" else a + b * harmonic(K),
        lambda law, K, a, b: a + (b - a) * K / (K + 1) if law == "uniform" else a + b * harmonic(K - 1),
        lambda law, K, a, b: (
            a + (b - a) * K / (K + 1) if law == "uniform" else a + b * (math.log(K) + 0.5772)
        ),
    ],
    "10.3-4": [
        communication_at_the_tie,
        lambda *q: communication_of(*q, factor=lambda K: 2 * (K - 1)),
        lambda *q: communication_of(*q, factor=lambda K: (K - 1) / K),
        lambda *q: communication_of(*q, factor=lambda K: 2 * (K - 1) / K, bits=8),
        lambda *q: (communication(*q)[0], communication(*q)[1] or 0),
        lambda *q: (1 / communication(*q)[0] - 1 if q[0] > 1 else 0, communication(*q)[1]),
        lambda *q: (100 * communication(*q)[0], communication(*q)[1]),
        lambda K, *q: (
            communication(K, *q)[0],
            next((k for k in range(1, 101) if communication(k, *q)[0] > 0.5), None),
        ),
    ],
    "10.3-5": [
        clips_each,
        clips_the_plain_mean,
        clips_the_sum,
        always_rescales,
        clips_by_element,
        clips_the_step,
        clips_with_the_count,
        clips_alone,
    ],
    "10.3-6": [
        all_of_it_slows,
        adds_percent,
        counts_only_the_increase,
        gives_the_drop,
        lambda *q: {"explained_min": 1.0},
        lambda before, after, clock, f: audit(before, after, 1 - clock, f),
    ],
}


def more_workers(rng):
    """Seven workers, and one example in all."""
    for K, sizes in ((7, rng.integers(0, 9, size=7) + np.eye(7, dtype=int)[0]), (2, np.array([1, 0]))):
        d = 9
        X, y = rng.standard_normal((sizes.sum(), d)), rng.standard_normal(sizes.sum())
        w, eta = rng.standard_normal(d), 0.1
        cut = np.cumsum(sizes)[:-1]
        args = tuple((a, b, w.copy(), eta) for a, b in zip(np.split(X, cut), np.split(y, cut), strict=True))
        yield Case(
            args,
            _step_judge(w - eta * grad_sum(X, y, w) / len(y), w, K, d),
            K,
            f"hidden, with K = {K} workers",
        )


HIDDEN = {"10.3-1": more_workers}
