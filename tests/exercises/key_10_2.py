"""Key of problem set 10.2: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import ring
from labkit.exercises import Case
from labkit.exercises.sets.s10_2 import _step_judge

# -- 1 ------------------------------------------------------------------------------------------------------


def gradient_variance(G, b, replacement):
    sigma2 = ((G - G.mean(axis=0)) ** 2).sum(axis=1).mean()
    N = len(G)
    return sigma2 / b * (1.0 if replacement else (N - b) / max(N - 1, 1))


def variance_sampled(G, b, replacement):
    rng = np.random.default_rng(0)
    means = [G[rng.choice(len(G), b, replace=replacement)].mean(axis=0) for _ in range(2000)]
    return ((np.array(means) - G.mean(axis=0)) ** 2).sum(axis=1).mean()


# -- 2 ------------------------------------------------------------------------------------------------------


def smallest_batch(sigma2, target, N=None):
    if N is None:
        return max(1, math.ceil(sigma2 / target * (1 - 1e-12)))
    return max(1, math.ceil(N * sigma2 / (sigma2 + target * (N - 1)) * (1 - 1e-12)))


def batch_scaled(sigma2, target, N):
    """The answer with replacement, capped by the number of examples."""
    b = sigma2 / target if target else math.inf
    return max(1, math.ceil(b)) if N is None else int(min(N, max(1, np.ceil(b))))


# -- 3 ------------------------------------------------------------------------------------------------------


def ball_with(x, y, eta, b, extra=1.0, share=lambda b: 1 / b, half=1.0, guard=True):
    w = x @ y / (x @ x)
    Hs, gs = 2 * half * x**2, 2 * half * (x * w - y) * x
    c = share(b)
    left = 1 - (1 - eta * Hs.mean()) ** 2 - extra * eta**2 * c * Hs.var()
    if guard and left <= 0:
        return np.inf
    return eta**2 * c * (gs**2).mean() / left


def ball(x, y, eta, b):
    return ball_with(x, y, eta, b)


# -- 4 ------------------------------------------------------------------------------------------------------


def grad_sum(X, y, w):
    return 2 * X.T @ (X @ w - y)


def accumulated_step(comm, micros, w, eta):
    total = np.zeros(len(w) + 1)
    for X, y in micros:
        total += np.append(grad_sum(X, y, w), len(y))
    total = ring.allreduce(comm, total)
    return w - eta * total[:-1] / total[-1]


def step_talks_each_time(comm, micros, w, eta):
    total = sum(ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y))) for X, y in micros)
    return w - eta * total[:-1] / total[-1]


def step_mean_of_means(comm, micros, w, eta):
    mine = sum(grad_sum(X, y, w) / max(len(y), 1) for X, y in micros) / len(micros)
    return w - eta * ring.allreduce(comm, mine) / comm.K


def step_forgets_m(comm, micros, w, eta):
    """Every micro-batch's mean is added up, as backward() does, and nobody divides."""
    mine = sum(grad_sum(X, y, w) / max(len(y), 1) for X, y in micros)
    return w - eta * ring.allreduce(comm, mine) / comm.K


def step_each_micro(comm, micros, w, eta):
    """Steps at every micro-batch."""
    for X, y in micros:
        total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
        w = w - eta * total[:-1] / max(total[-1], 1) / len(micros)
    return w


def step_last_micro_only(comm, micros, w, eta):
    """The sum is overwritten instead of added to."""
    for X, y in micros:
        mine = np.append(grad_sum(X, y, w), len(y))
    total = ring.allreduce(comm, mine)
    return w - eta * total[:-1] / max(total[-1], 1)


def step_own_count(comm, micros, w, eta):
    n = sum(len(y) for _, y in micros)
    total = ring.allreduce(comm, sum(grad_sum(X, y, w) for X, y in micros))
    return w - eta * total / max(n * comm.K, 1)


def step_alone(comm, micros, w, eta):
    n = sum(len(y) for _, y in micros)
    return w - eta * sum(grad_sum(X, y, w) for X, y in micros) / max(n, 1)


# -- 5 ------------------------------------------------------------------------------------------------------


def noise_scale(comm, X, y, w):
    b, K = len(y), comm.K
    g = grad_sum(X, y, w) / b
    total = ring.allreduce(comm, np.append(g, g @ g)) / K
    small2, big2 = total[-1], total[:-1] @ total[:-1]
    signal = (K * b * big2 - b * small2) / (K * b - b)
    return (small2 - big2) / (1 / b - 1 / (K * b)) / signal


def scale_with(comm, X, y, w, formula, own=False):
    b, K = len(y), comm.K
    g = grad_sum(X, y, w) / b
    total = ring.allreduce(comm, np.append(g, g @ g)) / K
    return formula(g @ g if own else total[-1], total[:-1] @ total[:-1], b, K * b)


def right_formula(s, L, b, B):
    return (s - L) / (1 / b - 1 / B) / ((B * L - b * s) / (B - b))


# -- 6 ------------------------------------------------------------------------------------------------------


def fastest_batch(S_min, B_crit, K, overhead_s, example_s):
    B = math.sqrt(B_crit * K * overhead_s / example_s)
    return B, S_min * (1 + B_crit / B) * (overhead_s + B / K * example_s)


def fastest_with(pick, S_min, B_crit, K, overhead_s, example_s):
    B = pick(S_min, B_crit, K, overhead_s, example_s)
    return B, S_min * (1 + B_crit / B) * (overhead_s + B / K * example_s)


SOLUTIONS = {
    "10.2-1": gradient_variance,
    "10.2-2": smallest_batch,
    "10.2-3": ball,
    "10.2-4": accumulated_step,
    "10.2-5": noise_scale,
    "10.2-6": fastest_batch,
}

MUTANTS = {
    "10.2-1": [
        variance_sampled,
        lambda G, b, replacement: gradient_variance(G, b, True),
        lambda G, b, replacement: np.sqrt(gradient_variance(G, b, replacement)),
        lambda G, b, replacement: gradient_variance(G, b, replacement) * len(G) / max(len(G) - 1, 1),
        lambda G, b, replacement: (
            gradient_variance(G, 1, True) / b * (1 if replacement else (len(G) - b) / len(G))
        ),
        lambda G, b, replacement: gradient_variance(G, b, replacement) / G.shape[1],
        lambda G, b, replacement: gradient_variance(G, 1, True) / b**2,
    ],
    "10.2-2": [
        batch_scaled,
        lambda sigma2, target, N: smallest_batch(sigma2, target, N) + 1,
        lambda sigma2, target, N: sigma2 / target if target else N,
        lambda sigma2, target, N: max(
            1, int(N * sigma2 / (sigma2 + target * (N - 1)) if N else sigma2 / target)
        ),
        lambda sigma2, target, N: smallest_batch(sigma2**2, target**2, N),
    ],
    "10.2-3": [
        lambda x, y, eta, b: ball_with(x, y, eta, b, extra=0.0),  # noise that does not grow
        lambda x, y, eta, b: ball_with(x, y, eta, b, guard=False),
        lambda x, y, eta, b: ball_with(x, y, eta, b, half=0.5),
        lambda x, y, eta, b: ball_with(x, y, eta, b, share=lambda b: 1.0),
        lambda x, y, eta, b: ball_with(x, y, eta, b, share=lambda b: max(len(x) - b, 0) / (len(x) - 1) / b),
        lambda x, y, eta, b: math.sqrt(ball(x, y, eta, b)),
        lambda x, y, eta, b: (
            eta * np.mean((2 * x * (x * (x @ y / (x @ x)) - y)) ** 2) / (4 * b * np.mean(x**2))
        ),
    ],
    "10.2-4": [
        step_talks_each_time,
        step_mean_of_means,
        step_forgets_m,
        step_each_micro,
        step_last_micro_only,
        step_own_count,
        step_alone,
    ],
    "10.2-5": [
        lambda *q: scale_with(*q, lambda s, L, b, B: (s - L) / L),
        lambda *q: scale_with(*q, lambda s, L, b, B: (s - L) * b / L),
        lambda *q: scale_with(*q, lambda s, L, b, B: 1 / right_formula(s, L, b, B)),
        lambda *q: scale_with(*q, lambda s, L, b, B: right_formula(s, L, 1, B // b)),  # counts workers
        lambda *q: scale_with(*q, right_formula, own=True),
    ],
    "10.2-6": [
        lambda *q: fastest_with(lambda S, B_crit, K, o, e: B_crit, *q),
        lambda *q: fastest_with(lambda S, B_crit, K, o, e: math.sqrt(B_crit * o / e), *q),
        lambda *q: fastest_with(lambda S, B_crit, K, o, e: K * o / e, *q),
        lambda *q: (fastest_batch(*q)[0], fastest_batch(*q)[1] / q[0]),
        lambda *q: fastest_with(lambda S, B_crit, K, o, e: B_crit * K * o / e, *q),
    ],
}


def more_workers(rng):
    """Seven workers, three of them with nothing, and one micro-batch each."""
    counts = np.array([4, 0, 1, 0, 7, 0, 2])
    w, eta, d = rng.standard_normal(6), 0.1, 6
    micros = [[(rng.standard_normal((n, d)), rng.standard_normal(n))] for n in counts]
    X, y = (np.concatenate([row[0][i] for row in micros]) for i in (0, 1))
    expected = w - eta * 2 * X.T @ (X @ w - y) / len(y)
    args = tuple((row, w.copy(), eta) for row in micros)
    yield Case(args, _step_judge(expected, d), 7, "hidden, with K = 7 workers")


HIDDEN = {"10.2-4": more_workers}
