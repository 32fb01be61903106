"""The arguments of labs 10.7, by other routes: all cases counted out, torch's own optimiser, sympy, plain loops."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import sympy
import torch


def test_why_10_7_unbiased():
    """All draws counted out: Q doubles a number or drops it (omega = 1, attained); the gradient has two values."""
    gradient, noise = np.array([1.0, -2.0]), np.array([3.0, 1.0])

    def said(k):  # all messages of one worker, equally likely
        return [
            2 * np.array(kept) * (gradient + sign * noise)
            for sign in (1, -1)
            for kept in product((0, 1), repeat=2)
        ]

    sigma2, size = noise @ noise, gradient @ gradient
    one = said(0)
    assert np.allclose(np.mean(one, axis=0), gradient)
    variance = np.mean([np.sum((q - gradient) ** 2) for q in one])
    assert np.isclose(variance, (1 + 1) * sigma2 + 1 * size)
    three = [np.mean(qs, axis=0) for qs in product(one, repeat=3)]
    assert np.isclose(np.mean([np.sum((q - gradient) ** 2) for q in three]), variance / 3)


def test_why_10_7_qsgd():
    """Each coordinate's two outcomes; vectors that nearly attain either bound; and a code written by itself."""
    rng = np.random.default_rng(0)

    def moments(x, s):
        norm = np.sqrt(np.sum(x**2))
        levels = s * np.abs(x) / norm
        low, up = np.floor(levels), levels % 1
        lost = ((low - levels) ** 2 * (1 - up) + (low + 1 - levels) ** 2 * up).sum() * (norm / s) ** 2
        return lost / norm**2, np.sum(np.where(low == 0, up, 1.0)), s * np.abs(x).sum() / norm

    for d, s in product((5, 100, 4000), (1, 3, 50)):
        for x in (rng.standard_normal(d), rng.random(d) ** 4, np.ones(d)):
            lost, not_zero, m_bar = moments(x, s)
            assert lost <= min(d / (4 * s**2), np.sqrt(d) / s) + 1e-9
            assert not_zero <= m_bar + 1e-9 and m_bar <= s * np.sqrt(d) + 1e-9
    d = 10_000
    assert moments(np.ones(d), 1)[0] > 0.98 * np.sqrt(d)
    half = np.append(np.full(d - 1, 0.5 / 127), 0.0)
    half[-1] = np.sqrt(1 - half @ half)
    assert moments(half, 127)[0] > 0.98 * d / (4 * 127**2)

    x = rng.standard_normal(3000) ** 3
    p = np.abs(x) / np.sqrt(x @ x)
    bits = []
    for _ in range(200):
        places = np.flatnonzero(rng.random(3000) < p)
        gaps = np.diff(places, prepend=-1)
        bits.append(sum(2 * int(np.floor(np.log2(gap))) + 3 for gap in gaps))
    bound = p.sum() * (2 * np.log2(3000 / p.sum()) + 3)
    assert 0.7 * bound < np.mean(bits) < bound


def test_why_10_7_gather():
    """Every message laid out and added up, in whole parts of a vector."""
    n, m = Fraction(4000), Fraction(125)
    for K in (2, 5, 31, 63, 64, 65, 200):
        ring = sum(n / K for phase in range(2) for _ in range(K - 1))
        gather = sum(m for _ in range(K - 1))
        owners = sum(m / K for _ in range(K - 1)) + sum(m / K for _ in range(K - 1))
        assert (gather < ring) == (2 * n / m > K)
        assert ring / owners == n / m


def test_why_10_7_subspace():
    rng = np.random.default_rng(1)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (7, 5))
    sizes = np.array([5.0, 4.0, 2.0, 1.0, 0.5])
    M = U[:, :5] * sizes @ V.T

    def angles(P):  # cosines of the angles between the two spaces are singular values
        cosines = np.linalg.svd(U[:, : P.shape[1]].T @ P, compute_uv=False)
        return np.tan(np.arccos(np.clip(cosines.min(), -1, 1)))

    for r in (1, 2):
        Q, tangents = rng.standard_normal((5, r)), []
        for _ in range(12):
            P = np.linalg.qr(M @ Q)[0]
            Q = M.T @ P
            tangents.append(angles(P))
            best = P @ np.linalg.lstsq(P, M, rcond=None)[0]
            assert np.allclose(P @ Q.T, best)
        factor = (sizes[r] / sizes[r - 1]) ** 2
        assert all(b <= factor * a * (1 + 1e-6) for a, b in pairwise(tangents[:9]))
        late = tangents[11] / tangents[10] if r == 1 else tangents[9] / tangents[8]
        assert late == pytest.approx(factor, rel=0.02)


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
    equal = np.ones(d)  # attains delta = k / d
    assert np.isclose(np.sum(equal[: d - k] ** 2), (1 - delta) * (equal @ equal))
    assert root / (1 - root) == pytest.approx(4.45, abs=0.01)


def test_why_10_7_drift():
    """On a flat loss the bound is attained: all signs counted out. And a logistic step moves no two points apart."""
    K, h, eta, sigma = 3, 3, 0.5, 2.0
    spread = []
    for signs in product((-1, 1), repeat=K * h):
        w = -eta * sigma * np.reshape(signs, (K, h)).sum(1)
        spread.append(np.mean((w - w.mean()) ** 2))
    assert np.isclose(np.mean(spread), (1 - 1 / K) * eta**2 * h * sigma**2)
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
    for H of order sqrt(T / K), and not for a higher power."""
    mu, top, K, sigma = 0.2, 1.0, 2, 0.7
    L = mu + top / 4

    def slope(w):  # of mu w^2 / 2 + top (log(1 + e^w) - w / 2): minimum at zero
        return mu * w + top * (1 / (1 + np.exp(-w)) - 0.5)

    for mean, apart in product((-3.0, 0.1, 1.0), (0.0, 0.5, 2.0)):
        w, eta = np.array([mean - apart, mean + apart]), 1 / (4 * L)
        after = [np.mean(w - eta * (slope(w) + sigma * np.array(s))) for s in product((-1, 1), repeat=K)]
        bound = (1 - mu * eta) * mean**2 + eta**2 * sigma**2 / K + 2 * eta * L * apart**2
        assert np.mean(np.square(after)) <= bound

    def end(T, H, K, kappa=4.0, G2=1.0):
        a = 1.0
        for t in range(T):
            eta = 4 / (16 * kappa + t)  # mu = 1, L = kappa
            a = (1 - eta) * a + eta**2 / K + 8 * kappa * G2 * H**2 * eta**3
        return K * T * a

    fine = [end(T, np.sqrt(T / 4), 4) for T in (10**4, 10**5)]
    not_fine = [end(T, T**0.75, 4) for T in (10**4, 10**5)]
    assert fine[1] < 1.3 * fine[0] and not_fine[1] > 2 * not_fine[0]
    eta_then, eta_now = 1.0, 0.5  # H steps of eta G from the last meeting, eta at most halved
    assert (3 * eta_then) ** 2 <= 4 * eta_now**2 * 3**2


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
        w = np.zeros(3)
        for _ in range(4000):
            ends = []
            for a, ck in zip(A, c, strict=True):
                wk = w
                for _ in range(H):
                    wk = wk - eta * a @ (wk - ck)
                ends.append(wk)
            w = np.mean(ends, axis=0)
            if np.linalg.norm(w - rest(H, eta)) < 1e-9:
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
        mean, ends, slopes = own.mean(0), [], []
        for k in range(3):
            wk, seen = w, []
            for _ in range(H):
                seen.append(A[k] @ (wk - c[k]))
                wk = wk - eta * (seen[-1] - own[k] + mean)
            ends.append(wk)
            slopes.append(np.mean(seen, axis=0))
        new = own - mean + (w - np.array(ends)) / (eta * H)
        assert np.allclose(new, slopes)  # the mean of its own gradients along its steps
        own, w = new, np.mean(ends, axis=0)
    assert np.allclose(w, best, atol=1e-8)
    assert np.allclose(own, np.einsum("kij,kj->ki", A, best - c), atol=1e-7)


def test_why_10_7_gossip():
    for K in (4, 5, 6, 16, 33):
        ring = np.zeros((K, K))
        for k in range(K):
            for j in (k - 1, k, k + 1):
                ring[k, j % K] += 1 / 3
        sizes = np.sort(np.abs(np.linalg.eigvalsh(ring)))
        assert sizes[-1] == pytest.approx(1)
        assert sizes[-2] == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / K))
        w = np.random.default_rng(K).standard_normal(K)
        after = ring @ w
        assert after.mean() == pytest.approx(w.mean())
        assert np.linalg.norm(after - w.mean()) <= sizes[-2] * np.linalg.norm(w - w.mean()) + 1e-12
    assert 1 - sizes[-2] == pytest.approx(4 * np.pi**2 / (3 * 33**2), rel=0.01)


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
