"""The arguments of labs 10.7, by other routes: all cases counted out, torch's own optimiser, sympy, plain loops."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sympy
import torch


def test_why_10_7_unbiased():
    """All draws counted out: Q doubles a number or drops it (omega = 1, attained); the gradient has two values."""
    gradient, noise = np.array([1.0, -2.0]), np.array([3.0, 1.0])

    masks = [2 * np.array(kept) for kept in product((0, 1), repeat=2)]
    # All messages of one worker.
    one = [mask * (gradient + sign * noise) for sign in (1, -1) for mask in masks]

    def variance(messages):
        return np.mean(np.sum((np.array(messages) - gradient) ** 2, axis=1))

    assert np.allclose(np.mean(one, axis=0), gradient)
    assert np.isclose(variance(one), (1 + 1) * noise @ noise + 1 * gradient @ gradient)
    assert np.isclose(variance([np.mean(qs, axis=0) for qs in product(one, repeat=3)]), variance(one) / 3)


def test_why_10_7_gather():
    """Every message laid out and added up, in whole parts of a vector."""
    n, m = Fraction(4000), Fraction(125)
    for K in (2, 5, 31, 63, 64, 65, 200):
        ring, gather, owners = (
            sum([part] * times * (K - 1)) for part, times in ((n / K, 2), (m, 1), (m / K, 2))
        )
        assert (gather < ring) == (2 * n / m > K)
        assert ring / owners == n / m


def test_why_10_7_feedback():
    """Random gradients, top-k: the corrected point against the plain sum; the memory's bound, its series, its delta."""
    rng, K, d, k, eta = np.random.default_rng(2), 3, 6, 2, 0.1
    w = x = rng.standard_normal(d)
    memory, longest = np.zeros((K, d)), 0.0
    for _ in range(300):
        g = rng.standard_normal((K, d))
        g /= np.linalg.norm(g, axis=1, keepdims=True)  # G = 1
        said = memory + g
        for row in said:
            row[np.argsort(np.abs(row))[: d - k]] = 0
        memory = memory + g - said
        w, x = w - eta * said.mean(0), x - eta * g.mean(0)
        assert np.allclose(w - eta * memory.mean(0), x)
        longest = max(longest, np.linalg.norm(memory, axis=1).max())
    delta = k / d
    root = np.sqrt(1 - delta)
    assert longest <= root / (1 - root) <= 2 / delta
    e, G, q = sympy.symbols("e G q", positive=True)
    assert sympy.simplify(sympy.solve(sympy.Eq(e, q * (e + G)), e)[0] - q * G / (1 - q)) == 0
    # Equal coordinates attain delta = k / d.
    assert np.isclose(np.ones(d - k) @ np.ones(d - k), (1 - delta) * d)
    assert root / (1 - root) == pytest.approx(4.45, abs=0.01)


def test_why_10_7_drift():
    """On a flat loss the bound is attained: all signs counted out. And a logistic step moves no two points apart."""
    K, h, eta, sigma = 3, 3, 0.5, 2.0
    w = -eta * sigma * np.reshape(list(product((-1, 1), repeat=K * h)), (-1, K, h)).sum(2)
    assert np.isclose(w.var(axis=1).mean(), (1 - 1 / K) * eta**2 * h * sigma**2)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 4))
    L = np.linalg.eigvalsh(X.T @ X / 20).max() / 4
    for _ in range(200):
        u, v = 3 * rng.standard_normal((2, 4))
        slopes = [X.T @ (1 / (1 + np.exp(-X @ w))) / 20 for w in (u, v)]
        after = np.linalg.norm(u - 2 / L * slopes[0] - v + 2 / L * slopes[1])
        assert after <= np.linalg.norm(u - v) * (1 + 1e-12)


def test_why_10_7_few_meetings():
    """One step, in expectation, on a loss that is no parabola; then the recursion, run: K T times its end stays bounded
    for H of order T / K, and not for a higher power."""
    mu, top, K, sigma = 0.2, 1.0, 2, 0.7
    L = mu + top / 4

    def slope(w):  # of mu w^2 / 2 + top (log(1 + e^w) - w / 2): minimum at zero
        return mu * w + top * (1 / (1 + np.exp(-w)) - 0.5)

    for mean, apart in product((-3.0, 0.1, 1.0), (0.0, 0.5, 2.0)):
        w, eta = np.array([mean - apart, mean + apart]), 1 / (4 * L)
        after = [np.mean(w - eta * (slope(w) + sigma * np.array(s))) for s in product((-1, 1), repeat=K)]
        bound = (1 - mu * eta) * mean**2 + eta**2 * sigma**2 / K + 2 * eta * L * apart**2
        assert np.mean(np.square(after)) <= bound

    def end(T, H, K, kappa=4.0):
        a = 1.0
        for t in range(int(T)):
            eta = 4 / (16 * kappa + t)  # mu = 1, L = kappa
            a = (1 - eta) * a + eta**2 / K + 8 * kappa * H * eta**3
        return K * T * a

    assert end(1e5, 1e5 / 4, 4) < 1.3 * end(1e4, 1e4 / 4, 4)
    assert end(1e5, 1e5**1.5, 4) > 2 * end(1e4, 1e4**1.5, 4)


def _quadratics(seed, K=3, d=3):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((K, d, d))
    A = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(d)
    c = rng.standard_normal((K, d))
    best = np.linalg.solve(A.sum(0), np.einsum("kij,kj->i", A, c))
    return A, c, best, 1 / max(np.linalg.eigvalsh(a)[-1] for a in A)


def test_why_10_7_client_drift():
    A, c, best, eta = _quadratics(4)
    I = np.eye(3)  # noqa: E741

    def rest(H, eta):
        B = [I - np.linalg.matrix_power(I - eta * a, H) for a in A]
        return np.linalg.solve(sum(B), sum(b @ ck for b, ck in zip(B, c, strict=True)))

    for H in (1, 2, 7):
        w = np.zeros((3, 3))  # worker, coordinate
        for _ in range(4000):
            for _ in range(H):
                w = w - eta * np.einsum("kij,kj->ki", A, w - c)
            w[:] = w.mean(axis=0)
            if np.allclose(w, rest(H, eta), atol=1e-10):
                break
        assert np.allclose(w, rest(H, eta), atol=1e-8)
    assert np.allclose(rest(1, eta), best) and np.allclose(rest(10**6, eta), c.mean(0), atol=1e-6)
    small, H = 1e-6, 5
    slopes = np.einsum("kij,kj->ki", A, best - c)
    first = small * (H - 1) / 2 * np.linalg.solve(A.sum(0), np.einsum("kij,kj->i", A, slopes))
    assert np.allclose((rest(H, small) - best) / small, first / small, rtol=1e-3, atol=1e-4)


def test_why_10_7_control():
    A, c, best, eta = _quadratics(5)
    eta, H = eta / 4, 6
    w, own = np.zeros(3), np.zeros((3, 3))
    for _ in range(3000):
        ends, seen = np.tile(w, (3, 1)), []
        for _ in range(H):
            seen.append(np.einsum("kij,kj->ki", A, ends - c))
            ends = ends - eta * (seen[-1] - own + own.mean(0))
        new = own - own.mean(0) + (w - ends) / (eta * H)
        assert np.allclose(new, np.mean(seen, axis=0))  # the mean of its own gradients along its steps
        own, w = new, ends.mean(0)
    assert np.allclose(w, best, atol=1e-8)
    assert np.allclose(own, np.einsum("kij,kj->ki", A, best - c), atol=1e-7)


def test_why_10_7_outer():
    """torch's own SGD with Nesterov momentum, fed the same gradient again and again."""
    w = torch.zeros(1, dtype=torch.float64)
    outer, moves = torch.optim.SGD([w], lr=0.7, momentum=0.9, nesterov=True), []
    for _ in range(100):
        before, w.grad = w.item(), torch.ones(1, dtype=torch.float64)
        outer.step()
        moves.append(before - w.item())
    said = [0.7 * (1 + 0.9 * (1 - 0.9**n) / (1 - 0.9)) for n in range(1, 101)]
    assert np.allclose(moves, said) and round(moves[0], 2) == 1.33 and abs(moves[-1] - 7) < 0.01
    assert round(sum(moves[:8]) / (8 * 7), 2) == 0.42


def test_why_10_7_crossing():
    S, rho, H, c, x = sympy.symbols("S rho H c x", positive=True)
    tie = sympy.solve(sympy.Eq(S * (c + x), rho * S * (c + x / H)), x)[0]
    assert sympy.simplify(tie / c - (rho - 1) / (1 - rho / H)) == 0
    synchronous, local = 100 * (1 + 0.8), 150 * (1 + 0.8 / 20)  # rho 1.5, H 20: tie at 0.541
    assert local < synchronous and 0.8 > 0.5 / (1 - 1.5 / 20)
    assert sympy.limit(tie / c, H, sympy.oo) == rho - 1


def test_why_10_7_coarse():
    """Every ratio from 2^-7.5 to 1: at most sqrt(2) - 1 of itself, attained at half powers; vectors and their angles."""
    ratio = np.append(np.geomspace(2**-7.5, 1, 9999), 2.0 ** -np.arange(0.5, 7.5))
    coded = 2.0 ** np.maximum(np.round(np.log2(ratio)), -7)
    share = np.abs(coded / ratio - 1)
    assert np.isclose(share.max(), 2**0.5 - 1) and set(np.log2(coded)) == set(range(-7, 1))
    x, y = (np.stack(np.meshgrid(a[::7], a[::7])).reshape(2, -1) for a in (ratio, coded))
    cosine = (x * y).sum(0) / np.linalg.norm(x, axis=0) / np.linalg.norm(y, axis=0)
    assert np.degrees(np.arccos(cosine.min())) < np.degrees(np.arcsin(2**0.5 - 1)) < 24.5
