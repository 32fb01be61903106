"""Instructor's key of set 2.2: solutions, plausible mistakes, hidden cases."""

import json
import math

import numpy as np

from labkit_book.problems.sets import s2_2

# -- 2.2-1: what a good answer says, criterion by criterion

LOOK_FOR = {
    "2.2-1": (
        "A call that blocks waits for its own partner; a group is synchronous if nobody begins a step before all have "
        "ended the last. Whoever waits for a left neighbour only can be a step ahead of the one two seats away, and so on.",
        "Everybody waits: the step takes the maximum over workers, so each hiccup anywhere costs all, and more workers mean "
        "more hiccups. Remedies: backup workers (waste their work), slack (old parameters), fewer meetings (drift).",
        "Nobody waits, but its gradient is computed at parameters that others have moved since, more so the slower it is; a "
        "large step can then diverge. Remedies: smaller or staleness-aware steps (slower), a bound on age (waiting).",
        "Slack forgives hiccups of up to s steps that come now to one, now to another. From a worker that stays slow the "
        "others are s steps away soon; from then on it sets the pace whatever s is, and the gradients are older as well.",
    )
}

# -- 2.2-2


def worker_that_waits(comm, work_s, ready, goodbye=True):
    """ready: whether step t may start, from what each other one has finished."""
    finished = {k: 0.0 for k in range(comm.K) if k != comm.rank}
    sent, done, news = [], [], np.empty(1)

    def hear():
        source = comm.recv_any(news)
        finished[source] = float(news[0])

    for t, seconds in enumerate(work_s):
        while not ready(finished, t):
            hear()
        comm.compute(seconds=seconds)
        done.append(comm.now())
        last = goodbye and t + 1 == len(work_s)
        sent += [comm.isend(np.full(1, math.inf if last else t + 1.0), k) for k in finished]
    while goodbye and any(n < math.inf for n in finished.values()):
        hear()
    for request in sent if goodbye else ():
        request.wait()
    return done


def waiting(ready, **other):
    """ready: whether step t may start under a slack s, from the steps n that the others have finished."""
    return lambda comm, work_s, slack: worker_that_waits(
        comm, work_s, lambda finished, t: not finished or ready(finished.values(), t, slack), **other
    )


def near(n, t, s):
    return min(n) >= t - s


def leaky(comm, work_s, slack):
    """The program of the text."""
    others = [k for k in range(comm.K) if k != comm.rank]
    heard, done, sent = 0, [], []
    for t, seconds in enumerate(work_s):
        while heard < len(others) * (t - slack):
            comm.recv_any(np.empty(1))
            heard += 1
        comm.compute(seconds=seconds)
        done.append(comm.now())
        sent += [comm.isend(np.full(1, t + 1.0), k) for k in others]
    return done


def never_waits(comm, work_s, slack):
    return np.cumsum(work_s).tolist()


# -- 2.2-3


def overlapped_step(backward_s, allreduce_s, L, m, hiccup_s):
    l = np.arange(1, L + 1)  # noqa: E741
    ready = l * backward_s / L + hiccup_s * (l > m)
    beyond = max(allreduce_s - backward_s, 0.0)
    forgiven = m * beyond / L
    return {
        "chains": ready + (L - l + 1) * allreduce_s / L,
        "beyond": beyond,
        "rest": min(allreduce_s, backward_s) / L,
        "forgiven": forgiven,
        "late": max(hiccup_s - forgiven, 0.0),
    }


def with_step(step, value):
    """The derivation with one wrong step."""

    def answer(p, a, L, m, h):
        return overlapped_step(p, a, L, m, h) | {step: value(p, a, np.arange(1, L + 1), L, m, h)}

    return answer


# -- 2.2-4


def blame(arrivals):
    K, S = arrivals.shape
    last = arrivals.argmax(axis=0)
    times = np.bincount(last, minlength=K)
    rank = int(times.argmax())
    p = math.fsum(math.comb(S, n) / K**n * (1 - 1 / K) ** (S - n) for n in range(times[rank], S + 1))
    second, first = np.sort(arrivals, axis=0)[-2:]
    return {"rank": rank, "chance": min(1.0, K * p), "saved_s": float((first - second)[last == rank].sum())}


def with_answer(key, value):
    def answer(arrivals):
        return blame(arrivals) | {key: value(arrivals, blame(arrivals))}

    return answer


def binomial(S, K, n):
    return math.comb(S, n) / K**n * (1 - 1 / K) ** (S - n)


def times_last(arrivals, rank):
    return int((arrivals.argmax(axis=0) == rank).sum())


# -- 2.2-5: measured on the machine of the project

DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["empty", "uneven", "even"], "values": [[0.026783809000335168, 0.04329965400029323, 0.03268073000072036, 0.02102519899926847, 0.025117919998592697, 0.014852422998956172, 0.01563315900057205, 0.019618349000666058, 0.015423893000843236], [0.10616855600164854, 0.11747264099903987, 0.1126406240000506, 0.11552277100054198, 0.10610926499794004, 0.1084717100020498, 0.10144305799985887, 0.10212982799930614, 0.10512900899993838], [0.0986345400015125, 0.09849801499876776, 0.09966834399892832, 0.09069589900173014, 0.09836323000126868, 0.09079439799825195, 0.09216312499847845, 0.09409183499883511, 0.07854805399983888]], "span_s": 2.8009808250026254, "seal": "b341313070a9"}'  # noqa: E501
BODY = json.loads(DATA)
MS = {at: 1e3 * np.array(v) for at, v in zip(BODY["at"], BODY["values"], strict=True)}
C = float(np.median(MS["empty"])) / 3
SAVED = [MS["uneven"].min() - MS["even"].max(), MS["uneven"].max() - MS["even"].min()]
THREE = {
    "data": DATA, "c_ms": C, "predicted_ms": 92 + 3 * C, "lies": "inside", "saved_ms": SAVED,
    "decided": bool(SAVED[0] > 0),
}  # fmt: skip

CUT = [[7], [6, 5, 4], [3, 2, 1, 0]]

SOLUTIONS = {"2.2-2": waiting(near), "2.2-3": overlapped_step, "2.2-4": blame, "2.2-5": THREE, "2.2-6": CUT}

MUTANTS = {
    "2.2-2": [
        leaky,
        waiting(near, goodbye=False),
        waiting(lambda n, t, s: min(n) >= t - s - 1),
        waiting(lambda n, t, s: t <= s or max(n) >= t - s),  # for the fastest
        waiting(lambda n, t, s: min(n) >= t),
        never_waits,
    ],
    "2.2-3": [
        with_step("chains", lambda p, a, n, L, m, h: n * p / L + h + (L - n + 1) * a / L),
        with_step("chains", lambda p, a, n, L, m, h: n * p / L + h * (n > m) + a / L),
        with_step("beyond", lambda p, a, n, L, m, h: a - p),
        with_step("rest", lambda p, a, n, L, m, h: a / L),
        with_step("forgiven", lambda p, a, n, L, m, h: max(a - p, 0.0)),
        with_step("forgiven", lambda p, a, n, L, m, h: (min(a, p) + m * max(a - p, 0.0)) / L),
        with_step("late", lambda p, a, n, L, m, h: h),
    ],
    "2.2-4": [
        with_answer("rank", lambda A, right: int((A - A.min(axis=0)).mean(axis=1).argmax())),
        with_answer("rank", lambda A, right: int(np.bincount(A.argmin(axis=0), minlength=len(A)).argmax())),
        with_answer("chance", lambda A, right: right["chance"] / len(A)),
        with_answer(
            "chance",
            lambda A, right: min(1.0, len(A) * binomial(A.shape[1], len(A), times_last(A, right["rank"]))),
        ),
        with_answer(
            "saved_s",
            lambda A, right: float((A.max(axis=0) - A)[:, A.argmax(axis=0) == right["rank"]].sum()),
        ),
        with_answer(
            "saved_s", lambda A, right: float(np.ptp(A, axis=0)[A.argmax(axis=0) == right["rank"]].sum())
        ),
    ],
    "2.2-5": [
        THREE | {"c_ms": 3 * C},
        THREE | {"predicted_ms": 70 + 3 * C},
        THREE | {"predicted_ms": 88 + 3 * C},
        THREE | {"predicted_ms": 92 + C},
        THREE | {"saved_ms": [22.0, 22.0]},
        THREE | {"saved_ms": [f(MS["uneven"] - MS["even"]) for f in (np.min, np.max)]},
        THREE | {"saved_ms": [float(np.median(MS["uneven"]) - np.median(MS["even"]))] * 2},
        THREE | {"decided": not THREE["decided"]},
    ],
    "2.2-6": [
        [list(range(8))], [[i] for i in range(7, -1, -1)], [[7, 6], [5, 4], [3, 2], [1, 0]], CUT[::-1],
        CUT[:2], [*CUT, [0]],
    ],
}  # fmt: skip


def _hidden_blame(rng):
    for K, S in ((16, 30), (3, 7)):
        A = np.cumsum(rng.uniform(1.0, 1.2, S)) + rng.uniform(0.0, 0.02, (K, S))
        A[1] += 0.01
        yield s2_2._blame_case(A, f"hidden, K = {K}, S = {S}")


def _hidden_overlap(rng):
    for p, a, L, m, h in ((0.1, 0.1, 7, 3, 0.01), (0.06, 0.2, 10, 9, 0.2), (0.06, 0.2, 2, 1, 0.0)):
        yield s2_2._overlap_case(p, a, L, m, h)


HIDDEN = {"2.2-3": _hidden_overlap, "2.2-4": _hidden_blame}
