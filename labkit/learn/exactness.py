"""Where synchronous SGD stops being exact: each break executed, and its repair beside it.

One worker with the whole batch is the reference. Every function returns a ``Gap``: how far K workers are
from it (largest absolute difference of any element) when they do the tempting thing, and when they do the
right one.

Symbols: K workers, b_k examples on worker k, M their sum, w (d,), p the probability of dropping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, LeastSquares, Problem
from labkit.learn.sync import shard_weights, split


class Gap(NamedTuple):
    """Largest absolute difference from the one-worker result, done wrong and done right."""

    broken: float
    repaired: float


def gap(a: ArrayLike, b: ArrayLike) -> float:
    """Largest absolute difference between two arrays of the same shape."""
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def unequal_shards(problem: Problem, w: Array, shards: Sequence[ArrayLike]) -> Gap:
    """The plain mean of means when b_k differ; repaired by the weights b_k / M. No shard may be empty."""
    whole = problem.grad(w, np.concatenate(shards))
    means = np.array([problem.grad(w, idx) for idx in shards])
    weights = shard_weights([np.size(idx) for idx in shards])
    return Gap(gap(means.mean(axis=0), whole), gap(weights @ means, whole))


def short_last_batch(problem: Problem, w: Array, idx: ArrayLike, K: int, b: int) -> Gap:
    """Dividing by K b although the last batch ``idx`` is shorter; repaired by counting its examples."""
    shards = split(idx, K)
    total = np.sum([problem.grad_sum(w, mine) for mine in shards], axis=0)
    count = sum(len(mine) for mine in shards)
    whole = problem.grad(w, idx)
    return Gap(gap(total / (K * b), whole), gap(total / count, whole))


def padded_shards(N: int, K: int, drop_last: bool = False) -> Array:
    """Example numbers as torch's DistributedSampler (shuffle=False) deals them: (K, examples per worker).

    It repeats examples from the start until K divides their number or, with ``drop_last``, leaves some
    out; rank k takes every K-th from k. ValueError unless N, K >= 1.
    """
    if N < 1 or K < 1:
        raise ValueError(f"N and K must be whole numbers >= 1, got N = {N!r}, K = {K!r}")
    each = N // K if drop_last else -(-N // K)
    return (np.arange(each * K) % N).reshape(each, K).T


def padding(problem: Problem, w: Array, K: int) -> Gap:
    """Examples that a sampler repeats to make all b_k equal; repaired by dealing each once and counting."""
    shards = padded_shards(problem.N, K)
    padded = np.mean([problem.grad(w, idx) for idx in shards], axis=0)
    once = [np.arange(k, problem.N, K) for k in range(K)]
    counted = np.sum([problem.grad_sum(w, idx) for idx in once], axis=0) / problem.N
    return Gap(gap(padded, problem.grad(w)), gap(counted, problem.grad(w)))


def normalise(x: Array, mean: Array, var: Array, eps: float = 1e-5) -> Array:
    """BatchNorm's core (Ioffe and Szegedy 2015): x (b, d), less the mean, over the standard deviation."""
    return (x - mean) / np.sqrt(var + eps)


def batch_norm(x: Array, shards: Sequence[ArrayLike]) -> Gap:
    """BatchNorm with each worker's own mean and variance; repaired by two all-reduced sums.

    x: (M, d), its rows partitioned by the shards. The gap is in the activations: no weighting of gradients
    can mend it afterwards.
    """
    xs = [x[np.asarray(idx)] for idx in shards]
    M = sum(len(mine) for mine in xs)
    mean = np.sum([mine.sum(axis=0) for mine in xs], axis=0) / M
    var = np.sum([((mine - mean) ** 2).sum(axis=0) for mine in xs], axis=0) / M
    whole = normalise(x, x.mean(axis=0), x.var(axis=0))[np.concatenate(shards)]
    local = [normalise(mine, mine.mean(axis=0), mine.var(axis=0)) for mine in xs]
    synced = [normalise(mine, mean, var) for mine in xs]
    return Gap(gap(np.concatenate(local), whole), gap(np.concatenate(synced), whole))


def clip(g: Array, c: float) -> Array:
    """g, (d,), scaled down to length c if it is longer."""
    return g * min(1.0, c / max(float(np.linalg.norm(g)), np.finfo(float).tiny))


def clipping(problem: Problem, w: Array, shards: Sequence[ArrayLike], c: float) -> Gap:
    """Clipping each worker's gradient to length c; repaired by clipping their mean. Equal b_k."""
    means = np.array([problem.grad(w, idx) for idx in shards])
    whole = clip(problem.grad(w, np.concatenate(shards)), c)
    each = np.mean([clip(g, c) for g in means], axis=0)
    return Gap(gap(each, whole), gap(clip(means.mean(axis=0), c), whole))


def dropout_mask(seed: int, idx: ArrayLike, N: int, d: int, p: float) -> Array:
    """Rows ``idx`` of the inverted dropout mask, (len(idx), d), that ``seed`` fixes for all N examples."""
    keep = np.random.default_rng(seed).random((N, d)) >= p
    return keep[np.asarray(idx)] / (1 - p)


def dropout(X: Array, y: Array, w: Array, K: int, p: float, seed: int) -> Gap:
    """Every worker drops inputs with the same seed; repaired by masks that belong to the examples.

    Seeding the ranks differently makes the masks independent, and the step right on average, but not the
    same step.
    """
    N, d = X.shape
    whole = LeastSquares(X * dropout_mask(seed, np.arange(N), N, d, p), y).grad(w)
    broken, repaired = np.zeros(d), np.zeros(d)
    for idx in split(np.arange(N), K):
        same_seed = dropout_mask(seed, np.arange(len(idx)), len(idx), d, p)
        broken += LeastSquares(X[idx] * same_seed, y[idx]).grad_sum(w)
        repaired += LeastSquares(X[idx] * dropout_mask(seed, idx, N, d, p), y[idx]).grad_sum(w)
    return Gap(gap(broken / N, whole), gap(repaired / N, whole))


def replacement(problem: Problem, w: Array, idx: ArrayLike, K: int) -> Gap:
    """A batch drawn with replacement dealt as a *set* (duplicates lost); repaired by dealing the multiset."""
    whole = problem.grad(w, idx)
    as_set, as_drawn = np.unique(idx), np.asarray(idx)
    distinct = np.sum([problem.grad_sum(w, mine) for mine in split(as_set, K)], axis=0) / len(as_set)
    all_drawn = np.sum([problem.grad_sum(w, mine) for mine in split(as_drawn, K)], axis=0) / len(as_drawn)
    return Gap(gap(distinct, whole), gap(all_drawn, whole))


def summation_order(parts: Array) -> Gap:
    """The same K vectors, parts (K, d), added first to last and last to first: other bits.

    Broken only to rounding. Repaired, where bits matter, by a sum that rounds once (``math.fsum``) and so
    doesn't depend on the order; in practice by always adding in the same order.
    """
    forwards, backwards = sum(parts), sum(parts[::-1])
    exact = [[math.fsum(column) for column in order.T] for order in (parts, parts[::-1])]
    return Gap(gap(forwards, backwards), gap(exact[0], exact[1]))


def one_by_one(X: Array, y: Array, w: Array) -> Array:
    """The gradient of ``LeastSquares(X, y)``, (d,), adding examples and products strictly in their order.

    Matrix products sum in an order of the library's and the processor's choosing; this one has the same bits
    everywhere. It is the order of 10.3's reference run.
    """
    z = np.add.reduce(X.T.copy() * w[:, None], axis=0)  # (N,): the d products of x . w, first to last
    return 2 * np.add.reduce(X * (z - y)[:, None], axis=0) / len(y)
