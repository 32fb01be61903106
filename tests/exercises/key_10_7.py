"""Key of problem set 10.7: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import all_gather, ring_allreduce
from labkit.grade import Case
from labkit.grade.sets.s10_7 import _topk_judge

# -- 1 --------------------------------------------------------------------------------------------------------------


def quantise(x, s, u):
    norm = np.linalg.norm(x)
    if norm == 0:
        return 0.0, np.zeros(len(x))
    a = np.round(s * np.abs(x) / norm, 12)
    low = np.floor(a)
    return norm, np.sign(x) * (low + (u < a - low))


def quantise_to_the_nearest(x, s, u):
    norm = np.linalg.norm(x) or 1.0
    return np.linalg.norm(x), np.round(s * x / norm)


def quantise_by_the_largest(x, s, u):
    top = np.abs(x).max() or 1.0
    a = s * np.abs(x) / top
    return np.abs(x).max(), np.sign(x) * np.floor(a + (u < a - np.floor(a)))


def quantise_wrong_odds(x, s, u):
    norm = np.linalg.norm(x) or 1.0
    a = s * np.abs(x) / norm
    return np.linalg.norm(x), np.sign(x) * (np.floor(a) + (u >= a - np.floor(a)))


def quantise_signless(x, s, u):
    norm, levels = quantise(x, s, u)
    return norm, np.abs(levels)


def quantise_divides_by_zero(x, s, u):
    with np.errstate(invalid="ignore"):
        a = s * np.abs(x) / np.linalg.norm(x)
    return np.linalg.norm(x), np.sign(x) * (np.floor(a) + (u < a - np.floor(a)))


# -- 2 --------------------------------------------------------------------------------------------------------------


def keep(x, k):
    out = np.zeros_like(x)
    places = np.argsort(-np.abs(x))[:k]
    out[places] = x[places]
    return out


def with_feedback(g, error, k):
    corrected = g + error
    message = keep(corrected, k)
    return message, corrected - message


def forgets_the_error(g, error, k):
    message = keep(g, k)
    return message, g - message


def chooses_before_correcting(g, error, k):
    message = keep(g, k)
    return message, g + error - message


def error_of_the_gradient(g, error, k):
    message = keep(g + error, k)
    return message, g - message


def error_is_kept_on_top(g, error, k):
    corrected = g + error
    message = keep(corrected, k)
    return message, error + corrected - message


def largest_not_in_size(g, error, k):
    corrected = g + error
    message = np.where(corrected >= np.sort(corrected)[-k], corrected, 0.0)
    return message, corrected - message


# -- 3 --------------------------------------------------------------------------------------------------------------


def gathered(comm, mine):
    return all_gather(comm, mine, comm.K * len(mine)).reshape(comm.K, -1)


def topk_mean(comm, g, k):
    places = np.argsort(-np.abs(g))[:k]
    where, what = gathered(comm, places.astype(np.uint32)), gathered(comm, g[places])
    mean = np.zeros_like(g)
    for idx, values in zip(where, what, strict=True):
        mean[idx] += values
    return mean / comm.K


def topk_dense(comm, g, k):
    return ring_allreduce(comm, keep(g, k)) / comm.K


def topk_alone(comm, g, k):
    return keep(g, k)


def topk_of_the_sum(comm, g, k):
    return keep(ring_allreduce(comm, g), k) / comm.K


def topk_my_places(comm, g, k):
    """Adds values that belong to other places."""
    places = np.sort(np.argsort(-np.abs(g))[:k])
    mean = np.zeros_like(g)
    mean[places] = ring_allreduce(comm, g[places]) / comm.K
    return mean


def topk_overwrites(comm, g, k):
    places = np.argsort(-np.abs(g))[:k]
    where, what = gathered(comm, places), gathered(comm, g[places])
    mean = np.zeros_like(g)
    mean[where.reshape(-1)] += what.reshape(-1)  # a place that stands there twice is added once
    return mean / comm.K


def topk_sum(comm, g, k):
    return topk_mean(comm, g, k) * comm.K


def topk_largest_positive(comm, g, k):
    places = np.argsort(-g)[:k]
    where, what = gathered(comm, places), gathered(comm, g[places])
    mean = np.zeros_like(g)
    for idx, values in zip(where, what, strict=True):
        mean[idx] += values
    return mean / comm.K


# -- 4 --------------------------------------------------------------------------------------------------------------


def break_even(K, n, m, alpha, coding_s):
    saved, lost = (K - 1) * (2 * n / K - m), coding_s - (K - 1) * alpha
    if saved <= 0:
        return 0.0
    return saved / lost if lost > 0 else math.inf


def of_ratios(K, n, m, alpha, coding_s):
    lost = coding_s - (K - 1) * alpha
    return (n - m) / lost if lost > 0 else math.inf


def without_latency(K, n, m, alpha, coding_s):
    return max((K - 1) * (2 * n / K - m) / coding_s, 0.0)


def sums_what_is_gathered(K, n, m, alpha, coding_s):
    return 2 * (K - 1) / K * (n - m) / coding_s


def negative_bandwidths(K, n, m, alpha, coding_s):
    return (K - 1) * (2 * n / K - m) / (coding_s - (K - 1) * alpha)


# -- 5 --------------------------------------------------------------------------------------------------------------


def power_step(comm, M, Q):
    P = np.linalg.qr(ring_allreduce(comm, M @ Q))[0]
    new = ring_allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_alone(comm, M, Q):
    P = np.linalg.qr(M @ Q)[0]
    new = M.T @ P
    return P @ new.T, new


def power_not_orthogonal(comm, M, Q):
    P = ring_allreduce(comm, M @ Q) / comm.K
    new = ring_allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_orthogonal_too_early(comm, M, Q):
    P = ring_allreduce(comm, np.linalg.qr(M @ Q)[0]) / comm.K
    new = ring_allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_of_the_sum(comm, M, Q):
    P = np.linalg.qr(ring_allreduce(comm, M @ Q))[0]
    new = ring_allreduce(comm, M.T @ P)
    return P @ new.T, new


def power_own_q(comm, M, Q):
    P = np.linalg.qr(ring_allreduce(comm, M @ Q))[0]
    mean = ring_allreduce(comm, M.T @ P) / comm.K
    return P @ mean.T, M.T @ P


def power_sends_the_matrix(comm, M, Q):
    mean = ring_allreduce(comm, M) / comm.K
    P = np.linalg.qr(mean @ Q)[0]
    return P @ (mean.T @ P).T, mean.T @ P


def power_returns_the_old_q(comm, M, Q):
    return power_step(comm, M, Q)[0], Q


# -- 6 --------------------------------------------------------------------------------------------------------------


def outer_step(comm, anchor, w, v, eta, momentum):
    outer = ring_allreduce(comm, anchor - w) / comm.K
    v = momentum * v + outer
    return anchor - eta * (outer + momentum * v), v


def outer_of_the_sum(comm, anchor, w, v, eta, momentum):
    return outer_step(comm, anchor, anchor - comm.K * (anchor - w), v, eta, momentum)


def outer_uphill(comm, anchor, w, v, eta, momentum):
    return outer_step(comm, anchor, 2 * anchor - w, v, eta, momentum)


def outer_alone(comm, anchor, w, v, eta, momentum):
    v = momentum * v + anchor - w
    return anchor - eta * (anchor - w + momentum * v), v


def outer_heavy_ball(comm, anchor, w, v, eta, momentum):
    _, v = outer_step(comm, anchor, w, v, eta, momentum)
    return anchor - eta * v, v


def outer_old_velocity(comm, anchor, w, v, eta, momentum):
    outer = ring_allreduce(comm, anchor - w) / comm.K
    return anchor - eta * (outer + momentum * v), momentum * v + outer


def outer_from_here(comm, anchor, w, v, eta, momentum):
    new, v = outer_step(comm, anchor, w, v, eta, momentum)
    return w + new - anchor, v


def outer_sends_both(comm, anchor, w, v, eta, momentum):
    mean = ring_allreduce(comm, w) / comm.K
    v = momentum * ring_allreduce(comm, v) / comm.K + anchor - mean
    return anchor - eta * (anchor - mean + momentum * v), v


def outer_mean_of_ends(comm, anchor, w, v, eta, momentum):
    new, v = outer_alone(comm, anchor, w, v, eta, momentum)
    return ring_allreduce(comm, new) / comm.K, v


SOLUTIONS = {
    "10.7-1": quantise,
    "10.7-2": with_feedback,
    "10.7-3": topk_mean,
    "10.7-4": break_even,
    "10.7-5": power_step,
    "10.7-6": outer_step,
}

MUTANTS = {
    "10.7-1": [
        quantise_to_the_nearest,
        quantise_by_the_largest,
        quantise_wrong_odds,
        quantise_signless,
        quantise_divides_by_zero,
        lambda x, s, u: quantise(x, s, np.ones_like(u)),
        lambda x, s, u: (np.abs(x).sum(), quantise(x, s, u)[1]),
        lambda x, s, u: quantise(x, s, u)[1],
    ],
    "10.7-2": [
        forgets_the_error,
        chooses_before_correcting,
        error_of_the_gradient,
        error_is_kept_on_top,
        largest_not_in_size,
        lambda g, error, k: (with_feedback(g, error, k)[0], np.zeros_like(g)),
    ],
    "10.7-3": [
        topk_dense,
        topk_alone,
        topk_of_the_sum,
        topk_my_places,
        topk_overwrites,
        topk_sum,
        topk_largest_positive,
    ],
    "10.7-4": [
        of_ratios,
        without_latency,
        sums_what_is_gathered,
        negative_bandwidths,
        lambda *q: 1 / break_even(*q) if break_even(*q) else math.inf,
        lambda *q: min(break_even(*q), 1e30),
    ],
    "10.7-5": [
        power_alone,
        power_not_orthogonal,
        power_orthogonal_too_early,
        power_of_the_sum,
        power_own_q,
        power_sends_the_matrix,
        power_returns_the_old_q,
    ],
    "10.7-6": [
        outer_of_the_sum,
        outer_uphill,
        outer_alone,
        outer_heavy_ball,
        outer_old_velocity,
        outer_from_here,
        outer_sends_both,
        outer_mean_of_ends,
        lambda comm, anchor, w, v, *rest: (outer_step(comm, anchor, w, v, *rest)[0], v),
    ],
}


def more_workers(rng):
    """Seven workers who keep nearly everything, so that places collide."""
    gs, k = rng.standard_normal((7, 30)), 25
    expected = np.mean([keep(g, k) for g in gs], axis=0)
    yield Case(tuple((g.copy(), k) for g in gs), _topk_judge(expected, 7, k), 7, "hidden, with K = 7 workers")


HIDDEN = {"10.7-3": more_workers}
