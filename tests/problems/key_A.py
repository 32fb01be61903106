"""Key of problem set A: solutions, and the mistakes that students make."""

from __future__ import annotations

import json

import numpy as np

from labkit.collectives import all_gather, own_chunk, reduce_scatter, ring
from labkit_book.problems import Case
from labkit_book.problems.sets.sA import _clip_judge

# -- 1: measured on the machine that the line names, by the notebook's cell ---------------------------------------------

LINE = (
    '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ['
    '"fast blocking", "fast overlapped", "slow blocking", "slow overlapped"], "values": [[145.165339'
    "99994863, 168.0483699965407, 133.520559000317, 151.20580599977984, 151.7504290022771, 133.38195"
    "700271172, 128.20672800080501, 130.62067999999272, 132.95897499847342, 128.0520179971063], [91."
    "93756300010136, 84.71329499661806, 105.49618599907262, 104.30635200100369, 89.81337700242875, 8"
    "6.25341100196238, 81.31902400054969, 87.39599600085057, 88.11682099985774, 98.4463839995442], ["
    "205.00972899753833, 217.27829600058612, 230.63899400222, 198.3419979987957, 196.88679500177386,"
    " 206.85339699775795, 227.67484599899035, 189.49187399994116, 189.6069800022815, 187.74798700178"
    "508], [133.0341800021415, 144.91740700032096, 184.65525200008415, 148.48829399852548, 141.42009"
    "70029924, 180.33825600286946, 168.5745440008759, 135.41251100105, 140.97604299968225, 156.44406"
    '899809837]], "span_s": 7.369033890001447, "seal": "ed7ae76ab7ac"}'
)
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


def memory_figure(
    P,
    parameter,
    gradient,
    state,
    activations,
    capacity,
    batch=lambda K, a: a / K,
    GB=1e9,
    by=None,
    scale="log",
):
    from matplotlib.figure import Figure

    Ks, figure = np.array([1, 2, 4, 8, 16, 32, 64, 128]), Figure()
    ax = figure.subplots()
    firsts = []
    for stage in range(4):
        kept = np.array([memory(P, K, parameter, gradient, state, 0.01)["kept"][stage] for K in Ks])
        gb = (kept + batch(Ks, activations)) / GB
        ax.plot(Ks, gb, label=f"stage {stage}")
        fits = np.flatnonzero((gb if by is None else kept / GB) <= capacity / GB)
        if len(fits):
            firsts.append((Ks[fits[0]], gb[fits[0]]))
    ax.plot(*np.reshape(firsts, (-1, 2)).T, "o", label="fits from here on")
    ax.axhline(capacity / GB, label="room")
    ax.set(xscale=scale, yscale=scale, xlabel="workers K", ylabel="memory of a worker (GB)")
    ax.legend()
    return figure


# -- 4 --------------------------------------------------------------------------------------------------------------


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


# -- 5 --------------------------------------------------------------------------------------------------------------


def clipped_step(comm, w, g, eta, c, length_of=None, finite=np.isfinite):
    part, (low, high) = reduce_scatter(comm, g)
    mine = part / comm.K
    with np.errstate(invalid="ignore"):
        square = ring.allreduce(comm, np.array([mine @ mine]))[0]
    if not finite(square):
        return w.copy()
    length = np.sqrt(square) if length_of is None else length_of(comm, mine, g)
    scale = c / length if length > c else 1.0
    return all_gather(comm, w[low:high] - eta * scale * mine, len(w))


def given(comm, w, g, eta, c):
    """The program as it is handed out."""
    part, (low, high) = reduce_scatter(comm, g)
    mine = part / comm.K
    length = np.linalg.norm(mine)
    if length > c:
        mine = mine * (c / length)
    if not np.isfinite(mine).all():
        return w
    return all_gather(comm, w[low:high] - eta * mine, len(w))


def clip_but(length_of):
    return lambda comm, w, g, eta, c: clipped_step(comm, w, g, eta, c, length_of)


def clip_unguarded(comm, w, g, eta, c):
    part, (low, high) = reduce_scatter(comm, g)
    mine = part / comm.K
    with np.errstate(invalid="ignore"):
        length = np.sqrt(ring.allreduce(comm, np.array([mine @ mine]))[0])
        mine = mine * (c / length) if length > c else mine
    return all_gather(comm, w[low:high] - eta * mine, len(w))


def clip_everything(comm, w, g, eta, c):
    """Right, and sends a whole gradient more."""
    mean = ring.allreduce(comm, g) / comm.K
    low, high = own_chunk(comm, len(w))
    length = np.linalg.norm(mean)
    if not np.isfinite(length):
        return w.copy()
    return all_gather(comm, (w - eta * mean * min(1, c / max(length, c)))[low:high], len(w))


def clip_early(comm, w, g, eta, c):
    return clipped_step(comm, w, g * min(1, c / max(np.linalg.norm(g), 1e-300)), eta, np.inf)


def clip_not_a_number(comm, w, g, eta, c):
    return clipped_step(comm, w, g, eta, c, finite=lambda x: not np.isinf(x))


# -- 6 --------------------------------------------------------------------------------------------------------------


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


SOLUTIONS = {
    "A-1": OVERLAP,
    "A-2": memory,
    "A-3": memory_figure,
    "A-4": sharded_adam,
    "A-5": clipped_step,
    "A-6": times,
}

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
    "A-3": [
        lambda *q: memory_figure(*q, batch=lambda K, a: 0),
        lambda *q: memory_figure(*q, batch=lambda K, a: a),
        lambda *q: memory_figure(*q, GB=2**30),
        lambda *q: memory_figure(*q, by="kept"),
        lambda *q: memory_figure(*q, scale="linear"),
    ],
    "A-4": [adam_but(how) for how in ("piles", "means", "twice", "crosses", "allreduce", "keeps")],
    "A-5": [
        given,
        clip_but(lambda comm, mine, g: ring.allreduce(comm, np.array([np.linalg.norm(mine)]))[0]),
        clip_but(lambda comm, mine, g: ring.allreduce(comm, np.array([mine @ mine]))[0]),
        clip_but(lambda comm, mine, g: comm.K * np.sqrt(ring.allreduce(comm, np.array([mine @ mine]))[0])),
        clip_early,
        clip_not_a_number,
        clip_unguarded,
        clip_everything,
    ],
    "A-6": [
        times_but("freed", lambda m, p, g, f: 1.5),
        times_but("kept", lambda m, p, g, f: m),
        times_but("kept", lambda m, p, g, f: (m + 2) / 2),
        times_but("careless", lambda m, p, g, f: 1.5 * m),
        times_but("bytes", lambda m, p, g, f: (2 * p + g) / (p + g)),
        times_but("bytes", lambda m, p, g, f: (p + g) / (2 * g)),
        times_but("frozen", lambda m, p, g, f: (2 * p + g) / (2 * g)),
        times_but("frozen", lambda m, p, g, f: (2 * p + f * g) / (2 * g)),
    ],
}  # fmt: skip


def more_workers_than_elements(rng):
    """Seven workers, three elements: some own nothing."""
    K, n, c = 7, 3, 0.1
    w, g = rng.standard_normal(n), rng.standard_normal((K, n))
    mean = g.mean(axis=0)
    right = w - 0.2 * mean * min(1, c / np.linalg.norm(mean))
    args = tuple((w.copy(), g[k].copy(), 0.2, c) for k in range(K))
    yield Case(args, _clip_judge(right, K, n), K, "hidden, with K = 7 workers, n = 3")


HIDDEN = {"A-5": more_workers_than_elements}
