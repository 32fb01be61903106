"""The arguments of the labs 10.8: every draw counted, roots of a companion matrix, symbols, and networks at random."""

from itertools import product

import numpy as np
import pytest
import sympy


def an_epoch(K, rate, values=(-1.0, 0.5, 3.0), N=4):
    """Over all draws of N values, one a worker: a step's variance, and mean and variance of an epoch's displacement."""
    draws = np.array(list(product(values, repeat=N))).reshape(-1, N // K, K)
    steps = rate * draws.mean(axis=2)
    epochs = steps.sum(axis=1)
    return np.array([steps[:, 0].var(), epochs.mean(), epochs.var()])


@pytest.mark.parametrize("K", [2, 4])
def test_why_10_8_linear(K):
    assert an_epoch(K, 0.1 * K) / an_epoch(1, 0.1) == pytest.approx([K, 1, 1])
    assert an_epoch(K, 0.1 * K**0.5) / an_epoch(1, 0.1) == pytest.approx([1, K**-0.5, 1 / K])


def test_why_10_8_long():
    """On parabolas, where the gradient bends as fast as allowed: below the bound, and at it where the rate is small."""
    for K, eta, curvature in product((2, 5, 32), (1e-5, 0.01, 0.1), (0.3, 2.0)):
        w = np.cumprod([1.0] + [1 - eta * curvature] * K)
        share = abs(w[-1] - (1 - K * eta * curvature)) / (K * eta * curvature)
        bound = (K - 1) * eta * curvature / 2
        assert share <= bound * (1 + 1e-3)
        if K * eta * curvature < 1e-3:
            assert share == pytest.approx(bound, rel=1e-3)


def test_why_10_8_edge():
    """The spectral radius of one step's matrix on (x, velocity), just inside and just outside."""
    for eta, m in product((0.01, 0.4), (0.0, 0.5, 0.9, 0.99)):
        for share in (1e-3, 0.5, 0.999, 1.001, 1.5):
            curvature = share * 2 * (1 + m) / eta
            # v <- m v + curvature x, then x <- x - eta v
            step = np.array([[1 - eta * curvature, -eta * m], [curvature, m]])
            assert (np.abs(np.linalg.eigvals(step)).max() < 1) == (share < 1)


def test_why_10_8_best():
    g2, curved, noise, eta, B = sympy.symbols("g2 curved noise eta B", positive=True)
    change = -eta * g2 + eta**2 * (curved + noise / B) / 2
    best = sympy.solve(sympy.diff(change, eta), eta)[0]
    assert sympy.simplify(best - (g2 / curved) / (1 + (noise / curved) / B)) == 0
    slope = B * sympy.diff(sympy.log(best), B)
    assert sympy.simplify(slope - 1 / (1 + B * curved / noise)) == 0


def test_why_10_8_ratio():
    rng = np.random.default_rng(3)

    def output(layers, x):
        for W in layers:
            x = np.maximum(W @ x, 0)
        return x

    for n, share in product((1, 3, 6), (0.01, 0.3)):
        layers = [rng.standard_normal((7, 7)) * 10.0 ** rng.integers(-2, 2) for _ in range(n)]
        grads = [rng.standard_normal((7, 7)) * 10.0 ** rng.integers(-2, 2) for _ in range(n)]
        eta, c, x = 0.5, 2 * share, rng.standard_normal(7)
        size = np.linalg.norm
        moved = [W - eta * c * size(W) / size(g) * g for W, g in zip(layers, grads, strict=True)]
        for W, V in zip(layers, moved, strict=True):
            assert np.linalg.norm(V - W) == pytest.approx(share * np.linalg.norm(W))
        whole = np.prod([np.linalg.norm(W) for W in layers]) * np.linalg.norm(x)
        bound = ((1 + share) ** n - 1) * whole
        assert np.linalg.norm(output(moved, x) - output(layers, x)) <= bound
        # attained by layers of one positive number each
        ones = [np.array([[2.0]])] * n
        grown = [(1 + share) * W for W in ones]
        gap = output(grown, np.ones(1)) - output(ones, np.ones(1))
        assert gap == pytest.approx(((1 + share) ** n - 1) * 2.0**n)


def test_why_10_8_adam():
    """Sign-like noise by hand: Adam's own recurrences, many epochs side by side, small and large batch."""
    rng = np.random.default_rng(8)
    g, sigma, examples, K, runs = 0.01, 1.0, 3200, 4, 4000

    def epoch(B, eta, b1=0.9):
        a, w, at = np.zeros(runs), np.zeros(runs), []
        root = np.sqrt(g**2 + sigma**2 / B)  # the second memory in its limit
        warm = 50
        for t in range(warm + examples // B):
            a = b1 * a + (1 - b1) * (g + sigma / B**0.5 * rng.standard_normal(runs))
            if t >= warm:
                w = w - eta * a / root
                at.append(w)
        return -w.mean(), w.var()

    small = np.array(epoch(4, 1.0))
    root, linear = (np.array(epoch(4 * K, eta)) for eta in (K**0.5, K))
    assert root / small == pytest.approx([1, 1], rel=0.2)
    assert (linear / small)[0] == pytest.approx(K**0.5, rel=0.2)
    assert (linear / small)[1] == pytest.approx(K, rel=0.2)
