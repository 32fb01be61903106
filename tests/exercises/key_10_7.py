"""Key of problem set 10.7: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import all_gather, ring
from labkit.exercises.sets.s10_7 import _bucket_case

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


def gathered(comm, mine):
    return all_gather(comm, mine, comm.K * len(mine)).reshape(comm.K, -1)


def sparse_mean(comm, x, places):
    where, what = gathered(comm, places.astype(np.uint32)), gathered(comm, x[places])
    mean = np.zeros_like(x)
    for idx, values in zip(where, what, strict=True):
        mean[idx] += values
    return mean / comm.K


def largest(x, k):
    return np.argsort(-np.abs(x))[:k]


def bucket_mean(comm, g, error, k):
    corrected = g + error
    mean = sparse_mean(comm, corrected, largest(corrected, k))
    return mean, corrected - keep(corrected, k)


def forgets_the_error(comm, g, error, k):
    return bucket_mean(comm, g, np.zeros_like(g), k)


def chooses_before_correcting(comm, g, error, k):
    """Sends the gradient's largest and counts the old error as left over."""
    return sparse_mean(comm, g, largest(g, k)), g + error - keep(g, k)


def error_of_the_gradient(comm, g, error, k):
    mean, _ = bucket_mean(comm, g, error, k)
    return mean, g - keep(g + error, k)


def error_is_kept_on_top(comm, g, error, k):
    mean, new = bucket_mean(comm, g, error, k)
    return mean, error + new


def error_of_the_mean(comm, g, error, k):
    """What the mean lacks, not what this worker did not send."""
    mean, _ = bucket_mean(comm, g, error, k)
    return mean, g + error - mean


def error_is_dropped(comm, g, error, k):
    return bucket_mean(comm, g, error, k)[0], np.zeros_like(g)


def largest_not_in_size(comm, g, error, k):
    corrected = g + error
    places = np.argsort(-corrected)[:k]
    left = corrected.copy()
    left[places] = 0
    return sparse_mean(comm, corrected, places), left


def bucket_dense(comm, g, error, k):
    corrected = g + error
    return ring.allreduce(comm, keep(corrected, k)) / comm.K, corrected - keep(corrected, k)


def bucket_alone(comm, g, error, k):
    return keep(g + error, k), g + error - keep(g + error, k)


def bucket_my_places(comm, g, error, k):
    """Adds values that belong to other places."""
    corrected = g + error
    places = np.sort(largest(corrected, k))
    mean = np.zeros_like(g)
    mean[places] = ring.allreduce(comm, corrected[places]) / comm.K
    return mean, corrected - keep(corrected, k)


def bucket_overwrites(comm, g, error, k):
    corrected = g + error
    places = largest(corrected, k)
    where, what = gathered(comm, places), gathered(comm, corrected[places])
    mean = np.zeros_like(g)
    mean[where.reshape(-1)] += what.reshape(-1)  # a place that stands there twice is added once
    return mean / comm.K, corrected - keep(corrected, k)


def bucket_sum(comm, g, error, k):
    mean, new = bucket_mean(comm, g, error, k)
    return mean * comm.K, new


# -- 3 --------------------------------------------------------------------------------------------------------------


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


# -- 4 --------------------------------------------------------------------------------------------------------------


def power_step(comm, M, Q):
    P = np.linalg.qr(ring.allreduce(comm, M @ Q))[0]
    new = ring.allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_alone(comm, M, Q):
    P = np.linalg.qr(M @ Q)[0]
    new = M.T @ P
    return P @ new.T, new


def power_not_orthogonal(comm, M, Q):
    P = ring.allreduce(comm, M @ Q) / comm.K
    new = ring.allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_orthogonal_too_early(comm, M, Q):
    P = ring.allreduce(comm, np.linalg.qr(M @ Q)[0]) / comm.K
    new = ring.allreduce(comm, M.T @ P) / comm.K
    return P @ new.T, new


def power_of_the_sum(comm, M, Q):
    P = np.linalg.qr(ring.allreduce(comm, M @ Q))[0]
    new = ring.allreduce(comm, M.T @ P)
    return P @ new.T, new


def power_own_q(comm, M, Q):
    P = np.linalg.qr(ring.allreduce(comm, M @ Q))[0]
    mean = ring.allreduce(comm, M.T @ P) / comm.K
    return P @ mean.T, M.T @ P


def power_sends_the_matrix(comm, M, Q):
    mean = ring.allreduce(comm, M) / comm.K
    P = np.linalg.qr(mean @ Q)[0]
    return P @ (mean.T @ P).T, mean.T @ P


def power_returns_the_old_q(comm, M, Q):
    return power_step(comm, M, Q)[0], Q


# -- 5 --------------------------------------------------------------------------------------------------------------


def outer_step(comm, anchor, w, v, eta, momentum):
    outer = ring.allreduce(comm, anchor - w) / comm.K
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
    outer = ring.allreduce(comm, anchor - w) / comm.K
    return anchor - eta * (outer + momentum * v), momentum * v + outer


def outer_from_here(comm, anchor, w, v, eta, momentum):
    new, v = outer_step(comm, anchor, w, v, eta, momentum)
    return w + new - anchor, v


def outer_sends_both(comm, anchor, w, v, eta, momentum):
    mean = ring.allreduce(comm, w) / comm.K
    v = momentum * ring.allreduce(comm, v) / comm.K + anchor - mean
    return anchor - eta * (anchor - mean + momentum * v), v


def outer_mean_of_ends(comm, anchor, w, v, eta, momentum):
    new, v = outer_alone(comm, anchor, w, v, eta, momentum)
    return ring.allreduce(comm, new) / comm.K, v


SOLUTIONS = {
    "10.7-1": quantise,
    "10.7-2": bucket_mean,
    "10.7-3": break_even,
    "10.7-4": power_step,
    "10.7-5": outer_step,
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
        error_of_the_mean,
        error_is_dropped,
        largest_not_in_size,
        bucket_dense,
        bucket_alone,
        bucket_my_places,
        bucket_overwrites,
        bucket_sum,
        lambda *q: bucket_mean(*q)[0],
    ],
    "10.7-3": [
        of_ratios,
        without_latency,
        sums_what_is_gathered,
        negative_bandwidths,
        lambda *q: 1 / break_even(*q) if break_even(*q) else math.inf,
        lambda *q: min(break_even(*q), 1e30),
    ],
    "10.7-4": [
        power_alone,
        power_not_orthogonal,
        power_orthogonal_too_early,
        power_of_the_sum,
        power_own_q,
        power_sends_the_matrix,
        power_returns_the_old_q,
    ],
    "10.7-5": [
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
    yield _bucket_case(rng.standard_normal((7, 30)), rng.standard_normal((7, 30)), 25, "hidden")


HIDDEN = {"10.7-2": more_workers}

LOOK_FOR = {
    "10.7-6": (
        "Equal steps are not equal seconds: while plain takes its 100 steps of 0.4 s, DiLoCo takes 800 of 0.05 s. Same "
        "data, same budget of seconds, loss on unseen text against seconds; each with its own best learning rate.",
        "Between meetings each worker follows its own data, so a step brings less than one with everybody's gradient. Where "
        "a step costs nearly the same for both (0.055 against 0.05 s), fewer steps decide, and plain wins.",
    )
}
