"""Fewer bytes and fewer meetings together: eight methods, one model, one budget of tuning, five seeds, four workers.

Written by the formulas of the papers for all workers at once, without messages: W (K, P) are their parameters. The lab's
cells, which send messages, are held against it (`tests/claims/test_10_7.py`). Every method trains the finale's model for T
steps of eight windows a worker; each has the best of six SETTINGS by its last loss, on a seed that is not among the five.
A seed draws initial parameters, every worker's windows and, for gossip, the pairs.
"""

from __future__ import annotations

import multiprocessing
from functools import cache, partial

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from labkit import evidence
from labkit_book.labs.char_model import CharTransformer
from labkit_book.labs.text import shakespeare, windows

K, H, T, PARTS, CHUNK, KEPT = 4, 20, 400, 4, 64, 2
LOOKS = (5, 10, 15, *range(20, T + 1, 20))
ADAM = (1.5e-3, 3e-3, 6e-3)
OUTER = ((0.7, 0.9), (0.7, 0.5))  # outer learning rate, momentum


@cache
def material():
    text = shakespeare()
    held = next(windows(text.validation, 32, 128, np.random.default_rng(7)))
    return text, [torch.from_numpy(a) for a in held]


def fresh(seed):
    torch.manual_seed(seed)
    return CharTransformer(len(material()[0].vocabulary), length=32, width=96, layers=2)


def four_bits(x):
    """Sign and one of eight powers of two below the largest of each 64: E3M0."""
    rows = torch.nn.functional.pad(x, (0, -x.numel() % CHUNK)).view(-1, CHUNK)
    top = rows.abs().amax(1, keepdim=True).clamp(min=1e-30)
    power = (rows.abs() / top).clamp(min=1e-30).log2().round().clamp(-7, 0)
    return (torch.where(rows < 0, -1.0, 1.0) * top * 2.0**power).flatten()[: x.numel()]


def largest(x, transform=None):
    """The KEPT largest of each 64, the rest zero; of their coefficients, where there is a transform."""
    rows = torch.nn.functional.pad(x, (0, -x.numel() % CHUNK)).view(-1, CHUNK)
    rows = rows if transform is None else rows @ transform.T
    places = rows.abs().topk(KEPT, 1).indices
    out = torch.zeros_like(rows).scatter(1, places, rows.gather(1, places))
    return (out if transform is None else out @ transform).flatten()[: x.numel()]


def cosines():
    """The orthonormal discrete cosine transform of 64 numbers."""
    n = torch.arange(CHUNK, dtype=torch.float64)
    C = torch.cos(np.pi / CHUNK * (n[None] + 0.5) * n[:, None]) * (2 / CHUNK) ** 0.5
    C[0] /= 2**0.5
    return C.float()


class Worker:
    """A worker's model, text and inner optimiser."""

    def __init__(self, k, seed, inner, eta):
        self.model = fresh(seed)
        self.params = list(self.model.parameters())
        self.own = windows(material()[0].train, 32, 8, np.random.default_rng([107, seed, k]))
        self.inner = inner(self.params, eta) if inner else []

    def gradient(self):
        self.model.zero_grad()
        x, y = map(torch.from_numpy, next(self.own))
        self.model.loss(x, y).backward()

    @property
    def w(self):
        return parameters_to_vector(self.params).detach()

    @w.setter
    def w(self, w):
        vector_to_parameters(w.clone(), self.params)


def adamw(params, eta):
    return [torch.optim.AdamW(params, eta, betas=(0.9, 0.99))]


def muon(params, eta):
    """Muon for the blocks' matrices, AdamW at 6e-3 for the rest."""
    blocks = [p for p in params[2:-1] if p.ndim == 2]
    rest = [p for p in params if not any(p is b for b in blocks)]
    return [torch.optim.Muon(blocks, eta, weight_decay=0.0), *adamw(rest, 6e-3)]


def loss(w):
    model = fresh(0)
    vector_to_parameters(w.clone(), model.parameters())
    with torch.no_grad():
        return round(model.loss(*material()[1]).item(), 4)


# -- a method takes its setting, a seed and T, and yields after every step the agreed parameters, or None ---------------


def synchronous(eta, seed, T, inner=adamw):
    workers = [Worker(k, seed, inner if k == 0 else None, eta) for k in range(K)]
    for _ in range(T):
        for one in workers:
            one.gradient()
        for each in zip(*(one.params for one in workers), strict=True):
            each[0].grad = sum(p.grad for p in each) / K
        for optimiser in workers[0].inner:
            optimiser.step()
        for one in workers[1:]:
            one.w = workers[0].w
        yield workers[0].w


def demo(eta, seed, T, beta=0.95):
    C = cosines()
    workers = [Worker(k, seed, None, eta) for k in range(K)]
    w = workers[0].w
    m = [torch.zeros_like(w) for _ in workers]
    for _ in range(T):
        sent = 0
        for k, one in enumerate(workers):
            one.gradient()
            m[k] = beta * m[k] + parameters_to_vector(p.grad for p in one.params)
            fast = largest(m[k], C)
            m[k] = m[k] - fast
            sent = sent + fast
        w = w - eta * sent.sign()
        for one in workers:
            one.w = w
        yield w


def meeting(mean, inner=adamw, every=H):
    """DiLoCo with any way to find the ``mean`` of the workers' outer gradients (K, P)."""

    def method(setting, seed, T):
        eta, (lr, momentum) = setting
        workers = [Worker(k, seed, inner, eta) for k in range(K)]
        anchor, v, memory = workers[0].w, torch.zeros_like(workers[0].w), {}
        for t in range(1, T + 1):
            for one in workers:
                one.gradient()
                for optimiser in one.inner:
                    optimiser.step()
            if t % every:
                yield None
                continue
            g = mean([anchor - one.w for one in workers], memory)
            v = momentum * v + g
            anchor = anchor - lr * (g + momentum * v)
            for one in workers:
                one.w = anchor
            yield anchor

    return method


def whole(G, memory):
    return sum(G) / K


def coded(G, memory):
    return sum(map(four_bits, G)) / K


def sparse(feedback, every=H):
    """SparseLoCo: what is not sent is remembered, and fades by ``feedback`` a meeting; no other momentum."""

    def mean(G, memory):
        out = 0
        for k, g in enumerate(G):
            e = feedback * memory.get(k, 0) + g
            sent = largest(e)
            memory[k] = e - sent
            out = out + sent / K
        return out

    return lambda setting, seed, T: meeting(mean, every=every)((setting[0], (setting[1], 0.0)), seed, T)


def coded_momentum(setting, seed, T):
    """What spoils it: every worker keeps outer momentum of its own, and 4 bits of *that* are sent."""
    lr, momentum = setting[1]

    def mean(G, memory):
        for k, g in enumerate(G):
            memory[k] = momentum * memory.get(k, 0) + g
        return sum(four_bits(g + momentum * memory[k]) for k, g in enumerate(G)) / K

    return meeting(mean)((setting[0], (lr, 0.0)), seed, T)


def streaming(setting, seed, T, mix=0.5):
    """A part leaves in 4 bits every H / PARTS steps, and is used when the next one leaves."""
    eta, (lr, momentum) = setting
    workers = [Worker(k, seed, adamw, eta) for k in range(K)]
    anchor, away = workers[0].w, None
    v, parts = torch.zeros_like(anchor), torch.arange(len(anchor)).tensor_split(PARTS)
    for t in range(1, T + 1):
        for one in workers:
            one.gradient()
            one.inner[0].step()
        if t % (H // PARTS):
            yield None
            continue
        W = [one.w for one in workers]
        if away:
            part, g = away
            v[part] = momentum * v[part] + g
            anchor = anchor.clone()
            anchor[part] -= lr * (g + momentum * v[part])
            for w, one in zip(W, workers, strict=True):
                w[part] = mix * w[part] + (1 - mix) * anchor[part]
                one.w = w
        part = parts[t // (H // PARTS) % PARTS]
        away = part, sum(four_bits(anchor[part] - w[part]) for w in W) / K
        yield anchor


def pairs(seed, meeting):
    """Who meets whom: drawn alike by all."""
    return np.random.default_rng([seed, meeting]).permutation(K).reshape(-1, 2)


def gossip(setting, seed, T, gamma=1.0):
    """NoLoCo: a pair's moves and places in the mean; what is judged is worker 0's own place."""
    eta, (lr, momentum) = setting
    workers = [Worker(k, seed, adamw, eta) for k in range(K)]
    place = [one.w for one in workers]
    delta = [torch.zeros_like(w) for w in place]
    for t in range(1, T + 1):
        for one in workers:
            one.gradient()
            one.inner[0].step()
        if t % H:
            yield None
            continue
        moves = [one.w - at for one, at in zip(workers, place, strict=True)]
        for i, j in pairs(seed, t // H):
            move, middle = (moves[i] + moves[j]) / 2, (place[i] + place[j]) / 2
            for k in (i, j):
                delta[k] = momentum * delta[k] + lr * move - gamma * (place[k] - middle)
            place[i], place[j] = place[i] + delta[i], place[j] + delta[j]
        for one, at in zip(workers, place, strict=True):
            one.w = at
        yield place[0]


OUTERS = [(eta, outer) for eta in ADAM for outer in OUTER]
SPARSE = [(eta, lr) for eta in (3e-3, 6e-3, 12e-3) for lr in (1.0, 2.0)]
MUON = (0.01, 0.02, 0.04)
METHODS = {
    "synchronous": (synchronous, [1e-3 * x for x in (1.5, 3, 4.5, 6, 9, 12)]),
    "DiLoCo": (meeting(whole), OUTERS),
    "4 bits": (meeting(coded), OUTERS),
    "streaming, 4 bits": (streaming, OUTERS),
    "DeMo": (demo, [1e-3 * x for x in (1, 2, 3, 4, 6, 8)]),
    "SparseLoCo": (sparse(0.95), SPARSE),
    "Muon inside": (meeting(whole, muon), [(eta, outer) for eta in MUON for outer in OUTER]),
    "gossip": (gossip, OUTERS),
    # for comparison: another inner optimiser alone; what is taken away, put at another place, or used too seldom
    "synchronous Muon": (partial(synchronous, inner=muon), [0.0025, 0.005, *MUON, 0.08]),
    "no memory": (sparse(0.0), SPARSE),
    "4-bit momentum": (coded_momentum, OUTERS),
    "DiLoCo, H = 80": (meeting(whole, every=80), OUTERS),
    "SparseLoCo, H = 80": (sparse(0.95, every=80), SPARSE),
}


def run(job):
    """Losses after LOOKS; None between meetings."""
    name, setting, seed = job
    torch.set_num_threads(1)
    losses = []
    for t, w in enumerate(METHODS[name][0](setting, seed, T), 1):
        if t in LOOKS:
            losses.append(None if w is None else loss(w))
    return losses


def sweep():
    seeds = list(evidence.seeds(5))
    other = max(seeds) + 1
    found = {"K": K, "H": H, "T": T, "steps": LOOKS, "methods": {}}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        tries = {
            name: [(name, setting, other) for setting in settings] for name, (_, settings) in METHODS.items()
        }
        ends = {name: pool.map_async(run, jobs, chunksize=1) for name, jobs in tries.items()}
        runs = {}
        for name, (_, settings) in METHODS.items():
            tried = [one[-1] for one in ends[name].get()]
            best = settings[int(np.nanargmin(tried))]
            found["methods"][name] = {"settings": settings, "tried": tried, "best": best}
            runs[name] = pool.map_async(run, [(name, best, seed) for seed in seeds], chunksize=1)
        for name, coming in runs.items():
            found["methods"][name]["losses"] = coming.get()
            print(name, found["methods"][name]["best"], [one[-1] for one in coming.get()], flush=True)
    return found
