"""The verdicts of lab 10.1 once more: autograd for the gradients, counted messages for the bytes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def slope(rows, labels, w):
    """The mean gradient of squared errors, by autograd."""
    w = w.clone().requires_grad_()
    ((rows @ w - labels) ** 2).mean().backward()
    return w.grad


def averaging_misses(sizes, seed, at):
    """Length of the true gradient where the mean of the shards' mean gradients vanishes."""
    rng = torch.Generator().manual_seed(seed)
    shards = []
    for n in sizes:
        rows = torch.randn(n, at.d, generator=rng, dtype=torch.float64) * torch.linspace(1, at.stretch, at.d)
        noise = at.noise * torch.randn(n, generator=rng, dtype=torch.float64)
        shards.append((rows, rows.sum(axis=1) + noise))
    squares = sum(rows.T @ rows / len(rows) for rows, _ in shards)
    w = torch.linalg.solve(squares, sum(rows.T @ labels / len(rows) for rows, labels in shards))
    rows, labels = (torch.cat(part) for part in zip(*shards, strict=True))
    return float(slope(rows, labels, w).norm())


@pytest.mark.settings(
    {"sizes": (10, 40, 150, 600), "d": 5, "noise": 3.0, "stretch": 1}, {"sizes": (20, 80, 300, 1200)},
    {"sizes": (150, 200, 200, 250)}, {"sizes": (30, 600), "d": 8}, {"noise": 0.3}, {"stretch": 3},
)  # fmt: skip
def test_10_1_averaging(verdict, seed, at):
    equal = averaging_misses([200] * 4, seed, at) < 1e-10
    unequal = averaging_misses(at.sizes, seed, at) < 1e-3 * at.noise
    assert verdict == ({(True, True): "true", (True, False): "true if"}.get((equal, unequal), "false"))


def numbers_of_a_ring(K, length):
    """Numbers that all ranks send until all have the sum: pieces go round, one hop at a time, and are counted."""
    pieces = np.array_split(np.arange(length), K)
    # Sum up: rank r passes piece r - hop on.
    hops = [(rank, hop) for hop in range(K - 1) for rank in range(K)]
    return sum(len(pieces[(rank - hop) % K]) + len(pieces[(rank + 1 - hop) % K]) for rank, hop in hops)


def test_10_1_fewer_bytes(verdict):
    """With more numbers in a gradient than in an example, or unequal shards, N / (2K) alone would be wrong."""
    N, K = 400, 4
    words = set()
    for example, gradient in ((21, 21), (65, 611)):  # with label, with count
        shipped = (K - 1) * (N // K) * example  # everybody's, to rank 0
        step = numbers_of_a_ring(K, gradient)
        limit = N / (2 * K) * example / gradient
        counts = (1, int(np.ceil(limit)) - 1, int(np.floor(limit)) + 1, 10 * N)
        fewer = tuple(steps * step < shipped for steps in counts)
        words.add({(True, True, False, False): "true if", (True,) * 4: "true"}.get(fewer, "false"))
    assert (N // (2 * K) - 1) * step > shipped  # the network, in N / (2K) - 1 steps
    assert N // (2 * K) * numbers_of_a_ring(K, 21) > (N - 300) * 21  # one worker has 300, and collects
    assert words == {verdict}
