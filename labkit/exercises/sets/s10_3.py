"""Problem set 10.3: synchronous SGD, exact, at the price of a barrier.

The judges compute what is right from the questions: the gradient of all rows at once (Bottou, Curtis and Nocedal 2018,
section 4), order statistics (David and Nagaraja 2003), the ring's bytes (Patarasuk and Yuan 2009). No solutions here.

Symbols: K workers, b_k rows on worker k, M their sum, w (d,), ``eta`` the learning rate, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import dealt, each_rank, talked, unequal, workers

Array = NDArray[Any]


# -- 1: one synchronous step ----------------------------------------------------------------------------------------


def _sync_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, empty in ((1, False), (2, False), (3, False), (4, False), (5, False), (4, True)):
        d = int(rng.integers(5, 9))
        sizes = unequal(rng, K, 7, (4, 9), empty)
        X, y = rng.standard_normal((sizes.sum(), d)), rng.standard_normal(sizes.sum())
        w, eta = rng.standard_normal(d), float(rng.uniform(0.05, 0.3))
        args = tuple((Xk, yk, w.copy(), eta) for Xk, yk in dealt(X, y, sizes))
        label = f"with {workers(K)}" + (", one of them without a row" if empty else "")
        yield Case(args, _step_judge(w - eta * 2 * X.T @ (X @ w - y) / len(y), w, K, d), K, label)


def _step_judge(expected: Array, w: Array, K: int, d: int) -> Any:
    def judge(run: Run) -> None:
        talked(run, 8 * max(2 * (K - 1), 1) * (d + 1), "2 (K - 1) (d + 1) numbers of 8 bytes each")
        for rank, new in enumerate(run.results):
            if np.shape(new) == np.shape(w) and np.allclose(
                np.asarray(new, dtype=float), w, rtol=1e-12, atol=1e-14
            ):
                raise Wrong(f"rank {rank} returned w as it was given, without a step")
        each_rank(run, expected, "w after the step")

    return judge


# -- 2: unequal shards ----------------------------------------------------------------------------------------------


def _combine(rng: np.random.Generator) -> Iterator[Case]:
    kinds = ("equal shards", "shards of different sizes", "one worker only", "one worker without examples")
    for label in (*kinds, "several workers without examples"):
        K, d = (1 if label == "one worker only" else int(rng.integers(3, 9))), int(rng.integers(2, 7))
        sizes = np.full(K, 16) if label == "equal shards" else rng.integers(1, 40, size=K)
        if "without" in label:
            sizes[rng.permutation(K)[: 1 if label.startswith("one") else 2]] = 0
        means = rng.standard_normal((K, d))
        expected = np.array(
            [sum(float(b) * float(m) for b, m in zip(sizes, column, strict=True)) for column in means.T]
        )
        means[sizes == 0] = np.nan  # there is no mean of nothing
        yield Case(
            (means, sizes), _array_judge(expected / sizes.sum(), "the mean gradient"), label=f"with {label}"
        )


def _array_judge(expected: Array, what: str) -> Any:
    def judge(answer: Any) -> None:
        same_array(answer, expected, what, rtol=1e-9, atol=1e-12)

    return judge


# -- 3: the expected slowest ----------------------------------------------------------------------------------------


def _expected_slowest(rng: np.random.Generator) -> Iterator[Case]:
    for kind in ("uniform", "exponential"):
        for K in (1, 2, int(rng.integers(3, 20)), int(rng.integers(200, 2000)), 50_000):
            a, b = (float(x) for x in rng.uniform(0.01, 0.2, size=2))
            if kind == "uniform":
                expected = (a + K * (a + b)) / (K + 1)
                args, how = (kind, K, a, a + b), f"low = {a:.3f}, high = {a + b:.3f}"
            else:
                expected = a + b * math.fsum(1 / k for k in range(1, K + 1))
                args, how = (kind, K, a, b), f"shift = {a:.3f}, scale = {b:.3f}"
            label = f"{kind} law, with {workers(K)}, {how} seconds"
            yield Case(args, _close_judge(expected, "the expected slowest time"), label=label)


def _close_judge(expected: float, what: str) -> Any:
    def judge(answer: Any) -> None:
        close(answer, expected, what, rtol=1e-8)

    return judge


# -- 4: the share of communication ----------------------------------------------------------------------------------


def _communication(rng: np.random.Generator) -> Iterator[Case]:
    yield _communication_case(8, 200_000_000, 4, 0.080, 10e9, "the lab's model and network")
    # Powers of two: at K = 2 communication and computation are equal to the last bit.
    yield _communication_case(5, 2**20, 4, 2.0**-8, 2.0**30, "where they tie at one K")
    slow = int(rng.integers(1, 9)) * 10**6
    yield _communication_case(int(rng.integers(2, 40)), slow, 2, slow / 1e9, 1e9, "2-byte parameters")
    yield _communication_case(16, 10**6, 4, 0.5, 1e9, "a short vector and a long computation")
    late = 10**8 * int(rng.integers(1, 5))
    yield _communication_case(
        64, late, 4, 2 * 4 * late / 1e10 * (1 - 1 / rng.uniform(150.3, 180.7)), 1e10, "a close race"
    )
    yield _communication_case(1, 10**7, 8, 0.001, 1e9, "with K = 1 worker")


def _communication_case(K: int, P: int, itemsize: int, t_comp: float, beta: float, label: str) -> Case:
    n = P * itemsize / beta
    share = (2 * (K - 1) / K * n) / (2 * (K - 1) / K * n + t_comp)
    # 2 (K - 1) / K n > t: the first K beyond 2 n / (2 n - t), where 2 n > t at all
    first = math.floor(2 * n / (2 * n - t_comp) * (1 + 1e-12)) + 1 if 2 * n > t_comp else None
    says = f"{label}: K = {K}, P = {P}, {itemsize} bytes each, t_comp = {t_comp:.4g} s, beta = {beta:.4g} bytes/s"
    return Case((K, P, itemsize, t_comp, beta), _communication_judge(share, first), label=says)


def _communication_judge(share: float, first: int | None) -> Any:
    def judge(answer: Any) -> None:
        pair = _parts(answer, ("share", "first_K"))
        close(pair[0], share, "the share") if share else _zero(pair[0], "the share")
        if first is None:
            if pair[1] is not None:
                raise Wrong(
                    f"first_K is {pair[1]!r}, but is there any K at which communication takes longer?"
                )
            return
        if pair[1] is None:
            raise Wrong("first_K is None, but for enough workers communication does take longer here")
        if number(pair[1], "first_K") != int(number(pair[1], "first_K")):
            raise Wrong(f"first_K should be a whole number of workers, but is {pair[1]!r}")
        close(pair[1], first, "first_K")

    return judge


def _zero(answer: Any, what: str) -> None:
    if abs(number(answer, what)) > 1e-12:
        raise Wrong(f"{what} is too large: {number(answer, what):.6g}")


def _parts(answer: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(answer, (tuple, list)) or len(answer) != len(names):
        raise Wrong(f"return {len(names)} things, {', '.join(names)}, not {type(answer).__name__}")
    return tuple(answer)


# -- 5: a broken loop -----------------------------------------------------------------------------------------------


def _clipped_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, short, even in (
        (1, False, True),
        (2, False, True),
        (3, False, False),
        (4, True, False),
        (5, False, False),
    ):
        d = int(rng.integers(5, 9))
        sizes = np.full(K, 12) if even else unequal(rng, K, 5, (1, 9))
        means = rng.standard_normal((K, d)) * rng.uniform(0.5, 5, size=(K, 1))
        w, eta = rng.standard_normal(d), float(rng.uniform(0.05, 0.3))
        mean = sizes @ means / sizes.sum()
        longer = 1.7 if short else 0.6  # c over the mean's length
        c = float(np.linalg.norm(mean)) * longer
        args = tuple((b * g, int(b), w.copy(), eta, c) for g, b in zip(means, sizes, strict=True))
        how = "the mean is shorter than c" if short else "the mean is longer than c"
        label = f"with {workers(K)}, {'equal' if even else 'unequal'} shards; {how}"
        yield Case(args, _step_judge(w - eta * mean * min(1.0, longer), w, K, d), K, label)


# -- 6: the audit ---------------------------------------------------------------------------------------------------


def _audit(rng: np.random.Generator) -> Iterator[Case]:
    yield _audit_case(22.0, 41.0, 0.7, 0.0, "the case of the lab")
    yield _audit_case(22.0, 41.0, 0.7, 0.25, "the same job, a quarter of whose step is communication")
    for _ in range(3):
        before, clock, f = (float(x) for x in rng.uniform((10, 0.5, 0.05), (60, 0.9, 0.6)))
        yield _audit_case(before, before * float(rng.uniform(1.1, 2.5)), clock, f, f"{before:.1f} min before")


def _audit_case(before: float, after: float, clock: float, f: float, label: str) -> Case:
    explained = before * f + before * (1 - f) / clock
    clock_needed = before * (1 - f) / (after - before * f)
    says = f"{label}: {before:.1f} to {after:.1f} min, clock at {clock:.2f}, communication share {f:.2f}"

    def judge(answer: Any) -> None:
        names = ("explained_min", "unexplained_min", "clock_needed")
        for given, expected, name in zip(
            _parts(answer, names), (explained, after - explained, clock_needed), names, strict=True
        ):
            close(given, expected, name, rtol=1e-8)

    return Case((before, after, clock, f), judge, label=says)


EXERCISES = (
    Exercise(
        "10.3-1",
        "One synchronous step",
        "build",
        4,
        "sync_step",
        _sync_step,
        objectives=(1,),
        withheld=("labkit.learn.sync_sgd", "labkit.sgd.one_step"),
    ),
    Exercise(
        "10.3-2",
        "Weights for unequal shards",
        "build",
        2,
        "combine",
        _combine,
        objectives=(2,),
    ),
    Exercise(
        "10.3-3",
        "The slowest of K, in closed form",
        "build",
        3,
        "expected_slowest",
        _expected_slowest,
        objectives=(3,),
    ),
    Exercise(
        "10.3-4",
        "When does the network take over?",
        "build",
        3,
        "communication",
        _communication,
        objectives=(4,),
    ),
    Exercise(
        "10.3-5",
        "Mend the clipping",
        "debug",
        4,
        "clipped_step",
        _clipped_step,
        objectives=(2,),
        withheld=("labkit.learn.sync_sgd", "labkit.sgd.one_step"),
    ),
    Exercise("10.3-6", "The audit", "build", 2, "audit", _audit, objectives=(3, 4)),
)
