"""Do large batches end in sharper minima, and do those generalise worse? Runs on 512 digits, judged on digits unseen.

`same_loss`, one row a run: the batch B, the rate, the seed, and, at the first of ten steps in a row with a training loss of
at most 0.01 over all 512 digits, the steps, the sharpness and the test error in per cent on two halves of the unseen digits,
one to choose a rate by and one to judge by; nulls for a run that is not there within 1500 steps. `same_epochs`: the two
errors after 20 epochs. A seed draws which 512 digits are seen, the initial weights and the shuffles. Momentum 0.9; one
grid of rates for all batches.
"""

from __future__ import annotations

import numpy as np
import torch

from labkit import evidence
from labkit.learn import MLP, Diverged, Momentum, digits, minibatches, walk

BATCHES, RATES, SEEDS = (16, 64, 512), (0.015, 0.03, 0.06, 0.12), 40
TARGET, STAY, T, EPOCHS = 0.01, 10, 1500, 20


def problems(seed: int) -> list[MLP]:
    """To learn from, to choose by, to judge by."""
    data = digits(np.random.default_rng(seed), test=1285 / 1797)
    X, test = data.X.astype(np.float32), data.X_test.astype(np.float32)
    parts = (X, data.y), (test[:642], data.y_test[:642]), (test[642:], data.y_test[642:])
    return [MLP(x, y, hidden=(32, 32), classes=10, activation="relu") for x, y in parts]


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


def run(net: MLP, B: int, eta: float, seed: int) -> tuple[int | None, np.ndarray | None, np.ndarray | None]:
    """Steps to the target and w there; w after EPOCHS epochs. None for what was not reached."""
    start, kept, late, last = net.init(np.random.default_rng(seed)), [], None, EPOCHS * net.N // B
    batches = minibatches(net.N, B, np.random.default_rng(50 + seed), epochs=None)
    arrived: tuple[int | None, np.ndarray | None] = (None, None)
    try:
        for t, w in enumerate(walk(net, start, Momentum(0.9), eta, batches, T=T), start=1):
            late = w if t == last else late
            kept = [*kept, w] if net.loss(w) <= TARGET else []
            if len(kept) >= STAY and arrived[0] is None:
                arrived = t - STAY + 1, kept[-STAY]
            if arrived[0] is not None and t >= last:
                break
    except Diverged:
        pass
    return *arrived, late


def sweep() -> dict[str, list[dict[str, float | None]]]:
    torch.set_num_threads(1)
    np.seterr(over="ignore", invalid="ignore")

    def errors(w: np.ndarray | None, halves: list[MLP]) -> dict[str, float | None]:
        found = [None if w is None else round(100 * (1 - half.accuracy(w)), 2) for half in halves]
        return dict(zip(("choose", "judge"), found, strict=True))

    same_loss, same_epochs = [], []
    for seed in evidence.seeds(SEEDS):
        few, *halves = problems(seed)
        for B in BATCHES:
            for eta in RATES:
                row: dict[str, float | None] = {"B": B, "eta": eta, "seed": seed}
                steps, w, late = run(few, B, eta, seed)
                top = None if w is None else round(sharp(few, w), 3)
                same_loss.append(row | {"steps": steps, "sharpness": top} | errors(w, halves))
                same_epochs.append(row | errors(late, halves))
    return {"same_loss": same_loss, "same_epochs": same_epochs}
