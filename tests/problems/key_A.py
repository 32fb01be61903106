"""Key of problem set A: solutions, and the mistakes that students make."""

import json

import numpy as np

from labkit.collectives import all_gather, own_chunk, reduce_scatter, ring

# -- 1: measured on the machine that the line names, by the notebook's cell ---------------------------------------------

LINE = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["fast blocking", "fast overlapped", "slow blocking", "slow overlapped"], "values": [[145.16533999994863, 168.0483699965407, 133.520559000317, 151.20580599977984, 151.7504290022771, 133.38195700271172, 128.20672800080501, 130.62067999999272, 132.95897499847342, 128.0520179971063], [91.93756300010136, 84.71329499661806, 105.49618599907262, 104.30635200100369, 89.81337700242875, 86.25341100196238, 81.31902400054969, 87.39599600085057, 88.11682099985774, 98.4463839995442], [205.00972899753833, 217.27829600058612, 230.63899400222, 198.3419979987957, 196.88679500177386, 206.85339699775795, 227.67484599899035, 189.49187399994116, 189.6069800022815, 187.74798700178508], [133.0341800021415, 144.91740700032096, 184.65525200008415, 148.48829399852548, 141.4200970029924, 180.33825600286946, 168.5745440008759, 135.41251100105, 140.97604299968225, 156.44406899809837]], "span_s": 7.369033890001447, "seal": "ed7ae76ab7ac"}'  # noqa: E501
VALUES = dict(zip(*(json.loads(LINE)[key] for key in ("at", "values")), strict=True))
SAVED = {net: np.subtract(VALUES[f"{net} blocking"], VALUES[f"{net} overlapped"]) for net in ("fast", "slow")}


def interval(saved, n=10):
    half = 2.262 * np.std(saved, ddof=1) / np.sqrt(n)
    return np.mean(saved) - half, np.mean(saved) + half


WITHIN = {"fast": 30.0, "slow": 50.0}
OVERLAP = {"data": LINE}
for _net, _said in WITHIN.items():
    _low, _high = interval(SAVED[_net])
    OVERLAP[f"{_net}_ms"] = (round(_low, 2), round(_high, 2))
    OVERLAP[f"{_net}_predicted_ms"] = _said
    OVERLAP[f"{_net}_agrees"] = bool(_low <= _said <= _high)


# -- 2 --------------------------------------------------------------------------------------------------------------


def memory(P, K, parameter, gradient, state, unit):
    sizes, cut = np.array([parameter, gradient, state]), np.tri(4, 3, -1)[:, ::-1]
    kept = P * (sizes * np.where(cut, 1 / K, 1)).sum(axis=1)
    whole = 2 * parameter + gradient
    return {
        "kept": list(kept),
        "peak": kept[3] + unit * P * whole,
        "share": parameter / whole,
        "workers": 1 / (1 - unit * whole / parameter),
    }


def memory_but(step, f):
    """The derivation with one step gone wrong: f(right, P, K, p, g, s, u)."""

    def wrong(*q):
        right = memory(*q)
        return right | {step: f(right, *q)}

    return wrong


# -- 3 --------------------------------------------------------------------------------------------------------------


def sharded_adam(comm, w, d, h, batches, M, lr, *, how=""):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(d, h), torch.nn.Tanh(), torch.nn.Linear(h, 1)).double()
    flat, n = torch.as_tensor(np.array(w)), len(w)
    low, high = own_chunk(comm, n)
    mine, m, v = np.array(w[low:high]), np.zeros(high - low), np.zeros(high - low)
    for t, (X, y) in enumerate(batches, 1):
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
        if how != "piles":
            model.zero_grad()
        out = model(torch.as_tensor(X))
        errors = (out if how == "crosses" else out[:, 0]) - torch.as_tensor(y)
        loss = (errors**2).sum() / (max(len(y), 1) * comm.K if how == "means" else M)
        loss.backward()
        g = torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()
        if how == "allreduce":
            part = ring.allreduce(comm, g)[low:high]
        else:
            part, _ = reduce_scatter(comm, g)
        part = part / comm.K if how == "twice" else part
        m, v = 0.9 * m + 0.1 * part, 0.999 * v + 0.001 * part**2
        mine = mine - lr * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        flat = torch.as_tensor(all_gather(comm, mine, n))
    return flat, all_gather(comm, m, n) if how == "keeps" else m


def adam_but(how):
    def wrong(comm, w, d, h, batches, M, lr):
        return sharded_adam(comm, w, d, h, batches, M, lr, how=how)

    return wrong


# -- 4 --------------------------------------------------------------------------------------------------------------


def times(m, p, g, f):
    reduce_scattered, gathered = 1, 1
    return {
        "freed": m * (2 * gathered + reduce_scattered) / 2,
        "kept": (gathered + m * reduce_scattered) / 2,
        "careless": m * 3 / (2 * m),
        "bytes": p / g + 0.5,
        "even": 0.5 * g,
        "frozen": p / (f * g) + 0.5,
    }


def times_but(step, f):
    return lambda *q: times(*q) | {step: f(*q)}


# --


def pipelined(*first):
    """Each stage sends off ``first`` micro-batches, and then does a backward and a forward pass in turn."""
    lists = []
    for n in first:
        work = [f"F{m}" for m in range(n)]
        for m in range(5):
            work += [f"B{m}"] + [f"F{m + n}"] * (m + n < 5)
        lists.append(work)
    return lists


SOLUTIONS = {"A-1": OVERLAP, "A-2": memory, "A-3": sharded_adam, "A-4": times, "A-5": pipelined(3, 2, 1)}

MUTANTS = {
    "A-1": [
        OVERLAP | {"fast_ms": interval(SAVED["fast"], 1)},
        OVERLAP | {"fast_ms": [-x for x in interval(SAVED["fast"])[::-1]]},
        OVERLAP | {"fast_predicted_ms": 36},
        OVERLAP | {"slow_predicted_ms": 80},
        OVERLAP | {"slow_predicted_ms": 60},
        OVERLAP | {"slow_predicted_ms": 106},
        OVERLAP | {"fast_agrees": not OVERLAP["fast_agrees"]},
        OVERLAP | {"fast_agrees": str(OVERLAP["fast_agrees"])},
        OVERLAP | {"data": LINE.replace("10", "11", 1)},
    ],
    "A-2": [
        memory_but("kept", lambda r, P, K, p, g, s, u: [
            P * x for x in (p + g + s, p / K + g + s, (p + g) / K + s, (p + g + s) / K)]),
        memory_but("peak", lambda r, P, K, p, g, s, u: r["kept"][3] + u * P * (p + g)),
        memory_but("peak", lambda r, P, K, p, g, s, u: r["kept"][3] + u * P * 2 * (p + g)),
        memory_but("peak", lambda r, P, K, p, g, s, u: r["kept"][3] + u * P * (2 * p + g / K)),
        memory_but("peak", lambda r, P, K, p, g, s, u: u * P * (2 * p + g)),
        memory_but("share", lambda r, P, K, p, g, s, u: p / (p + g)),
    ],
    "A-3": [adam_but(how) for how in ("piles", "means", "twice", "crosses", "allreduce", "keeps")],
    "A-4": [
        times_but("freed", lambda m, p, g, f: 1.5),
        times_but("kept", lambda m, p, g, f: m),
        times_but("kept", lambda m, p, g, f: (m + 2) / 2),
        times_but("careless", lambda m, p, g, f: 1.5 * m),
        times_but("bytes", lambda m, p, g, f: (2 * p + g) / (p + g)),
        times_but("bytes", lambda m, p, g, f: (p + g) / (2 * g)),
        times_but("frozen", lambda m, p, g, f: (2 * p + g) / (2 * g)),
        times_but("frozen", lambda m, p, g, f: (2 * p + f * g) / (2 * g)),
    ],
    "A-5": [
        pipelined(1, 1, 1),
        pipelined(2, 2, 2),
        pipelined(5, 5, 5),
        pipelined(3, 1, 2)[:2],
        [["F0", "B0"]] * 3,
        [*pipelined(1, 1), ["F1", "F0", "B0", "B1", "F2", "B2", "F3", "B3", "F4", "B4"]],
    ],
}  # fmt: skip
