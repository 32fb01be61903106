"""Key of problem set 10.3: solutions, and the mistakes that students make."""

import json
import math

import numpy as np

from labkit.collectives import ring
from labkit_book.problems.sets import s10_3

# -- 1 --------------------------------------------------------------------------------------------------------------


def grad_sum(X, y, w):
    return 2 * X.T @ (X @ w - y)


def clip(g, c):
    return g * min(1.0, c / np.linalg.norm(g))


def mean(comm, vectors, n):
    """Of the n vectors of each worker, whose sum it brings."""
    total = ring.allreduce(comm, np.append(vectors, n))
    return total[:-1] / total[-1]


def sync_step(comm, batches, w, eta, decay, c):
    for X, y in batches:
        w = w - eta * clip(mean(comm, grad_sum(X, y, w), len(y)) + decay * w, c)
    return w


def broken(comm, batches, w, eta, decay, c):
    """The program of the text."""
    for X, y in batches:
        g = 2 * X.T @ (X @ w - y) / max(len(y), 1) + decay * w
        g = g * c / np.linalg.norm(g)
        w = w - eta * ring.allreduce(comm, g) / comm.K
    return w


def going(step):
    """The loop that goes eta times step(comm, X, y, w, decay, c) downhill."""

    def loop(comm, batches, w, eta, decay, c):
        for X, y in batches:
            w = w - eta * step(comm, X, y, w, decay, c)
        return w

    return loop


def mean_of_means(comm, X, y, w, decay, c):
    return clip(mean(comm, grad_sum(X, y, w) / max(len(y), 1), len(y) > 0) + decay * w, c)


def clips_each(comm, X, y, w, decay, c):
    return mean(comm, len(y) * clip(grad_sum(X, y, w) / max(len(y), 1) + decay * w, c), len(y))


def always_rescales(comm, X, y, w, decay, c):
    g = mean(comm, grad_sum(X, y, w), len(y)) + decay * w
    return g * c / np.linalg.norm(g)


def decays_after_clipping(comm, X, y, w, decay, c):
    return clip(mean(comm, grad_sum(X, y, w), len(y)), c) + decay * w


def decays_with_the_rows(comm, X, y, w, decay, c):
    return clip(mean(comm, grad_sum(X, y, w) + decay * w, len(y)), c)


def in_place(comm, batches, w, eta, decay, c):
    for X, y in batches:
        w -= eta * clip(mean(comm, grad_sum(X, y, w), len(y)) + decay * w, c)
    return w


# -- 2 --------------------------------------------------------------------------------------------------------------


def slowest(K, spare, least_s, mean_s):
    j = np.arange(K, 0, -1)
    H = math.fsum(1 / j)
    return {
        "gaps": mean_s / j,
        "step": least_s + mean_s * H,
        "variance": math.fsum((mean_s / j) ** 2),
        "doubling": mean_s * math.fsum(1 / np.arange(K + 1, 2 * K + 1)),
        "waiting": K * mean_s * (H - 1),
        "backup": least_s + math.fsum((mean_s / j)[: K - spare]),
    }


def with_step(step, value):
    """The derivation with one wrong step."""
    return lambda K, b, a, theta: slowest(K, b, a, theta) | {step: value(K, b, a, theta)}


def harmonic(K):
    return math.fsum(1 / j for j in range(1, K + 1))


# -- 3 --------------------------------------------------------------------------------------------------------------


def scaling(Ks, b, B, tau, theta, n, beta, share=lambda K: 2 * (K - 1) / K, H=harmonic):
    Ks = np.array(Ks)
    ring, late = 1e3 * share(Ks) * n / beta * np.ones(len(Ks)), 1e3 * theta * np.array([H(k) for k in Ks])
    divided = 1e3 * tau * B / Ks + late + ring
    grown = 1e3 * tau * b + late + ring
    larger = next((int(K) for K, r, step in zip(Ks, ring, divided, strict=True) if r > step / 2), 0)
    best = int(Ks[divided.argmin()])
    return {"ring": ring, "grown": grown, "divided": divided, "best": best, "larger": larger}


def scaling_but(**change):
    return lambda *args: scaling(*args, **change)


# -- 4: measured on the machine of the project ----------------------------------------------------------------------

DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": [1.0, 1.04, 1.5], "values": [[0.034338997799932255, 0.045180232300117494, 0.03520038999995449, 0.03284212370017485, 0.026343445200109273, 0.03563641430009738, 0.025157408400264102, 0.03529424970001856, 0.025237422099962714, 0.0347394931002782, 0.04625217690008867, 0.032623916399825245], [0.03372654170016176, 0.03926953110021714, 0.03600312220005435, 0.037126640300266446, 0.03525284470015322, 0.03146044730019639, 0.028347331999975724, 0.0284103044999938, 0.027085281900144764, 0.028035252900008346, 0.03956962919983198, 0.03763102129996696], [0.034486950100108514, 0.03458233620003739, 0.043054576099893896, 0.046096917900285916, 0.04114733549977245, 0.04947880430008809, 0.03399726469979214, 0.034236582800076576, 0.0336534202000621, 0.037791351199848576, 0.041504021199943966, 0.04882561339982203]], "span_s": 14.26151557599951, "seal": "2e17c259be50"}'  # noqa: E501
BODY = json.loads(DATA)
MS = {at: 1e3 * np.array(v) for at, v in zip(BODY["at"], BODY["values"], strict=True)}
R = len(MS[1.0])


def interval(at, s, errors=2.0):
    cost, half = (MS[at] - MS[1.0]).mean(), errors * s / math.sqrt(R)
    return [cost - half, cost + half]


PAIRED = {at: (MS[at] - MS[1.0]).std(ddof=1) for at in (1.04, 1.5)}
APART = {at: math.sqrt(MS[at].var(ddof=1) + MS[1.0].var(ddof=1)) for at in (1.04, 1.5)}
SLOW_WORKER = {
    "data": DATA,
    "predicted_ms": [0.8, 10.0],
    "cost_ms": [interval(at, s) for at, s in PAIRED.items()],
    "decided": [interval(at, s)[0] > 0 for at, s in PAIRED.items()],
    "lies": ["inside", "inside"],
    "repeats": max(2, math.ceil((2 / 0.8 * PAIRED[1.04]) ** 2)),
}

SOLUTIONS = {"10.3-1": sync_step, "10.3-2": slowest, "10.3-3": scaling, "10.3-4": SLOW_WORKER}

MUTANTS = {
    "10.3-1": [
        broken, going(mean_of_means), going(clips_each), going(always_rescales), going(decays_after_clipping),
        going(decays_with_the_rows), in_place,
    ],
    "10.3-2": [
        with_step("gaps", lambda K, b, a, theta: theta / np.arange(1, K + 1)),
        with_step("step", lambda K, b, a, theta: a + theta * math.log(K)),
        with_step("step", lambda K, b, a, theta: theta * harmonic(K)),
        with_step("variance", lambda K, b, a, theta: (theta * harmonic(K)) ** 2),
        with_step("doubling", lambda K, b, a, theta: theta * math.log(2)),
        with_step("waiting", lambda K, b, a, theta: theta * (harmonic(K) - 1)),
        with_step("waiting", lambda K, b, a, theta: K * (a + theta * (harmonic(K) - 1))),
        with_step("backup", lambda K, b, a, theta: a + theta * harmonic(K - b)),
    ],
    "10.3-3": [
        lambda *args: {key: x / 1e3 for key, x in scaling(*args).items()},
        scaling_but(share=lambda K: 2.0),
        scaling_but(share=lambda K: 2 * (K - 1)),
        scaling_but(share=lambda K: (K - 1) / K),
        scaling_but(H=lambda K: 1.0),
        scaling_but(H=math.log),
        lambda *args: scaling(*args) | {"best": args[0][-1]},
    ],
    "10.3-4": [
        SLOW_WORKER | {"predicted_ms": [20.8, 30.0]},
        SLOW_WORKER | {"cost_ms": [interval(at, s) for at, s in APART.items()]},
        SLOW_WORKER | {"cost_ms": [interval(at, s, 2 * math.sqrt(R)) for at, s in PAIRED.items()]},
        SLOW_WORKER | {"cost_ms": [interval(at, s, 1.0) for at, s in PAIRED.items()]},
        SLOW_WORKER | {"decided": [not x for x in SLOW_WORKER["decided"]]},
        SLOW_WORKER | {"repeats": math.ceil(SLOW_WORKER["repeats"] ** 0.5)},
    ],
}  # fmt: skip


def more_workers(rng):
    """Seven workers, and one row in all; two workers, one of them idle."""
    for K, sizes in ((7, np.eye(7, dtype=int)[3]), (2, np.array([3, 0]))):
        X, y = rng.standard_normal((sizes.sum(), 9)), rng.standard_normal(sizes.sum())
        cut = np.cumsum(sizes)[:-1]
        step = list(zip(np.split(X, cut), np.split(y, cut), strict=True))
        w = rng.standard_normal(9)
        yield s10_3._loop_case([step, step], w, (0.1, 0.3, 1.0), f"hidden, K = {K}")


HIDDEN = {"10.3-1": more_workers}
