"""The claims of lab 10.9 by another route: counting in plain loops, linear algebra, a quantiser in torch."""

import math

import numpy as np
import torch
from replay import around


def floors(K):
    """Least vectors through some port, and least rounds: K - 1 messages to add up and as many to tell, shared by K ports;
    and how often the number of those who know can double before it is K."""
    rounds, know = 0, 1
    while know < K:
        know, rounds = 2 * know, rounds + 1
    return 2 * (K - 1) / K, rounds


def halving(K):
    """Vectors that a rank sends, and rounds: of q chunks it gives half away until one is left; then the same backwards."""
    sent, rounds, q = 0, 0, K
    while q > 1:
        sent, rounds, q = sent + 2 * (q // 2), rounds + 2, q - q // 2
    return sent / K, rounds


def test_10_9_ring(verdict):
    """Sets of contributions are passed round until every worker has everybody's in every chunk."""
    least_bytes, few_rounds = [], []
    for K in (*range(2, 17), 64):
        rounds = around(K)
        bytes_floor, rounds_floor = floors(K)
        least_bytes.append(math.isclose(rounds / K, bytes_floor))  # a chunk of 1/K in every round
        few_rounds.append(rounds == rounds_floor)
    assert rounds == 21 * rounds_floor  # K = 64
    assert verdict == ("true" if all(few_rounds) else "true if" if all(least_bytes) else "false")


def test_10_9_halving(verdict):
    ratio = {K: tuple(np.divide(halving(K), floors(K))) for K in range(2, 300)}
    at_bound = [math.isclose(b, 1) for b, _ in ratio.values()]
    assert {r for _, r in ratio.values()} == {2}
    assert verdict == ("true if" if all(at_bound) else "false")


def chain(d):
    """The springs of f(w) = 1/8 sum of squares, as rows of differences, and the held end."""
    D = np.zeros((d + 1, d))
    D[np.arange(d), np.arange(d)] = 1
    D[np.arange(1, d + 1), np.arange(d)] = -1
    end = np.zeros(d + 1)
    end[0] = 1  # spring 0 pulls w_1 to 1
    return D, end


def test_10_9_chain(verdict):
    """After t rounds of whole gradients w has t coordinates: the best such point by linear algebra is the bound. Local steps
    are an affine map, applied by its power, on springs dealt in turn and cut in halves."""
    d, T, H = 101, 50, 100
    D, end = chain(d)

    def f(w):
        return ((D @ w - end) ** 2).sum() / 8

    lowest = f(np.linalg.lstsq(D, end, rcond=None)[0])
    best = [1 / 8 - lowest]
    for t in range(1, T + 1):
        w, *_ = np.linalg.lstsq(D[:, :t], end, rcond=None)
        best.append(((D[:, :t] @ w - end) ** 2).sum() / 8 - lowest)
    best = np.array(best)

    def local_gaps(deals):
        maps = []
        for mine in deals:
            A, b = D[mine].T @ D[mine] / 2, D[mine].T @ end[mine] / 2  # twice its share of the gradient
            step = np.block([[np.eye(d) - A, b[:, None]], [np.zeros((1, d)), np.ones((1, 1))]])
            maps.append(np.linalg.matrix_power(step, H))
        w, gaps = np.append(np.zeros(d), 1.0), []
        for _ in range(T):
            w = sum(m @ w for m in maps) / 2
            gaps.append(f(w[:d]) - lowest)
        return np.array(gaps)

    springs = np.arange(d + 1)
    in_turn = local_gaps([springs[::2], springs[1::2]])
    halves = local_gaps([springs[: (d + 2) // 2], springs[(d + 2) // 2 :]])
    assert (in_turn >= best[1:] * (1 - 1e-9)).all()
    below = np.flatnonzero(halves < best[1:]) + 1
    word = "true if" if len(below) else "true"
    assert (below[0], below[-1]) == (1, 24) and halves[-1] > best[T]
    assert word == verdict


def test_10_9_two_bits(verdict, seed):
    """The noise of levels -1, 0, 1 in torch, against its mean, sum |x_i| - 1; the floor by counting balls of a covering."""
    d = 1024
    coins = torch.Generator().manual_seed(seed)
    noise = []
    for _ in range(5):
        x = torch.randn(d, generator=coins, dtype=torch.float64)
        x /= x.norm()
        sent = torch.sign(x) * (torch.rand((60, d), generator=coins, dtype=torch.float64) < x.abs())
        noise.append(float(((sent - x) ** 2).sum(1).mean()))
        assert abs(noise[-1] - float(x.abs().sum() - 1)) < 2
    # 4^d balls of radius r cover the unit ball only if 4 r >= 1; r^2 = w / (1 + w) of the shrunk estimate
    floor = next(w for w in np.geomspace(1e-3, 1, 100_000) if 4 * (w / (1 + w)) ** 0.5 >= 1)
    assert abs(floor - 1 / 15) < 1e-4
    assert verdict == ("false" if min(noise) > 1 and floor > 0 else "true")
