"""Mini-batch SGD on one worker: drawing the batches, the rule for a step, and the walk that takes one step after another.

Robbins and Monro 1951; Bottou, Curtis and Nocedal 2018, section 4. Momentum: Sutskever et al. 2013, section 2, in torch's
convention: the velocity is a sum of gradients, and the learning rate multiplies it last. Symbols: N examples, b examples
per batch, T steps, ``eta`` the learning rate, w and g (d,) parameters and gradient.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer
from labkit.learn.problems import Array, Problem

#: A learning rate: a number, or a function of the step t = 0, 1, ...
Rate = float | Callable[[int], float]
#: numpy's warnings on the way to Diverged say nothing that Diverged does not say better.
QUIETLY = partial(np.errstate, over="ignore", invalid="ignore")


class Diverged(ArithmeticError):
    """The iterate is no longer finite. ``step`` (0, 1, ...) is the update that broke it, ``eta`` its rate."""

    def __init__(self, step: int, eta: float) -> None:
        super().__init__(step, eta)
        self.step, self.eta = step, eta

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

    Without replacement an epoch is a fresh permutation of 0..N-1 cut into batches; if b does not divide N the last one is
    short, or left out with ``drop_last``. With replacement all are b independent draws, and an epoch is ceil(N / b) of
    them. epochs: how many; None never ends. ValueError, at the call, unless 1 <= b (<= N without replacement).

    >>> [len(batch) for batch in minibatches(10, 4, np.random.default_rng(0))]
    [4, 4, 2]
    """
    integer("N", N, 1)
    integer("b", b, 1)
    if b > N and not replacement:
        raise ValueError(f"b must be at most N = {N} without replacement, got {b!r}")

    def batches() -> Iterator[Array]:
        for _ in count() if epochs is None else range(epochs):
            order = None if replacement else rng.permutation(N)
            for first in range(0, N - b + 1 if drop_last else N, b):
                mine = slice(first, first + b)
                yield rng.integers(N, size=b) if order is None else order[mine]

    return batches()


@dataclass(frozen=True)
class Momentum:
    """``v <- momentum v + g``, then ``w <- w - eta v``. Remembers v, (d,). momentum: 0 (plain SGD) up to, not including,
    1."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(
                f"momentum must be at least 0 and below 1, got {self.momentum!r}"
            )

    def start(self, w: Array) -> Array:
        return np.zeros_like(w)

    def step(
        self, w: Array, g: Array, eta: float, memory: Array
    ) -> tuple[Array, Array]:
        v = self.momentum * memory + g
        new = w - eta * v
        return new.astype(w.dtype, copy=False), v.astype(w.dtype, copy=False)


def start(problem: Problem, w0: ArrayLike) -> Array:
    """A floating-point copy of w0, refused with ValueError unless it is finite and (d,)."""
    w = np.array(w0)
    if (
        w.shape != (problem.d,)
        or w.dtype.kind not in "iuf"
        or not np.isfinite(w).all()
    ):
        raise ValueError(
            f"w0 must be {problem.d} finite numbers, got shape {w.shape} of {w.dtype}"
        )
    return w if w.dtype.kind == "f" else w.astype(float)


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


def walk(
    problem: Problem,
    w0: ArrayLike,
    optimiser: Any,
    eta: Rate,
    batches: Iterable[ArrayLike | None],
    T: int | None = None,
) -> Iterator[Array]:
    """Yield w after each step, (d,), a new array every time; the start is not yielded. The rest is as in `sgd`.

    optimiser: ``start(w)`` is what it remembers at first, ``step(w, g, eta, memory)`` the next w and what it remembers then.
    """
    w = start(problem, w0)
    memory = optimiser.start(w)
    for t, idx in enumerate(islice(batches, T)):
        now = rate(eta, t)
        with QUIETLY():
            w, memory = optimiser.step(w, problem.grad(w, idx), now, memory)
        if not np.isfinite(w).all():
            raise Diverged(t, now)
        yield w


def sgd(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    batches: Iterable[ArrayLike | None],
    T: int | None = None,
) -> Array:
    """Run plain SGD and return every iterate, (T + 1, d), beginning with w0, in its dtype if that is floating.

    eta: a number or a function of t, finite and >= 0. batches: one list of example numbers a step; None in it means all. T:
    stop after T steps, for batches that never end. Raises Diverged at the first w that is not finite.
    """
    w = start(problem, w0)
    return np.array([w, *walk(problem, w, Momentum(), eta, batches, T)])
