"""Key of problem set 10.6: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import ring
from labkit.exercises import Case
from labkit.exercises.sets.s10_6 import _ages, _chosen, _frontier

# -- 1 --------------------------------------------------------------------------------------------------------------


def staleness(start_s, end_s):
    applied = np.sort(end_s.ravel())
    version_read = np.searchsorted(applied, start_s, side="right")
    return np.searchsorted(applied, end_s, side="left") - version_read


def stale_with_its_own(start_s, end_s):
    return staleness(start_s, end_s) + 1


def stale_reads_too_early(start_s, end_s):
    applied = np.sort(end_s.ravel())
    return np.searchsorted(applied, end_s) - np.searchsorted(applied, start_s)


def stale_in_steps(start_s, end_s):
    """How many steps the fastest other worker made meanwhile."""
    return np.array([[max(((e > s) & (e < f)).sum() for e in end_s) for s, f in zip(*row, strict=True)]
                     for row in zip(start_s, end_s, strict=True)])  # fmt: skip


def stale_by_rank(start_s, end_s):
    return np.full(start_s.shape, len(start_s) - 1)


def stale_by_step(start_s, end_s):
    """Versions as if the updates came in order of the steps."""
    K, T = end_s.shape
    own = np.add.outer(np.arange(K), K * np.arange(T))
    return own - np.searchsorted(np.sort(end_s.ravel()), start_s, side="right")


# -- 2 --------------------------------------------------------------------------------------------------------------


def may_go(finished, waiting, slack):
    return [k for k in waiting if finished[k] - min(finished) <= slack]


# -- 3 --------------------------------------------------------------------------------------------------------------


def stale_sgd(grad, w0, eta, read, aware):
    w = [np.array(w0, dtype=float)]
    for u, version in enumerate(read):
        step = eta / max(1, u - version) if aware else eta
        w.append(w[u] - step * grad(w[version], u))
    return np.array(w)


def sgd_with(
    base=lambda u, v: u, at=lambda u, v: v, divide=lambda tau: max(1, tau), when=lambda aware: aware
):
    def mutant(grad, w0, eta, read, aware):
        w = [np.array(w0, dtype=float)]
        for u, v in enumerate(read):
            step = eta / divide(u - v) if when(aware) else eta
            w.append(w[base(u, v)] - step * grad(w[at(u, v)], u))
        return np.array(w)

    return mutant


def sgd_in_place(grad, w0, eta, read, aware):
    w, path = np.array(w0, dtype=float), []
    for u, version in enumerate(read):
        path.append(w)
        w -= (eta / max(1, u - version) if aware else eta) * grad(path[version], u)
    return np.array([*path, w])


# -- 4 --------------------------------------------------------------------------------------------------------------


def largest_step(p, q, a):
    n = max(p, q) + 1

    def converges(eta):
        c = np.zeros(n + 1)
        c[:2] = 1, -1
        c[1 + p] += eta * a
        c[1 + q] += eta * (1 - a)
        return np.abs(np.roots(c)).max() < 1

    low, high = 0.0, 1e-3
    while converges(high):
        low, high = high, high * 1.02
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if converges(middle) else (low, middle)
    return low


def constant(tau):
    """The largest step for a constant delay."""
    return 2 * np.sin(np.pi / (2 * (2 * tau + 1)))


def step_of_the_mean_delay(p, q, a):
    return constant(round(a * p + (1 - a) * q))


def step_by_a_random_run(p, q, a):
    """Draws the delay anew at each update: another schedule, another frontier."""
    u = np.arange(2000)
    tau = np.where(np.random.default_rng(0).random(2000) < a, p, q)
    read, eta = np.maximum(u - tau, 0), 0.01

    def shrinks(eta):
        w = np.ones(2001)
        for i, version in enumerate(read):
            w[i + 1] = w[i] - eta * w[version]
        return abs(w[1334:]).max() < abs(w[667:1334]).max()

    while shrinks(eta):
        eta *= 1.01
    return eta


# -- 5 --------------------------------------------------------------------------------------------------------------


def walk(X, y, w, eta, H):
    for _ in range(H if len(y) else 0):
        w = w - eta * 2 * X.T @ (X @ w - y) / len(y)
    return w


def local_round(comm, X, y, w, eta, H):
    total = ring.allreduce(comm, np.append(walk(X, y, w, eta, H) * len(y), len(y)))
    return total[:-1] / total[-1]


def round_mean_of_all(comm, X, y, w, eta, H):
    return ring.allreduce(comm, walk(X, y, w, eta, H)) / comm.K


def round_synchronous(comm, X, y, w, eta, H):
    """Right for H = 1; talks after every step."""
    for _ in range(H):
        total = ring.allreduce(comm, np.append(2 * X.T @ (X @ w - y), len(y)))
        w = w - eta * total[:-1] / total[-1]
    return w


def round_one_step(comm, X, y, w, eta, H):
    return local_round(comm, X, y, w, eta, 1)


def round_sum_of_gradients(comm, X, y, w, eta, H):
    own = w
    for _ in range(H):
        own = own - eta * 2 * X.T @ (X @ own - y)
    total = ring.allreduce(comm, np.append(own * len(y), len(y)))
    return total[:-1] / total[-1]


def round_alone(comm, X, y, w, eta, H):
    return walk(X, y, w, eta, H)


def round_nan(comm, X, y, w, eta, H):
    own = w
    with np.errstate(invalid="ignore"):
        for _ in range(H):
            own = own - eta * 2 * X.T @ (X @ own - y) / np.float64(len(y))
    total = ring.allreduce(comm, np.append(own * len(y), len(y)))
    return total[:-1] / total[-1]


def round_of_fresh_gradients(comm, X, y, w, eta, H):
    """All H steps with the gradient at the round's start."""
    g = 2 * X.T @ (X @ w - y) / max(len(y), 1)
    total = ring.allreduce(comm, np.append((w - H * eta * g) * len(y), len(y)))
    return total[:-1] / total[-1]


# -- 6 --------------------------------------------------------------------------------------------------------------


def best_backups(X, comm_s, serial, parallel):
    K = len(X)
    ordered = np.sort(X, axis=0)
    total = [(serial + parallel / (K - b)) * (ordered[K - b - 1].mean() + comm_s) for b in range(K)]
    b = int(np.argmin(total))
    return b, float(total[b])


def choose(time, rounds=lambda m, serial, parallel: serial + parallel / m):
    def mutant(X, comm_s, serial, parallel):
        K = len(X)
        total = [rounds(K - b, serial, parallel) * time(X, K - b, comm_s) for b in range(K)]
        b = int(np.argmin(total))
        return b, float(total[b])

    return mutant


def nth(X, m):
    return np.sort(X, axis=0)[m - 1].mean()


SOLUTIONS = {
    "10.6-1": staleness,
    "10.6-2": may_go,
    "10.6-3": stale_sgd,
    "10.6-4": largest_step,
    "10.6-5": local_round,
    "10.6-6": best_backups,
}

MUTANTS = {
    "10.6-1": [
        stale_with_its_own,
        stale_reads_too_early,
        stale_in_steps,
        stale_by_rank,
        stale_by_step,
        lambda start, end: float(staleness(start, end).mean()),
        lambda start, end: staleness(start, end).ravel(),
    ],
    "10.6-2": [
        lambda finished, waiting, slack: [k for k in waiting if finished[k] - min(finished) < slack],
        lambda finished, waiting, slack: [k for k in waiting if max(finished) - finished[k] <= slack],
        lambda finished, waiting, slack: [
            k for k in range(len(finished)) if finished[k] - min(finished) <= slack
        ],
        lambda finished, waiting, slack: [
            k for k in waiting if finished[k] - min(finished[j] for j in waiting) <= slack
        ],
        lambda finished, waiting, slack: [k for k in waiting if finished[k] + 1 - min(finished) <= slack],
        lambda finished, waiting, slack: list(waiting),
        lambda finished, waiting, slack: len(may_go(finished, waiting, slack)),
    ],
    "10.6-3": [
        sgd_with(base=lambda u, v: v),
        sgd_with(at=lambda u, v: u),
        sgd_with(at=lambda u, v: max(v - 1, 0)),
        sgd_with(divide=lambda tau: tau + 1),
        sgd_with(divide=lambda tau: tau or math.inf),
        sgd_with(when=lambda aware: True),
        sgd_with(when=lambda aware: False),
        sgd_in_place,
        lambda *q: stale_sgd(*q)[-1],
        lambda *q: stale_sgd(*q)[1:],
    ],
    "10.6-4": [
        step_of_the_mean_delay,
        step_by_a_random_run,
        lambda p, q, a: constant(max(p, q)),
        lambda p, q, a: a * constant(p) + (1 - a) * constant(q),
        lambda p, q, a: largest_step(p, q, 1 - a),
        lambda p, q, a: 1.01 * largest_step(p, q, a),
        lambda p, q, a: 0.99 * largest_step(p, q, a),
        lambda p, q, a: -largest_step(p, q, a),
    ],
    "10.6-5": [
        round_mean_of_all,
        round_synchronous,
        round_one_step,
        round_sum_of_gradients,
        round_alone,
        round_nan,
        round_of_fresh_gradients,
    ],
    "10.6-6": [
        choose(lambda X, m, c: nth(X, m) + c, rounds=lambda m, s, p: s + p / 8),
        choose(lambda X, m, c: nth(X, m)),
        choose(lambda X, m, c: X.max(axis=0).mean() + c),
        choose(lambda X, m, c: np.sort(X.mean(axis=1))[m - 1] + c),
        choose(lambda X, m, c: nth(X, len(X) - m + 1) + c),
        choose(lambda X, m, c: nth(X, max(m - 1, 1)) + c),
        choose(lambda X, m, c: nth(X, m) + c, rounds=lambda m, s, p: p / m),
        choose(lambda X, m, c: np.median(np.sort(X, axis=0)[m - 1]) + c),
        lambda *q: best_backups(*q)[0],
        lambda X, *q: (len(X) - best_backups(X, *q)[0], best_backups(X, *q)[1]),
        lambda X, *q: (min(1, len(X) - 1), best_backups(X, *q)[1]),
    ],
}


def many(rng):
    """Forty workers."""
    X = rng.lognormal(0, 1.5, (40, 30))
    end = np.cumsum(X, axis=1)
    start = np.concatenate([np.zeros((40, 1)), end[:, :-1]], axis=1)
    yield Case((start, end), _ages(start, end), label="hidden, K = 40")


def far_apart(rng):
    """Long delays, and delays named the other way round."""
    for p, q, a in ((0, 60, 0.6), (25, 2, 0.35)):
        yield Case((p, q, a), _frontier(p, q, a), label=f"hidden, p = {p}, q = {q}, a = {a}")


def no_noise(rng):
    """Nothing to average: the fastest worker alone is best."""
    X = rng.exponential(1.0, (5, 50)) + 0.01
    yield Case((X, 0.0, 10.0, 0.0), _chosen(X, 0.0, 10.0, 0.0), label="hidden, parallel = 0")


HIDDEN = {"10.6-1": many, "10.6-4": far_apart, "10.6-6": no_noise}
