"""Why DiLoCo stays above one worker on the same windows: meetings, batch and outer momentum, varied one at a time.

The setting of `10_7_diloco.py` (eight workers, twelve rounds, AdamW inside at a rate that falls along half a cosine, outer
rate 0.7, Nesterov momentum 0.9; a synchronous head start, here a quarter of all steps) on a network that is cheap enough to
vary: from four letters it guesses the fifth. The *mended* outer momentum shrinks its memory along with the inner rate, so
that an outer gradient of an early, long round does not push on when rounds have become short.

Those who step alone have one rate, and the synchronous runs another: of 0.004, 0.012 and 0.036 each ended lowest for DiLoCo
and for synchronous training on a fourth seed, after half the steps.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional as F

from labkit import evidence
from labkit_book.labs.text import shakespeare

K, H, T, B, HEAD_START = 8, 160, 1920, 32, 640
ALONE, TOGETHER = 0.012, 0.036
#: Of each variant: the workers that step alone, H, letters that each guesses a step, outer rate, momentum, mended.
VARIANTS = {
    "synchronous": (1, H, B, 1.0, 0.0, False),
    "DiLoCo": (K, H, B, 0.7, 0.9, False),
    "plain mean": (K, H, B, 1.0, 0.0, False),
    "momentum mended": (K, H, B, 0.7, 0.9, True),
    "4 x the meetings": (K, H // 4, B, 0.7, 0.9, False),
    "4 x the batch": (K, H, 4 * B, 0.7, 0.9, False),
    "synchronous, 4 x the batch": (1, H, 4 * B, 1.0, 0.0, False),
}

text = shakespeare()
V, shards = len(text.vocabulary), np.array_split(np.arange(len(text.train) - 5), K)
look = np.arange(0, len(text.validation) - 5, 5)[None]


def losses(params, ids, places):
    """Mean loss of each copy, (R,): four letters from each of its places (R, n) are read, the fifth is guessed."""
    E, W, bias, out = params
    seen = torch.from_numpy(ids[places[..., None] + np.arange(5)].astype(np.int64))
    rows = torch.arange(len(E))[:, None, None]
    scores = torch.baddbmm(bias, E[rows, seen[..., :4]].flatten(2), W).tanh() @ out
    each = F.cross_entropy(scores.flatten(0, 1), seen[..., 4].expand(len(E), -1).flatten(), reduction="none")
    return each.view(len(E), -1).mean(1)


def initial(seed):
    torch.manual_seed(seed)
    return [0.2 * torch.randn(1, *size) for size in ((V, 8), (32, 64), (1, 64), (64, V))]


def cosine(t, steps):
    return (1 + math.cos(math.pi * t / steps)) / 2


def train(starts, seeds, etas, variant, steps, phase):
    """Where runs (one row each) end, and their losses on unseen text every H steps, (steps / H, R)."""
    alone, h, b, lr, momentum, mended = variant
    anchor = [p.clone() for p in starts]
    v = [torch.zeros_like(p) for p in anchor]
    copies = [p.repeat_interleave(alone, 0).requires_grad_() for p in anchor]
    inner = torch.optim.AdamW(copies, lr=1.0, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    each = torch.tensor(etas).repeat_interleave(alone).view(-1, 1, 1)  # steps differ from row to row
    rngs, found = [np.random.default_rng([phase, s]) for s in seeds], []
    for t in range(steps):
        places = [[rng.choice(shard, b) for shard in shards] for rng in rngs]
        inner.zero_grad()
        losses(copies, text.train, np.reshape(places, (len(copies[0]), -1))).sum().backward()
        before = [p.detach().clone() for p in copies]
        inner.step()
        with torch.no_grad():
            for p, old in zip(copies, before, strict=True):  # the step at rate 1, shortened
                p.copy_(old + each * cosine(t, steps) * (p - old))
            if (t + 1) % h:
                continue
            keep = momentum * (
                cosine(t - h / 2, steps) / cosine(t - 3 * h / 2, steps) if mended and t > h else 1
            )
            for a, speed, p in zip(anchor, v, copies, strict=True):
                g = a - p.unflatten(0, (-1, alone)).mean(1)
                speed.mul_(keep).add_(g)
                a -= lr * (g + momentum * speed)
                p.copy_(a.repeat_interleave(alone, 0))
            if (t + 1) % H == 0:
                found.append([round(x, 4) for x in losses(anchor, text.validation, look).tolist()])
    return anchor, found


def sweep():
    torch.set_num_threads(1)
    seeds = list(evidence.seeds(3))
    fresh = [torch.cat(same) for same in zip(*map(initial, seeds), strict=True)]
    begin, _ = train(fresh, seeds, [ALONE] * 3, VARIANTS["synchronous"], HEAD_START, 0)
    result = {"K": K, "H": H, "steps": T, "losses": {}}
    for name, variant in VARIANTS.items():
        rate = ALONE if variant[0] > 1 else TOGETHER
        _, found = train(begin, seeds, [rate] * 3, variant, T, 2)
        result["losses"][name] = found
        print(name, found[-2:], flush=True)
    return result
