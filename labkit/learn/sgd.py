"""Mini-batch stochastic gradient descent on one worker: w <- w - eta * (mean gradient of the batch).

Robbins and Monro 1951; Bottou, Curtis and Nocedal 2018, section 4. Symbols: N examples, b examples per batch,
T steps, ``eta`` the learning rate, w (d,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, Problem

#: A learning rate: a number, or a function of the step t = 0, 1, ...
Rate = float | Callable[[int], float]
#: numpy's warnings on the way to Diverged say nothing that Diverged does not say better.
QUIETLY = partial(np.errstate, over="ignore", invalid="ignore")


class Diverged(ArithmeticError):
    """The iterate is no longer finite. ``step`` (0, 1, ...) is the update that broke it, ``eta`` its rate."""

    def __init__(self, step: int, eta: float) -> None:
        super().__init__(step, eta)
        self.step = step
        self.eta = eta

    def __str__(self) -> str:
        return f"diverged: w is not finite after step {self.step} with eta = {self.eta:g}; take a smaller eta"


def minibatches(
    N: int,
    b: int,
    rng: np.random.Generator,
    replacement: bool = False,
    epochs: int | None = 1,
    drop_last: bool = False,
) -> Iterator[Array]:
    """Yield batches of example numbers, (b,) each.

    Without replacement an epoch is a fresh permutation of 0..N-1 cut into batches; if b does not divide N
    the last one is short, or left out with ``drop_last``. With replacement all are b independent draws,
    full, and an epoch is ceil(N / b) of them. epochs: how many; None never ends. Raises ValueError, at
    the call, unless 1 <= b (<= N without replacement), N >= 1 and epochs >= 0.

    >>> [len(batch) for batch in minibatches(10, 4, np.random.default_rng(0))]
    [4, 4, 2]
    """
    for name, value, least in (("N", N, 1), ("b", b, 1), ("epochs", 0 if epochs is None else epochs, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    if b > N and not replacement:
        raise ValueError(f"b must be at most N = {N} without replacement, got {b!r}")
    return _batches(N, b, rng, replacement, epochs, drop_last)


def _batches(
    N: int, b: int, rng: np.random.Generator, replacement: bool, epochs: int | None, drop_last: bool
) -> Iterator[Array]:
    for _ in count() if epochs is None else range(epochs):
        if replacement:
            for _ in range(-(-N // b)):
                yield rng.integers(N, size=b)
        else:
            order = rng.permutation(N)
            for start in range(0, N - b + 1 if drop_last else N, b):
                yield order[start : start + b]


def sgd(
    problem: Problem, w0: ArrayLike, eta: Rate, batches: Iterable[ArrayLike | None], T: int | None = None
) -> Array:
    """Run SGD and return every iterate, (T + 1, d), beginning with w0.

    w0: (d,), its dtype (if floating) is that of the iterates. eta: a number or a function of t, finite
    and >= 0. batches: one list of example numbers a step; None in it means all examples. T: stop after T
    steps, for batches that never end. Raises Diverged at the first w that is not finite, ValueError for
    bad input.

    >>> problem = LeastSquares([[1.0], [2.0]], [1.0, 2.0])
    >>> sgd(problem, [0.0], eta=0.1, batches=[[0], [1]]).ravel()
    array([0.  , 0.2 , 0.84])
    """
    w = start(problem, w0)
    iterates = [w]
    for t, idx in enumerate(batches if T is None else islice(batches, T)):
        with QUIETLY():
            g = problem.grad(w, idx)
        w = descend(w, rate(eta, t), g, t)
        iterates.append(w)
    return np.array(iterates)


def start(problem: Problem, w0: ArrayLike) -> Array:
    """A floating-point copy of w0, refused with ValueError unless it is finite and (d,)."""
    w = np.array(w0)
    if w.shape != (problem.d,) or w.dtype.kind not in "iuf" or not np.isfinite(w).all():
        raise ValueError(f"w0 must be {problem.d} finite numbers, got shape {w.shape} of {w.dtype}")
    return w if w.dtype.kind == "f" else w.astype(np.float64)


def rate(eta: Rate, t: int) -> float:
    """The learning rate at step t; ValueError unless it is finite and >= 0."""
    value = eta(t) if callable(eta) else eta
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"eta must be finite and >= 0, got {value!r} at step {t}")
    return float(value)


def descend(w: Array, eta: float, g: Array, t: int) -> Array:
    """``w - eta * g`` in w's dtype, or Diverged."""
    with QUIETLY():
        new = (w - eta * g).astype(w.dtype, copy=False)
    if not np.isfinite(new).all():
        raise Diverged(t, eta)
    return new
