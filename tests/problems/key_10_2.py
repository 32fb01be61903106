"""Key of problem set 10.2: solutions, and the mistakes that students make."""

import json
import math

import numpy as np

from labkit.collectives import ring
from labkit_book.problems.sets.s10_2 import _step_case

# -- 1 ------------------------------------------------------------------------------------------------------


def cause(G, g, b, looks=("rewinds", "forgets", "one", "all")):
    """``looks``: what is looked at; a mutant leaves something out."""
    (R, K, _), N = g.shape, len(G)
    off, sigma2 = g - G.mean(axis=0), ((G - G.mean(axis=0)) ** 2).sum(axis=1).mean()
    if "rewinds" in looks and len(np.unique(g.reshape(R, -1), axis=0)) < R / 2:
        return "rewinds"
    averages = off.mean(axis=1)
    if "forgets" in looks and (averages.mean(axis=0) ** 2).sum() > 25 * averages.var(axis=0).sum() / R:
        return "forgets"
    laws = {  # variance of one worker and of the average, over sigma2 / b and sigma2 / (K b)
        "nothing": (1, 1),
        "repeats": (4, 4),
        "no replacement": ((N - b) / (N - 1), (N - b) / (N - 1)),
        "one deck": ((N - b) / (N - 1), (N - K * b) / (N - 1)),
        "alike": (1, K),
    }
    one = (off**2).sum(axis=2).mean() * b / sigma2
    all_ = (averages**2).sum(axis=1).mean() * K * b / sigma2

    def far(name):
        return ("one" in looks) * abs(math.log(one / laws[name][0])) + ("all" in looks) * abs(
            math.log(all_ / laws[name][1])
        )

    return min(laws, key=far)


# -- 2 ------------------------------------------------------------------------------------------------------


def ball(x, y, eta, b, **other):
    w = x @ y / (x @ x)
    h, g = 2 * x**2, 2 * (x * w - y) * x
    H, var, noise = h.mean(), h.var() / b, (g**2).mean() / b
    kept, added = (1 - eta * H) ** 2 + eta**2 * var, eta**2 * noise
    v = added / (1 - kept)
    right = {
        "kept": kept, "added": added, "settles": v, "stable": 2 * H / (H**2 + var),
        "average": v * (2 - eta * H) / (eta * H), "cured": noise / H**2,
    }  # fmt: skip
    return right | {step: f(right, eta, H, b) for step, f in other.items()}


def ball_with(**other):
    return lambda *q: ball(*q, **other)


# -- 3 ------------------------------------------------------------------------------------------------------


def grad_sum(X, y, w):
    return 2 * X.T @ (X @ w - y)


def clip(g, most):
    return g * min(1.0, most / max(np.linalg.norm(g), 1e-300))


def accumulated_step(comm, micros, w, eta, most, step=lambda g, eta, most: eta * clip(g, most)):
    total = np.zeros(len(w) + 1)
    for X, y in micros:
        total += np.append(grad_sum(X, y, w), len(y))
    total = ring.allreduce(comm, total)
    return w - step(total[:-1] / total[-1], eta, most)


def step_with(step):
    return lambda *q: accumulated_step(*q, step=step)


def step_talks_each_time(comm, micros, w, eta, most):
    total = sum(ring.allreduce(comm, np.append(grad_sum(X, y, w), len(y))) for X, y in micros)
    return w - eta * clip(total[:-1] / total[-1], most)


def step_mean_of_means(comm, micros, w, eta, most, over=len):
    mine = sum(grad_sum(X, y, w) / max(len(y), 1) for X, y in micros) / over(micros)
    return w - eta * clip(ring.allreduce(comm, mine) / comm.K, most)


def step_last_micro_only(comm, micros, w, eta, most):
    """The sum is overwritten instead of added to."""
    for X, y in micros:
        mine = np.append(grad_sum(X, y, w), len(y))
    total = ring.allreduce(comm, mine)
    return w - eta * clip(total[:-1] / max(total[-1], 1), most)


def step_clips_each(comm, micros, w, eta, most):
    total = np.zeros(len(w) + 1)
    for X, y in micros:
        total += np.append(len(y) * clip(grad_sum(X, y, w) / max(len(y), 1), most), len(y))
    total = ring.allreduce(comm, total)
    return w - eta * total[:-1] / total[-1]


def step_clips_workers(comm, micros, w, eta, most):
    n = sum(len(y) for _, y in micros)
    mine = clip(sum(grad_sum(X, y, w) for X, y in micros) / max(n, 1), most)
    total = ring.allreduce(comm, np.append(n * mine, n))
    return w - eta * total[:-1] / total[-1]


# -- 4 ------------------------------------------------------------------------------------------------------

# Taken by the notebook's cell, on a busy machine with two cores.
DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, 2026-11-22", "at": [8, 32, 64, 4096], "values": [[4.41691606454242e-05, 4.306925097630199e-05, 4.6604585937970455e-05, 4.293356982465468e-05, 4.130289745951643e-05, 4.0681833496591935e-05, 4.6018911133316465e-05, 3.645824658171648e-05, 3.7444860351953935e-05], [3.978504492607726e-05, 6.526049804733702e-05, 3.710815039426052e-05, 5.4199199219340244e-05, 5.404115429286094e-05, 5.9171962888626695e-05, 6.889572851775938e-05, 3.791212694892465e-05, 5.3511720700782917e-05], [0.00011442512891335355, 8.252286718857249e-05, 7.117769921194395e-05, 8.17399257755369e-05, 8.959891405879716e-05, 7.266839844533024e-05, 0.00022086730859882664, 5.038105858545805e-05, 6.492794922507983e-05], [0.002189277500292519, 0.0021927645002506324, 0.0020825290002903785, 0.016831063750032627, 0.0033866292505990714, 0.00333853749998525, 0.0022023989995432203, 0.0023983002502063755, 0.008989176750219485]], "span_s": 1.4103888329991605, "seal": "a2fd579e9896"}'  # noqa: E501


def fastest(**other):
    """The conclusions from DATA, some of them replaced."""
    t, B = np.array(json.loads(DATA)["values"]), np.array([8, 32, 64, 4096])
    low, *_, high = np.median(t, axis=1)
    e = (high - low) / (4096 - 8)
    o = low - 8 * e
    run = 8.7 * (1 + 39.4 / B)[:, None] * t
    first, second = np.argsort(np.median(run, axis=1))[:2]
    wins = int((run[first] < run[second]).sum())
    p = min(1.0, 2 * sum(math.comb(9, i) for i in range(max(wins, 9 - wins), 10)) / 2**9)
    right = {
        "data": DATA, "example_s": e, "overhead_s": o, "best": math.sqrt(39.4 * o / e),
        "fastest": int(B[first]), "p": p, "decided": "yes" if p < 0.05 else "no",
    }  # fmt: skip
    return right | {k: f(right) if callable(f) else f for k, f in other.items()}


SOLUTIONS = {"10.2-1": cause, "10.2-2": ball, "10.2-3": accumulated_step, "10.2-4": fastest()}

MUTANTS = {
    "10.2-1": [
        lambda *q: cause(*q, looks=("one", "all")),  # only variances, as if a mean could not be off
        lambda *q: cause(*q, looks=("rewinds", "forgets", "one")),  # each worker by itself
        lambda *q: cause(*q, looks=("rewinds", "forgets", "all")),  # their average alone
        lambda *q: cause(*q, looks=("forgets", "one", "all")),  # as if rounds could not repeat
        lambda G, g, b: "forgets",
    ],
    "10.2-2": [
        ball_with(kept=lambda r, eta, H, b: (1 - eta * H) ** 2),
        ball_with(added=lambda r, eta, H, b: r["added"] * b),
        ball_with(settles=lambda r, eta, H, b: math.sqrt(r["settles"])),
        ball_with(average=lambda r, eta, H, b: r["cured"]),  # its limit for small eta
        ball_with(stable=lambda r, eta, H, b: 2 / H),
        ball_with(average=lambda r, eta, H, b: r["settles"]),
        ball_with(average=lambda r, eta, H, b: r["settles"] / (eta * H)),
    ],
    "10.2-3": [
        step_talks_each_time,
        step_mean_of_means,
        lambda *q: step_mean_of_means(*q, over=lambda micros: 1),  # as backward() adds up means
        step_last_micro_only,
        step_clips_each,
        step_clips_workers,
        lambda comm, *q: step_with(lambda g, eta, most: eta * clip(g / comm.K, most))(comm, *q),
        step_with(lambda g, eta, most: clip(eta * g, most)),
        step_with(lambda g, eta, most: eta * clip(g / 2, most)),
        step_with(lambda g, eta, most: eta * g * (1 if np.isinf(most) else most / np.linalg.norm(g))),
    ],
    "10.2-4": [
        fastest(example_s=lambda r: r["example_s"] + r["overhead_s"] / 4096),
        fastest(best=39.4),
        fastest(best=lambda r: r["overhead_s"] / r["example_s"]),
        fastest(fastest=4096),
        fastest(p=lambda r: r["p"] / 2),
        fastest(decided=lambda r: {"yes": "no", "no": "yes"}[r["decided"]]),
    ],
}


def more_workers(rng):
    """Seven workers, three of them with nothing, and one micro-batch each."""
    counts = np.array([[4], [0], [1], [0], [7], [0], [2]])
    yield _step_case(counts, rng.standard_normal(6), 0.1, 0.3, rng, "hidden, with K = 7 workers")


HIDDEN = {"10.2-3": more_workers}
