"""Key of problem set A: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np

from labkit.collectives import all_gather, own_chunk, reduce_scatter, ring
from labkit.exercises import Case
from labkit.exercises.sets.sA import _buckets_judge, _step_judge

# -- 1 --------------------------------------------------------------------------------------------------------------


def buckets(nbytes, limit):
    made, open_now, held = [], [], 0
    for i in reversed(range(len(nbytes))):
        open_now.append(i)
        held += nbytes[i]
        if held >= limit:
            made.append(open_now)
            open_now, held = [], 0
    return [*made, open_now] if open_now else made


def buckets_forward(nbytes, limit):
    last = len(nbytes) - 1
    return [[last - i for i in b] for b in buckets(nbytes[::-1], limit)]


def buckets_never_over(nbytes, limit):
    """Close before a parameter that would not fit."""
    made, open_now, held = [], [], 0
    for i in reversed(range(len(nbytes))):
        if open_now and held + nbytes[i] > limit:
            made.append(open_now)
            open_now, held = [], 0
        open_now.append(i)
        held += nbytes[i]
    return [*made, open_now] if open_now else made


def buckets_forget_the_rest(nbytes, limit):
    return [b for b in buckets(nbytes, limit) if sum(nbytes[i] for i in b) >= limit]


def buckets_empty_one(nbytes, limit):
    return [*buckets(nbytes, limit), []]


# -- 2 --------------------------------------------------------------------------------------------------------------


def average(comm, grads, shapes):
    parts = [np.zeros(s) if g is None else g for g, s in zip(grads, shapes, strict=True)]
    used = [float(g is not None) for g in grads]
    total = ring.allreduce(comm, np.concatenate([*(p.ravel() for p in parts), used]))
    means, at = [], 0
    for i, s in enumerate(shapes):
        n = math.prod(s)
        mean = total[at : at + n].reshape(s) / comm.K
        means.append(mean if total[len(total) - len(shapes) + i] else None)
        at += n
    return means


def average_never_none(comm, grads, shapes):
    return [
        ring.allreduce(comm, np.zeros(s) if g is None else g) / comm.K
        for g, s in zip(grads, shapes, strict=True)
    ]


def average_of_the_users(comm, grads, shapes):
    """Divide by how many used it: not the gradient of the mean loss."""
    means = []
    for g, s in zip(grads, shapes, strict=True):
        total = ring.allreduce(comm, np.append(np.zeros(s) if g is None else g, float(g is not None)))
        means.append(total[:-1].reshape(s) / total[-1] if total[-1] else None)
    return means


def average_skips_its_own(comm, grads, shapes):
    """Only what this rank has is summed: the others wait for ever."""
    return [None if g is None else ring.allreduce(comm, g) / comm.K for g in grads]


def average_keeps_its_none(comm, grads, shapes):
    return [m if g is not None else None for m, g in zip(average(comm, grads, shapes), grads, strict=True)]


def average_of_sums(comm, grads, shapes):
    return [None if m is None else comm.K * m for m in average(comm, grads, shapes)]


def average_in_two(comm, grads, shapes):
    """Right, and sends everything twice."""
    average(comm, grads, shapes)
    return average(comm, grads, shapes)


# -- 3 --------------------------------------------------------------------------------------------------------------


def least_workers(P, stage, parameter, gradient, state, capacity, cut=None):
    cut = cut or {1: state, 2: state + gradient, 3: state + gradient + parameter, 0: 0}[stage]
    alone = P * (parameter + gradient + state)
    fixed = alone - P * cut
    if alone <= capacity:
        return alone, 1
    if fixed >= capacity or cut == 0:
        return alone, None
    return alone, math.ceil(P * cut / (capacity - fixed))


# -- 4 --------------------------------------------------------------------------------------------------------------


def sharded_step(comm, w, g, u, eta, mu):
    mean, (low, high) = reduce_scatter(comm, g)
    u = mu * u + mean / comm.K
    return all_gather(comm, w[low:high] - eta * u, len(w)), u


def step_of_the_sum(comm, w, g, u, eta, mu):
    mean, (low, high) = reduce_scatter(comm, g)
    u = mu * u + mean
    return all_gather(comm, w[low:high] - eta * u, len(w)), u


def step_by_allreduce(comm, w, g, u, eta, mu):
    """Right, and sends half as much again."""
    low, high = own_chunk(comm, len(w))
    mean = ring.allreduce(comm, g)[low:high] / comm.K
    u = mu * u + mean
    return all_gather(comm, w[low:high] - eta * u, len(w)), u


def step_own_gradient(comm, w, g, u, eta, mu):
    low, high = own_chunk(comm, len(w))
    u = mu * u + g[low:high]
    return all_gather(comm, w[low:high] - eta * u, len(w)), u


def step_never_gathers(comm, w, g, u, eta, mu):
    mean, (low, high) = reduce_scatter(comm, g)
    u = mu * u + mean / comm.K
    w = w.copy()
    w[low:high] -= eta * u
    return w, u


def step_gathers_the_update(comm, w, g, u, eta, mu):
    mean, _ = reduce_scatter(comm, g)
    u = mu * u + mean / comm.K
    return all_gather(comm, u, len(w)), u


def step_forgets_momentum(comm, w, g, u, eta, mu):
    w, _ = sharded_step(comm, w, g, 0 * u, eta, mu)
    return w, u


def step_in_place(comm, w, g, u, eta, mu):
    w[:], u[:] = sharded_step(comm, w, g, u, eta, mu)
    return w, u


# -- 5 --------------------------------------------------------------------------------------------------------------


def clipped_chunk(comm, g, c):
    length = math.sqrt(ring.allreduce(comm, np.array([np.sum(g * g)]))[0])
    return g * (c / length) if length > c else g.copy()


def clips_its_own(comm, g, c):
    length = np.linalg.norm(g)
    return g * (c / length) if length > c else g.copy()


def clips_by_the_sum_of_lengths(comm, g, c):
    length = ring.allreduce(comm, np.array([np.linalg.norm(g)]))[0]
    return g * (c / length) if length > c else g.copy()


def clips_by_the_square(comm, g, c):
    length = ring.allreduce(comm, np.array([np.sum(g * g)]))[0]
    return g * (c / length) if length > c else g.copy()


def always_rescales(comm, g, c):
    return g * (c / math.sqrt(ring.allreduce(comm, np.array([np.sum(g * g)]))[0]))


def gathers_the_gradient(comm, g, c):
    n = int(ring.allreduce(comm, np.array([float(len(g))]))[0])
    length = np.linalg.norm(all_gather(comm, g, n))
    return g * (c / length) if length > c else g.copy()


# -- 6 --------------------------------------------------------------------------------------------------------------


def traffic(K, P, stage, micro_batches, keep, gathers=None, itemsize=2):
    half = (K - 1) / K * itemsize * P
    sums = micro_batches if stage >= 2 else 1
    if gathers is None:
        gathers = micro_batches * (1 if keep else 2) if stage == 3 else 1
    return half * (sums + gathers)


SOLUTIONS = {
    "A-1": buckets,
    "A-2": average,
    "A-3": least_workers,
    "A-4": sharded_step,
    "A-5": clipped_chunk,
    "A-6": traffic,
}

MUTANTS = {
    "A-1": [
        buckets_forward,
        buckets_never_over,
        buckets_forget_the_rest,
        buckets_empty_one,
        lambda nbytes, limit: [[i] for i in reversed(range(len(nbytes)))],
        lambda nbytes, limit: [list(reversed(range(len(nbytes))))] if nbytes else [],
        lambda nbytes, limit: buckets(nbytes, limit)[::-1],
    ],
    "A-2": [
        average_never_none,
        average_of_the_users,
        average_skips_its_own,
        average_keeps_its_none,
        average_of_sums,
        average_in_two,
    ],
    "A-3": [
        lambda *q: (least_workers(*q)[0], (least_workers(*q)[1] or 0) + 1),
        lambda *q: (least_workers(*q)[0], least_workers(*q)[1] or 0),
        lambda P, stage, p, g, s, c: least_workers(P, stage, p, g, s, c, cut={0: 0, 1: s, 2: g, 3: p}[stage]),
        lambda P, stage, p, g, s, c: (P * (p + g + s), math.ceil(P * (p + g + s) / c)),
        lambda P, stage, p, g, s, c: least_workers(P, stage, 2, 2, 12, c),
        lambda *q: (8 * least_workers(*q)[0], least_workers(*q)[1]),
        lambda *q: least_workers(*q)[1] or 1,
    ],
    "A-4": [
        step_of_the_sum,
        step_by_allreduce,
        step_own_gradient,
        step_never_gathers,
        step_gathers_the_update,
        step_forgets_momentum,
        step_in_place,
    ],
    "A-5": [
        clips_its_own,
        clips_by_the_sum_of_lengths,
        clips_by_the_square,
        always_rescales,
        gathers_the_gradient,
    ],
    "A-6": [
        lambda K, P, stage, m, keep: traffic(K, P, stage, 1, keep),
        lambda K, P, stage, m, keep: traffic(K, P, stage, m, False),
        lambda K, P, stage, m, keep: traffic(K, P, stage, m, keep, itemsize=4),
        lambda K, P, stage, m, keep: traffic(K, P, stage, m, keep) * K / max(K - 1, 1),
        lambda K, P, stage, m, keep: traffic(K, P, 2 if stage == 3 else stage, m, keep),
        lambda K, P, stage, m, keep: traffic(K, P, stage, m, keep) / 2,
        lambda K, P, stage, m, keep: m * traffic(K, P, stage, 1, keep),
    ],
}  # fmt: skip


def a_parameter_of_no_bytes(rng):
    """A parameter without elements is in a bucket like any other."""
    sizes, limit = [5, 0, 0, 7, 3], 7
    yield Case((sizes, limit), _buckets_judge(sizes, limit), label="hidden, with parameters of no bytes")


def more_workers_than_elements(rng):
    """Seven workers, three elements: some own nothing."""
    K, n = 7, 3
    w, u, g = rng.standard_normal(n), rng.standard_normal(n), rng.standard_normal((K, n))
    bounds = [i * n // K for i in range(K + 1)]
    args = tuple((w.copy(), g[k].copy(), u[bounds[k] : bounds[k + 1]].copy(), 0.1, 0.9) for k in range(K))
    moved = 0.9 * u + g.mean(axis=0)
    yield Case(
        args, _step_judge(w - 0.1 * moved, moved, bounds, K, n), K, "hidden, with K = 7 workers, n = 3"
    )


HIDDEN = {"A-1": a_parameter_of_no_bytes, "A-4": more_workers_than_elements}
