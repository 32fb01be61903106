"""DiLoCo as its paper runs it, on a smaller model: eight workers, H = 500, AdamW inside, Nesterov outside, a head start.

Douillard et al. 2023, section 3: outer learning rate 0.7, outer momentum 0.9, the inner rate falling along half a cosine; a
shard of the text for each worker. Beside it synchronous AdamW on the same windows, and plain averaging every H steps.
All begin with the same synchronous head start. Every method has its own inner rate, from one grid, tuned on one seed that is
not among the seeds of the result and on half the steps.

The copies of the model, one for each seed and worker, are rows of one matrix and take their steps together (``vmap``).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from labkit import evidence
from labkit_book.labs.char_model import CharTransformer
from labkit_book.labs.text import shakespeare, windows

K, H, B, LENGTH, HEAD_START, ROUNDS = 8, 500, 2, 16, 1000, 12
GRID = (5e-4, 2e-3, 8e-3, 32e-3)
#: Of each method: the workers that step alone, the outer learning rate and momentum.
METHODS = {"synchronous": (1, 1.0, 0.0), "DiLoCo": (K, 0.7, 0.9), "averaging": (K, 1.0, 0.0)}

text = shakespeare()
V = len(text.vocabulary)
like = CharTransformer(V, LENGTH, width=32, layers=1)
shapes = {name: p.shape for name, p in like.named_parameters()}


def loss(w, x, y):
    parts = w.split([shape.numel() for shape in shapes.values()])
    params = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return F.cross_entropy(functional_call(like, params, (x,)).flatten(0, 1), y.flatten())


gradients = vmap(grad(loss))
unseen = [torch.from_numpy(a) for a in next(windows(text.validation, LENGTH, 256, np.random.default_rng(7)))]


def initial(seed):
    torch.manual_seed(seed)
    model = CharTransformer(V, LENGTH, width=32, layers=1)
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def train(anchors, seeds, etas, method, T, phase):
    """Anchors (R, P), one run each, after T steps, and their losses on unseen text after every H steps, (T / H, R)."""
    alone, lr, momentum = METHODS[method]
    anchor = anchors.clone()
    outer = torch.optim.SGD([anchor], lr=lr, momentum=momentum, nesterov=momentum > 0)
    w = anchor.repeat_interleave(alone, 0)
    runs = w.split(alone)  # views: what the optimiser does to a run, it does to w
    inner = torch.optim.AdamW([{"params": [run]} for run in runs], betas=(0.9, 0.99))
    shards = np.array_split(text.train, K)
    own = [
        windows(shards[k], LENGTH, B, np.random.default_rng([phase, s, k])) for s in seeds for k in range(K)
    ]
    losses = []
    for t in range(T):
        x, y = (
            torch.from_numpy(np.stack(a)).view(len(w), -1, LENGTH) for a in zip(*map(next, own), strict=True)
        )
        slopes = gradients(w, x, y).split(alone)
        for run, g, group, eta in zip(runs, slopes, inner.param_groups, etas, strict=True):
            run.grad = g
            group["lr"] = eta * min(1, (t + 1) / 100) * (1 + math.cos(math.pi * t / T)) / 2
        inner.step()
        if (t + 1) % H == 0:
            anchor.grad = anchor - w.view(len(anchor), alone, -1).mean(1)
            outer.step()
            w.copy_(anchor.repeat_interleave(alone, 0))
            losses.append([loss(one, *unseen).item() for one in anchor])
    return anchor, losses


def sweep():
    torch.set_num_threads(1)
    seeds = list(evidence.seeds(5))
    other, n = max(seeds) + 1, len(GRID)
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        fresh = torch.stack([initial(s) for s in [*seeds, other]])
        start, _ = train(fresh, [*seeds, other], [4e-3] * 6, "synchronous", HEAD_START, 0)
        found = {"tuned": {}, "losses": {}, "start": [loss(w, *unseen).item() for w in start[:-1]]}
        for method in METHODS:
            _, tried = train(start[-1:].repeat(n, 1), [other] * n, GRID, method, ROUNDS * H // 2, 1)
            scores = dict(zip(GRID, tried[-1], strict=True))
            best = evidence.tune(scores.get, GRID).best
            _, losses = train(start[:-1], seeds, [best] * len(seeds), method, ROUNDS * H, 2)
            found["tuned"][method], found["losses"][method] = {"best": best, "scores": tried[-1]}, losses
            print(method, found["tuned"][method], losses[-1], flush=True)
    return found | {
        "K": K,
        "H": H,
        "rounds": ROUNDS,
        "head_start": HEAD_START,
        "grid": GRID,
        "P": start.shape[1],
    }
