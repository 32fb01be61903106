"""Streaming and asynchronous DiLoCo on the finale's model: the grid, seeds, text and steps of `10_7_race.py`.

Streaming (Douillard et al. 2025): the parameters are cut into F parts. Every H / F steps one part leaves, and what the other
worker sent of it is used H / F steps later, mixed half and half with where the worker is by then.

Asynchronous (Liu et al. 2024): worker 0 computes twice as fast as worker 1. Whoever has done H steps brings its outer
gradient, divided by K, takes the newest parameters and goes on; nobody waits. Meetings themselves take no time. Time is
counted in steps of the fast worker, so that T steps of both, in step, would take 2 T.

A method's rate is the one of GRID with the lowest loss at the end, on one seed that is not among those of the result.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from labkit import evidence
from labkit_book.labs.char_model import CharTransformer
from labkit_book.labs.text import shakespeare, windows

K, H, F, T, SLOWER = 2, 20, 4, 160, 2
GRID = (1.5e-3, 3e-3, 6e-3, 12e-3)
LATER = tuple(range(20, T + 1, 20))

text = shakespeare()
V = len(text.vocabulary)
unseen = [torch.from_numpy(a) for a in next(windows(text.validation, 32, 128, np.random.default_rng(7)))]


class Worker:
    """One worker: its model, inner optimiser and text."""

    def __init__(self, rank, eta, seed):
        torch.manual_seed(seed)
        self.model = CharTransformer(V, length=32, width=96, layers=2)
        self.inner = torch.optim.AdamW(self.model.parameters(), eta, betas=(0.9, 0.99))
        self.own = windows(text.train, 32, 8, np.random.default_rng([107, seed, rank]))

    @property
    def w(self):
        return parameters_to_vector(self.model.parameters()).detach()

    def go_to(self, w):
        vector_to_parameters(w.clone(), self.model.parameters())

    def step(self):
        self.model.zero_grad()
        x, y = map(torch.from_numpy, next(self.own))
        self.model.loss(x, y).backward()
        self.inner.step()


def loss(worker, w):
    before = worker.w
    worker.go_to(w)
    with torch.no_grad():
        found = round(worker.model.loss(*unseen).item(), 4)
    worker.go_to(before)
    return found


def streaming(eta, seed, lr=0.7, momentum=0.9, mix=0.5):
    """Losses of the agreed parameters after the steps LATER."""
    workers = [Worker(k, eta, seed) for k in range(K)]
    anchor = workers[0].w
    v, parts, every = torch.zeros_like(anchor), torch.arange(len(anchor)).tensor_split(F), H // F
    on_the_way, losses = None, []
    for t in range(1, T + 1):
        for one in workers:
            one.step()
        if t % every == 0:
            if on_the_way is not None:
                part, g = on_the_way
                v[part] = momentum * v[part] + g
                anchor[part] -= lr * (g + momentum * v[part])
                for one in workers:
                    w = one.w
                    w[part] = mix * w[part] + (1 - mix) * anchor[part]
                    one.go_to(w)
            part = parts[t // every % F]
            on_the_way = part, anchor[part] - sum(one.w[part] for one in workers) / K
        if t in LATER:
            losses.append(loss(workers[0], anchor))
    return losses


def asynchronous(eta, seed, lr, momentum):
    """Losses of the newest parameters at the times 2 t, t of LATER."""
    workers = [Worker(k, eta, seed) for k in range(K)]
    anchor = workers[0].w
    began, v, losses = [anchor.clone() for _ in workers], torch.zeros_like(anchor), []
    for time in range(1, SLOWER * T + 1):
        for k, one in enumerate(workers):
            pace = SLOWER if k else 1
            if time % pace == 0:
                one.step()
            if time % (pace * H) == 0:  # it has done H steps: the server's turn
                g = (began[k] - one.w) / K
                v = momentum * v + g
                anchor = anchor - lr * (g + momentum * v)
                one.go_to(anchor)
                began[k] = anchor.clone()
        if time % SLOWER == 0 and time // SLOWER in LATER:
            losses.append(loss(workers[0], anchor))
    return losses


METHODS = {
    "streaming": streaming,
    "asynchronous": lambda eta, seed: asynchronous(eta, seed, 0.7, 0.9),
    "asynchronous, no momentum": lambda eta, seed: asynchronous(eta, seed, 1.0, 0.0),
}


def sweep():
    torch.set_num_threads(1)
    seeds = list(evidence.seeds(5))
    other = max(seeds) + 1
    found = {"grid": GRID, "K": K, "H": H, "F": F, "slower": SLOWER, "steps": LATER, "methods": {}}
    for name, losses in METHODS.items():
        tuned = evidence.tune(lambda eta, of=losses: of(eta, other)[-1], GRID)
        found["methods"][name] = {
            "rate": tuned.best,
            "tried": tuned.scores,
            "losses": [losses(tuned.best, s) for s in seeds],
        }
        print(name, tuned, [one[-1] for one in found["methods"][name]["losses"]], flush=True)
    return found
