"""Problem set 10.2: mini-batch SGD, its noise, its ball, and what a bigger batch buys.

The judges compute what is right from all examples (Cochran 1977, theorem 2.2; McCandlish et al. 2018, section 2 and appendix
A.1), or by enumerating every batch. No solutions here.

Symbols: N examples, b per batch, K workers, B = K b, ``eta`` the learning rate, w (d,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import spoke, workers

Array = NDArray[Any]
Judge = Callable[[Any], None]


def _talked(run: Run, numbers: int) -> None:
    """Wrong unless every rank of several has sent something, in 2 (K - 1) messages and as many vectors at most."""
    most = 2 * (run.K - 1)
    for rank, (nbytes, messages) in enumerate(zip(run.bytes_sent, run.messages_sent, strict=True)):
        spoke(run, rank)
        if messages > most or nbytes > 8 * most * numbers:
            raise Wrong(
                f"rank {rank} sent {int(nbytes)} bytes in {int(messages)} messages, more than 2 (K - 1) messages of"
                f" {numbers} numbers: add up first, then talk once"
            )


def _close_judge(expected: float, what: str, rtol: float = 1e-8) -> Judge:
    def judge(answer: Any) -> None:
        if expected == 0:
            if abs(number(answer, what)) > 1e-12:
                raise Wrong(f"{what} is too large: {number(answer, what):.6g}")
        else:
            close(answer, expected, what, rtol=rtol)

    return judge


# -- 1: the variance ----------------------------------------------------------------------------------------


def _batch_variance(sigma2: float, b: int, N: int | None) -> float:
    """sigma2 / b with replacement; with N, without: times (N - b) / (N - 1)."""
    return sigma2 / b * (1.0 if N is None else (N - b) / max(N - 1, 1))


def _variance(rng: np.random.Generator) -> Iterator[Case]:
    for N, b, replacement in (
        (30, 1, True),
        (30, 6, True),
        (30, 6, False),
        (30, 30, False),
        (12, 40, True),
        (1, 1, False),
    ):
        G = rng.standard_normal((N, int(rng.integers(2, 6)))) + rng.standard_normal()
        sigma2 = float(((G - G.mean(axis=0)) ** 2).sum(axis=1).mean())
        expected = _batch_variance(sigma2, b, None if replacement else N)
        label = f"N = {N}, b = {b}, {'with' if replacement else 'without'} replacement"
        yield Case((G, b, replacement), _close_judge(expected, "the variance"), label=label)


# -- 2: the smallest batch ----------------------------------------------------------------------------------


def _batch(rng: np.random.Generator) -> Iterator[Case]:
    yield _batch_case(8.0, 2.0**-2, None, "a batch that just reaches it")
    yield _batch_case(8.0, 2.0**-2, 63, "few examples")
    for N in (None, 500, 20_000):
        sigma2, target = float(rng.uniform(5, 50)), float(rng.uniform(0.01, 0.2))
        yield _batch_case(sigma2, target, N, "other numbers")
    yield _batch_case(3.0, 50.0, 100, "a target that any batch meets")
    yield _batch_case(3.0, 0.0, 100, "no noise at all")


def _batch_case(sigma2: float, target: float, N: int | None, label: str) -> Case:
    def enough(b: int) -> bool:
        return _batch_variance(sigma2, b, N) <= target * (1 + 1e-12)

    high = N if N is not None else math.ceil(sigma2 / target) + 1
    low = 0  # the variance falls with b, so halve: enough at high, not yet at low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)

    def judge(answer: Any) -> None:
        value = number(answer, "b")
        if value != int(value):
            raise Wrong(f"b should be a whole number of examples, but is {value:.6g}")
        if value < 1 or (N is not None and value > N):
            raise Wrong(f"b = {value:.6g} examples cannot be drawn")
        if not enough(int(value)):
            raise Wrong(f"a batch of {int(value)} still has too much noise")
        if value > high:
            raise Wrong(f"a batch of {int(value)} does it, but so does a smaller one")

    how = "with replacement" if N is None else f"without replacement from N = {N}"
    return Case(
        (sigma2, target, N), judge, label=f"{label}: sigma2 = {sigma2:.4g}, target {target:.4g}, {how}"
    )


# -- 3: the ball, in one dimension --------------------------------------------------------------------------


def _ball(rng: np.random.Generator) -> Iterator[Case]:
    for N, b, share, label in (
        (20, 1, 0.2, "a small step"),
        (20, 1, 0.8, "a step at which the noise's growth with the distance counts"),
        (50, 8, 0.5, "b = 8"),
        (20, 2, 1.1, "a step beyond what is stable, where the answer is infinite"),
        (20, 64, 0.9, "batches larger than the data"),
    ):
        x, y = rng.standard_normal(N), rng.standard_normal(N)
        h = (
            2 * (x * x).mean()
        )  # the curvature; each step multiplies E e^2 by 1 - 2 eta h + eta^2 h2, and adds eta^2 g2
        h2 = (1 - 1 / b) * h**2 + 4 * (x**4).mean() / b
        g2 = 4 * (x**2 * (x * (x @ y) / (x @ x) - y) ** 2).mean() / b
        eta = share * 2 * h / h2
        expected = float(eta * g2 / (2 * h - eta * h2)) if share < 1 else math.inf
        yield Case((x, y, eta, b), _ball_judge(expected), label=f"{label}, eta = {eta:.4g}, b = {b}")


def _ball_judge(expected: float) -> Judge:
    def judge(answer: Any) -> None:
        if math.isinf(expected):
            value = np.asarray(answer, dtype=float).reshape(-1)
            if value.size != 1 or value[0] != math.inf:
                raise Wrong(f"the mean squared distance is {value[0]:.6g}, but does it settle here at all?")
            return
        close(answer, expected, "the mean squared distance", rtol=1e-6)

    return judge


# -- 4: accumulate ------------------------------------------------------------------------------------------


def _accumulated(rng: np.random.Generator) -> Iterator[Case]:
    for K, m, uneven in ((1, 3, False), (2, 4, False), (3, 3, True), (4, 5, True), (5, 2, True)):
        d = int(rng.integers(4, 8))
        counts = rng.integers(1, 9, size=(K, m)) if uneven else np.full((K, m), 6)
        if uneven:
            counts[int(rng.integers(K)), int(rng.integers(m))] = 0
            counts[-1] = 0 if K == 4 else counts[-1]
        w, eta = rng.standard_normal(d), float(rng.uniform(0.05, 0.3))
        micros = [[(rng.standard_normal((n, d)), rng.standard_normal(n)) for n in row] for row in counts]
        X = np.concatenate([x for row in micros for x, _ in row])
        y = np.concatenate([t for row in micros for _, t in row])
        label = f"with {workers(K)}, {m} micro-batches each, " + (
            "all of one size"
            if not uneven
            else "uneven, some empty"
            if K != 4
            else "uneven, one worker with nothing"
        )
        judge = _step_judge(w - eta * 2 * X.T @ (X @ w - y) / len(y), d)
        yield Case(tuple((row, w.copy(), eta) for row in micros), judge, K, label)


def _step_judge(expected: Array, d: int) -> Judge:
    def judge(run: Run) -> None:
        _talked(run, d + 1)
        for rank, w in enumerate(run.results):
            same_array(w, expected, f"w of rank {rank}", rtol=1e-9, atol=1e-12)

    return judge


# -- 5: the noise scale, for nothing ------------------------------------------------------------------------


def _scale(rng: np.random.Generator) -> Iterator[Case]:
    for K in (2, 3, 4, 5):
        b, d = int(rng.integers(2, 9)), int(rng.integers(3, 7))
        w = rng.standard_normal(d)
        X, y = rng.standard_normal((K, b, d)), rng.standard_normal((K, b))
        means = np.array([2 * A.T @ (A @ w - t) / b for A, t in zip(X, y, strict=True)])
        small2, big2 = float((means**2).sum(axis=1).mean()), float((means.mean(axis=0) ** 2).sum())
        signal, sigma2 = (K * big2 - small2) / (K - 1), (small2 - big2) / (1 / b - 1 / (K * b))
        expected = sigma2 / signal
        args = tuple((A, t, w.copy()) for A, t in zip(X, y, strict=True))
        yield Case(args, _scale_judge(expected, d), K, f"with {workers(K)}, b = {b}")


def _scale_judge(expected: float, d: int) -> Judge:
    def judge(run: Run) -> None:
        _talked(run, d + 1)
        for rank, value in enumerate(run.results):
            close(value, expected, f"the estimate of rank {rank}", rtol=1e-6)

    return judge


# -- 6: which batch? ----------------------------------------------------------------------------------------


def _plan(rng: np.random.Generator) -> Iterator[Case]:
    for label, K in (("one worker", 1), ("eight workers", 8), ("many workers", 1024)):
        S_min, B_crit = float(rng.uniform(100, 5000)), float(rng.uniform(20, 5000))
        overhead_s, example_s = (float(x) for x in rng.uniform((0.005, 1e-4), (0.1, 1e-3)))
        yield _plan_case(S_min, B_crit, K, overhead_s, example_s, label)


def _plan_case(S_min: float, B_crit: float, K: int, overhead_s: float, example_s: float, label: str) -> Case:
    def total(B: float) -> float:
        return S_min * (1 + B_crit / B) * (overhead_s + B / K * example_s)

    low, high = -10.0, 40.0  # the logarithm of B: the total falls, then rises
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if total(math.exp(left)) < total(math.exp(right)) else (left, high)
    least = total(math.exp((low + high) / 2))

    def judge(answer: Any) -> None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong(f"return two things, B and seconds, not {type(answer).__name__}")
        B, seconds = number(answer[0], "B"), number(answer[1], "seconds")
        if B <= 0:
            raise Wrong(f"B must be positive, but is {B:.6g}")
        if total(B) > least * (1 + 1e-9):
            raise Wrong(f"with B = {B:.6g} the run is not the fastest")
        close(seconds, least, "seconds", rtol=1e-6)

    says = f"{label}: S_min = {S_min:.4g}, B_crit = {B_crit:.4g}, K = {K}, {overhead_s:.3g} s and {example_s:.3g} s"
    return Case((S_min, B_crit, K, overhead_s, example_s), judge, label=says)


EXERCISES = (
    Exercise(
        "10.2-1",
        "The variance of a batch",
        "build",
        2,
        "gradient_variance",
        _variance,
        objectives=(1,),
    ),
    Exercise(
        "10.2-2", "The smallest batch that will do", "build", 2, "smallest_batch", _batch, objectives=(1,)
    ),
    Exercise(
        "10.2-3",
        "The noise ball in one dimension",
        "build",
        4,
        "ball",
        _ball,
        objectives=(2,),
    ),
    Exercise(
        "10.2-4", "Accumulate, then talk once", "build", 4, "accumulated_step", _accumulated, objectives=(4,)
    ),
    Exercise(
        "10.2-5",
        "The noise scale for nothing",
        "build",
        4,
        "noise_scale",
        _scale,
        objectives=(3,),
    ),
    Exercise("10.2-6", "The fastest batch", "build", 3, "fastest_batch", _plan, objectives=(3,)),
)
