"""Key of problem set B: solutions, and the mistakes that students make."""

from __future__ import annotations

import io
import json
import math

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

DATA = """{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["kept", "synced", "careful"], "values": [[0.01791588000196498, 0.020459120998566505, 0.016428525999799604, 0.020858849999058293, 0.020752773998538032, 0.015228683001623722, 0.018427869999868562, 0.02007445300114341, 0.022850739002024056, 0.018698333002248546, 0.018805831001373008, 0.01634301400190452, 0.022052546999475453, 0.021140662000107113, 0.016404243997385493], [0.02833420400202158, 0.06293415500113042, 0.03513645900238771, 0.030673533998196945, 0.02992523499779054, 0.02773384200190776, 0.049067067997384584, 0.030554837998352014, 0.043232099000306334, 0.02602727300109109, 0.021285939001245424, 0.026472023000678746, 0.018013859997154213, 0.0433323979996203, 0.06064036000316264], [0.42369818600127473, 0.06526515200312133, 0.06003285000042524, 0.061271302998648025, 0.07199339699945995, 0.06476236700109439, 0.056276910996530205, 0.04735458200229914, 0.0709250649997557, 0.05363164899972617, 0.03144212699771742, 0.08973344199694111, 0.034462868999980856, 0.04903725600161124, 0.14783616599743254]], "span_s": 2.152262163999694, "seal": "0cd8e95759f1"}"""  # noqa: E501


def costs(**changed):
    body, M = json.loads(DATA), 600.0
    v = dict(zip(body["at"], np.array(body["values"]), strict=True))
    careful, rounds = v["careful"], len(v["kept"])
    longer = int((v["synced"] > v["kept"]).sum())
    low, high = (math.sqrt(2 * x * M) for x in (careful.min(), careful.max()))
    p = float(bdtrc(longer - 1, rounds, 0.5))
    numbers = {
        "delta_s": float(np.median(careful)), "low_s": low, "high_s": high,
        "regret": careful.max() / low + low / (2 * M) - math.sqrt(2 * careful.max() / M),
        "longer": longer, "p": p,
    }  # fmt: skip
    answer = {"data": DATA, **numbers, "sync_costs": "yes" if p <= 0.01 else "not decided"}
    return answer | {name: f(v, answer) if callable(f) else f for name, f in changed.items()}


# -- 3 --------------------------------------------------------------------------------------------------------------

CLAIMS = {
    "anna": (2, "torn"),
    "bob": (4, "old"),
    "carla": (1, "missing"),
    "dora": "holds",
    "two ranks": (4, "torn"),
}

# -- 4 --------------------------------------------------------------------------------------------------------------


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


def hand_over_given(comm, X, y, seed, n):
    """The program of the notebook."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    model, optimizer, generator = begin(comm, seed)
    if comm.rank > 0:
        came = comm.recv(np.empty(21), comm.rank - 1)
        vector_to_parameters(torch.from_numpy(came), model.parameters())
    for t in range(n):
        one_step(model, optimizer, generator, X, y, t)
    weights = parameters_to_vector(model.parameters()).detach().numpy()
    if comm.rank + 1 < comm.K:
        comm.send(weights, comm.rank + 1)
    return weights


def forgetting(what):
    def answer(comm, X, y, seed, n):
        return hand_over(comm, X, y, seed, n, what)

    return answer


# -- 5 --------------------------------------------------------------------------------------------------------------


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


# -- 6 --------------------------------------------------------------------------------------------------------------


def least(T):
    return next(m for m in range(T + 2) if 8 * bdtrc(m - 1, T, 1 / 8) <= 0.01)


def accused():
    one = float(bdtrc(14 - 1, 60, 1 / 8))
    steps = next(T for T in range(20, 900, 20) if bdtrc(least(T) - 1, T, 0.25) >= 0.9)
    return {
        "one": one,
        "any": 8 * one,
        "jobs": 40 * 8 * one,
        "least": least(60),
        "caught": float(bdtrc(least(60) - 1, 60, 0.25)),
        "steps": steps,
    }


ACCUSED = accused()
one = ACCUSED["one"]

SOLUTIONS = {"B-1": upload, "B-2": costs(), "B-3": CLAIMS, "B-4": hand_over, "B-5": newest, "B-6": ACCUSED}

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
    "B-2": [
        costs(delta_s=lambda v, a: float(v["careful"].mean())),
        costs(delta_s=lambda v, a: float(np.median(v["kept"]))),
        costs(high_s=lambda v, a: a["low_s"] * (a["high_s"] / a["low_s"]) ** 2),
        costs(regret=lambda v, a: a["regret"] + a["high_s"] / 600),
        costs(regret=lambda v, a: 1 + a["regret"] / (a["high_s"] / 600)),
        costs(
            p=lambda v, a: float(
                bdtrc(a["longer"] - 1, len(v["kept"]), 0.5) - bdtrc(a["longer"], len(v["kept"]), 0.5)
            )
        ),
        costs(p=lambda v, a: float(bdtrc(a["longer"], len(v["kept"]), 0.5))),
        costs(sync_costs=lambda v, a: "yes" if a["sync_costs"] == "not decided" else "not decided"),
        costs(data=DATA.replace("0.0", "0.1")),
    ],
    "B-3": [
        CLAIMS | {"anna": "holds"},
        CLAIMS | {"bob": "holds"},
        CLAIMS | {"bob": (3, "old")},
        CLAIMS | {"carla": (5, "missing")},
        CLAIMS | {"dora": (3, "torn")},
        CLAIMS | {"two ranks": "holds"},
    ],
    "B-4": [hand_over_given, *(forgetting(what) for what in ("m", "g", "t", "gt", "s", "n"))],
    "B-5": [newest_of_anybody, oldest_of_the_newest, newest_everywhere, newest_by_count, newest_own_part],
    "B-6": [
        ACCUSED | {"one": float(bdtrc(14, 60, 1 / 8))},
        ACCUSED | {"one": float(bdtrc(13, 60, 1 / 8) - bdtrc(14, 60, 1 / 8))},
        ACCUSED | {"any": one},
        ACCUSED | {"any": 1 - (1 - one) ** 8},
        ACCUSED | {"least": 15},
        ACCUSED | {"caught": float(bdtrc(13, 60, 0.25))},
        ACCUSED | {"steps": next(T for T in range(20, 900, 20) if least(T) <= T / 4)},
    ],
}


def hidden_newest(rng):
    disks = [[(7, 0)], [(7, 1), (3, 0)], [(7, 1)], [(3, 1), (3, 2)]]
    yield _newest_case([(3, 3), (7, 3)], disks, "a copy where a part is missing")


HIDDEN = {"B-5": hidden_newest}
