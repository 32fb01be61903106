"""Problem set 10.7: fewer bytes.

The judges compute what is right from the questions: stochastic rounding (Alistarh et al. 2017, section
3), a sort and books that balance (Karimireddy et al. 2019), two straight lines, a projection (Vogels et al. 2019), and
two lines of algorithm 1 of Douillard et al. 2023.

Symbols: d coordinates, s levels, k coordinates kept, K workers, r columns, alpha and beta of a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, number, same_array
from labkit.exercises.sets import talked, workers

Array = NDArray[Any]
HAS = "what it has"


def _pair(answer: Any, names: str) -> tuple[Any, Any]:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"return two things, {names}, not {type(answer).__name__}")
    return answer[0], answer[1]


def _same_bits(results: list[Any], what: str) -> None:
    if any(np.asarray(x).tobytes() != np.asarray(results[0]).tobytes() for x in results):
        raise Wrong(
            f"the ranks hold different bits of {what}: they will drift apart, so let all add in the same order"
        )


# -- 1: stochastic rounding -----------------------------------------------------------------------------------------


def _quantise(rng: np.random.Generator) -> Iterator[Case]:
    for s in (1, 4, 15):
        d = int(rng.integers(6, 30))
        yield _quantise_case(
            rng.standard_normal(d) * 10 ** rng.uniform(-2, 2), s, rng.random(d), f"s = {s}, d = {d}"
        )
    yield _quantise_case(np.array([0.0, -2.5, 0.0]), 3, rng.random(3), "one coordinate holds all of the norm")
    yield _quantise_case(np.array([3.0, -4.0, 0.0]), 5, np.array([0.0, 0.0, 0.0]), "x lies on the levels")
    yield _quantise_case(np.zeros(4), 3, rng.random(4), "x = 0")


def _quantise_case(x: Array, s: int, u: Array, label: str) -> Case:
    norm = math.sqrt(math.fsum(v * v for v in x))
    a = [s * abs(v) / norm if norm else 0.0 for v in x]
    safe = [abs(ai - round(ai)) < 1e-9 for ai in a]  # on a level, whatever the last bit says
    up = [
        round(ai) if on else math.floor(ai) + (ui < ai - math.floor(ai))
        for ai, ui, on in zip(a, u, safe, strict=True)
    ]
    expected = np.sign(x) * up

    def judge(answer: Any) -> None:
        norm_given, levels = _pair(answer, "the norm and the levels")
        if abs(number(norm_given, "the norm") - norm) > 1e-12 * norm:
            raise Wrong(
                f"the norm is too {'large' if number(norm_given) > norm else 'small'}: {number(norm_given):.6g}"
            )
        same_array(levels, expected, "the levels", atol=1e-9)

    return Case((x, s, u), judge, label=label)


# -- 2: top-k with error feedback, between workers -------------------------------------------------------------------


def _bucket_mean(rng: np.random.Generator) -> Iterator[Case]:
    for K, k, first in (
        (1, 2, True),
        (2, 1, False),
        (3, 4, False),
        (4, 3, True),
        (4, 40, False),
        (5, 6, False),
    ):
        d = 40 if k == 40 else int(rng.integers(40, 60))
        gs = rng.standard_normal((K, d)) * 10.0 ** rng.integers(-2, 3, size=d)
        errors = np.zeros((K, d)) if first else 10 * rng.standard_normal((K, d))
        if K == 3:
            gs[:, :4] += 999.0 * np.sign(gs[:, :4])  # all choose the same places
        yield _bucket_case(gs, errors, k, "the first step" if first else "a later step")


def _bucket_case(gs: Array, errors: Array, k: int, when: str) -> Case:
    K, d = gs.shape
    mean, left = np.zeros(d), gs + errors
    for corrected in left:
        places = np.argsort(-np.abs(corrected))[:k]
        mean[places] += corrected[places] / K
        corrected[places] = 0.0
    args = tuple((g.copy(), error.copy(), k) for g, error in zip(gs, errors, strict=True))
    return Case(args, _bucket_judge(mean, left, K, k), K, f"with {workers(K)}, k = {k} of d = {d}, {when}")


def _bucket_judge(expected: Array, left: Array, K: int, k: int) -> Any:
    def judge(run: Run) -> None:
        talked(run, 16 * k * (K - 1), "K - 1 times k pairs of 16 bytes", HAS)
        pairs = [_pair(answer, "the mean and the new error") for answer in run.results]
        for rank, (mean, error) in enumerate(pairs):
            same_array(error, left[rank], f"the new error of rank {rank}", rtol=0.0)
            same_array(mean, expected, f"the mean of rank {rank}", rtol=1e-9, atol=1e-12)
        _same_bits([mean for mean, _ in pairs], "the mean")

    return judge


# -- 3: break even --------------------------------------------------------------------------------------------------


def _break_even(rng: np.random.Generator) -> Iterator[Case]:
    yield _break_even_case(4, 4e6, 8e4, 1e-4, 0.01, "top-1 % of the lab's explorer")
    for _ in range(3):
        K, n = int(rng.integers(2, 20)), float(rng.integers(1, 50) * 10**6)
        m, alpha = n * float(rng.uniform(0.2, 0.9)) * 2 / K, float(rng.uniform(1e-5, 1e-3))
        coding_s = (K - 1) * alpha + float(rng.uniform(0.001, 0.1))
        yield _break_even_case(K, n, m, alpha, coding_s, "a method that saves bytes and costs time")
    yield _break_even_case(4, 4e6, 1e5, 0.01, 0.02, "where fewer rounds pay for the coding")
    yield _break_even_case(64, 4e6, 2e5, 1e-4, 0.5, "too many workers for a gather")
    yield _break_even_case(8, 4e6, 1e6, 1e-4, 0.01, "where no byte is saved")


def _break_even_case(K: int, n: float, m: float, alpha: float, coding_s: float, label: str) -> Case:
    saved_bytes, lost_s = (K - 1) * (2 * n / K - m), coding_s - (K - 1) * alpha
    expected = 0.0 if saved_bytes <= 0 else math.inf if lost_s <= 0 else saved_bytes / lost_s

    def judge(answer: Any) -> None:
        if math.isinf(expected):
            try:
                given = float(answer)
            except (TypeError, ValueError):
                raise Wrong(f"return a number of bytes per second, not {type(answer).__name__}") from None
            if given != math.inf:
                raise Wrong(f"it says {given:.6g}: is there a link fast enough to make compression slower?")
            return
        value = (
            math.inf if isinstance(answer, float) and math.isinf(answer) else number(answer, "the bandwidth")
        )
        if abs(value - expected) > 1e-9 * max(expected, 1e-9):
            raise Wrong(f"the bandwidth is too {'large' if value > expected else 'small'}: {value:.6g}")

    says = f"{label}: K = {K}, n = {n:.4g}, m = {m:.4g} bytes, alpha = {alpha:.3g} s, coding {coding_s:.3g} s"
    return Case((K, n, m, alpha, coding_s), judge, label=says)


# -- 4: PowerSGD ----------------------------------------------------------------------------------------------------


def _power_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, r in ((1, 1), (2, 2), (3, 1), (4, 3), (5, 2)):
        n, m = (int(x) for x in rng.integers(6, 12, size=2))
        Ms, Q = rng.standard_normal((K, n, m)), rng.standard_normal((m, r))
        mean = Ms.mean(axis=0)
        U = np.linalg.svd(mean @ Q, full_matrices=False)[0]  # an orthonormal basis of the same columns
        args = tuple((M.copy(), Q.copy()) for M in Ms)
        label = f"with {workers(K)}, matrices of {n} x {m}, r = {r}"
        yield Case(args, _power_judge(U @ U.T @ mean, mean.T @ U, K, (n + m + 2 * K) * r), K, label)


def _power_judge(expected: Array, Q: Array, K: int, numbers: int) -> Any:
    def judge(run: Run) -> None:
        talked(run, 16 * numbers * (K - 1) // K, "two ring all-reduces of (n + m) r numbers in all", HAS)
        pairs = [_pair(answer, "the mean and the new Q") for answer in run.results]
        for rank, (mean, new) in enumerate(pairs):
            same_array(mean, expected, f"the mean of rank {rank}", rtol=1e-8, atol=1e-10)
            if np.shape(new) != Q.shape:
                raise Wrong(f"the new Q of rank {rank} should have shape {Q.shape}, but has {np.shape(new)}")
            # any orthonormal basis will do, so Q is known up to a rotation of its columns
            same_array(
                np.asarray(new) @ np.asarray(new).T, Q @ Q.T, f"Q Q^T of rank {rank}", rtol=1e-8, atol=1e-10
            )
        _same_bits([new for _, new in pairs], "Q")

    return judge


# -- 5: DiLoCo ------------------------------------------------------------------------------------------------------


def _outer_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, meeting in ((1, "a later"), (2, "the first"), (3, "a later"), (4, "a later"), (5, "a later")):
        d = int(rng.integers(20, 40))
        anchor, ws = rng.standard_normal(d), rng.standard_normal((K, d))
        v = np.zeros(d) if meeting == "the first" else rng.standard_normal(d)
        eta, momentum = float(rng.uniform(0.3, 0.9)), float(rng.uniform(0.5, 0.95))
        outer = anchor - ws.mean(axis=0)
        new_v = momentum * v + outer
        new = anchor - eta * (outer + momentum * new_v)
        args = tuple((anchor.copy(), w.copy(), v.copy(), eta, momentum) for w in ws)
        yield Case(args, _outer_judge(new, new_v, K), K, f"with {workers(K)}, {meeting} meeting")


def _outer_judge(new: Array, new_v: Array, K: int) -> Any:
    def judge(run: Run) -> None:
        talked(run, 16 * (K - 1) * -(-len(new) // K), "a ring all-reduce of d numbers", HAS)
        pairs = [_pair(answer, "the new anchor and the new v") for answer in run.results]
        for rank, (anchor, v) in enumerate(pairs):
            same_array(v, new_v, f"the new v of rank {rank}", rtol=1e-9, atol=1e-12)
            same_array(anchor, new, f"the new anchor of rank {rank}", rtol=1e-9, atol=1e-12)
        _same_bits([anchor for anchor, _ in pairs], "the anchor")

    return judge


# -- 6: in words ----------------------------------------------------------------------------------------------------

_RACE = (
    (
        "whether the comparison is fair, what should be held equal and plotted, and the steps of each worked out",
        1,
    ),
    ("what rare meetings cost that no cable pays back, and so which method wins on the fast cable", 1),
)


EXERCISES = (
    Exercise(
        "10.7-1",
        "Round at random, rightly",
        "build",
        3,
        "quantise",
        _quantise,
        objectives=(1,),
        withheld=("labkit.compress.QSGD",),
    ),
    Exercise(
        "10.7-2",
        "The body of a hook",
        "build",
        5,
        "bucket_mean",
        _bucket_mean,
        objectives=(1, 2, 4),
        withheld=("labkit.compress.ErrorFeedback", "labkit.compress.compressed_mean"),
    ),
    Exercise(
        "10.7-3",
        "Where it breaks even",
        "build",
        3,
        "break_even",
        _break_even,
        objectives=(3, 9),
        withheld=("labkit.compress.pays",),
    ),
    Exercise(
        "10.7-4",
        "One step of PowerSGD",
        "build",
        4,
        "power_step",
        _power_step,
        objectives=(1,),
        withheld=("labkit.compress.PowerSGD", "labkit.compress.compressed_mean"),
    ),
    Exercise(
        "10.7-5",
        "A meeting of DiLoCo",
        "build",
        3,
        "outer_step",
        _outer_step,
        objectives=(5, 8),
    ),
    Exercise("10.7-6", "Who won the race?", "build", 2, "", objectives=(6, 7, 10, 11), rubric=_RACE),
)
