"""Key of problem set 10.3: solutions, and the mistakes that students make."""

from __future__ import annotations

import json
import math

import matplotlib.pyplot as plt
import numpy as np

from labkit.collectives import ring
from labkit.exercises.sets import s10_3

# -- 1 --------------------------------------------------------------------------------------------------------------


def grad_sum(X, y, w):
    return 2 * X.T @ (X @ w - y)


def clip(g, c):
    return g * min(1.0, c / np.linalg.norm(g))


def sync_step(comm, batches, w, eta, decay, c):
    for X, y in batches:
        total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
        w = w - eta * clip(total[:-1] / total[-1] + decay * w, c)
    return w


def broken(comm, batches, w, eta, decay, c):
    """The program of the text."""
    for X, y in batches:
        g = 2 * X.T @ (X @ w - y) / max(len(y), 1) + decay * w
        g = g * c / np.linalg.norm(g)
        w = w - eta * ring.allreduce(comm, g) / comm.K
    return w


def mean_of_means(comm, batches, w, eta, decay, c):
    for X, y in batches:
        g = grad_sum(X, y, w) / max(len(y), 1)
        some = ring.allreduce(comm, np.append(g, float(len(y) > 0)))
        w = w - eta * clip(some[:-1] / some[-1] + decay * w, c)
    return w


def clips_each(comm, batches, w, eta, decay, c):
    for X, y in batches:
        g = clip(grad_sum(X, y, w) / max(len(y), 1) + decay * w, c)
        total = ring.allreduce(comm, np.append(g * len(y), len(y)))
        w = w - eta * total[:-1] / total[-1]
    return w


def always_rescales(comm, batches, w, eta, decay, c):
    for X, y in batches:
        total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
        g = total[:-1] / total[-1] + decay * w
        w = w - eta * g * c / np.linalg.norm(g)
    return w


def decays_after_clipping(comm, batches, w, eta, decay, c):
    for X, y in batches:
        total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
        w = w - eta * (clip(total[:-1] / total[-1], c) + decay * w)
    return w


def decays_on_every_worker(comm, batches, w, eta, decay, c):
    for X, y in batches:
        n = ring.allreduce(comm, np.full(1, float(len(y))))[0]
        w = w - eta * clip(ring.allreduce(comm, grad_sum(X, y, w) / n + decay * w), c)
    return w


def in_place(comm, batches, w, eta, decay, c):
    for X, y in batches:
        total = ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y)))
        w -= eta * clip(total[:-1] / total[-1] + decay * w, c)
    return w


# -- 2 --------------------------------------------------------------------------------------------------------------

ONES = [np.full((8, 2), 0.1)] * 4


def short(rng, sizes, d=3):
    return [0.01 * rng.standard_normal((b, d)) for b in sizes]


def is_off(job, rows):
    """Whether the job steps along something else than the mean of these rows, clipped to length 1."""
    g = np.concatenate(rows).mean(axis=0)
    return not np.allclose(job(rows), g * min(1.0, 1 / np.linalg.norm(g)), rtol=1e-9, atol=1e-12)


def experiments(job):
    """Fault -> whether its own experiment finds something, in an order in which the first that does is the fault."""
    rng = np.random.default_rng(0)
    full, uneven = [8, 8, 8, 8], [2, 14, 10, 6]
    twice = short(rng, full)
    twice[1][0] = twice[0][0]
    long = [1000 * part for part in short(rng, full)]
    masked = job(np.split(0.1 * np.eye(40), 4), seed=3) > 0
    alike = (masked.reshape(4, 10) == masked[:10]).all()
    constant = [np.full((b, 1), 0.1 * k) for k, b in enumerate(uneven)]
    equal = sum(0.1 * k for k in range(4)) / 4
    return {
        "same masks": alike,
        "lost repeats": is_off(job, twice),
        "clipped alone": is_off(job, long),
        "fixed divisor": is_off(job, short(rng, [4, 4, 4, 4])),
        "mean of means": is_off(job, short(rng, uneven)) and is_off(job, short(rng, [2, 4, 2, 4]))
        and abs(float(np.squeeze(job(constant))) - equal) < 1e-9 and not padded(job),
        "padding": is_off(job, short(rng, uneven)),
    }  # fmt: skip


def padded(job):
    """Whether a row of a short shard counts more than another row of it."""
    rows = [np.zeros((b, 1)) for b in (2, 3, 3, 3)]
    first, last = [[part.copy() for part in rows] for _ in range(2)]
    first[0][0], last[0][1] = 0.1, 0.1
    return not np.allclose(job(first), job(last), rtol=1e-9)


def diagnose(job):
    return next((fault for fault, found in experiments(job).items() if found), "nothing")


def without(fault):
    """A diagnosis that lacks one experiment."""

    def answer(job):
        return next((f for f, found in experiments(job).items() if found and f != fault), "nothing")

    return answer


def bits(job):
    """Takes rounding for a fault."""
    rows = short(np.random.default_rng(1), [8] * 4)
    said = diagnose(job)
    exact = np.array_equal(job(rows), np.concatenate(rows).mean(axis=0))
    return "lost repeats" if said == "nothing" and not exact else said


def confuses(one, other):
    return lambda job: other if diagnose(job) == one else diagnose(job)


# -- 3 --------------------------------------------------------------------------------------------------------------


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


# -- 4 --------------------------------------------------------------------------------------------------------------


def scaling(
    Ks,
    b,
    B,
    tau,
    theta,
    n,
    beta,
    unit=1e3,
    share=lambda K: 2 * (K - 1) / K,
    H=harmonic,
    marked=True,
    log=True,
):
    Ks = np.array(Ks)
    rest = theta * np.array([H(k) for k in Ks]) + share(Ks) * n / beta
    weak, strong = unit * (tau * b + rest), unit * (tau * B / Ks + rest)
    fig, ax = plt.subplots()
    ax.plot(Ks, weak, "o-", label=f"{b} rows on each worker")
    ax.plot(Ks, strong, "s-", label=f"{B} rows divided among all")
    ax.plot(Ks, unit * share(Ks) * n / beta * np.ones(len(Ks)), "--", label="all-reduce")
    if marked:
        ax.plot(Ks[[strong.argmin()]], strong[[strong.argmin()]], "k*", ms=14)
    ax.set(xlabel="workers K", ylabel="step (ms)", xscale="log" if log else "linear")
    ax.legend()
    plt.close(fig)
    return fig


def drawn_with(**change):
    return lambda *args: scaling(*args, **change)


# -- 5: measured on the machine of the project ----------------------------------------------------------------------

DATA = (
    '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": [1'
    '.0, 1.04, 1.5], "values": [[0.03205905909999274, 0.025425795599949196, 0.02843243169991183, 0.02'
    "9016894600135856, 0.029558611000175004, 0.023223225900073884, 0.028187527200134354, 0.0314497196"
    "00277606, 0.02370375040009094, 0.028006179400108522, 0.023926091499743053, 0.029821751100098482]"
    ", [0.025370656499944744, 0.025539726299757603, 0.027728732700052206, 0.030312740599765676, 0.031"
    "29145469974901, 0.028571140300118713, 0.026400405999811482, 0.03521026560010796, 0.0196833608999"
    "44092, 0.02242147920005664, 0.025466363500163423, 0.03092870690015843], [0.018801013399934164, 0"
    ".030230199700235973, 0.026790457999959473, 0.03433950250000635, 0.029844207699716206, 0.03175107"
    "3300256394, 0.028229348699824186, 0.029621826199945644, 0.02379483810000238, 0.02801073949995043"
    ', 0.032875195299857295, 0.028978125499997988]], "span_s": 11.17434093400152, "seal": "7cb7424006'
    '21"}'
)
BODY = json.loads(DATA)
MS = {at: 1e3 * np.array(v) for at, v in zip(BODY["at"], BODY["values"], strict=True)}


def interval(at, squares):
    cost, half = MS[at].mean() - MS[1.0].mean(), 2 * math.sqrt(sum(squares) / len(MS[at]))
    return [cost - half, cost + half]


S2 = {at: v.var(ddof=1) for at, v in MS.items()}
COST = {
    "data": DATA,
    "predicted_ms": [0.36, 4.5],
    "cost_ms": [interval(at, (S2[1.0], S2[at])) for at in (1.04, 1.5)],
    "decided": [interval(at, (S2[1.0], S2[at]))[0] > 0 for at in (1.04, 1.5)],
    "repeats": max(2, math.ceil((2 / 0.36) ** 2 * (S2[1.0] + S2[1.04]))),
}

# -- 6 --------------------------------------------------------------------------------------------------------------


def minutes(job, n, steps, slowest=lambda job: (job["load"] + job["compute"]).max()):
    K = len(job["load"])
    return steps / 60 * (slowest(job) + 2 * (K - 1) / K * n / job["beta"])


PARTS = {"clock": "compute", "loader": "load", "network": "beta"}


def audit(before, now, n_bytes, steps, **how):
    alone = {f"{c} alone": minutes(before | {p: now[p]}, n_bytes, steps, **how) for c, p in PARTS.items()}
    return alone | {
        f"{c} mended": minutes(now | {p: before[p]}, n_bytes, steps, **how) for c, p in PARTS.items()
    }


def with_answer(key, value):
    """The audit with one wrong number."""
    return lambda before, now, n, T: audit(before, now, n, T) | {key: value(before, now, n, T)}


def takes_off(cause):
    """What the cause puts on alone, taken off what there is now."""

    def value(before, now, n, T):
        return minutes(now, n, T) - audit(before, now, n, T)[f"{cause} alone"] + minutes(before, n, T)

    return value


SOLUTIONS = {
    "10.3-1": sync_step,
    "10.3-2": diagnose,
    "10.3-3": slowest,
    "10.3-4": scaling,
    "10.3-5": COST,
    "10.3-6": audit,
}

MUTANTS = {
    "10.3-1": [
        broken,
        mean_of_means,
        clips_each,
        always_rescales,
        decays_after_clipping,
        decays_on_every_worker,
        in_place,
    ],
    "10.3-2": [
        without("mean of means"),
        without("fixed divisor"),
        without("lost repeats"),
        without("same masks"),
        bits,
        confuses("padding", "mean of means"),
    ],
    "10.3-3": [
        with_step("gaps", lambda K, b, a, theta: theta / np.arange(1, K + 1)),
        with_step("step", lambda K, b, a, theta: a + theta * math.log(K)),
        with_step("variance", lambda K, b, a, theta: (theta * harmonic(K)) ** 2),
        with_step("doubling", lambda K, b, a, theta: theta * math.log(2)),
        with_step("waiting", lambda K, b, a, theta: theta * (harmonic(K) - 1)),
        with_step("backup", lambda K, b, a, theta: a + theta * harmonic(K - b)),
    ],
    "10.3-4": [
        drawn_with(unit=1.0),
        drawn_with(share=lambda K: 2.0),
        drawn_with(share=lambda K: 2 * (K - 1)),
        drawn_with(H=lambda K: 1.0),
        drawn_with(marked=False),
        drawn_with(log=False),
    ],
    "10.3-5": [
        COST | {"predicted_ms": [9.36, 13.5]},
        COST | {"predicted_ms": [0.09, 1.125]},
        COST | {"cost_ms": [interval(at, (S2[at],)) for at in (1.04, 1.5)]},
        COST | {"cost_ms": [interval(at, (12 * S2[1.0], 12 * S2[at])) for at in (1.04, 1.5)]},
        COST | {"decided": [not x for x in COST["decided"]]},
        COST | {"repeats": math.ceil(COST["repeats"] ** 0.5)},
    ],
    "10.3-6": [
        lambda *q: audit(*q, slowest=lambda job: (job["load"] + job["compute"]).mean()),
        lambda *q: audit(*q, slowest=lambda job: job["load"].max() + job["compute"].max()),
        with_answer(
            "clock alone",
            lambda before, now, n, T: minutes(before, n, T) * (now["compute"] / before["compute"]).max(),
        ),
        with_answer("clock mended", takes_off("clock")),
        with_answer("loader mended", takes_off("loader")),
        with_answer(
            "network alone",
            lambda before, now, n, T: minutes(before | {"beta": math.inf}, n, T) + T / 60 * n / now["beta"],
        ),
    ],
}


def more_workers(rng):
    """Seven workers, and one row in all; two workers, one of them idle."""
    for K, sizes in ((7, np.eye(7, dtype=int)[3]), (2, np.array([3, 0]))):
        X, y = rng.standard_normal((sizes.sum(), 9)), rng.standard_normal(sizes.sum())
        cut = np.cumsum(sizes)[:-1]
        step = list(zip(np.split(X, cut), np.split(y, cut), strict=True))
        w = rng.standard_normal(9)
        yield s10_3._loop_case([step, step], w, (0.1, 0.3, 1.0), f"hidden, K = {K}")


def other_boxes(rng):
    for fault in ("nothing", "padding", "mean of means"):
        yield s10_3._box_case(fault, int(rng.integers(2**31)), "a hidden box")


HIDDEN = {"10.3-1": more_workers, "10.3-2": other_boxes}
