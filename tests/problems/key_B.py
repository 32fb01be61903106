"""Key of problem set B: solutions, and the mistakes that students make."""

import io
import math
from functools import partial

import numpy as np
from scipy.special import bdtrc  # of the binomial law; scipy.stats would weigh 60 MB in the grader

from labkit.collectives import ring
from labkit_book.problems.sets.sB import _newest_case

# -- 1 --------------------------------------------------------------------------------------------------------------


def upload(worker_mtbf_s, K, interval_s, delta_s, upload_s, blocking_s):
    M = worker_mtbf_s / K
    best = max(math.sqrt(2 * delta_s * M), upload_s)
    lost, least = interval_s / 2 + upload_s, delta_s / best + (best / 2 + upload_s) / M
    return {
        "mtbf_s": M, "lost_s": lost, "share": delta_s / interval_s + lost / M,
        "best_s": best, "least": least, "gain": math.sqrt(2 * blocking_s / M) - least,
    }  # fmt: skip


def slipped(step, f):
    """The derivation with this step wrong."""

    def answer(worker_mtbf_s, K, tau, delta, u, blocking):
        right = upload(worker_mtbf_s, K, tau, delta, u, blocking)
        return right | {step: f(worker_mtbf_s / K, tau, delta, u, right)}

    return answer


# -- 2 --------------------------------------------------------------------------------------------------------------


class Momentum:
    """SGD with momentum: as torch.optim.SGD, in the open."""

    def __init__(self, weights):
        import torch

        self.weights = list(weights)
        self.memory = [torch.zeros_like(w) for w in self.weights]

    def step(self, lr):
        for w, v in zip(self.weights, self.memory, strict=True):
            v.mul_(0.9).add_(w.grad)
            w.data.sub_(lr * v)
            w.grad = None


def begin(comm, seed):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    generator = torch.Generator()
    if comm.rank == 0:
        generator.manual_seed(seed)
        for w in model.parameters():
            w.data = torch.randn(w.shape, generator=generator, dtype=torch.float64)
    return model, Momentum(model.parameters()), generator


def one_step(model, optimizer, generator, X, y, t):
    import torch

    mine = torch.randint(len(X), (6,), generator=generator)
    off = model(torch.from_numpy(X)[mine])[:, 0] - torch.from_numpy(y)[mine]
    off.square().mean().backward()
    optimizer.step(0.05 / (1 + t) ** 0.5)


def hand_over(comm, X, y, seed, n, forget=""):
    import torch
    from torch.nn.utils import parameters_to_vector

    model, optimizer, generator = begin(comm, seed)
    t = 0
    if comm.rank > 0:
        size = comm.recv(np.empty(1, np.int64), comm.rank - 1)
        raw = comm.recv(np.empty(int(size[0]), np.uint8), comm.rank - 1)
        state = torch.load(io.BytesIO(raw.tobytes()))
        model.load_state_dict(state["model"])
        if "m" not in forget:
            for v, kept in zip(optimizer.memory, state["memory"], strict=True):
                v.copy_(kept)
        if "s" in forget:
            generator.manual_seed(state["seed"])
        elif "g" not in forget:
            generator.set_state(state["generator"])
        if "t" not in forget:
            t = comm.rank * n if "n" in forget else state["t"]
        seed = state["seed"]
    for _ in range(n):
        one_step(model, optimizer, generator, X, y, t)
        t += 1
    if comm.rank + 1 < comm.K:
        file = io.BytesIO()
        state = {"model": model.state_dict(), "memory": optimizer.memory, "seed": seed}
        torch.save({**state, "generator": generator.get_state(), "t": t}, file)
        raw = np.frombuffer(file.getvalue(), np.uint8)
        comm.send(np.array([len(raw)]), comm.rank + 1)
        comm.send(raw, comm.rank + 1)
    return parameters_to_vector(model.parameters()).detach().numpy()


def forgetting(what):
    return partial(hand_over, forget=what)


# -- 3 --------------------------------------------------------------------------------------------------------------


def counted(comm, written, mine):
    """How many disks hold each part, as one array a step."""
    places = [(step, part) for step, parts in written for part in range(parts)]
    found = ring.allreduce(comm, np.array([float(place in mine) for place in places]))
    return {
        s: np.array([x for (step, _), x in zip(places, found, strict=True) if step == s]) for s, _ in written
    }


def newest(comm, written, mine):
    return max([s for s, there in counted(comm, written, mine).items() if there.all()], default=-1)


def newest_of_each(comm, written, mine, who=max):
    own = np.zeros(comm.K)
    own[comm.rank] = max([s for s, _ in mine], default=-1)
    return int(who(ring.allreduce(comm, own)))


def newest_of_anybody(comm, written, mine):
    return newest_of_each(comm, written, mine)


def oldest_of_the_newest(comm, written, mine):
    return newest_of_each(comm, written, mine, min)


def newest_everywhere(comm, written, mine):
    return max([s for s, x in counted(comm, written, mine).items() if (x == comm.K).all()], default=-1)


def newest_by_count(comm, written, mine):
    return max([s for s, x in counted(comm, written, mine).items() if x.sum() >= len(x)], default=-1)


def newest_own_part(comm, written, mine):
    have = np.array([float(parts <= comm.rank or (s, comm.rank) in mine) for s, parts in written])
    found = ring.allreduce(comm, have)
    both = zip(written, found, strict=True)
    return max([s for (s, parts), x in both if x == comm.K and parts <= comm.K], default=-1)


# -- 4 --------------------------------------------------------------------------------------------------------------


def least(T):
    return next(m for m in range(T + 2) if 8 * bdtrc(m - 1, T, 1 / 8) <= 0.01)


def accused():
    one = float(bdtrc(14 - 1, 60, 1 / 8))
    steps = next(T for T in range(20, 900, 20) if bdtrc(least(T) - 1, T, 0.25) >= 0.9)
    return {
        "one": one, "any": 8 * one, "jobs": 40 * 8 * one, "least": least(60),
        "caught": float(bdtrc(least(60) - 1, 60, 0.25)), "steps": steps,
    }  # fmt: skip


ACCUSED = accused()
one = ACCUSED["one"]

# -- B-5

ROUNDS = [
    [(0, 1, 0)],
    [(0, 3, 1), (1, 2, 0)],
    [(0, 2, 2), (3, 1, 1), (1, 3, 0)],
    [(0, 3, 3), (2, 1, 2), (1, 2, 1)],
    [(0, 2, 4), (3, 1, 3), (1, 3, 2)],
    [(0, 1, 5), (2, 3, 4), (1, 2, 3)],
    [(0, 3, 5), (3, 1, 4), (1, 2, 5)],
]
CHAIN = [[(k, k + 1, r - k) for k in range(3) if 0 <= r - k < 6] for r in range(8)]

SOLUTIONS = {"B-1": upload, "B-2": hand_over, "B-3": newest, "B-4": ACCUSED, "B-5": ROUNDS}

MUTANTS = {
    "B-1": [
        slipped("lost_s", lambda M, tau, delta, u, right: tau / 2),
        slipped("lost_s", lambda M, tau, delta, u, right: tau / 2 + u / 2),
        slipped("lost_s", lambda M, tau, delta, u, right: 1.5 * tau),
        slipped("best_s", lambda M, tau, delta, u, right: math.sqrt(2 * (delta + u) * M)),
        slipped("best_s", lambda M, tau, delta, u, right: math.sqrt(2 * delta * M)),
        slipped("least", lambda M, tau, delta, u, right: delta / right["best_s"] + right["best_s"] / (2 * M)),
        slipped("least", lambda M, tau, delta, u, right: math.sqrt(2 * delta / M) + u / M),
    ],
    # the first is the notebook's program
    "B-2": [forgetting(what) for what in ("mgt", "m", "g", "t", "gt", "s", "n")],
    "B-3": [newest_of_anybody, oldest_of_the_newest, newest_everywhere, newest_by_count, newest_own_part],
    "B-4": [
        ACCUSED | {"one": float(bdtrc(14, 60, 1 / 8))},
        ACCUSED | {"one": float(bdtrc(13, 60, 1 / 8) - bdtrc(14, 60, 1 / 8))},
        ACCUSED | {"any": one},
        ACCUSED | {"any": 1 - (1 - one) ** 8},
        ACCUSED | {"least": 15},
        ACCUSED | {"caught": float(bdtrc(13, 60, 0.25))},
        ACCUSED | {"steps": next(T for T in range(20, 900, 20) if least(T) <= T / 4)},
    ],
    "B-5": [CHAIN, CHAIN[:-1], *([[(0, 1, 0), (a, b, 0)], *CHAIN] for a, b in ((1, 2), (0, 2), (2, 1)))],
}


def hidden_newest(rng):
    disks = [[(7, 0)], [(7, 1), (3, 0)], [(7, 1)], [(3, 1), (3, 2)]]
    yield _newest_case([(3, 3), (7, 3)], disks, "a copy where a part is missing")


HIDDEN = {"B-3": hidden_newest}
