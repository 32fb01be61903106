"""Key of problem set 10.7: solutions, and the mistakes that students make."""

import numpy as np
import torch

from labkit.collectives import all_gather, ring
from labkit_book.problems.sets.s10_7 import _hook_case

# -- 1 --------------------------------------------------------------------------------------------------------------


def encoded(x, rng=None):
    rows = x.reshape(-1, 64)
    top = np.abs(rows).max(axis=1).astype(np.float32)
    levels = rows / np.maximum(top, 1e-30)[:, None] * 7
    codes = np.rint(levels) if rng is None else np.floor(levels + rng.random(levels.shape))
    codes = (np.clip(codes, -7, 7) + 8).astype(np.uint8)
    return np.concatenate([top.view(np.uint8), (codes[:, ::2] | codes[:, 1::2] << 4).ravel()])


def decoded(message, d):
    rows = d // 64
    top, two = message[: 4 * rows].copy().view(np.float32), message[4 * rows :].reshape(rows, 32)
    codes = np.stack([two & 15, two >> 4], axis=2).reshape(rows, 64).astype(float) - 8
    return (codes / 7 * top[:, None]).ravel()


def agreed_with(remember="own", draws=False, sums=False, plain=False, exact=False):
    def agreed(comm, gs):
        e, means, rng = 0.0, [], np.random.default_rng(comm.rank) if draws else None
        for g in gs:
            x = g + e
            message = x.view(np.uint8) if plain else encoded(x, rng)
            parts = all_gather(comm, message, comm.K * len(message)).reshape(comm.K, -1)
            read = [part.copy().view(float) if plain else decoded(part, len(g)) for part in parts]
            own = read[comm.rank]
            if exact:
                read[comm.rank] = x
            means.append(sum(read) / (1 if sums else comm.K))
            e = {"own": x - own, "nothing": 0.0, "mean": x - means[-1]}[remember]
        return np.array(means)

    return agreed


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


def bill(K, P, H, kept, T_sync, T, t_comp, beta):
    ring, gather = 2 * (K - 1) / K * 4 * P, (K - 1) * 4 * kept * P / H
    return {
        "claimed": H / kept,
        "a_step": ring / gather,
        "to_loss": T_sync * ring / (T * gather),
        "K_even": 2 / kept,
        "sooner": T_sync * (t_comp + ring / beta) / (T * (t_comp + gather / beta)),
        "above": (T_sync * ring - T * gather) / (t_comp * (T - T_sync)),
    }


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
    "10.7-1": agreed_with(), "10.7-2": hook_with(), "10.7-3": bill, "10.7-4": free_steps,
    "10.7-5": clients_with(),
}  # fmt: skip

MUTANTS = {
    "10.7-1": [
        agreed_with(remember="nothing"),
        agreed_with(remember="nothing", draws=True),
        agreed_with(remember="mean"),
        agreed_with(sums=True),
        agreed_with(plain=True),
        agreed_with(exact=True),
    ],
    "10.7-2": [
        hook_with(key=lambda bucket: len(bucket.buffer())),
        hook_with(alias=True),
        hook_with(plain=0),
        hook_with(sums=True),
        hook_with(remember=False),
    ],
    "10.7-3": [
        but(bill, a_step=lambda s, a: s["claimed"]),
        but(bill, to_loss=lambda s, a: s["a_step"]),
        but(bill, to_loss=lambda s, a: s["a_step"] * a[5] / a[4]),
        but(bill, K_even=lambda s, a: s["K_even"] / 2),
        but(bill, sooner=lambda s, a: s["sooner"] * a[5] / a[4]),
        but(bill, above=lambda s, a: (a[0] - 1) * 4 * a[1] * (2 / a[0] - a[3] / a[2]) / a[6]),
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
        clients_with("even", "even", own=False), clients_with("even", "even"), clients_with("even", "p"),
        clients_with(own=False), clients_with("twice", "twice"),
    ],
}  # fmt: skip


def more_workers(rng):
    """Four workers who keep nearly everything, so that places collide."""
    yield _hook_case(rng, 4, k=7)


HIDDEN = {"10.7-2": more_workers}
