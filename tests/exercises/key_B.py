"""Key of problem set B: solutions, and the mistakes that students make."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from labkit.exercises import Case
from labkit.exercises.sets.sB import _computed_judge, _steps_case

# -- 1 --------------------------------------------------------------------------------------------------------------


def failures(worker_mtbf_s, K, T_s):
    M = worker_mtbf_s / K
    return M, T_s / M, math.exp(-T_s / M)


# -- 2 --------------------------------------------------------------------------------------------------------------


def interval_steps(write_s, mtbf_s, step_s):
    def lost(n):
        return write_s / (n * step_s) + n * step_s / (2 * mtbf_s)

    n = max(1, math.floor(math.sqrt(2 * write_s * mtbf_s) / step_s))
    return n if lost(n) <= lost(n + 1) else n + 1


# -- 3 --------------------------------------------------------------------------------------------------------------


def safe_goodput(interval_s, write_s, restart_s, mtbf_s):
    again = math.expm1((interval_s + write_s) / mtbf_s)  # failures on the way through an interval
    return interval_s / (mtbf_s * again + restart_s * again)


def goodput(tau, delta, R, M):
    return tau / (M * math.exp(R / M) * math.expm1((tau + delta) / M))


def young(delta, M):
    return math.sqrt(2 * delta * M)


def first_order(tau, delta, R, M):
    return 1 - delta / tau - tau / (2 * M) - R / M


def one_failure_at_most(tau, delta, R, M):
    p = -math.expm1(-(tau + delta) / M)
    return tau / (tau + delta + p * (R + (tau + delta) / 2))


# -- 4 --------------------------------------------------------------------------------------------------------------


def computed(T, every, kills):
    steps, begin = [], 0
    for end in (*kills, T):
        steps += range(begin, end)
        begin = max(begin, end // every * every)
    return steps


def computed_from_scratch(T, every, kills):
    return [t for end in (*kills, T) for t in range(end)]


def computed_without_loss(T, every, kills):
    return list(range(T))


def computed_counting_the_kill(T, every, kills):
    steps, begin = [], 0
    for end in (*[k + 1 for k in kills], T):
        steps += range(begin, end)
        begin = (end - 1) // every * every
    return steps


def computed_one_later(T, every, kills):
    steps, begin = [], 0
    for end in (*kills, T):
        steps += range(begin, end)
        begin = end // every * every + 1
    return steps


def computed_strictly_before(T, every, kills):
    steps, begin = [], 0
    for end in (*kills, T):
        steps += range(begin, end)
        begin = max(begin, max(end - 1, 0) // every * every)
    return steps


# -- 5 --------------------------------------------------------------------------------------------------------------


def save(name):
    draft = name + ".draft"
    return [("write", draft), ("sync", draft), ("rename", draft, name), ("sync_folder",)]


# -- 6 --------------------------------------------------------------------------------------------------------------


def diagnose(work, stay):
    K, T = work.shape
    last = np.bincount(work.argmax(axis=0), minlength=K)
    if K * binom.sf(last.max() - 1, T, 1 / K) <= 0.01:
        return int(last.argmax())
    return "link" if stay.min(axis=0).mean() > work.mean() else "noise"


def blames_the_most_often_last(work, stay):
    return int(np.bincount(work.argmax(axis=0)).argmax())


def blames_twice_its_share(work, stay):
    K, T = work.shape
    last = np.bincount(work.argmax(axis=0), minlength=K)
    if last.max() > 2 * T / K:
        return int(last.argmax())
    return "link" if stay.min(axis=0).mean() > work.mean() else "noise"


def blames_by_the_mean(work, stay):
    mean = work.mean(axis=1)
    if mean.max() > 1.2 * np.median(mean):
        return int(mean.argmax())
    return "link" if stay.min(axis=0).mean() > work.mean() else "noise"


def link_first(work, stay):
    return "link" if stay.min(axis=0).mean() > work.mean() else diagnose(work, stay)


def blames_who_stays_longest(work, stay):
    K, T = work.shape
    last = np.bincount(stay.argmax(axis=0), minlength=K)
    if K * binom.sf(last.max() - 1, T, 1 / K) <= 0.01:
        return int(last.argmax())
    return "link" if stay.min(axis=0).mean() > work.mean() else "noise"


def waiting_is_the_link(work, stay):
    found = diagnose(work, stay)
    return "link" if isinstance(found, str) and stay.mean() > 0.03 else found


SOLUTIONS = {
    "B-1": failures,
    "B-2": interval_steps,
    "B-3": safe_goodput,
    "B-4": computed,
    "B-5": save,
    "B-6": diagnose,
}

MUTANTS = {
    "B-1": [
        lambda m, K, T: (m, T / m, math.exp(-T / m)),
        lambda m, K, T: (m * K, T / (m * K), math.exp(-T / (m * K))),
        lambda m, K, T: (m / K, T * K / m, 1 - math.exp(-T * K / m)),
        lambda m, K, T: (m / K, T * K / m, max(0.0, 1 - T * K / m)),
        lambda m, K, T: (m / K, T * K / m, math.exp(-T / m)),
        lambda m, K, T: (m / K, round(T * K / m), math.exp(-T * K / m)),
        lambda m, K, T: m / K,
    ],
    "B-2": [
        lambda d, M, s: round(young(d, M) / s),
        lambda d, M, s: max(1, round(young(d, M) / s)),
        lambda d, M, s: max(1, math.floor(young(d, M) / s)),
        lambda d, M, s: math.ceil(young(d, M) / s),
        lambda d, M, s: young(d, M) / s,
        lambda d, M, s: max(1, round(math.sqrt(d * M) / s)),
        lambda d, M, s: max(1, round(young(d, M))),
        lambda d, M, s: 1,
    ],
    "B-3": [
        goodput,
        first_order,
        one_failure_at_most,
        lambda tau, delta, R, M: tau / ((M + R) * math.expm1(tau / M)),
        lambda tau, delta, R, M: (tau + delta) / ((M + R) * math.expm1((tau + delta) / M)),
        lambda tau, delta, R, M: tau / (M * math.expm1((tau + delta) / M) + R),
        lambda tau, delta, R, M: (M + R) * math.expm1((tau + delta) / M) / tau,
        lambda tau, delta, R, M: tau / (M * math.expm1((tau + delta + R) / M)),
        lambda tau, delta, R, M: safe_goodput(young(max(delta, 1e-3), M), delta, R, M),
    ],
    "B-4": [
        computed_from_scratch,
        computed_without_loss,
        computed_counting_the_kill,
        computed_one_later,
        computed_strictly_before,
        lambda T, every, kills: sorted(computed(T, every, kills)),
        lambda T, every, kills: len(computed(T, every, kills)),
        lambda T, every, kills: computed(T, every, kills[:1]),
    ],
    "B-5": [
        lambda name: [("write", name)],
        lambda name: [("write", name), ("sync", name), ("sync_folder",)],
        lambda name: [("write", name + "~"), ("rename", name + "~", name), ("sync_folder",)],
        lambda name: [("write", name + "~"), ("rename", name + "~", name), ("sync", name), ("sync_folder",)],
        lambda name: [("write", name + "~"), ("sync", name + "~"), ("rename", name + "~", name)],
        lambda name: [
            ("write", name + "~"),
            ("sync", name + "~"),
            ("sync_folder",),
            ("rename", name + "~", name),
        ],
        lambda name: [("remove", name), *save(name)],
        lambda name: [("rename", name, name + ".old"), *save(name)],
        lambda name: [*save(name), ("remove", name)],
        lambda name: [("sync", name + "~"), ("write", name + "~"), ("rename", name + "~", name)],
        lambda name: [("write", name, "data")],
        lambda name: ["write", "sync", "rename"],
        lambda name: [],
    ],
    "B-6": [
        blames_the_most_often_last,
        blames_twice_its_share,
        blames_by_the_mean,
        blames_who_stays_longest,
        link_first,
        waiting_is_the_link,
        lambda work, stay: "noise",
        lambda work, stay: "nobody",
    ],
}


def more_jobs(rng):
    """Long jobs with many kills."""
    for _ in range(5):
        T, every = int(rng.integers(40, 90)), int(rng.integers(1, 15))
        kills, begin = [], 0
        for _ in range(6):
            kills.append(int(rng.integers(begin, T)))
            begin = kills[-1] // every * every
        case = (T, every, tuple(kills))
        yield Case(case, _computed_judge(*case), label="hidden")


def more_intervals(rng):
    """Steps from milliseconds to minutes."""
    for step in (0.01, 0.3, 7.0, 200.0):
        yield _steps_case(float(rng.uniform(1, 90)), float(rng.uniform(500, 50000)), step, "hidden")


HIDDEN = {"B-2": more_intervals, "B-4": more_jobs}
