"""The verdicts of lab 10.8 once more, in torch: autograd, its own starts and shuffles, another definition or solver."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from labkit_book.labs import data_file

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pictures(seed=5):
    """scikit-learn's digits, shuffled: 1024 to learn from, the rest unseen."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    X = torch.tensor(found.data[order] / 16, dtype=torch.float32)
    y = torch.tensor(found.target[order])
    return (X[:1024], y[:1024]), (X[1024:], y[1024:])


def standardised(X):
    return (X - X.mean(0)) / (X.std(0) + 0.1)


def network(widths, scale, seed):
    """He's start times ``scale``: W, b, W, b, ..."""
    rng = torch.Generator().manual_seed(seed)
    params = []
    sizes = (64, *widths, 10)
    for i, (into, out) in enumerate(pairwise(sizes)):
        gain = 1 if i == len(widths) else 2
        params += [scale * math.sqrt(gain / into) * torch.randn(out, into, generator=rng), torch.zeros(out)]
    return [p.requires_grad_() for p in params]


def scores(params, X):
    A = X
    for i in range(0, len(params), 2):
        A = F.linear(A.relu() if i else A, params[i], params[i + 1])
    return A


def loss_of(params, X, y):
    return F.cross_entropy(scores(params, X), y)


def train(params, X, y, B, rate, steps, order, momentum=0.0):
    """SGD by torch.optim; rate: of the step. Stops where nothing is finite any more."""
    params = [p.detach().clone().requires_grad_() for p in params]
    optimiser = torch.optim.SGD(params, lr=0.0, momentum=momentum)
    queue = []
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


def shuffle(seed):
    return torch.Generator().manual_seed(seed)


def test_10_8_trajectory(verdict, seed):
    """Three epochs instead of one, and no network's sharpness: long steps far below and far above where it lies (near 6)."""
    (X, y), _ = pictures()
    X = standardised(X)
    shares = []
    for s in range(seed, seed + 5):
        start = network((64, 64, 64), 1.0, s)

        def end(K, order, start=start):
            return flat(train(start, X, y, 16 * K, lambda t: 0.02 * K, 3 * 64 // K, shuffle(order)))

        here = end(1, s)
        shares.append(
            [(end(*run) - here).norm().item() for run in ((2, s), (4, s), (64, s), (1, s + 10_000))]
        )
    twice, four, whole, other = np.median(shares, axis=0)
    near, far = max(twice, four) < 0.75 * other, whole > 2 * other
    word = {(True, True): "true if", (True, False): "true"}.get((near, far), "false")
    assert verdict == word


def test_10_8_imagenet(verdict, seed):
    """Sixteen digit networks (of ten some processors lose five, too few to decide): pairs, the tail summed by hand."""
    (X, y), _ = pictures()
    X = standardised(X)

    def lost(scale, s, warm):
        def rate(t):
            return 0.16 if t >= warm else 0.01 + 0.15 * t / warm

        end = train(network((64, 64, 64), scale, s), X, y, 256, rate, 120, shuffle(s), momentum=0.9)
        return not loss_of(end, X, y).item() < 1

    ten, more = range(seed, seed + 10), range(seed, seed + 16)
    cold, warmed = ([lost(2.5, s, warm) for s in more] for warm in (0, 60))
    print(sum(cold), sum(warmed), "lost without and with warm-up, of", len(more))
    rescued = sum(c and not w for c, w in zip(cold, warmed, strict=True))
    ruined = sum(w and not c for c, w in zip(cold, warmed, strict=True))
    n = rescued + ruined
    tail = 2 * sum(math.comb(n, k) for k in range(rescued, n + 1)) / 2**n if n else 1
    digits_need_it = tail < 0.05
    proper_ones_do_not = sum(lost(1.0, s, 0) for s in ten) == 0
    word = "false" if digits_need_it and proper_ones_do_not else "not decided here" if n < 6 else "true"
    assert verdict == word


def critical_batch(rows, width, target):
    """Zhang et al.'s definition: where the examples needed are 1.2 times the fewest, interpolated in logarithms."""
    examples = {}
    for B in sorted({row["B"] for row in rows}):
        medians = []
        for eta in {row["eta"] for row in rows}:
            steps = [
                row["steps"][target]
                for row in rows
                if (row["width"], row["B"], row["eta"]) == (width, B, eta)
            ]
            medians.append(sorted(math.inf if t is None else t for t in steps)[len(steps) // 2])
        examples[B] = B * min(medians)
    cost = np.maximum.accumulate(np.log([max(examples[B], min(examples.values())) for B in examples]))
    return float(np.exp(np.interp(cost[0] + math.log(1.2), cost, np.log(list(examples)))))


def noise_scale(width, seed, loss):
    """Where gradient descent reaches the loss: the summed variance of an example's gradient over the mean's square."""
    (X, y), _ = pictures()
    w = [p.detach() for p in network((width,), 1.0, seed)]
    for _ in range(3000):
        grads, now = torch.func.grad_and_value(loss_of)(w, X, y)
        if now <= loss:
            break
        w = [p - 0.4 * g for p, g in zip(w, grads, strict=True)]
    each = torch.func.vmap(torch.func.grad(lambda w, x, t: loss_of(w, x[None], t[None])), (None, 0, 0))(
        w, X, y
    )
    mean = sum(g.mean(0).square().sum() for g in each)
    return float(sum(g.var(0).sum() for g in each) / mean)


def test_10_8_model(verdict, seed):
    """The critical batch by another definition from the stored runs; and the noise scale, which is what it stands for."""
    rows = json.loads(data_file("sweeps/10_8_critical.json").read_text())["found"]
    by_width = [critical_batch(rows, 128, t) / critical_batch(rows, 16, t) for t in range(3)]
    by_loss = [critical_batch(rows, width, 2) / critical_batch(rows, width, 0) for width in (16, 32, 128)]
    scale = {
        (width, loss): np.median([noise_scale(width, s, loss) for s in range(seed, seed + 5)])
        for width in (16, 128)
        for loss in (1.0, 0.1)
    }
    wider = [scale[128, loss] / scale[16, loss] for loss in (1.0, 0.1)]
    longer = [scale[width, 0.1] / scale[width, 1.0] for width in (16, 128)]
    print("runs", by_width, by_loss, "noise scale", wider, longer)
    grows_with_model = np.median(by_width) > 1.5 or np.median(wider) > 1.5
    grows_with_training = min(by_loss) > 1.3 and min(longer) > 1.3
    word = "true" if grows_with_model else "false" if grows_with_training else "not decided here"
    assert verdict == word


def test_10_8_32k(verdict):
    """Batches of the sweep beside 32k, by number and by share: to compare, some must lie on either side of it."""
    ends = json.loads(data_file("sweeps/10_8_minima.json").read_text())["found"]["same_loss"]
    batches, digits, images, named = {row["B"] for row in ends}, 512, 1281167, 32 * 1024

    def straddles(named_at):
        return min(batches) <= named_at / 2 and max(batches) >= 2 * named_at

    by_number, by_share = straddles(named), straddles(digits * named / images)
    word = "not decided here" if not (by_number or by_share) else "true or false"
    assert verdict == word


def same_loss(B, rate, seeds, X, y, target=0.01, longest=1500, look=5):
    """Small networks side by side, each on its own X (n, p), y: their parameters at the first of two looks at the target."""
    starts = [network((32, 32), 1.0, s) for s in seeds]
    w = [torch.stack([p.detach() for p in same]) for same in zip(*starts, strict=True)]
    v = [torch.zeros_like(p) for p in w]
    orders, queues = [shuffle(s) for s in seeds], [[] for _ in seeds]
    gradient, loss = torch.func.vmap(torch.func.grad(loss_of)), torch.func.vmap(loss_of)
    which = torch.arange(len(seeds))[:, None]
    kept, ends = [None] * len(seeds), [None] * len(seeds)
    for t in range(longest):
        for i, order in enumerate(orders):
            queues[i] = queues[i] or list(torch.randperm(X.shape[1], generator=order).split(B))
        idx = torch.stack([queue.pop(0) for queue in queues])
        for p, m, g in zip(w, v, gradient(w, X[which, idx], y[which, idx]), strict=True):
            m.mul_(0.9).add_(g)
            p.sub_(rate * m)
        if t % look == 0:
            for i, now in enumerate(loss(w, X, y).tolist()):
                here = [p[i].clone() for p in w] if now <= target else None
                ends[i] = ends[i] or (kept[i] if here else None)
                kept[i] = here and (kept[i] or here)
            if all(ends):
                break
    return ends


def top_eigenvalue(params, X, y):
    """Of the Hessian, by scipy's Lanczos."""
    linalg = pytest.importorskip("scipy.sparse.linalg")
    shapes = [p.shape for p in params]
    sizes = [p.numel() for p in params]

    def unpack(vector):
        return [part.reshape(shape) for part, shape in zip(vector.split(sizes), shapes, strict=True)]

    def product(vector):
        along = unpack(torch.tensor(vector, dtype=torch.float32).ravel())
        slope = torch.func.grad(lambda w: loss_of(w, X, y))
        return flat(torch.func.jvp(slope, (params,), (along,))[1]).double().numpy()

    hessian = linalg.LinearOperator((sum(sizes), sum(sizes)), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(sum(sizes))
    return float(linalg.eigsh(hessian, k=1, which="LA", v0=start, tol=1e-2, return_eigenvectors=False)[0])


@pytest.mark.weekly
def test_10_8_sharp(verdict, seed):
    """B = 16 and B = 512 to one loss, each seed with its own 512 digits; after 20 epochs B = 512 has hardly begun."""
    parts = [pictures(s) for s in range(seed, seed + 40)]
    X, y = (torch.stack([seen[i][:512] for seen, _ in parts]) for i in (0, 1))
    ends = [same_loss(B, 0.015, range(seed, seed + 40), X, y) for B in (16, 512)]
    sharper, worse = [], []
    for (_, (unseen, labels)), Xs, ys, *pair in zip(parts, X, y, *ends, strict=True):
        assert all(pair), "a run did not reach the loss"
        small, large = (top_eigenvalue(w, Xs, ys) for w in pair)
        wrong = [(scores(w, unseen).argmax(1) != labels).double().mean().item() for w in pair]
        sharper.append(large / small)
        worse.append(100 * (wrong[1] - wrong[0]))
    early = train(network((32, 32), 1.0, seed), X[0], y[0], 512, lambda t: 0.12, 20, shuffle(seed), 0.9)
    in_no_minimum = loss_of(early, X[0], y[0]).item() > 0.1
    surely_worse = np.mean(worse) > 1.645 * np.std(worse, ddof=1) / math.sqrt(len(worse))
    print("sharper", np.median(sharper), "worse", np.mean(worse), surely_worse, in_no_minimum)
    both = np.median(sharper) > 1.2 and surely_worse
    word = "false" if not both else "true if" if in_no_minimum else "true"
    assert verdict == word
