"""Lab A by another route: sums in plain numpy, bytes of torch's own tensors, messages counted one by one."""

from __future__ import annotations

import itertools

import numpy as np


def ring_order(g, cuts):
    """The sum of the K rows of ``g`` as a ring makes it of each bucket: chunk c is begun by rank c and goes around."""
    K, total = len(g), np.empty_like(g[0])
    for low, high in itertools.pairwise(cuts):
        edges = [low + (high - low) * c // K for c in range(K + 1)]
        for c in range(K):
            part = slice(edges[c], edges[c + 1])
            acc = g[c][part].copy()
            for k in range(1, K):
                acc = g[(c + k) % K][part] + acc
            total[part] = acc
    return total


def test_a_overlap(verdict, seed):
    same, gap = {}, 0.0
    for K in (2, 3):
        agree = []
        for run in range(5):
            g = np.random.default_rng([seed + run, K]).standard_normal((K, 4000)).astype(np.float32)
            whole, buckets = ring_order(g, [0, 4000]), ring_order(g, range(0, 4001, 500))
            agree.append(np.array_equal(whole, buckets))
            gap = max(gap, float(np.max(np.abs(whole - buckets) / np.abs(g).sum(axis=0))))
        same[K] = agree
    rounding = gap < 4 * np.finfo(np.float32).eps
    word = {
        (True, True): "true", (True, False): "true if", (False, False): "false",
    }[all(same[2]), any(same[3])]  # fmt: skip
    assert rounding and verdict == word


def test_a_mixed(verdict):
    """Tensors as each of 64 workers would hold them, in torch's own dtypes: how many bytes they take."""
    import torch

    K, P = 64, 64 * 1000
    half, single = torch.bfloat16, torch.float32
    kinds = {"mixed": (half, half, [single] * 3), "single": (single, single, [single] * 2)}
    kept = {}
    for name, (parameter, gradient, state) in kinds.items():
        for stage in range(4):
            tensors = [torch.empty(P // K if stage >= 3 else P, dtype=parameter)]
            tensors += [torch.empty(P // K if stage >= 2 else P, dtype=gradient)]
            tensors += [torch.empty(P // K if stage >= 1 else P, dtype=one) for one in state]
            kept[name, stage] = sum(x.nbytes for x in tensors)
    ratio = [kept["mixed", stage] / kept["single", stage] for stage in range(4)]
    assert [round(r, 2) for r in ratio] == [1, 0.52, 0.53, 1]  # what the verdict quotes
    halves = [r < 0.6 for r in ratio]
    word = "true" if all(halves) else "false" if not any(halves) else "true if"
    assert verdict == word


def sent(K, n, gathers, scatters):
    """Elements that worker 0 sends around a ring: in each of K - 1 rounds of a collective one chunk of n / K."""
    return sum(n // K for _ in range(gathers + scatters) for _ in range(K - 1))


def test_a_zero_3(verdict):
    """Collectives written down one by one: an all-reduce is a scatter and a gather."""
    K, layers, n = 4, 5, 4000
    plain = layers * sent(K, n, 1, 1)

    def step(frees, micro_batches):
        total = 0
        for _ in range(micro_batches):
            for _ in range(layers):  # forward
                total += sent(K, n, 1, 0)
            for _ in range(layers):  # backward
                total += sent(K, n, 1 if frees else 0, 1)
        return total / plain

    found = [step(True, 1), step(False, 1), step(True, 4)]
    word = "true" if set(found) == {1.5} else "true if" if 1.5 in found else "false"
    assert found == [1.5, 1.0, 6.0] and verdict == word


def test_a_free(verdict):
    """Stage 1: the gradient's chunk and the parameters' gather, or a whole all-reduce and the gather on top."""
    for K in (2, 4, 8):
        n = 8000
        scattered, on_top = sent(K, n, 1, 1), sent(K, n, 1, 1) + sent(K, n, 1, 0)
        plain = sent(K, n, 1, 1)
        word = {(1.0, 1.5): "true if", (1.0, 1.0): "true"}.get((scattered / plain, on_top / plain), "false")
        assert verdict == word
