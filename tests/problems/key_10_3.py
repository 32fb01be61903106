"""Key of problem set 10.3: solutions, and the mistakes that students make."""

from __future__ import annotations

import json
import math

import matplotlib.pyplot as plt
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
    masked = job(np.split(0.1 * np.eye(40), 4), 3) > 0
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


def too_few_rows(job):
    """One row a worker: the masks may agree by chance."""
    said = diagnose(job)
    chances = [job([np.full((1, 1), 0.1)] * 4, seed) for seed in range(40)]
    alike = any(abs(float(np.squeeze(g)) - 0.2) < 1e-9 for g in chances)
    return "same masks" if said == "nothing" and alike else said


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


def of_the_ring(K):
    return 2 * (K - 1) / K


def scaling(Ks, b, B, tau, theta, n, beta, unit=1e3, share=of_the_ring, H=harmonic, marked=True, log=True):
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
    '.0, 1.04, 1.5], "values": [[0.034338997799932255, 0.045180232300117494, 0.03520038999995449, 0.0'
    "3284212370017485, 0.026343445200109273, 0.03563641430009738, 0.025157408400264102, 0.03529424970"
    "001856, 0.025237422099962714, 0.0347394931002782, 0.04625217690008867, 0.032623916399825245], [0"
    ".03372654170016176, 0.03926953110021714, 0.03600312220005435, 0.037126640300266446, 0.0352528447"
    "0015322, 0.03146044730019639, 0.028347331999975724, 0.0284103044999938, 0.027085281900144764, 0."
    "028035252900008346, 0.03956962919983198, 0.03763102129996696], [0.034486950100108514, 0.03458233"
    "620003739, 0.043054576099893896, 0.046096917900285916, 0.04114733549977245, 0.04947880430008809,"
    " 0.03399726469979214, 0.034236582800076576, 0.0336534202000621, 0.037791351199848576, 0.04150402"
    '1199943966, 0.04882561339982203]], "span_s": 14.26151557599951, "seal": "2e17c259be50"}'
)
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


# -- 7 --------------------------------------------------------------------------------------------------------------


def replay(trace, seconds, together=True):
    """Ends of all operations, and when each could have begun, had it waited for nobody of its group: (D, T) each."""
    came, ends = [], []
    for op, took in zip(trace, seconds, strict=True):
        begin = np.zeros(took.shape)
        for j in op["after"]:
            begin = np.maximum(begin, ends[j])
        came.append(begin)
        ends.append((begin.max(axis=0) if op["together"] and together else begin) + took)
    return ends, came


def mean_step(trace, seconds, together=True):
    return np.stack(replay(trace, seconds, together)[0]).max(axis=(0, 1)).mean()


def means(trace, kind, mean=np.mean):
    """The seconds of each operation if it took the mean of all that ``kind`` calls alike."""
    return [
        np.full(op["seconds"].shape, mean([o["seconds"] for o in trace if kind(o) == kind(op)]))
        for op in trace
    ]


def by_what(op):
    return op["what"]


def by_stage(op):
    return op["what"], op["stage"]


def blame(trace, **how):
    seconds, together = [op["seconds"] for op in trace], how.get("together", True)
    ideal = means(trace, how.get("kind", by_what), how.get("mean", np.mean))
    D, S = len(seconds[0]), max(op["stage"] for op in trace) + 1
    step, best = mean_step(trace, seconds, together), mean_step(trace, ideal, together)

    def won(cured):
        mixed = [np.array(one) for one in seconds]
        for op, one, usual in zip(trace, mixed, ideal, strict=True):
            for d in range(D):
                if cured(op, d):
                    one[d] = usual[d]
        return step - mean_step(trace, mixed, together)

    whom = how.get("whom", lambda op, s, d, k: op["stage"] == s and k == d)
    wins = np.array([[won(lambda op, k, s=s, d=d: whom(op, s, d, k)) for d in range(D)] for s in range(S)])
    even = means(trace, by_stage)
    mixed = [e if op["what"] != "sum" else op["seconds"] for op, e in zip(trace, even, strict=True)]
    came = replay(trace, seconds)[1]
    last = [0] * S
    for op, when in zip(trace, came, strict=True):
        if op["together"]:
            last[op["stage"]] = int(np.bincount(when.argmax(axis=0), minlength=D).argmax())
    half, dealt = (step - best) / 2, mean_step(trace, mixed)
    cure = "worker" if wins.max() >= half else "data" if step - dealt >= half else "stage"
    return {"step": step, "ideal": best, "wins": wins, "even": dealt, "last": last, "cure": cure}


def blamed(**how):
    return lambda trace: blame(trace, **how)


def blame_but(**change):
    """The right account, but for what one function says of the trace and the account."""
    return lambda trace: (lambda right: right | {key: value(trace, right) for key, value in change.items()})(
        blame(trace)
    )


def computes_longest(trace, right):
    spent = np.zeros_like(right["wins"])
    for op in trace:
        spent[op["stage"]] += op["seconds"].sum(axis=1)
    return spent.argmax(axis=1)


def only_it_is_real(trace, right):
    wins, ideal = np.zeros_like(right["wins"]), means(trace, by_what)
    for s, d in np.ndindex(wins.shape):
        mixed = [np.array(one) for one in ideal]
        for op, one in zip(trace, mixed, strict=True):
            if op["stage"] == s:
                one[d] = op["seconds"][d]
        wins[s, d] = mean_step(trace, mixed) - right["ideal"]
    return wins


def sums_too(trace, right):
    return mean_step(trace, means(trace, by_stage))


def wins_a_third(trace, right):
    return "worker" if right["wins"].max() >= (right["step"] - right["ideal"]) / 3 else right["cure"]


def accuses_the_last(trace, right):
    """A worker is to blame wherever one rank is last in all stages."""
    return "worker" if len(set(right["last"])) == 1 else right["cure"]


SOLUTIONS = {
    "10.3-1": sync_step,
    "10.3-2": diagnose,
    "10.3-3": slowest,
    "10.3-4": scaling,
    "10.3-5": SLOW_WORKER,
    "10.3-6": audit,
    "10.3-7": blame,
}

MUTANTS = {
    "10.3-1": [
        broken,
        going(mean_of_means),
        going(clips_each),
        going(always_rescales),
        going(decays_after_clipping),
        going(decays_with_the_rows),
        in_place,
    ],
    "10.3-2": [
        without("mean of means"),
        without("fixed divisor"),
        without("lost repeats"),
        without("same masks"),
        bits,
        too_few_rows,
        confuses("padding", "mean of means"),
    ],
    "10.3-3": [
        with_step("gaps", lambda K, b, a, theta: theta / np.arange(1, K + 1)),
        with_step("step", lambda K, b, a, theta: a + theta * math.log(K)),
        with_step("step", lambda K, b, a, theta: theta * harmonic(K)),
        with_step("variance", lambda K, b, a, theta: (theta * harmonic(K)) ** 2),
        with_step("doubling", lambda K, b, a, theta: theta * math.log(2)),
        with_step("waiting", lambda K, b, a, theta: theta * (harmonic(K) - 1)),
        with_step("waiting", lambda K, b, a, theta: K * (a + theta * (harmonic(K) - 1))),
        with_step("backup", lambda K, b, a, theta: a + theta * harmonic(K - b)),
    ],
    "10.3-4": [
        drawn_with(unit=1.0),
        drawn_with(share=lambda K: 2.0),
        drawn_with(share=lambda K: 2 * (K - 1)),
        drawn_with(share=lambda K: (K - 1) / K),
        drawn_with(H=lambda K: 1.0),
        drawn_with(H=math.log),
        drawn_with(marked=False),
        drawn_with(log=False),
    ],
    "10.3-5": [
        SLOW_WORKER | {"predicted_ms": [20.8, 30.0]},
        SLOW_WORKER | {"cost_ms": [interval(at, s) for at, s in APART.items()]},
        SLOW_WORKER | {"cost_ms": [interval(at, s, 2 * math.sqrt(R)) for at, s in PAIRED.items()]},
        SLOW_WORKER | {"cost_ms": [interval(at, s, 1.0) for at, s in PAIRED.items()]},
        SLOW_WORKER | {"decided": [not x for x in SLOW_WORKER["decided"]]},
        SLOW_WORKER | {"repeats": math.ceil(SLOW_WORKER["repeats"] ** 0.5)},
    ],
    "10.3-6": [
        lambda *q: audit(*q, slowest=lambda job: (job["load"] + job["compute"]).mean()),
        lambda *q: audit(*q, slowest=lambda job: job["load"].max() + job["compute"].max()),
        with_answer(
            "clock alone",
            lambda before, now, n, T: minutes(before, n, T) * (now["compute"] / before["compute"]).max(),
        ),
        with_answer("clock alone", lambda *q: audit(*q)["clock mended"]),
        with_answer("clock mended", takes_off("clock")),
        with_answer("loader mended", takes_off("loader")),
        with_answer(
            "network alone",
            lambda before, now, n, T: minutes(before | {"beta": math.inf}, n, T) + T / 60 * n / now["beta"],
        ),
    ],
    "10.3-7": [
        blamed(together=False),
        blamed(kind=by_stage),
        blamed(mean=np.median),
        blamed(whom=lambda op, s, d, k: k == d),
        blame_but(wins=only_it_is_real),
        blame_but(wins=lambda trace, right: right["wins"] / (right["step"] - right["ideal"])),
        blame_but(last=computes_longest),
        blame_but(cure=accuses_the_last),
        blame_but(cure=wins_a_third),
        blame_but(even=sums_too),
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
