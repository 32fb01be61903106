"""Which starts does the linear rule survive? Networks from weights of several scales, K times the batch and the rate.

One row a run: K, the scale, the seed, the sharpness at the start, the loss after 30 epochs without warm-up and with 15
epochs of it (null: not finite). Digits, network, momentum and rate are lab 10.8's.
"""

from __future__ import annotations

import numpy as np
import torch

from labkit import evidence
from labkit.learn import MLP, Diverged, Momentum, digits, minibatches, walk

SCALES, FACTORS, SEEDS = (1.0, 1.5, 2.0, 2.5, 3.0), (4, 8, 16, 32, 64), 10
b, eta, EPOCHS, WARM = 16, 0.01, 30, 15


def network() -> MLP:
    data = digits(np.random.default_rng(0), test=773 / 1797)
    X = (data.X - data.X.mean(axis=0)) / (data.X.std(axis=0) + 0.1)
    return MLP(X.astype(np.float32), data.y, hidden=(64, 64, 64), classes=10, activation="relu")


def slopes_at(net, w):
    """The parameters as tensors, and the gradient as a function of them."""
    params = [torch.tensor(p.copy(), requires_grad=True) for p in net.unpack(w)]
    A, y = torch.from_numpy(net.X), torch.from_numpy(net.y)
    for i, (W, c) in enumerate(zip(params[::2], params[1::2], strict=True)):
        A = torch.nn.functional.linear(A.relu() if i else A, W, c)
    loss = torch.nn.functional.cross_entropy(A, y)
    return params, torch.autograd.grad(loss, params, create_graph=True)


def unit(parts):
    length = torch.sqrt(sum(p.square().sum() for p in parts))
    return [p / length for p in parts]


def sharp(net: MLP, w: np.ndarray) -> float:
    """The largest eigenvalue of the Hessian H, by power iteration: v <- H v / |H v|."""
    (params, slopes), dice = slopes_at(net, w), torch.Generator().manual_seed(0)
    v = unit([torch.randn(p.shape, generator=dice, dtype=p.dtype) for p in params])
    eigenvalue = 0.0
    for _ in range(60):  # H v is the gradient of the number slopes . v
        Hv = torch.autograd.grad(slopes, params, v, retain_graph=True)
        before, eigenvalue = eigenvalue, sum((h * x).sum() for h, x in zip(Hv, v, strict=True)).item()
        if abs(eigenvalue - before) <= 1e-3 * abs(eigenvalue):
            break
        v = unit(Hv)
    return eigenvalue


def final_loss(net: MLP, start: np.ndarray, K: int, seed: int, warm: int) -> float | None:
    steps = warm * (net.N // (K * b))

    def rate(t: int) -> float:
        return K * eta if t >= steps else eta + (K - 1) * eta * t / steps

    batches = minibatches(net.N, K * b, np.random.default_rng(100 + seed), epochs=EPOCHS)
    try:
        *_, w = walk(net, start, Momentum(0.9), rate, batches)
    except Diverged:
        return None
    found = net.loss(w)
    return round(found, 5) if np.isfinite(found) else None


def sweep() -> list[dict[str, float | None]]:
    torch.set_num_threads(1)
    np.seterr(over="ignore", invalid="ignore")
    net, rows = network(), []
    for scale in SCALES:
        for seed in evidence.seeds(SEEDS):
            w = np.float32(scale) * net.init(np.random.default_rng(seed))
            lam = round(sharp(net, w), 1)
            for K in FACTORS:
                cold, warm = (final_loss(net, w, K, seed, epochs) for epochs in (0, WARM))
                row = {"K": K, "scale": scale, "seed": seed, "sharpness": lam, "cold": cold, "warm": warm}
                rows.append(row)
    return rows
