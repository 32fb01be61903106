"""The verdicts of the labs 10.8 once more, in torch: autograd, its own starts and shuffles, another definition or solver."""

import json
import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from labkit_book.labs import data_file

torch = pytest.importorskip("torch")
F = torch.nn.functional


def pictures(seed=5, N=1024):
    """scikit-learn's digits, shuffled: N to learn from, standardised."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))[:N]
    X = torch.tensor(found.data[order] / 16, dtype=torch.float32)
    return (X - X.mean(0)) / (X.std(0) + 0.1), torch.tensor(found.target[order])


def network(widths, scale, seed):
    """He's start times ``scale``: W, b, W, b, ..."""
    rng, params = torch.Generator().manual_seed(seed), []
    for i, (into, out) in enumerate(pairwise((64, *widths, 10))):
        gain = 1 if i == len(widths) else 2
        params += [scale * math.sqrt(gain / into) * torch.randn(out, into, generator=rng), torch.zeros(out)]
    return [p.requires_grad_() for p in params]


def loss_of(params, X, y):
    for i in range(0, len(params), 2):
        X = F.linear(X.relu() if i else X, params[i], params[i + 1])
    return F.cross_entropy(X, y)


def train(params, X, y, B, rate, steps, seed, momentum=0.0):
    """SGD by torch.optim; rate: of the step. Stops where nothing is finite any more."""
    params, order = [p.detach().clone().requires_grad_() for p in params], torch.Generator().manual_seed(seed)
    optimiser, queue = torch.optim.SGD(params, lr=0.0, momentum=momentum), []
    for t in range(steps):
        queue = queue or list(torch.randperm(len(X), generator=order).split(B))
        idx = queue.pop(0)
        optimiser.param_groups[0]["lr"] = rate(t)
        optimiser.zero_grad()
        loss = loss_of(params, X[idx], y[idx])
        loss.backward()
        optimiser.step()
        if not torch.isfinite(loss):
            break
    return params


def flat(params):
    return torch.cat([p.detach().ravel() for p in params])


def sharpness(params, X, y):
    """The largest eigenvalue of the Hessian, by scipy's Lanczos."""
    linalg, sizes = pytest.importorskip("scipy.sparse.linalg"), [p.numel() for p in params]
    w = tuple(p.detach() for p in params)

    def product(vector):
        parts = torch.tensor(vector, dtype=torch.float32).ravel().split(sizes)
        along = tuple(part.view_as(p) for part, p in zip(parts, w, strict=True))
        slope = torch.func.grad(lambda w: loss_of(w, X, y))
        return flat(torch.func.jvp(slope, (w,), (along,))[1]).double().numpy()

    hessian = linalg.LinearOperator((sum(sizes),) * 2, matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(sum(sizes))
    return float(linalg.eigsh(hessian, k=1, which="LA", v0=start, tol=1e-2, return_eigenvectors=False)[0])


@pytest.mark.settings(
    dict(widths=(64, 64, 64), N=1024, epochs=1, momentum=0.0), dict(widths=(32,)), dict(N=512), dict(epochs=3),
    dict(widths=(128, 128)),
)  # fmt: skip
def test_10_8_trajectory(verdict, seed, at):
    """Long steps of an eighth and a quarter of 2 / sharpness, and of four times that; each seed has digits of its own."""
    shares = []
    for s in range(seed, seed + 5):
        X, y = pictures(s, at.N)
        start = network(at.widths, 1.0, s)
        eta, steps = 2 / sharpness(start, X, y) / 16, at.epochs * at.N // 16

        def end(K, order, start=start, X=X, y=y, eta=eta, steps=steps):
            return flat(train(start, X, y, 16 * K, lambda t: eta * K, max(1, steps // K), order))

        here, others = end(1, s), ((2, s), (4, s), (min(64, at.N // 16), s), (1, s + 10_000))
        shares.append([(end(*run) - here).norm().item() for run in others])
    twice, four, whole, other = np.median(shares, axis=0)
    print(twice, four, whole, other)
    near, far = max(twice, four) < other, whole > 2 * other
    assert verdict == ({(True, True): "true if", (True, False): "true"}.get((near, far), "false"))


def test_10_8_imagenet(verdict, seed):
    """Sixteen proper starts with 64 times the batch and rate: with as many rescued as ruined, nothing is decided."""
    X, y = pictures()

    def lost(s, warm):
        start = network((64, 64, 64), 1.0, s)
        end = train(start, X, y, 1024, lambda t: 0.64 * min(1, (t + 1) / (warm + 1)), 30, s, momentum=0.9)
        return not loss_of(end, X, y).item() < 1

    cold, warmed = (np.array([lost(s, warm) for s in range(seed, seed + 16)]) for warm in (0, 15))
    rescued, n = int((cold & ~warmed).sum()), int((cold != warmed).sum())
    tail = 2 * sum(math.comb(n, k) for k in range(rescued, n + 1)) / 2**n if n else 1
    print(cold.sum(), warmed.sum(), "lost without and with warm-up, of 16")
    assert verdict == ("false" if tail < 0.05 else "not decided here")


def critical_batch(rows, width, target, seed):
    """Zhang et al.'s definition: where the examples needed are 1.2 times the fewest, interpolated in logarithms."""
    examples = {}
    for B in sorted({row["B"] for row in rows}):
        steps = defaultdict(dict)
        for row in rows:
            if (row["width"], row["B"]) == (width, B):
                steps[row["eta"]][row["seed"]] = row["steps"][target] or math.inf
        best = min(steps.values(), key=lambda each: sorted(each.values())[len(each) // 2])
        examples[B] = B * best[seed]
    cost = np.maximum.accumulate(np.log([max(examples[B], min(examples.values())) for B in examples]))
    return float(np.exp(np.interp(cost[0] + math.log(1.2), cost, np.log(list(examples)))))


def test_10_8_model(verdict):
    """The critical batch by another definition, seed by seed: does the middle half of the ratios hold both 1 and growth?"""
    rows = json.loads(data_file("sweeps/10_8_critical.json").read_text())["found"]
    ratios = [
        critical_batch(rows, 128, t, s) / critical_batch(rows, 16, t, s) for t in range(3) for s in range(5)
    ]
    low, high = np.quantile(ratios, (0.25, 0.75))
    print("eight times as wide: critical batch x", low, "to", high)
    assert verdict == ("true" if low > 1.1 else "false" if high < 1.1 else "not decided here")


def test_10_8_32k(verdict):
    """Batches of the sweep beside 32k, by number and by share: to compare, some must lie on either side of it."""
    ends = json.loads(data_file("sweeps/10_8_minima.json").read_text())["found"]["same_loss"]
    batches, digits, images, named = {row["B"] for row in ends}, 512, 1281167, 32 * 1024
    by_number_and_share = (named, digits * named / images)
    straddled = [min(batches) <= at / 2 and max(batches) >= 2 * at for at in by_number_and_share]
    assert verdict == ("true or false" if any(straddled) else "not decided here")


def test_10_8_sharp(verdict):
    """At equal rates more errors, at rates of their own none that an interval shows: it depends on what is held equal."""
    rows = json.loads(data_file("sweeps/10_8_minima.json").read_text())["found"]["same_loss"]
    errors = defaultdict(dict)
    for row in rows:
        if row["choose"] is not None:
            errors[row["B"], row["eta"]][row["seed"]] = (row["choose"], row["judge"])

    def worse(small, large):
        both = errors[16, small].keys() & errors[512, large].keys()
        gap = [np.mean(errors[512, large][s]) - np.mean(errors[16, small][s]) for s in both]
        return np.mean(gap) > 1.96 * np.std(gap, ddof=1) / math.sqrt(len(gap))

    means = {at: np.mean([c for c, _ in e.values()]) for at, e in errors.items() if len(e) == 40}
    best = [min((mean, eta) for (b, eta), mean in means.items() if b == B)[1] for B in (16, 512)]
    same, own = worse(0.015, 0.015), worse(*best)
    print(same, own, best)
    assert verdict == ("true" if same and own else "false" if not same and not own else "not decided here")
