"""Key of problem set 10.1: solutions, and the mistakes that students make."""

from __future__ import annotations

import numpy as np

from labkit.collectives import ring
from labkit.exercises import Case
from labkit.exercises.sets.s10_1 import _standardise_judge

# -- 1 ------------------------------------------------------------------------------------------------------


def contribution(X, y, w):
    z = X @ w
    p = np.exp(-np.logaddexp(0, -z))
    return X.T @ (p - y), np.sum(np.logaddexp(0, z) - y * z), len(y)


def contribution_means(X, y, w):
    g, loss, n = contribution(X, y, w)
    return g / max(n, 1), loss / max(n, 1), n


def contribution_overflows(X, y, w):
    with np.errstate(over="ignore", invalid="ignore"):
        z = X @ w
        p = np.exp(z) / (1 + np.exp(z))
        return X.T @ (p - y), np.sum(np.log(1 + np.exp(z)) - y * z), len(y)


def contribution_sign(X, y, w):
    g, loss, n = contribution(X, y, w)
    return -g, loss, n


def contribution_squares(X, y, w):
    p = np.exp(-np.logaddexp(0, -(X @ w)))
    return X.T @ (p - y), np.sum((p - y) ** 2), len(y)


# -- 2 ------------------------------------------------------------------------------------------------------


def together(parts, w, l2):
    N = sum(n for _, _, n in parts)
    return sum(g for g, _, _ in parts) / N + l2 * w, sum(f for _, f, _ in parts) / N + l2 / 2 * (w @ w)


def together_mean_of_means(parts, w, l2):
    some = [(g / n, f / n) for g, f, n in parts if n]
    g, f = (sum(x) / len(some) for x in zip(*some, strict=True))
    return g + l2 * w, f + l2 / 2 * (w @ w)


def together_with(parts, w, l2, g_times, f_times):
    g, f = together(parts, w, 0.0)
    return g + g_times(len(parts)) * l2 * w, f + f_times(len(parts)) * l2 / 2 * (w @ w)


def together_over_K(parts, w, l2):
    K = len(parts)
    return sum(g for g, _, _ in parts) / K + l2 * w, sum(f for _, f, _ in parts) / K + l2 / 2 * (w @ w)


# -- 3 ------------------------------------------------------------------------------------------------------


def standardise(comm, X):
    total = ring.allreduce(comm, np.append(X.sum(axis=0), len(X)))
    mean, N = total[:-1] / total[-1], total[-1]
    squares = ring.allreduce(comm, ((X - mean) ** 2).sum(axis=0))
    return (X - mean) / np.sqrt(squares / N)


def standardise_alone(comm, X):
    return (X - X.mean(axis=0)) / X.std(axis=0) if len(X) else X


def standardise_mean_of_means(comm, X):
    mean = ring.allreduce(comm, X.mean(axis=0) if len(X) else np.zeros(X.shape[1])) / comm.K
    var = ring.allreduce(comm, ((X - mean) ** 2).mean(axis=0) if len(X) else mean * 0) / comm.K
    return (X - mean) / np.sqrt(var)


def standardise_cancels(comm, X):
    """E x^2 - (E x)^2: one message, and all digits lost far from zero."""
    total = ring.allreduce(comm, np.concatenate([X.sum(axis=0), (X**2).sum(axis=0), [len(X)]]))
    mean, square = np.split(total[:-1] / total[-1], 2)
    return (X - mean) / np.sqrt(np.maximum(square - mean**2, 1e-12))


def standardise_local_mean(comm, X):
    """Deviations from each worker's own mean: what the workers differ by is lost."""
    mean = X.mean(axis=0) if len(X) else np.zeros(X.shape[1])
    total = ring.allreduce(comm, np.concatenate([X.sum(axis=0), ((X - mean) ** 2).sum(axis=0), [len(X)]]))
    d = X.shape[1]
    return (X - total[:d] / total[-1]) / np.sqrt(total[d:-1] / total[-1])


def standardise_minus_one(comm, X):
    total = ring.allreduce(comm, np.append(X.sum(axis=0), len(X)))
    mean, N = total[:-1] / total[-1], total[-1]
    return (X - mean) / np.sqrt(ring.allreduce(comm, ((X - mean) ** 2).sum(axis=0)) / (N - 1))


def standardise_ships(comm, X):
    counts = np.zeros(comm.K)
    counts[comm.rank] = len(X)
    counts = ring.allreduce(comm, counts).astype(int)
    table, at = np.zeros((counts.sum(), X.shape[1])), counts[: comm.rank].sum()
    table[at : at + len(X)] = X
    table = ring.allreduce(comm, table)
    return (X - table.mean(axis=0)) / table.std(axis=0)


# -- 4 ------------------------------------------------------------------------------------------------------

WHICH = {
    "mean absolute error": "sum over N",
    "mean loss + l2 |w|^2": "sum over N",
    "median of the losses": "neither",
    "log of the mean of exp(loss)": "sum over another sum",
    "weighted mean, by weights c_i": "sum over another sum",
    "AUC over all pairs": "neither",
}


# -- 5 ------------------------------------------------------------------------------------------------------


def tilted_gradient(comm, X, y, w, tau):
    residual = X @ w - y
    largest = np.zeros(comm.K)
    largest[comm.rank] = tau * np.max(residual**2, initial=0.0)
    top = ring.allreduce(comm, largest).max()
    weights = np.exp(tau * residual**2 - top)
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
    return total[:-1] / total[-1]


def tilted_overflows(comm, X, y, w, tau):
    with np.errstate(over="ignore", invalid="ignore"):
        residual = X @ w - y
        weights = np.exp(tau * residual**2)
        total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
        return total[:-1] / total[-1]


def tilted_own_shift(comm, X, y, w, tau):
    """Each worker subtracts its own largest: the weights of different workers no longer compare."""
    residual = X @ w - y
    weights = np.exp(tau * residual**2 - tau * np.max(residual**2, initial=0.0))
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
    return total[:-1] / total[-1]


def tilted_mean_of_quotients(comm, X, y, w, tau):
    residual = X @ w - y
    weights = np.exp(tau * residual**2 - tau * np.max(residual**2, initial=0.0))
    mine = 2 * X.T @ (weights * residual) / max(weights.sum(), 1e-300)
    total = ring.allreduce(comm, np.append(len(y) * mine, len(y)))
    return total[:-1] / total[-1]


def tilted_over_N(comm, X, y, w, tau):
    residual = X @ w - y
    weights = np.exp(np.minimum(tau * residual**2, 700))
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), len(y)))
    return total[:-1] / total[-1]


def tilted_not_at_all(comm, X, y, w, tau):
    total = ring.allreduce(comm, np.append(2 * X.T @ (X @ w - y), len(y)))
    return total[:-1] / total[-1]


def tilted_times_tau(comm, X, y, w, tau):
    return tau * tilted_gradient(comm, X, y, w, tau)


# -- 6 ------------------------------------------------------------------------------------------------------


def traffic(N, d, K, T):
    gradients, data = 2 * (K - 1) * (d + 1) * T * 8, (K - 1) * (N // K) * (d + 1) * 8
    return gradients, data, "gradients" if gradients < data else "data" if data < gradients else "equal"


def traffic_with(gradients, data):
    def answer(N, d, K, T):
        g, x = gradients(N, d, K, T), data(N, d, K, T)
        return g, x, "gradients" if g < x else "data" if x < g else "equal"

    return answer


def _g(N, d, K, T):
    return traffic(N, d, K, T)[0]


def _x(N, d, K, T):
    return traffic(N, d, K, T)[1]


SOLUTIONS = {
    "10.1-1": contribution,
    "10.1-2": together,
    "10.1-3": standardise,
    "10.1-4": WHICH,
    "10.1-5": tilted_gradient,
    "10.1-6": traffic,
}

MUTANTS = {
    "10.1-1": [contribution_means, contribution_overflows, contribution_sign, contribution_squares],
    "10.1-2": [
        together_mean_of_means,
        together_over_K,
        lambda *q: together_with(*q, lambda K: K, lambda K: K),  # a penalty from every worker
        lambda *q: together_with(*q, lambda K: 1, lambda K: 2),  # the half forgotten
        lambda *q: together_with(*q, lambda K: 0, lambda K: 1),
        lambda parts, w, l2: together(parts, w, l2)[0],
    ],
    "10.1-3": [
        standardise_alone,
        standardise_mean_of_means,
        standardise_cancels,
        standardise_local_mean,
        standardise_minus_one,
        standardise_ships,
    ],
    "10.1-4": [
        dict.fromkeys(WHICH, "sum over N"),
        {**WHICH, "mean loss + l2 |w|^2": "neither"},
        {**WHICH, "log of the mean of exp(loss)": "neither"},
        {**WHICH, "AUC over all pairs": "sum over N"},
        {**WHICH, "median of the losses": "a sum"},
    ],
    "10.1-5": [
        tilted_overflows,
        tilted_own_shift,
        tilted_mean_of_quotients,
        tilted_over_N,
        tilted_not_at_all,
        tilted_times_tau,
    ],
    "10.1-6": [
        lambda N, d, K, T: (_g(N, d, K, T), _x(N, d, K, T), "gradients"),
        traffic_with(lambda N, d, K, T: _g(N, d, K, 1), _x),
        traffic_with(lambda N, d, K, T: _g(N, d, K, T) // 2, _x),
        traffic_with(lambda N, d, K, T: _g(N, d, K, T) * K, _x),
        traffic_with(_g, lambda N, d, K, T: N * (d + 1) * 8),
        traffic_with(_g, lambda N, d, K, T: (K - 1) * N // K * d * 8),
        traffic_with(lambda N, d, K, T: _g(N, d, K, T) / 8, lambda N, d, K, T: _x(N, d, K, T) / 8),
    ],
}


def more_workers(rng):
    """Seven workers whose columns lie far from zero, and differ from worker to worker."""
    sizes = np.array([5, 1, 8, 0, 2, 9, 3])
    X = 1e6 + rng.standard_normal((sizes.sum(), 4)) + np.repeat(np.arange(7), sizes)[:, None]
    cuts = np.cumsum(sizes)[:-1]
    expected = np.split((X - X.mean(axis=0)) / X.std(axis=0), cuts)
    args = tuple((mine,) for mine in np.split(X, cuts))
    yield Case(args, _standardise_judge(expected, 7, 4), 7, "hidden, with K = 7 workers")


HIDDEN = {"10.1-3": more_workers}
