"""Key of problem set 10.6: solutions, and the mistakes that students make."""

import json

import numpy as np

from labkit import evidence
from labkit_book.problems import Case
from labkit_book.problems.sets.s10_6 import _schedules_judge

# -- 1 ----------------------------------------------------------------------------------------------------------------


def two_ages(a, eta, L):
    x = eta * L
    largest = min(1 / (1 - a), 2 / (2 * a - 1)) if a > 1 / 2 else 1 / (1 - a)
    cosine = (1 - a * largest) / 2  # e^(i theta) + e^(-i theta) = 1 - a eta L
    return {
        "polynomial": [1, a * x - 1, (1 - a) * x],
        "at_minus_one": 1 - (a * x - 1) + (1 - a) * x,
        "product": (1 - a) * x,
        "largest": largest / L,
        "swing": 2 * np.pi / np.arccos(cosine) if a < 3 / 4 else 2,
        "share": 3 / 4,
    }


def derived(step, how):
    return lambda a, eta, L: two_ages(a, eta, L) | {step: how(a, eta, L)}


# -- 2 ----------------------------------------------------------------------------------------------------------------


def rounds(tau, U):
    u = np.arange(U)
    return u - u % (tau + 1)


def shuffled(tau, U, seed=0):
    K, rng = tau + 1, np.random.default_rng(seed)
    ages = [np.arange(K)] + [rng.permutation(K) for _ in range(U // K - 1)]
    return np.arange(U) - np.concatenate(ages)


def two_schedules(tau, eta_L, U):
    return shuffled(tau, U).tolist(), rounds(tau, U).tolist()


def the_oldest_always(tau, eta_L, U):
    return shuffled(tau, U), np.maximum(np.arange(U) - tau, 0)


def other_ages(tau, eta_L, U):
    """The same mean and maximum: half the ages 0 and half tau."""
    few = np.where(np.arange(U) % 2 == 0, 0, tau)
    few[: tau + 1] = np.arange(tau + 1)
    short = int(rounds_sum(tau, U) - few.sum())
    for u in range(tau + 1, U):
        add = int(np.clip(short, -few[u], tau - few[u]))
        few[u], short = few[u] + add, short - add
    return np.arange(U) - few, rounds(tau, U)


def rounds_sum(tau, U):
    return (np.arange(U) - rounds(tau, U)).sum()


# -- 3 ----------------------------------------------------------------------------------------------------------------


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


def as_given(grad, w0, eta, read, aware):
    """The notebook's program, on a copy of w0: every version is the same array."""
    w = w0.copy()
    path = [w]
    for version in read:
        staleness = len(path) - version
        step = eta / staleness if aware else eta
        w -= step * grad(path[version], len(path) - 1)
        path.append(w)
    return np.array(path)


# -- 4 ----------------------------------------------------------------------------------------------------------------

LINE = """{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["barrier", "backup", "none"], "values": [[0.1701914819968806, 0.3172511859993392, 0.14657405899924925, 0.20148996200077818, 0.17350022299797274], [0.1391335180014721, 0.1980299799979548, 0.08497709200310055, 0.11921589600024163, 0.09972638500039466], [0.09472849599842448, 0.0983852739991562, 0.08043056099995738, 0.16572590899886563, 0.07391290300074616]], "span_s": 10.27546939199965, "seal": "e06f56d586c3"}"""  # noqa: E501
BARRIER, BACKUP, NONE = np.array(json.loads(LINE)["values"])


def concluded(**other):
    pairs = [evidence.median(BARRIER / BACKUP), evidence.median(BACKUP / NONE)]
    return {
        "data": LINE,
        "ratios": [p.center for p in pairs],
        "intervals": [(p.low, p.high) for p in pairs],
        "sooner": [int(p.low > 1) - int(p.high < 1) for p in pairs],
        "even": 3 / float(np.median(BARRIER / NONE)),
    } | other


def loose(x, y):
    return x.min() / y.max(), x.max() / y.min()


SOLUTIONS = {"10.6-1": two_ages, "10.6-2": two_schedules, "10.6-3": stale_sgd, "10.6-4": concluded()}

MUTANTS = {
    "10.6-1": [
        derived("polynomial", lambda a, eta, L: [1, (1 - a) * eta * L - 1, a * eta * L]),
        derived("polynomial", lambda a, eta, L: [1, 1 - a * eta * L, (a - 1) * eta * L]),
        derived("largest", lambda a, eta, L: 1 / (1 - a) / L),
        derived("largest", lambda a, eta, L: (1 + a) / L),
        derived("largest", lambda a, eta, L: 2 / L),
        derived("swing", lambda a, eta, L: 6),
        derived("share", lambda a, eta, L: 1 / 2),
    ],
    "10.6-2": [
        lambda tau, eta_L, U: two_schedules(tau, eta_L, U)[::-1],
        lambda tau, eta_L, U: (rounds(tau, U), rounds(tau, U)),
        lambda tau, eta_L, U: (shuffled(tau, U), shuffled(tau, U, seed=1)),
        lambda tau, eta_L, U: (np.arange(U), rounds(tau, U)),
        the_oldest_always,
        other_ages,
    ],
    "10.6-3": [
        as_given, sgd_with(base=lambda u, v: v), sgd_with(at=lambda u, v: u),
        sgd_with(divide=lambda tau: tau + 1), sgd_with(when=lambda aware: True),
        sgd_with(when=lambda aware: False),
    ],
    "10.6-4": [
        concluded(ratios=[1 / x for x in concluded()["ratios"]]),
        concluded(ratios=[np.median(BARRIER) / np.median(BACKUP), np.median(BACKUP) / np.median(NONE)]),
        concluded(intervals=[loose(BARRIER, BACKUP), loose(BACKUP, NONE)]),
        concluded(sooner=[0, 0]),
        concluded(sooner=[1, 1]),
        concluded(even=3 * float(np.median(BARRIER / NONE))),
        concluded(even=3 * float(np.median(NONE) / np.median(BARRIER))),
    ],
}  # fmt: skip


def a_long_round(rng):
    yield Case((31, 0.07, 1920), _schedules_judge(31, 0.07, 1920), label="hidden, tau = 31")


HIDDEN = {"10.6-2": a_long_round}
