"""Problem set A: sharded synchronous training.

What is right is computed from the questions: torch's rule for buckets (Li et al. 2020, section 3.2.3), ZeRO's memory and
volume (Rajbhandari et al. 2020, sections 3.1, 5 and 7), the ring's bytes (Patarasuk and Yuan 2009). No solutions here.

Symbols: K workers, P parameters, n elements; chunk r is elements r n // K to (r + 1) n // K and belongs to rank r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.collectives import all_gather, reduce_scatter
from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import workers
from labkit.plan.memory import Precision, zero_factor, zero_memory

Array = NDArray[Any]
RTOL, ATOL = 1e-9, 1e-12


# -- 1: buckets -----------------------------------------------------------------------------------------------------


def _buckets(rng: np.random.Generator) -> Iterator[Case]:
    kinds = ("equal sizes", "one larger than the limit", "sizes that meet the limit exactly", "no parameters")
    for label in (*kinds, "random sizes", "random sizes"):
        limit = int(rng.integers(20, 60))
        sizes = [int(x) for x in rng.integers(1, limit, size=rng.integers(4, 12))]
        if label == kinds[0]:
            sizes = [limit // 3] * 8
        elif label == kinds[1]:
            sizes[len(sizes) // 2] = 3 * limit
        elif label == kinds[2]:
            sizes = [limit // 2, limit - limit // 2] * 3
        elif label == kinds[3]:
            sizes = []
        yield Case((sizes, limit), _buckets_judge(sizes, limit), label=f"{label}: {sizes}, limit {limit}")


def _buckets_judge(sizes: list[int], limit: int) -> Callable[[Any], None]:
    def judge(answer: Any) -> None:
        try:
            got = [[int(i) for i in bucket] for bucket in answer]
        except (TypeError, ValueError):
            raise Wrong("return a list of lists of parameter numbers, such as [[2], [1, 0]]") from None
        flat = [i for bucket in got for i in bucket]
        if sorted(flat) != list(range(len(sizes))):
            raise Wrong("every parameter must be in exactly one bucket")
        if not all(got):
            raise Wrong("there is an empty bucket, and nothing to send in it")
        if flat != sorted(flat, reverse=True):
            raise Wrong(
                "the backward pass makes gradients from the last parameter to the first; these come otherwise"
            )
        for bucket in got[:-1]:
            if sum(sizes[i] for i in bucket) < limit:
                raise Wrong(f"the bucket {bucket} was closed before it was full")
        for bucket in got:
            if sum(sizes[i] for i in bucket[:-1]) >= limit:
                raise Wrong(f"the bucket {bucket} was full before its last parameter came, and did not leave")

    return judge


# -- 2: parameters that took no part --------------------------------------------------------------------------------


def _average(rng: np.random.Generator) -> Iterator[Case]:
    for K, label in (
        (1, "everybody uses everything"),
        (2, "everybody uses everything"),
        (3, "one rank leaves one out"),
        (4, "each rank leaves something else out"),
        (5, "nobody uses the first"),
        (3, "nobody uses anything"),
    ):
        shapes = [tuple(int(x) for x in rng.integers(1, 4, size=rng.integers(1, 3))) for _ in range(4)]
        used = np.ones((K, 4), bool)
        if label.startswith("one rank"):
            used[rng.integers(K), rng.integers(4)] = False
        elif label.startswith("each"):
            used = rng.random((K, 4)) < 0.5
            used[0], used[1] = [True, False, True, False], [False, True, False, False]
        elif label == "nobody uses the first":
            used = rng.random((K, 4)) < 0.7
            used[:, 0] = False
        elif label == "nobody uses anything":
            used[:] = False
        grads = [
            [rng.standard_normal(s) if u else None for s, u in zip(shapes, row, strict=True)] for row in used
        ]
        args = tuple(([None if g is None else g.copy() for g in mine], shapes) for mine in grads)
        yield Case(args, _average_judge(grads, shapes), K, f"with {workers(K)}; {label}")


def _average_judge(grads: list[list[Array | None]], shapes: list[tuple[int, ...]]) -> Callable[[Run], None]:
    K, n = len(grads), sum(int(np.prod(s)) for s in shapes) + len(shapes)

    def judge(run: Run) -> None:
        for rank, means in enumerate(run.results):
            if not isinstance(means, (list, tuple)) or len(means) != len(shapes):
                raise Wrong(
                    f"rank {rank} must return a list with one entry for each of the {len(shapes)} parameters"
                )
            for i, (mean, shape) in enumerate(zip(means, shapes, strict=True)):
                there = [a for a in (mine[i] for mine in grads) if a is not None]
                if not there:
                    if mean is not None:
                        raise Wrong(f"rank {rank} has a gradient for parameter {i}, which nobody used")
                    continue
                if mean is None:
                    raise Wrong(f"rank {rank} has no gradient for parameter {i}, which some rank used")
                expected = np.sum(there, axis=0) / K
                same_array(mean, expected.reshape(shape), f"rank {rank}'s mean for parameter {i}", RTOL, ATOL)
        most = 8 * -(-2 * (K - 1) * (n + K) // K)
        for rank, nbytes in enumerate(run.bytes_sent):
            if nbytes > most:
                raise Wrong(
                    f"rank {rank} sent {int(nbytes)} bytes: more than one ring all-reduce of all gradients and one number "
                    f"for each parameter"
                )

    return judge


# -- 3: what a worker keeps -----------------------------------------------------------------------------------------


def _least_workers(rng: np.random.Generator) -> Iterator[Case]:
    mixed, single, sgd = (2, 2, 12), (4, 4, 8), (4, 4, 4)
    yield _least_case(7_500_000_000, 3, mixed, 80e9, "7.5 billion parameters in 80 GB")
    yield _least_case(7_500_000_000, 1, mixed, 80e9, "the same in stage 1")
    yield _least_case(7_500_000_000, 1, single, 40e9, "single precision, stage 1, 40 GB")
    yield _least_case(7_500_000_000, 2, single, 40e9, "single precision, stage 2, 40 GB")
    yield _least_case(4_000_000_000, 0, mixed, 80e9, "stage 0 that fits")
    yield _least_case(6_000_000_000, 0, mixed, 80e9, "stage 0 that does not")
    yield _least_case(1_000_000_000, 2, mixed, 9e9, "exactly full")
    for stage in (1, 2, 3):
        P = int(rng.integers(1, 40)) * 10**9
        sizes = (mixed, single, sgd)[int(rng.integers(3))]
        yield _least_case(P, stage, sizes, float(rng.uniform(0.8, 6)) * P, "at random")


def _least_case(P: int, stage: int, sizes: tuple[int, int, int], capacity: float, label: str) -> Case:
    precision = Precision(*sizes)
    fixed = sum(s for s, cut in zip(sizes, (stage >= 3, stage >= 2, stage >= 1), strict=True) if not cut) * P
    shared = precision.total * P - fixed
    least: int | None = None
    if shared == 0:
        least = 1 if fixed <= capacity else None
    elif fixed < capacity:
        least = max(1, int(shared / (capacity - fixed)))
        while zero_memory(P, least, stage, precision) > capacity:
            least += 1
        while least > 1 and zero_memory(P, least - 1, stage, precision) <= capacity:
            least -= 1
    says = f"{label}: P = {P:.3g}, stage {stage}, {sizes} bytes a parameter, {capacity / 1e9:.1f} GB"

    def judge(answer: Any) -> None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong(f"return two things, bytes_alone and K, not {type(answer).__name__}")
        close(answer[0], precision.total * P, "bytes_alone", rtol=RTOL)
        if least is None:
            if answer[1] is not None:
                raise Wrong(f"K is {answer[1]!r}, but does any number of workers help here?")
            return
        if answer[1] is None:
            raise Wrong("K is None, but for enough workers it does fit")
        if number(answer[1], "K") != int(number(answer[1], "K")):
            raise Wrong(f"K should be a whole number of workers, but is {answer[1]!r}")
        close(answer[1], least, "K")

    return Case((P, stage, *sizes, capacity), judge, label=says)


# -- 4: a sharded step ----------------------------------------------------------------------------------------------


def _sharded_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, n in ((1, 7), (2, 12), (3, 12), (4, 17), (5, 13), (4, 2)):
        w, u = rng.standard_normal(n), rng.standard_normal(n)
        g = rng.standard_normal((K, n))
        eta, mu = float(rng.uniform(0.05, 0.3)), float(rng.uniform(0.5, 0.95))
        bounds = [i * n // K for i in range(K + 1)]
        args = tuple((w.copy(), g[k].copy(), u[bounds[k] : bounds[k + 1]].copy(), eta, mu) for k in range(K))
        moved = mu * u + g.mean(axis=0)
        divides = "K divides n" if n % K == 0 else "K does not divide n"
        label = f"with {workers(K)}, n = {n}, {divides}"
        yield Case(args, _step_judge(w - eta * moved, moved, bounds, K, n), K, label)


def _step_judge(w: Array, u: Array, bounds: list[int], K: int, n: int) -> Callable[[Run], None]:
    def judge(run: Run) -> None:
        most = reduce_scatter.bytes(K, n, 8) + all_gather.bytes(K, n, 8)
        for rank, result in enumerate(run.results):
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise Wrong(f"rank {rank} must return two things, w and its chunk of u")
            same_array(result[1], u[bounds[rank] : bounds[rank + 1]], f"rank {rank}'s chunk of u", RTOL, ATOL)
            same_array(result[0], w, f"rank {rank}'s w", RTOL, ATOL)
        if any(np.asarray(r[0]).tobytes() != np.asarray(run.results[0][0]).tobytes() for r in run.results):
            raise Wrong("the ranks hold different bits of w: they will drift apart")
        for rank, nbytes in enumerate(run.bytes_sent):
            if nbytes > most[rank]:
                raise Wrong(
                    f"rank {rank} sent {int(nbytes)} bytes: more than a reduce-scatter and an all-gather do"
                )

    return judge


# -- 5: the length of a sharded gradient ----------------------------------------------------------------------------


def _clipped_chunk(rng: np.random.Generator) -> Iterator[Case]:
    for K, kind in ((1, "longer"), (2, "longer"), (3, "shorter"), (4, "longer"), (5, "longer"), (4, "zero")):
        n = int(rng.integers(2 * K, 6 * K))
        g = np.zeros(n) if kind == "zero" else rng.standard_normal(n) * rng.uniform(0.2, 3)
        c = 1.0 if kind == "zero" else float(np.linalg.norm(g)) * (1.8 if kind == "shorter" else 0.6)
        bounds = [i * n // K for i in range(K + 1)]
        args = tuple((g[bounds[k] : bounds[k + 1]].copy(), c) for k in range(K))
        length = float(np.linalg.norm(g))
        scaled = g if length <= c else g * (c / length)
        what = "the gradient is zero" if kind == "zero" else f"the gradient is {kind} than c"
        yield Case(args, _clip_judge(scaled, bounds, K), K, f"with {workers(K)}, n = {n}; {what}")


def _clip_judge(scaled: Array, bounds: list[int], K: int) -> Callable[[Run], None]:
    def judge(run: Run) -> None:
        for rank, chunk in enumerate(run.results):
            same_array(chunk, scaled[bounds[rank] : bounds[rank + 1]], f"rank {rank}'s chunk", RTOL, ATOL)
        for rank, nbytes in enumerate(run.bytes_sent):
            if nbytes > 16 * K:
                raise Wrong(f"rank {rank} sent {int(nbytes)} bytes: a length is one number, not a gradient")

    return judge


# -- 6: what a step sends -------------------------------------------------------------------------------------------


def _traffic(rng: np.random.Generator) -> Iterator[Case]:
    for stage in (0, 1, 2, 3, 3):
        for m in (1, int(rng.integers(2, 9))):
            keep = stage == 3 and bool(rng.integers(2))
            K, P = int(rng.integers(2, 65)), int(rng.integers(1, 70)) * 10**9
            yield _traffic_case(K, P, stage, m, keep)
    yield _traffic_case(1, 10**9, 3, 4, False)
    yield _traffic_case(16, 10**9, 3, 1, True)


def _traffic_case(K: int, P: int, stage: int, m: int, keep: bool) -> Case:
    expected = 2 * (K - 1) / K * 2 * P * zero_factor(stage, m, not keep)
    says = f"K = {K}, P = {P:.3g}, stage {stage}, {m} micro-batches, keep = {keep}"

    def judge(answer: Any) -> None:
        if expected == 0:
            if abs(number(answer, "bytes")) > 0:
                raise Wrong("bytes is not 0, but whom does one worker send to?")
            return
        close(answer, expected, "bytes", rtol=RTOL)

    return Case((K, P, stage, m, keep), judge, label=says)


EXERCISES = (
    Exercise("A-1", "Which gradients travel together", "build", 3, "buckets", _buckets, objectives=(1,)),
    Exercise("A-2", "Parameters that took no part", "build", 4, "average", _average, objectives=(4,)),
    Exercise(
        "A-3",
        "How many workers until it fits",
        "build",
        3,
        "least_workers",
        _least_workers,
        objectives=(2,),
        withheld=("labkit.plan.memory.zero_memory",),
    ),
    Exercise("A-4", "One sharded step", "build", 4, "sharded_step", _sharded_step, objectives=(4,)),
    Exercise(
        "A-5",
        "The length of a gradient in pieces",
        "build",
        2,
        "clipped_chunk",
        _clipped_chunk,
        objectives=(4,),
    ),
    Exercise(
        "A-6",
        "What a step sends",
        "build",
        3,
        "traffic",
        _traffic,
        objectives=(3,),
        withheld=("labkit.plan.memory.zero_bytes", "labkit.plan.memory.zero_factor"),
    ),
)
