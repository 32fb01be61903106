"""Key of problem set 10.4: solutions, and the mistakes that students make."""

import json
from functools import partial

import numpy as np

from labkit import evidence

# -- 1 ----------------------------------------------------------------------------------------------------------------


def staleness_sums(lasts, n, K, U, absent, ages, slow, m):
    alike, slowest = K - 2 + 1 / slow, slow * (K - 1)
    return {
        "one": lasts[0] + 1 - n,  # u_1 + (u_2 - u_1 - 1) + ...: all but the last cancels
        "all": (lasts + 1).sum() - U,
        "under_way": K * U - (lasts + 1).sum(),
        "mean": K - 1 - (ages + absent * U) / U,
        "workers": ((K - 1) * alike + slowest) / K,
        "seldom": K * (m + 1) / 2 - 1,  # K - 1, K - 1 + K, ..., K - 1 + (m - 1) K
    }


def otherwise(step, how):
    def f(lasts, n, K, U, absent, ages, slow, m):
        value = how(lasts=lasts, n=n, K=K, U=U, absent=absent, ages=ages, slow=slow, m=m)
        return staleness_sums(lasts, n, K, U, absent, ages, slow, m) | {step: value}

    return f


# -- 2 ----------------------------------------------------------------------------------------------------------------


def push_pull(comm, w0, target, eta, T, scale=lambda tau: 1 / (1 + tau), home=1, turns=False, fresh=True):
    w = w0.copy()
    if comm.rank:
        for _ in comm.steps(T):
            g = comm.compute(lambda w=w: w - target)
            comm.send(g, 0)
            answer = comm.recv(np.empty_like(w), 0)
            w = answer if fresh else w
        return w
    K, g, who, taus = comm.K - 1, np.empty_like(w), [], []
    last = [0] * (K + 1)
    for u in range(K * T):
        k = 1 + u % K if turns else comm.recv_any(g)
        if turns:
            comm.recv(g, k)
        who.append(k)
        taus.append(u - last[k])
        w = w - eta * scale(taus[-1]) * g
        last[k] = u + home
        comm.send(w, k)
    return w, who, taus


class Idle:
    """A comm whose work takes no time: what the gradient does that is not computed in comm.compute."""

    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def compute(self, work):
        return work()


def answers_with_the_old_w(comm, w0, target, eta, T):
    if comm.rank:
        return push_pull(comm, w0, target, eta, T)
    w, g, who, taus = w0.copy(), np.empty_like(w0), [], []
    last = [0] * comm.K
    for u in range((comm.K - 1) * T):
        k = comm.recv_any(g)
        who.append(k)
        taus.append(u - last[k])
        last[k] = u + 1
        comm.send(w, k)
        w = w - eta / (1 + taus[-1]) * g
    return w, who, taus


def one_answer_short(comm, w0, target, eta, T):
    return push_pull(comm, w0, target, eta, T if comm.rank else T - 1)


# -- 3 ----------------------------------------------------------------------------------------------------------------

LINE = """{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": [20, 200, 2000], "values": [[0.18079, 0.23043000000000002, 0.11129, 0.20255, 0.13002000000000002], [0.01774500000000001, 0.02632000000000001, 0.029364999999999974, 0.014480000000000048, 0.025815000000000032], [0.002035000000000009, 0.0026850000000000485, 0.0015800000000000258, 0.003049999999999997, 0.003190000000000026]], "span_s": 5.734733391996997, "seal": "5e8a230376a0"}"""  # noqa: E501


def concluded(**other):
    data = json.loads(LINE)
    each = np.array(data["values"]) * np.array(data["at"])[:, None] / 10
    apart = evidence.median(each[2] - each[0])
    falls = (apart.low > 0) - (apart.high < 0)
    enough = each[2].mean() * 10 / 1e-4
    found = {"used": each.mean(axis=1).tolist(), "interval": (apart.low, apart.high), "falls": int(falls)}
    return {"data": LINE, **found, "enough": float(enough)} | other


VALUES = np.array(json.loads(LINE)["values"])
USED = VALUES * np.array([[2.0], [20.0], [200.0]])

# -- 4 ----------------------------------------------------------------------------------------------------------------


def second_look(K, t, slow, c, fresh, stale):
    with_ = K / (slow * t + c)
    without = min((K - 1) / (t + c) + 1 / (slow * t + c), 1 / c)
    sooner = evidence.median((fresh / with_) / (stale / without))
    verdict = int(sooner.low > 1) - int(sooner.high < 1)
    return {
        "with": with_, "without": without, "sooner": sooner.center, "interval": (sooner.low, sooner.high),
        "verdict": verdict, "flip": next(k for k in range(2, 10**6) if k / (slow * t + c) > 1 / c),
    }  # fmt: skip


def looked(step, how):
    def f(*q):
        right = second_look(*q)
        return right | {step: how(right, *q)}

    return f


def server_full(right, K, t, slow, c, *q):
    return next(k for k in range(1, 10**6) if (k - 1) / (t + c) + 1 / (slow * t + c) >= 1 / c)


SOLUTIONS = {"10.4-1": staleness_sums, "10.4-2": push_pull, "10.4-3": concluded(), "10.4-4": second_look}

MUTANTS = {
    "10.4-1": [
        otherwise("one", lambda lasts, **q: lasts[0]),
        otherwise("all", lambda K, U, **q: (K - 1) * U),
        otherwise("under_way", lambda lasts, K, U, **q: K * U - lasts.sum()),
        otherwise("mean", lambda K, U, ages, **q: K - 1 - ages / U),
        otherwise("workers", lambda K, **q: K - 1),
        otherwise("seldom", lambda K, m, **q: (K - 1) * (m + 1) / 2),
        otherwise("seldom", lambda K, m, **q: m * K - 1),
    ],
    "10.4-2": [
        partial(push_pull, scale=lambda tau: 1.0),
        partial(push_pull, scale=lambda tau: 1 / max(1, tau)),
        partial(push_pull, home=0),
        partial(push_pull, turns=True),
        partial(push_pull, fresh=False),
        answers_with_the_old_w,
        one_answer_short,
        lambda comm, *args: push_pull(Idle(comm), *args),
    ],
    "10.4-3": [
        concluded(used=VALUES.mean(axis=1).tolist()),
        concluded(interval=(USED[2].min() - USED[0].max(), USED[2].max() - USED[0].min())),
        concluded(interval=(USED[2].min(), USED[2].max())),
        concluded(falls=0),  # in these data every round has the same sign
        concluded(falls=-1),
        concluded(enough=1e5),
        concluded(enough=float(USED[2].mean() / 1e-4)),
        concluded(data=LINE.replace("2000", "3000")),
    ],
    "10.4-4": [
        looked("with", lambda right, K, t, slow, c, *q: K / (slow * t + K * c)),
        looked("without", lambda right, K, t, slow, c, *q: (K - 1) / t + 1 / (slow * t)),
        looked("sooner", lambda right, *q: right["without"] / right["with"]),
        looked("sooner", lambda right, *q: 1 / right["sooner"]),
        looked("verdict", lambda right, *q: 1 if right["sooner"] > 1 else -1),
        looked("flip", server_full),
        looked("flip", lambda right, *q: 33 if right["flip"] == 34 else right["flip"]),
        looked(
            "sooner",
            lambda right, K, t, slow, c, fresh, stale: (
                right["without"] / right["with"] * np.median(fresh) / np.median(stale)
            ),
        ),
    ],
}
