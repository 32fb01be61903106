"""Problem set 10.1: empirical risk minimisation, the gradient is a sum.

The judges compute what is right from the rows of all workers at once (Bottou, Curtis and Nocedal 2018, section 2); the bytes
are those of a ring all-reduce (Patarasuk and Yuan 2009). No solutions here.

Symbols: K workers, N rows in all, w (d,), l2 the penalty, ``tau`` the tilt of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, choices, close, number, same_array
from labkit.exercises.sets import dealt, talked, unequal, workers
from labkit.learn.problems import LogisticRegression

Array = NDArray[Any]
Judge = Callable[[Any], None]


def _parts(answer: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(answer, (tuple, list)) or len(answer) != len(names):
        raise Wrong(f"return {len(names)} things, {', '.join(names)}, not {type(answer).__name__}")
    return tuple(answer)


# -- 1: what one worker contributes -------------------------------------------------------------------------


def _contribution(rng: np.random.Generator) -> Iterator[Case]:
    for n, scale, label in (
        (12, 1.0, "12 rows"),
        (1, 1.0, "one row"),
        (0, 1.0, "no rows at all"),
        (9, 2000.0, "scores of some thousands, where a careless exponential overflows"),
    ):
        d = int(rng.integers(3, 7))
        X, y = rng.standard_normal((n, d)), rng.integers(2, size=n).astype(float)
        w = scale * rng.standard_normal(d)
        z = X @ w
        loss = float(np.sum(np.logaddexp(0, z) - y * z))
        g = LogisticRegression(X, y).grad_sum(w) if n else np.zeros(d)
        yield Case((X, y, w), _contribution_judge(g, loss, n), label=f"with {label}")


def _contribution_judge(g: Array, loss: float, n: int) -> Judge:
    def judge(answer: Any) -> None:
        given = _parts(answer, ("g_sum", "loss_sum", "count"))
        same_array(given[0], g, "g_sum", rtol=1e-8, atol=1e-11)
        if abs(number(given[1], "loss_sum") - loss) > 1e-8 * max(loss, 1e-3):
            raise Wrong(
                f"loss_sum is too {'large' if float(given[1]) > loss else 'small'}: {float(given[1]):.6g}"
            )
        if number(given[2], "count") != n:
            raise Wrong(f"count is {given[2]!r}, but that is not how many rows there are")

    return judge


# -- 2: putting contributions together ----------------------------------------------------------------------


def _together(rng: np.random.Generator) -> Iterator[Case]:
    for K, l2, label in (
        (4, 0.0, "no penalty"),
        (4, 0.3, "a penalty"),
        (1, 0.5, "one worker"),
        (5, 0.2, "one worker without rows"),
    ):
        d = int(rng.integers(2, 6))
        counts = rng.integers(1, 30, size=K)
        if "without" in label:
            counts[int(rng.integers(K))] = 0
        parts = [
            (n * rng.standard_normal(d), float(n * rng.uniform(0.2, 2)), int(n))
            if n
            else (np.zeros(d), 0.0, 0)
            for n in counts
        ]
        w, N = rng.standard_normal(d), int(counts.sum())
        g = np.sum([p[0] for p in parts], axis=0) / N + l2 * w
        loss = sum(p[1] for p in parts) / N + l2 / 2 * float(w @ w)
        yield Case((parts, w, l2), _together_judge(g, loss), label=f"K = {K}, l2 = {l2}, {label}")


def _together_judge(g: Array, loss: float) -> Judge:
    def judge(answer: Any) -> None:
        given = _parts(answer, ("gradient", "loss"))
        same_array(given[0], g, "the gradient", rtol=1e-9, atol=1e-12)
        close(given[1], loss, "the loss")

    return judge


# -- 3: a mean and a deviation are sums, too ----------------------------------------------------------------


def _standardise(rng: np.random.Generator) -> Iterator[Case]:
    for K, offset, empty in (
        (1, 3.0, False),
        (2, 3.0, False),
        (3, 0.0, False),
        (4, 2.0, True),
        (5, 3.0, False),
        (3, 1e7, False),
    ):
        d = int(rng.integers(2, 6))
        sizes = unequal(rng, K, 4, (1, 4), empty)
        cuts = np.cumsum(sizes)[:-1]
        shift = np.repeat(np.arange(K), sizes)[:, None]  # the workers' rows differ
        X = offset + rng.uniform(0.5, 3, d) * (rng.standard_normal((sizes.sum(), d)) + shift)
        exact = (X - X.mean(axis=0)) / X.std(axis=0)
        label = f"with {workers(K)}" + (", one without rows" if empty else "")
        label += f", columns far from zero: around {offset:.0e}" if offset > 1e6 else ""
        judge = _standardise_judge(np.split(exact, cuts), K, d)
        yield Case(tuple((mine,) for mine in np.split(X, cuts)), judge, K, label)


def _standardise_judge(expected: list[Array], K: int, d: int) -> Judge:
    def judge(run: Run) -> None:
        talked(run, 8 * max(4 * (K - 1), 1) * (d + 1), "4 (K - 1) (d + 1) numbers of 8 bytes")
        for rank, rows in enumerate(run.results):
            same_array(rows, expected[rank], f"what rank {rank} returned", rtol=1e-5, atol=1e-5)

    return judge


# -- 4: which are sums? -------------------------------------------------------------------------------------

_KINDS = ("sum over N", "sum over another sum", "neither")
_OBJECTIVES = (
    "mean absolute error",
    "mean loss + l2 |w|^2",
    "median of the losses",
    "log of the mean of exp(loss)",
    "weighted mean, by weights c_i",
    "AUC over all pairs",
)
_SEALED = {
    "mean absolute error": "75fddbda5e3da92a",
    "mean loss + l2 |w|^2": "c249ef153548b2f1",
    "median of the losses": "aa7eeedfbab12614",
    "log of the mean of exp(loss)": "76fb5514d515f30c",
    "weighted mean, by weights c_i": "eac95e5951b53f8d",
    "AUC over all pairs": "fe7526b86f8d6d53",
}


def _which(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((), choices("10.1-4", dict.fromkeys(_OBJECTIVES, _KINDS), _SEALED))


# -- 5: a tilted loss ---------------------------------------------------------------------------------------


def _tilted(rng: np.random.Generator) -> Iterator[Case]:
    for K, tau, empty in (
        (1, 0.5, False),
        (2, 0.5, False),
        (3, 1.0, False),
        (4, 0.3, True),
        (5, 0.5, False),
        (3, 2000.0, False),
    ):
        d = int(rng.integers(3, 6))
        sizes = unequal(rng, K, 3, (1, 4), empty)
        X, y = rng.standard_normal((sizes.sum(), d)), rng.standard_normal(sizes.sum())
        w = rng.standard_normal(d)
        residual = X @ w - y
        tilt = tau * residual**2
        weights = np.exp(tilt - tilt.max())
        g = 2 * X.T @ (weights * residual) / weights.sum()
        args = tuple((a, b, w.copy(), tau) for a, b in dealt(X, y, sizes))
        label = f"with {workers(K)}, tau = {tau:g}" + (", one without rows" if empty else "")
        yield Case(args, _tilted_judge(g, K, d), K, label)


def _tilted_judge(g: Array, K: int, d: int) -> Judge:
    def judge(run: Run) -> None:
        talked(run, 8 * max(2 * (K - 1), 1) * (d + 1 + K), "2 (K - 1) (d + 1 + K) numbers of 8 bytes")
        for rank, given in enumerate(run.results):
            same_array(given, g, f"the gradient of rank {rank}", rtol=1e-7, atol=1e-10)

    return judge


# -- 6: break-even ------------------------------------------------------------------------------------------


def _break_even(rng: np.random.Generator) -> Iterator[Case]:
    yield _break_even_case(400, 20, 4, 10**9, "the lab's numbers, with an endless run")
    yield _break_even_case(400, 20, 4, 50, "a tie")
    for _ in range(3):
        K = int(rng.integers(2, 9))
        N = K * int(rng.integers(100, 5000))
        yield _break_even_case(
            N, int(rng.integers(2, 200)), K, int(rng.integers(1, 4 * N // K)), "other numbers"
        )
    yield _break_even_case(1000, 10, 1, 500, "one worker")


def _break_even_case(N: int, d: int, K: int, T: int, label: str) -> Case:
    gradients = 2 * (K - 1) * (d + 1) * T * 8
    data = (K - 1) * (N // K) * (d + 1) * 8

    def judge(answer: Any) -> None:
        given = _parts(answer, ("gradient_bytes", "data_bytes", "cheaper"))
        for value, expected, name in (
            (given[0], gradients, "gradient_bytes"),
            (given[1], data, "data_bytes"),
        ):
            if abs(number(value, name) - expected) >= 0.5:  # a formula in floats may be off in the last digit
                raise Wrong(
                    f"{name} is too {'large' if float(value) > expected else 'small'}: {float(value):.12g}"
                )
        right = "gradients" if gradients < data else "data" if data < gradients else "equal"
        if given[2] not in ("gradients", "data", "equal"):
            raise Wrong(f"cheaper must be 'gradients', 'data' or 'equal', not {given[2]!r}")
        if given[2] != right:
            raise Wrong(f"cheaper is {given[2]!r}, which contradicts your own two numbers")

    return Case((N, d, K, T), judge, label=f"{label}: N = {N}, d = {d}, K = {K}, T = {T}")


EXERCISES = (
    Exercise(
        "10.1-1",
        "What one worker contributes",
        "build",
        2,
        "contribution",
        _contribution,
        objectives=(1,),
        withheld=("labkit.learn.LogisticRegression",),
    ),
    Exercise("10.1-2", "Together, with a penalty", "build", 2, "together", _together, objectives=(2,)),
    Exercise(
        "10.1-3",
        "A mean and a deviation are sums, too",
        "build",
        4,
        "standardise",
        _standardise,
        objectives=(1, 2),
    ),
    Exercise("10.1-4", "Which gradients are sums?", "build", 3, "", _which, objectives=(4,)),
    Exercise("10.1-5", "A tilted loss", "build", 5, "tilted_gradient", _tilted, objectives=(1, 4)),
    Exercise("10.1-6", "Gradients or data?", "build", 2, "traffic", _break_even, objectives=(3,)),
)
