"""The arguments of lab 10.1: fractions and enumeration where the lab has floats and draws, and autograd for gradients."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest


def test_why_10_1_gap():
    """All 2^4 draws of noise +-s in fractions: E F is s^2 (1 - d/N) to the last digit, min R is more, E R still more."""
    X = [[Fraction(a), Fraction(b)] for a, b in ((1, 0), (1, 1), (1, 2), (1, 4))]
    N, d, s, truth = 4, 2, Fraction(3), (Fraction(2), Fraction(-1))
    (a, b), (_, c) = [[sum(x[i] * x[j] for x in X) for j in range(d)] for i in range(d)]
    det = a * c - b * b
    F, R = [], []
    for signs in product((-1, 1), repeat=N):
        y = [x[0] * truth[0] + x[1] * truth[1] + sign * s for x, sign in zip(X, signs, strict=True)]
        p, q = (sum(x[j] * t for x, t in zip(X, y, strict=True)) for j in range(d))
        w = (c * p - b * q) / det, (a * q - b * p) / det  # the normal equations, by Cramer
        F.append(sum((x[0] * w[0] + x[1] * w[1] - t) ** 2 for x, t in zip(X, y, strict=True)) / N)
        off = w[0] - truth[0], w[1] - truth[1]
        fresh = sum((x[0] * off[0] + x[1] * off[1]) ** 2 for x in X) / N
        R.append(s**2 + fresh)  # fresh noise on the same rows
    mean = [sum(values) / Fraction(2**N) for values in (F, R)]
    assert mean[0] == s**2 * (1 - Fraction(d, N))
    assert mean[0] < s**2 < mean[1]


def test_normal_features_have_the_other_half_of_the_gap():
    """The trace of an inverse Wishart matrix, by draws and QR: d / (N - d - 1), not d / N and not d / (N - d)."""
    rng, d, N = np.random.default_rng(0), 5, 12
    inverses = [np.linalg.inv(np.linalg.qr(rng.standard_normal((N, d)))[1]) for _ in range(8000)]
    trace = np.mean([np.sum(R_inverse**2) for R_inverse in inverses])
    assert trace == pytest.approx(d / (N - d - 1), rel=0.05)  # 0.833; d / (N - d) would be 0.714


def test_why_10_1_linear():
    """Autograd's gradient of one mean over all, and of the shards' sums; a shard may be empty. The bound on rounding."""
    torch = pytest.importorskip("torch")
    rng = torch.Generator().manual_seed(0)
    rows, w = (torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((37, 4), (4,)))
    w.requires_grad_()

    def f(x):  # a loss without a name: any will do
        return torch.log1p(torch.exp(torch.sin(x @ w) + (x @ w) ** 2))

    (whole,) = torch.autograd.grad(f(rows).mean(), w)
    parts = [torch.autograd.grad(f(rows[a:b]).sum(), w)[0] for a, b in ((0, 2), (2, 2), (2, 30), (30, 37))]
    in_parts = sum(parts) / sum((2, 0, 28, 7))
    each = sum(torch.autograd.grad(f(row), w)[0].abs() for row in rows)
    assert ((in_parts - whole).abs() < 8 * 1.1e-16 * each).all()  # f itself is rounded too
    plain = sum(p / n for p, n in zip(parts, (2, 1, 28, 7), strict=True)) / 3
    assert (plain - whole).abs().max() > 1e-2

    exact = [Fraction(x) for x in (0.1, 0.7, -0.3, 1e3, -999.9, 0.2)]  # what floats are, exactly
    for order in (range(6), range(5, -1, -1), (3, 0, 4, 1, 5, 2)):
        total = 0.0
        for i in order:
            total += float(exact[i])
        assert abs(Fraction(total) - sum(exact)) <= 6 * Fraction(2) ** -53 * sum(map(abs, exact))


# -- not sums -----------------------------------------------------------------------------------------------


def test_why_10_1_not_a_sum():
    """Set functions on four examples, in fractions: all cuts average to the whole exactly where single examples do."""
    values = [Fraction(v) for v in (3, -1, 4, 10)]

    def cuts(items):
        if not items:
            yield []
            return
        first, rest = items[0], items[1:]
        for cut in cuts(rest):
            yield [[first], *cut]
            for i in range(len(cut)):
                yield [*cut[:i], [first, *cut[i]], *cut[i + 1 :]]

    kinds = {
        "mean": lambda S: sum(values[i] for i in S) / len(S),
        "mean and once 7": lambda S: sum(values[i] for i in S) / len(S) + 7,
        "sum": lambda S: sum(values[i] for i in S),
        "largest": lambda S: max(values[i] for i in S),
        "variance": lambda S: sum((values[i] - values[j]) ** 2 for i in S for j in S) / len(S) ** 2 / 2,
    }
    splits = {}
    for name, gradient in kinds.items():
        whole = list(range(4))
        every = list(cuts(whole))
        right = [sum(len(S) * gradient(S) for S in cut) / 4 == gradient(whole) for cut in every]
        singles = sum(gradient([i]) for i in whole) / 4 == gradient(whole)
        assert all(right) == singles  # the equivalence, in both directions, for every cut of the four
        splits[name] = singles
    assert len(every) == 15  # all of Bell's cuts
    assert [name for name, whole in splits.items() if whole] == ["mean", "mean and once 7"]

    # the three that vanish on one row: normalised by its own mean, a partner among one, no pair
    w, x, e = np.array([0.3, -2.0]), np.array([1.5, 0.2]), 1e-3
    for one_row in (
        lambda w: np.logaddexp(0, (x @ w - np.mean([x @ w])) / np.sqrt(1e-5)),
        lambda w: np.logaddexp.reduce([(x * w) @ (x * w)]) - (x * w) @ (x * w),
    ):
        assert one_row(w + e) - one_row(w - e) == pytest.approx(0, abs=1e-12)
