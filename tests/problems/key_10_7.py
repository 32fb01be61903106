"""Key of problem set 10.7: solutions, and the mistakes that students make."""

from __future__ import annotations

import numpy as np
import torch

from labkit.collectives import all_gather, ring
from labkit_book.problems.sets.s10_7 import _hook_case

# -- 1 --------------------------------------------------------------------------------------------------------------


def stuck(K, d, k, push=3.0):
    m, w = np.zeros((K, d)), np.zeros(d)
    m[:, :k] = push * (-1.0) ** np.arange(K)[:, None]
    if K % 2:
        m[0, :k] = -push * (K - 1)
        m[1:, :k] = push
    w[k:] = 1.0
    return m, w


def stuck_with_equal_workers(K, d, k):
    return np.zeros((K, d)) + 3.0 * (np.arange(d) < k), np.ones(d)


def stuck_where_it_is_best(K, d, k):
    m, _ = stuck(K, d, k)
    return m, m.mean(axis=0)


def stuck_with_unequal_pushes(K, d, k):
    m, w = stuck(K, d, k)
    m[0, :k] *= 1.5
    return m, w


# -- 2 --------------------------------------------------------------------------------------------------------------


class Bucket:
    """What DDP hands to a hook."""

    def __init__(self, index, buffer, last):
        self._index, self._buffer, self._last = index, buffer, last

    def index(self):
        return self._index

    def buffer(self):
        return self._buffer

    def is_last(self):
        return self._last


def as_ddp_does(state, hook, steps):
    buffers, means = {}, []
    for gradients in steps:
        for i, g in enumerate(gradients):
            here = buffers.setdefault((i, len(g)), torch.empty(len(g), dtype=torch.float64))
            here.copy_(torch.from_numpy(g))
            done = hook(state, Bucket(i, here, i == len(gradients) - 1))
            if done is None:
                return None
            here.copy_(done.wait())
            means.append(here.numpy().copy())
    return means


class State:
    def __init__(self, comm, k):
        self.comm, self.k, self.step, self.memory = comm, k, 0, {}


def future(x):
    done = torch.futures.Future()
    done.set_result(x)
    return done


def gathered(comm, mine):
    return all_gather(comm, mine, comm.K * len(mine)).reshape(comm.K, -1)


def hook_with(plain=2, key=lambda bucket: bucket.index(), sums=False, remember=True, alias=False):
    def hook(state, bucket):
        comm, g, at = state.comm, bucket.buffer(), key(bucket)
        step, state.step = state.step, state.step + bucket.is_last()
        if step < plain:
            total = ring.allreduce(comm, g.numpy())
            return future(torch.from_numpy(total if sums else total / comm.K))
        memory = state.memory.get(at)
        x = g if alias else g.clone()
        if memory is not None and remember and len(memory) == len(x):
            x += memory
        places = x.abs().topk(state.k).indices
        values = x[places].clone()
        where, what = gathered(comm, places.numpy()), gathered(comm, values.numpy())
        mean = torch.zeros_like(g)
        for theirs, said in zip(where, what, strict=True):
            mean[torch.from_numpy(theirs)] += torch.from_numpy(said)
        x[places] = 0.0
        state.memory[at] = x
        return future(mean if sums else mean / comm.K)

    return lambda comm, steps, k: as_ddp_does(State(comm, k), hook, steps)


# -- 3 --------------------------------------------------------------------------------------------------------------

MEASURED = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["top", "sign"], "values": [[0.08757222200074466, 0.028196445997309638, 0.019567725001252256, 0.02088205600011861, 0.022232660001463955, 0.057597254002757836, 0.021863968002435286, 0.05463967800096725, 0.05155347999971127, 0.15876138400199125, 0.06803134399888222, 0.05201464000128908, 0.04538407400104916, 0.07739277499786112, 0.08621571999901789], [0.03041540000049281, 0.03788622399952146, 0.1971843280007306, 0.023448769003152847, 0.024420575002295664, 0.09655683900200529, 0.07596037300027092, 0.0916728720003448, 0.09373816200240981, 0.051860200001101475, 0.061855276002461324, 0.12824035300218384, 0.06473913499939954, 0.05993094999939785, 0.08612130100300419]], "span_s": 9.464702723998926, "seal": "c0232ae3738f"}'  # noqa: E501


def concluded(low=3, high=-4, alpha=1e-4, scatter=False, swap=False, by_the_middle=False):
    import json

    body, ends = json.loads(MEASURED), {}
    for name, seconds in zip(body["at"], np.array(body["values"]), strict=True):
        ordered = np.sort(seconds)
        fast, slow = ordered[low], ordered[high]
        if scatter:
            fast, slow = seconds.mean() - seconds.std(), seconds.mean() + seconds.std()
        sent = {"top": 80_000, "sign": 125_004}[name]
        ends[name] = tuple((4e6 - sent) / (c - alpha) for c in (slow, fast))
    said = {
        n: "yes" if a > 1.25e8 else "no" if b < 1.25e8 or by_the_middle else "not decided"
        for n, (a, b) in ends.items()
    }
    top, sign = ends["top"], ends["sign"]
    higher = "top" if top[0] > sign[1] or by_the_middle else "sign" if sign[0] > top[1] else "not decided"
    ends = {n: pair[::-1] if swap else pair for n, pair in ends.items()}
    return {"data": MEASURED, **ends, "top_pays": said["top"], "sign_pays": said["sign"], "higher": higher}


# -- 4 --------------------------------------------------------------------------------------------------------------


def free_steps(H, K, eta, L, sigma2, share, rho, t_comp, nbytes, beta):
    step, noise = (1 - 1 / K) * eta**2 * sigma2, eta**2 * sigma2 / K
    free = 1
    while 2 * eta * L * step * np.mean(np.arange(free + 1)) <= share * noise:
        free += 1
    exchange = 2 * (K - 1) / K * nbytes / beta
    tie = t_comp * (rho - 1) / (1 - rho / H)
    return {
        "round": step * np.mean(np.arange(H)),
        "harm": 2 * eta * L * step * np.mean(np.arange(H)) / noise,
        "free": free,
        "ratio": rho * (H * t_comp + exchange) / (H * (t_comp + exchange)),
        "stops": beta * exchange / tie,
    }


def but(f, **changed):
    """The derivation with a step replaced: name=function of (the steps, the arguments)."""
    return lambda *args: f(*args) | {step: value(f(*args), args) for step, value in changed.items()}


# -- 5 --------------------------------------------------------------------------------------------------------------


def clients_with(slopes="p", ways="p", own=True):
    def clients(comm, A, m, p, H, H_most, eta, meetings, lr, momentum):
        w, c, c_k, v = np.zeros((4, len(m)))
        share = {"p": p, "even": 1 / comm.K, "twice": p / comm.K}
        for _ in range(meetings):
            w_k = w.copy()
            for _ in range(H):
                w_k = w_k - eta * (A @ (w_k - m) - c_k + c)
            c_k = c_k - c + (w - w_k) / (eta * (H if own else H_most))
            c = ring.allreduce(comm, share[slopes] * c_k)
            g = ring.allreduce(comm, share[ways] * (w - w_k))
            v = momentum * v + g
            w = w - lr * (g + momentum * v)
        return w

    return clients


SOLUTIONS = {
    "10.7-1": stuck,
    "10.7-2": hook_with(),
    "10.7-3": concluded(),
    "10.7-4": free_steps,
    "10.7-5": clients_with(),
}

MUTANTS = {
    "10.7-1": [
        stuck_with_equal_workers,
        stuck_where_it_is_best,
        stuck_with_unequal_pushes,
        lambda K, d, k: stuck(K, d, k, push=1e5),
    ],
    "10.7-2": [
        hook_with(key=lambda bucket: len(bucket.buffer())),
        hook_with(alias=True),
        hook_with(plain=0),
        hook_with(sums=True),
        hook_with(remember=False),
    ],
    "10.7-3": [
        concluded(low=0, high=-1),
        concluded(scatter=True),
        concluded(swap=True),
        concluded(alpha=0.0),
        concluded(by_the_middle=True),
        concluded() | {"data": MEASURED.replace("0.0875", "0.0275")},
    ],
    "10.7-4": [
        but(free_steps, round=lambda s, a: s["round"] * (a[0] + 1) / (a[0] - 1)),
        but(free_steps, round=lambda s, a: s["round"] * 2),
        but(free_steps, harm=lambda s, a: s["harm"] / a[1]),
        but(free_steps, free=lambda s, a: s["free"] + 1),
        but(free_steps, ratio=lambda s, a: a[6]),
        but(free_steps, stops=lambda s, a: s["stops"] * a[1] / (2 * (a[1] - 1))),
    ],
    "10.7-5": [
        clients_with("even", "even", own=False),
        clients_with("even", "even"),
        clients_with("even", "p"),
        clients_with(own=False),
        clients_with("twice", "twice"),
    ],
}


def more_workers(rng):
    """Four workers who keep nearly everything, so that places collide."""
    yield _hook_case(rng, 4, k=7)


HIDDEN = {"10.7-2": more_workers}
