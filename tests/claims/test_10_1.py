"""The verdicts of lab 10.1 once more: autograd for the gradients, counted messages for the bytes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def slope(rows, labels, w):
    """The mean gradient of squared errors, by autograd."""
    w = w.clone().requires_grad_()
    ((rows @ w - labels) ** 2).mean().backward()
    return w.grad


def averaging_misses(sizes, seed):
    """The mean of the shards' mean gradients, trained with until it vanishes: length of the true gradient that is left."""
    rng = torch.Generator().manual_seed(seed)
    shards = []
    for n in sizes:
        rows = torch.randn(n, 5, generator=rng, dtype=torch.float64)
        noise = 3 * torch.randn(n, generator=rng, dtype=torch.float64)
        shards.append((rows, rows.sum(axis=1) + noise))
    w = torch.zeros(5, dtype=torch.float64)
    for _ in range(400):
        w -= 0.05 * torch.stack([slope(*shard, w) for shard in shards]).mean(axis=0)
    rows, labels = (torch.cat(part) for part in zip(*shards, strict=True))
    return float(slope(rows, labels, w).norm())


def test_10_1_averaging(verdict, seed):
    equal = averaging_misses([200] * 4, seed) < 1e-10
    unequal = averaging_misses([10, 40, 150, 600], seed) < 0.05
    word = {(True, True): "true", (True, False): "true if"}.get((equal, unequal), "false")
    assert verdict == word


def numbers_of_a_ring(K, length):
    """Numbers that all ranks send until all have the sum: pieces go round, one hop at a time, and are counted."""
    pieces = np.array_split(np.arange(length), K)
    sent = 0
    for hop in range(K - 1):  # sum up: rank r passes piece r - hop on
        for rank in range(K):
            sent += len(pieces[(rank - hop) % K])
    for hop in range(K - 1):  # hand round
        sent += sum(len(pieces[(rank + 1 - hop) % K]) for rank in range(K))
    return sent


def test_10_1_fewer_bytes(verdict):
    """Also where a gradient has more numbers than an example: N / (2K) alone would be the wrong condition there."""
    N, K = 400, 4
    words = set()
    for example, gradient in ((21, 21), (65, 611)):  # with label, with count
        shipped = (K - 1) * (N // K) * example  # everybody's, to rank 0
        step = numbers_of_a_ring(K, gradient)
        limit = N / (2 * K) * example / gradient
        counts = (1, int(np.ceil(limit)) - 1, int(np.floor(limit)) + 1, 10 * N)
        fewer = tuple(steps * step < shipped for steps in counts)
        words.add({(True, True, False, False): "true if", (True,) * 4: "true"}.get(fewer, "false"))
    old = N // (2 * K) - 1
    assert old * step > shipped  # the network's: with N / (2K) - 1 steps more bytes than the data
    assert words == {verdict}
