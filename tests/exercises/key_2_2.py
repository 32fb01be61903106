"""Instructor's key of set 2.2: solutions, plausible mistakes, hidden cases."""

from __future__ import annotations

import math

import numpy as np

from labkit.exercises import Case
from labkit.exercises.sets import s2_2
from labkit.timing import StaleSynchronous, overlap

# -- 2.2-1

AXES = {
    "all-reduce: state": "own copies",
    "all-reduce: pace": "synchronous",
    "all-reduce: hurt most by": "any hiccup",
    "parameter server: state": "one copy",
    "parameter server: pace": "asynchronous",
    "parameter server: hurt most by": "old parameters",
    "SSP: state": "one copy",
    "SSP: pace": "bounded",
    "SSP: hurt most by": "always slow",
}

# -- 2.2-2


def ssp_finish(X, slack):
    K, T = X.shape
    F, before = np.empty((K, T)), np.zeros(K)
    for t in range(T):
        if t > slack:
            before = np.maximum(before, F[:, t - 1 - slack].max())
        before = F[:, t] = before + X[:, t]
    return F


def ssp_one_step_off(X, slack):
    return ssp_finish(X, slack - 1) if slack else ssp_finish(X, 0)


def ssp_always_a_barrier(X, slack):
    return ssp_finish(X, 0)


def ssp_never_waits(X, slack):
    return np.cumsum(X, axis=1)


def ssp_waits_for_the_fastest(X, slack):
    K, T = X.shape
    F, before = np.empty((K, T)), np.zeros(K)
    for t in range(T):
        if t > slack:
            before = np.maximum(before, F[:, t - 1 - slack].min())
        before = F[:, t] = before + X[:, t]
    return F


def ssp_forgets_its_own_step(X, slack):
    K, T = X.shape
    F = np.zeros((K, T))
    for t in range(T):
        F[:, t] = X[:, t] + (F[:, t - 1 - slack].max() if t > slack else F[:, t - 1] if t else 0)
    return F


def ssp_waits_at_the_end_of_the_step(X, slack):
    K, T = X.shape
    F = np.zeros((K, T))
    for t in range(T):
        F[:, t] = X[:, t] + (F[:, t - 1] if t else 0)
        if t >= slack:
            F[:, t] = np.maximum(F[:, t], F[:, t - slack].max())
    return F


def ssp_wraps_around(X, slack):
    K, T = X.shape
    F = np.zeros((K, T))
    for t in range(T):
        F[:, t] = np.maximum(F[:, t - 1], F[:, t - 1 - slack if slack < T else t - 1].max()) + X[:, t]
    return F


def ssp_total_only(X, slack):
    return ssp_finish(X, slack).max()


# -- 2.2-3


def overlapped_step(backward_s, allreduce_s, L):
    return max(backward_s + allreduce_s / L, backward_s / L + allreduce_s)


# -- 2.2-4


def blame(arrivals):
    late = arrivals.max(axis=0) - arrivals
    last = np.bincount(arrivals.argmax(axis=0), minlength=len(arrivals))
    return int(last.argmax()), float(late.sum())


def blame_mean_lateness(arrivals):
    return int(arrivals.mean(axis=1).argmax()), blame(arrivals)[1]


def blame_the_first(arrivals):
    return int(np.bincount(arrivals.argmin(axis=0)).argmax()), blame(arrivals)[1]


def blame_last_minus_first(arrivals):
    return blame(arrivals)[0], float((arrivals.max(axis=0) - arrivals.min(axis=0)).sum())


def blame_against_the_mean(arrivals):
    return blame(arrivals)[0], float((arrivals.max(axis=0) - arrivals.mean(axis=0)).sum())


def blame_lateness_of_the_slow(arrivals):
    return blame(arrivals)[0], float((arrivals - arrivals.min(axis=0)).sum())


# -- 2.2-5


def meet(comm, work_s):
    token = np.zeros(1)
    comm.compute(seconds=work_s)
    if comm.rank > 0:
        comm.recv(token, comm.rank - 1)
    if comm.rank < comm.K - 1:
        comm.send(token, comm.rank + 1)
        comm.recv(token, comm.rank + 1)
    if comm.rank > 0:
        comm.send(token, comm.rank - 1)
    return comm.now()


def meet_at_rank_0(comm, work_s):
    token = np.zeros(1)
    comm.compute(seconds=work_s)
    if comm.rank == 0:
        for k in range(1, comm.K):
            comm.recv(token, k)
        for k in range(1, comm.K):
            comm.send(token, k)
    else:
        comm.send(token, 0)
        comm.recv(token, 0)
    return comm.now()


def meet_without_release(comm, work_s):
    token = np.zeros(1)
    comm.compute(seconds=work_s)
    if comm.rank == 0:
        for k in range(1, comm.K):
            comm.recv(token, k)
    else:
        comm.send(token, 0)
    return comm.now()


def meet_one_lap(comm, work_s):
    token = np.zeros(1)
    comm.compute(seconds=work_s)
    if comm.rank > 0:
        comm.recv(token, comm.rank - 1)
    if comm.rank < comm.K - 1:
        comm.send(token, comm.rank + 1)
    return comm.now()


def meet_neighbours(comm, work_s):
    comm.compute(seconds=work_s)
    if comm.K > 1:
        comm.sendrecv(np.zeros(1), (comm.rank + 1) % comm.K, np.zeros(1), (comm.rank - 1) % comm.K)
    return comm.now()


def meet_everybody(comm, work_s):
    comm.compute(seconds=work_s)
    for j in range(1, comm.K):
        comm.sendrecv(np.zeros(1), (comm.rank + j) % comm.K, np.zeros(1), (comm.rank - j) % comm.K)
    return comm.now()


def meet_all_send_first(comm, work_s):
    comm.compute(seconds=work_s)
    if comm.K > 1:
        comm.send(np.zeros(1), (comm.rank + 1) % comm.K)
        comm.recv(np.zeros(1), (comm.rank - 1) % comm.K)
    return comm.now()


def meet_with_the_barrier(comm, work_s):
    comm.compute(seconds=work_s)
    comm.barrier()
    return comm.now()


def meet_then_compute(comm, work_s):
    meet(comm, 0.0)
    comm.compute(seconds=work_s)
    return comm.now()


def meet_looks_at_the_clock_too_early(comm, work_s):
    comm.compute(seconds=work_s)
    left = comm.now()
    meet(comm, 0.0)
    return left


# -- 2.2-6: what a good answer says, criterion by criterion

LOOK_FOR = {
    "2.2-6": (
        "Everybody waits: the step takes the maximum over workers, so each hiccup anywhere costs all, and more workers mean "
        "more hiccups. Remedies: backup workers (waste their work), slack (old parameters), fewer meetings (drift).",
        "Nobody waits, but its gradient is computed at parameters that others have moved since, more so the slower it is; a "
        "large step can then diverge. Remedies: smaller or staleness-aware steps (slower), a bound on age (waiting).",
        "Slack forgives hiccups of up to s steps that come now to one, now to another. From a worker that stays slow the "
        "others are s steps away soon; from then on it sets the pace whatever s is, and the gradients are older as well.",
    )
}

SOLUTIONS = {
    "2.2-1": AXES,
    "2.2-2": ssp_finish,
    "2.2-3": overlapped_step,
    "2.2-4": blame,
    "2.2-5": meet,
}

MUTANTS = {
    "2.2-1": [
        AXES | {"parameter server: state": "own copies"},
        AXES | {"SSP: pace": "asynchronous"},
        AXES | {"SSP: hurt most by": "any hiccup", "all-reduce: hurt most by": "always slow"},
        AXES | {"parameter server: hurt most by": "always slow"},
        {k: v for k, v in AXES.items() if not k.startswith("SSP")},
    ],
    "2.2-2": [
        ssp_one_step_off,
        ssp_always_a_barrier,
        ssp_never_waits,
        ssp_waits_for_the_fastest,
        ssp_forgets_its_own_step,
        ssp_waits_at_the_end_of_the_step,
        ssp_wraps_around,
        ssp_total_only,
    ],
    "2.2-3": [
        lambda p, a, L: p + a / L,
        lambda p, a, L: p + a,
        lambda p, a, L: max(p, a) + a / L,
        lambda p, a, L: max(p, a),
        lambda p, a, L: max(p + a / L, a),
        lambda p, a, L: max(a / L, a - p + p / L),  # what is exposed, not the step
        lambda p, a, L: 1e3 * overlapped_step(p, a, L),
        lambda p, a, L: math.nan,
    ],
    "2.2-4": [
        blame_mean_lateness,
        blame_the_first,
        blame_last_minus_first,
        blame_against_the_mean,
        blame_lateness_of_the_slow,
        lambda arrivals: blame(arrivals.T),
        lambda arrivals: blame(arrivals)[0],
    ],
    "2.2-5": [
        meet_without_release,
        meet_one_lap,
        meet_neighbours,
        meet_everybody,
        meet_all_send_first,
        meet_with_the_barrier,
        meet_then_compute,
        meet_looks_at_the_clock_too_early,
        lambda comm, work_s: comm.compute(seconds=work_s) or comm.now(),
    ],
}


def _ssp_hidden(rng):
    for K, T, slack in [(8, 30, 2), (3, 3, 2), (1, 1, 0), (16, 40, 5)]:
        X = rng.pareto(1.5, (K, T))
        yield Case(
            (X, slack),
            s2_2._finish(StaleSynchronous(slack).timeline(X).arrivals_s),
            label=f"K = {K}, T = {T}, s = {slack}",
        )


def _overlap_hidden(rng):
    for p, a, L in [(0.1, 0.1, 7), (0.0, 0.1, 3), (0.1, 0.0, 3), (0.06, 0.2, 10)]:
        assert math.isclose(overlapped_step(p, a, L), overlap(p, a, L).total_s)
        yield Case((p, a, L), s2_2._total(p, a, L), label=f"{p} s, {a} s, L = {L}")


HIDDEN = {"2.2-2": _ssp_hidden, "2.2-3": _overlap_hidden}
