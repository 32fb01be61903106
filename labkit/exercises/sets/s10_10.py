"""Problem set 10.10: choosing a configuration.

The judges compute what is right from the questions: time to accuracy as steps times seconds (McCandlish et al. 2018,
section 2, for the steps), the ring's time (Patarasuk and Yuan 2009), buckets on one channel (Li et al. 2020, section 3.2.3),
and what a log says of a step that waits for the last. No solutions here.

Symbols: K workers, b examples each, B = K b, S_min and B_crit of the hyperbola, alpha and beta of a link, T steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number

Array = NDArray[np.float64]


def _items(answer: Any, names: tuple[str, ...]) -> list[Any]:
    """The answer as a tuple or list (or 1-D array) of as many items as there are names, or Wrong."""
    items = list(answer) if isinstance(answer, (tuple, list, np.ndarray)) else None
    if items is None or len(items) != len(names):
        raise Wrong(f"return {len(names)} values, ({', '.join(names)}), not {answer!r}"[:200])
    return items


def _whole(answer: Any, expected: int, what: str) -> None:
    if number(answer, what) != expected:
        raise Wrong(f"{what} is not {number(answer, what):g}")


# -- 1: the bill ----------------------------------------------------------------------------------------------------


def _bill(rng: np.random.Generator) -> Iterator[Case]:
    yield _bill_case(1, 8, 6.4, 52.0, 0.018, 0.0, 3.0, "one worker, who has nobody to talk to")
    yield _bill_case(4, 32, 7000.0, 0.0, 0.1, 0.02, 2.5, "where every batch needs as many steps")
    for _ in range(4):
        K, b = int(rng.integers(2, 200)), int(rng.integers(1, 64))
        S_min, B_crit = float(rng.uniform(10, 9000)), float(rng.uniform(5, 9000))
        compute_s, comm_s, price = (float(x) for x in rng.uniform((0.01, 0.001, 0.1), (0.5, 0.2, 9)))
        yield _bill_case(K, b, S_min, B_crit, compute_s, comm_s, price, f"K = {K}, b = {b}")


def _bill_case(
    K: int, b: int, S_min: float, B_crit: float, compute_s: float, comm_s: float, price: float, label: str
) -> Case:
    steps = S_min + S_min * B_crit / (K * b)
    seconds = steps * (compute_s + comm_s)
    names = ("time_s", "price", "efficiency")

    def judge(answer: Any) -> None:
        expected = (seconds, K * seconds * price / 3600, compute_s / (compute_s + comm_s))
        for given, right, name in zip(_items(answer, names), expected, names, strict=True):
            close(given, right, name)

    return Case((K, b, S_min, B_crit, compute_s, comm_s, price), judge, label=label)


# -- 2: fastest, cheapest, knee -------------------------------------------------------------------------------------


def _choose(rng: np.random.Generator) -> Iterator[Case]:
    cases: list[tuple[float, ...]] = [
        (8, 0.018, 6.4, 52.0, 3.2e3, 1e-3, 1e9),  # the lab's
        (8, 0.018, 6.4, 52.0, 3.2e3, 0.05, 1e9),  # messages so dear that one worker is best
    ]
    while len(cases) < 6:
        found = (
            float(rng.integers(1, 33)), float(rng.uniform(0.01, 0.1)), float(rng.uniform(5, 500)),
            float(rng.uniform(50, 3000)), float(rng.uniform(1e4, 1e8)), float(10 ** rng.uniform(-5, -2.5)), 1e9,
        )  # fmt: skip
        if min(_margins(*found)) > 1.01:  # no tie, and no case for the last digit
            cases.append(found)
    for b, *rest in cases:
        yield _choose_case(int(b), *rest)


_KS = tuple(range(1, 65))


def _scores(
    b: float, compute_s: float, S_min: float, B_crit: float, nbytes: float, alpha: float, beta: float
) -> list[Array]:
    """Of every K in _KS: seconds, worker-seconds, and their product."""
    K = np.array(_KS, dtype=float)
    step = compute_s + 2 * (K - 1) * (alpha + nbytes / K / beta)
    seconds = S_min * (1 + B_crit / (K * b)) * step
    return [seconds, K * seconds, K * seconds**2]


def _margins(*case: float) -> list[float]:
    return [float(np.partition(score, 1)[1] / score.min()) for score in _scores(*case)]


def _choose_case(
    b: int, compute_s: float, S_min: float, B_crit: float, nbytes: float, alpha: float, beta: float
) -> Case:
    best = [_KS[int(np.argmin(s))] for s in _scores(b, compute_s, S_min, B_crit, nbytes, alpha, beta)]

    def judge(answer: Any) -> None:
        names = ("fastest", "cheapest", "knee")
        for given, right, name in zip(_items(answer, names), best, names, strict=True):
            _whole(given, right, f"{name} K")

    label = (
        f"b = {b}, {1e3 * compute_s:.0f} ms of computation, {nbytes:.3g} bytes, alpha = {1e6 * alpha:.0f} µs"
    )
    return Case((b, compute_s, S_min, B_crit, nbytes, alpha, beta, list(_KS)), judge, label=label)


# -- 3: a step with buckets -----------------------------------------------------------------------------------------


def _overlapped(rng: np.random.Generator) -> Iterator[Case]:
    yield _overlapped_case(0.1, [0.2], [4e6], 4, 1e-4, 1e9, "one bucket")
    yield _overlapped_case(0.05, [0.02] * 5, [1e6] * 5, 1, 1e-4, 1e9, "one worker, who sends nothing")
    yield _overlapped_case(0.05, [0.02] * 5, [4e6] * 5, 8, 1e-4, 1e8, "a slow link, never idle")
    yield _overlapped_case(0.05, [0.02] * 5, [4e3] * 5, 8, 1e-5, 1e9, "a fast link, mostly idle")
    gap = [0.01, 0.2, 0.01, 0.01]
    yield _overlapped_case(0.05, gap, [4e7, 1e6, 4e7, 1e6], 4, 1e-4, 1e9, "a link that idles in between")
    for _ in range(3):
        L, K = int(rng.integers(2, 9)), int(rng.integers(2, 33))
        layers, sizes = rng.uniform(0.001, 0.05, size=L), rng.uniform(1e4, 3e7, size=L)
        yield _overlapped_case(0.03, list(layers), list(sizes), K, 1e-4, 1e9, f"{L} buckets, K = {K}")


def _overlapped_case(
    forward_s: float,
    layers_s: list[float],
    nbytes: list[float],
    K: int,
    alpha: float,
    beta: float,
    label: str,
) -> Case:
    layers, sizes = np.array(layers_s), np.array(nbytes)
    sums = 2 * (K - 1) * (alpha + sizes / K / beta)
    ready = forward_s + np.cumsum(layers)
    # the channel is through with the last bucket once it has gone on without a pause from some bucket's being ready
    after = np.cumsum(sums[::-1])[::-1]
    expected = float((ready + after).max())

    def judge(answer: Any) -> None:
        if number(answer, "the step") < ready[-1] * (1 - 1e-12):
            raise Wrong("the step is shorter than its computation")
        close(answer, expected, "the step")

    return Case((forward_s, layers, sizes, K, alpha, beta), judge, label=label)


# -- 4: where it flips ----------------------------------------------------------------------------------------------


def _flip(rng: np.random.Generator) -> Iterator[Case]:
    plain = (14.0, 7e6, 0.0, 1.0)
    yield _flip_case(0.05, 1e-4, plain, (7.0, 1e6, 0.02, 1.0), "coding against bytes")
    yield _flip_case(0.05, 1e-4, (7.0, 1e6, 0.02, 1.0), plain, "the same two, the other way round")
    yield _flip_case(0.05, 1e-4, plain, (7.0, 1e6, 0.0, 1.0), "fewer messages and fewer bytes")
    yield _flip_case(0.05, 1e-4, plain, plain, "a method against itself")
    yield _flip_case(0.05, 1e-4, plain, (14.0, 7e6, 0.0, 1.2), "the same step, a fifth more steps")
    yield _flip_case(0.05, 1e-4, plain, (2.0, 1e6, 0.0, 1.2), "local steps, of which more are needed")
    yield _flip_case(0.05, 5e-3, plain, (30.0, 1e6, 0.0, 1.0), "fewer bytes in more messages")
    for _ in range(3):
        a, c = (
            (float(rng.integers(1, 60)), float(rng.uniform(1e5, 1e8)), float(rng.uniform(0, 0.1)), float(f))
            for f in (1.0, rng.uniform(0.8, 1.5))
        )
        yield _flip_case(float(rng.uniform(0.01, 0.3)), 1e-4, a, c, "two methods drawn at random")


def _flip_case(
    compute_s: float, alpha: float, a: tuple[float, ...], c: tuple[float, ...], label: str
) -> Case:
    fixed = [f * (compute_s + m * alpha + coding) for m, _, coding, f in (a, c)]
    wire = [f * n for _, n, _, f in (a, c)]
    expected = None
    if fixed[0] != fixed[1] and (wire[0] - wire[1]) / (fixed[1] - fixed[0]) > 0:
        expected = (wire[0] - wire[1]) / (fixed[1] - fixed[0])

    def judge(answer: Any) -> None:
        if isinstance(answer, str):
            if answer != "never":
                raise Wrong(f"a word can only be 'never', not {answer!r}")
            if expected is not None:
                raise Wrong("it says never, but there is a bandwidth at which both take as long")
            return
        value = number(answer, "the bandwidth")
        if expected is None:
            raise Wrong(f"it says {value:.4g} bytes per second, but no bandwidth above 0 makes them equal")
        close(value, expected, "the bandwidth", rtol=1e-8)

    return Case((compute_s, alpha, a, c), judge, label=label)


# -- 5: the slow job ------------------------------------------------------------------------------------------------


def _account(rng: np.random.Generator) -> Iterator[Case]:
    for label, load, work, K in (
        ("a slow clock and a slow loader on one rank", 5.0, 1 / 0.7, 8),
        ("a slow clock alone", 1.0, 1 / 0.7, 8),
        ("a slow loader alone", 6.0, 1.0, 5),
        ("a fast clock that a slow loader more than eats up", 9.0, 0.6, 6),
        ("two ranks only", 4.0, 1.3, 2),
    ):
        suspect, T = int(rng.integers(K)), 30
        loads = 0.008 * (1 + 0.02 * rng.standard_normal((K, T)))
        works = 0.050 * (1 + 0.02 * rng.standard_normal((K, T)))
        loads[suspect] *= load
        works[suspect] *= work
        yield _account_case(loads, works, 0.006 + 0.001 * rng.random(T), suspect, label)


def _account_case(loads: Array, works: Array, sums: Array, suspect: int, label: str) -> Case:
    K, T = loads.shape
    ends = np.cumsum((loads + works).max(axis=0) + sums)
    begun = np.concatenate([[0.0], ends[:-1]])
    loaded, ready = begun + loads, begun + loads + works
    cured = []
    for part in (loads, works):
        others = np.median(np.delete(part, suspect, axis=0), axis=0)
        cured.append(np.vstack([np.delete(part, suspect, axis=0), others]))
    last = [np.delete(part, suspect, axis=0) for part in (loads, works)]
    whole = [np.vstack([rest, part[suspect]]) for rest, part in zip(last, (loads, works), strict=True)]
    ways = [(whole[0], whole[1]), (cured[0], whole[1]), (whole[0], cured[1]), (cured[0], cured[1])]
    seconds = [float(((a + c).max(axis=0) + sums).sum()) for a, c in ways]
    names = ("rank", "as_it_is_s", "loader_cured_s", "clock_cured_s", "both_cured_s")

    def judge(answer: Any) -> None:
        given = _items(answer, names)
        _whole(given[0], suspect, "the rank that is last most often")
        for value, right, name in zip(given[1:], seconds, names[1:], strict=True):
            close(value, right, name, rtol=1e-8)

    return Case((loaded, ready, ends), judge, label=f"{label}, K = {K}, {T} steps")


# -- 6: agree on who is slow ----------------------------------------------------------------------------------------


def _agree(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 2, 3, 4, 5, 5):
        seconds = rng.uniform(0.02, 0.05, size=K)
        seconds[rng.integers(K)] *= 1.8
        yield _agree_case(seconds)


def _agree_case(seconds: Array) -> Case:
    K = len(seconds)
    slowest = int(np.argmax(seconds))
    factor = float(seconds[slowest] / np.median(seconds))

    def judge(run: Run) -> None:
        for rank, nbytes in enumerate(run.bytes_sent):
            if K > 1 and nbytes == 0:
                raise Wrong(f"rank {rank} sent nothing: how can the others know its seconds?")
            if nbytes > 8 * 2 * K * K:
                raise Wrong(f"rank {rank} sent {int(nbytes)} bytes, more than 2 K K numbers of 8: send less")
        for rank, answer in enumerate(run.results):
            who, times = _items(answer, ("slowest", "slowdown"))
            _whole(who, slowest, f"the slowest, as rank {rank} says,")
            close(times, factor, f"the slowdown, as rank {rank} says,")

    args = tuple((float(s),) for s in seconds)
    return Case(args, judge, K, f"with K = {K} worker{'s' * (K > 1)}")


EXERCISES = (
    Exercise("10.10-1", "The bill", "build", 2, "bill", _bill, objectives=(1,)),
    Exercise("10.10-2", "Fastest, cheapest, knee", "build", 3, "choose_K", _choose, objectives=(2,)),
    Exercise("10.10-3", "A step with buckets", "build", 4, "overlapped_step", _overlapped, objectives=(1,)),
    Exercise("10.10-4", "Where the ranking flips", "build", 3, "flip", _flip, objectives=(3,)),
    Exercise("10.10-5", "From timings to verdict", "build", 4, "account", _account, objectives=(4,)),
    Exercise("10.10-6", "Agree on who is slow", "build", 3, "agree", _agree, objectives=(4,)),
)
