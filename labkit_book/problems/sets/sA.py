"""Problem set A: sharded synchronous training.

Sources: Li et al. 2020, section 3.2 (overlap), Rajbhandari et al. 2020, sections 3.1, 5 and 7 (ZeRO), Kingma and Ba 2015
(Adam). Symbols: K workers, P parameters, n elements; chunk r is elements r n // K to (r + 1) n // K and belongs to rank r;
p, g, s bytes of a parameter, its gradient, its optimizer state.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives import all_gather, reduce_scatter
from labkit.comm.run import Run
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.puzzles import Puzzle, pipeline
from labkit_book.problems.sets import Array, as_if, derived, follow, pasted, talked, workers

# -- 1: what overlap hides ------------------------------------------------------------------------------------------

LAYERS, LAYER_MS, SUM_MS = 6, 10.0, {"fast": 6.0, "slow": 16.0}
REPEATS, T_9 = 10, 2.262  # Student's t for 95 % and 10 - 1 degrees of freedom


def _interval(saved: Array, n: int = REPEATS) -> Array:
    return saved.mean() + T_9 * saved.std(ddof=1) / n**0.5 * np.array([-1.0, 1.0])


def _overlap_judge(answer: Any) -> None:
    keys = [f"{net}_{what}" for net in SUM_MS for what in ("ms", "predicted_ms", "agrees")]
    at = [f"{net} {way}" for net in SUM_MS for way in ("blocking", "overlapped")]
    answer, v = pasted(answer, keys, at, REPEATS)
    right: dict[str, Any] = {}
    wrong: list[tuple[str, str, Any]] = []
    for net, ms in SUM_MS.items():
        saved, said = v[f"{net} blocking"] - v[f"{net} overlapped"], (LAYERS - 1) * min(LAYER_MS, ms)
        low, high = interval = _interval(saved)
        near, agrees = min(abs(said - low), abs(said - high)) < 0.06, answer[f"{net}_agrees"]
        holds = bool(agrees) if near else low <= said <= high
        right |= {f"{net}_ms": interval, f"{net}_predicted_ms": said, f"{net}_agrees": holds}
        wrong += [
            ("it is as wide as single runs scatter, and an interval for the mean of ten is narrower",
             f"{net}_ms", _interval(saved, 1)),
            ("it lies on the wrong side of zero: which of the two ways is to be the shorter?",
             f"{net}_ms", -interval[::-1]),
            ("a sum is hidden where no layer is left, or a layer where there is no sum",
             f"{net}_predicted_ms", LAYERS * min(LAYER_MS, ms)),
            ("more than a layer's 10 ms is hidden behind a layer", f"{net}_predicted_ms", (LAYERS - 1) * ms),
            ("that is how long an overlapped pass takes, not what it saves",
             f"{net}_predicted_ms", LAYERS * (LAYER_MS + ms) - said),
            ("that does not follow from the interval and the prediction beside it", f"{net}_agrees", ""),
        ]  # fmt: skip
    follow(answer, right, *wrong, rtol=0.0, atol=0.06)


# -- 2: what a worker keeps, and holds for a moment -----------------------------------------------------------------


def _memory(rng: np.random.Generator) -> Iterator[Case]:
    kinds = (
        ("mixed precision", (2, 2, 12)), ("single precision", (4, 4, 8)),
        ("gradients added up in single precision", (2, 4, 12)), ("8-bit parameters", (1, 2, 10)),
    )  # fmt: skip
    for label, (p, g, s) in kinds:
        P, K = int(rng.integers(1, 80)) * 10**9, int(rng.integers(2, 65))
        u = float(rng.uniform(0.1, 0.9)) * p / (2 * p + g)
        kept = P * np.array([p + g + s, p + g + s / K, p + (g + s) / K, (p + g + s) / K])
        moment = u * P * (2 * p + g)
        right = {"kept": kept, "peak": kept[3] + moment, "share": p / (2 * p + g)}
        right["workers"] = p / (p - u * (2 * p + g))
        other_way = np.array([p + g + s, p / K + g + s, (p + g) / K + s, (p + g + s) / K]) * P
        one, both, cut = (kept[3] + u * P * x for x in (p + g, 2 * (p + g), 2 * p + g / K))
        yield derived(
            (P, K, p, g, s, u), right, f"{label}: P = {P:.3g}, K = {K}, bytes {p}, {g} and {s}, unit {u:.3f}",
            ("That shards the parameters first and the optimizer's state last.", "kept", other_way),
            ("That forgets the unit that was asked for ahead of its turn.", "peak", one),
            ("That has a gradient of the next unit, too, which has not computed yet.", "peak", both),
            ("That gradient is cut among the workers already; at this moment it is not.", "peak", cut),
            ("Those are the guests of the moment alone: the shards have not left.", "peak", moment),
            ("That share belongs to a peak with one whole unit of parameters.", "share", p / (p + g)),
        )  # fmt: skip


# -- 3: an optimizer in pieces --------------------------------------------------------------------------------------


def _adam(rng: np.random.Generator) -> Iterator[Case]:
    K = 2  # a grader's ranks each import torch anew
    for world in ("simulated", "processes"):
        d, h, T = int(rng.integers(2, 5)), int(rng.integers(2, 5)), 4
        n, lr = h * d + 2 * h + 1, float(rng.uniform(0.02, 0.1))
        sizes = rng.integers(1, 4, size=(T, K))
        sizes[1, 1:], sizes[1, 0], sizes[:, 0] = 0, 2, sizes[:, 0] + 2
        M = int(sizes.sum(axis=1).max())
        sizes[:, 0] += M - sizes.sum(axis=1)
        w = rng.standard_normal(n)
        data = [[(rng.standard_normal((b, d)), 2 * rng.standard_normal(b)) for b in row] for row in sizes]
        args = tuple((w.copy(), d, h, [step[k] for step in data], M, lr) for k in range(K))
        judge, job = partial(_sharded, T=T), (w, d, h, data)
        mistakes = as_if(
            judge,
            ("Every worker's mean counts alike here, one of two rows as much as one of five.",
             _adam_path(*job, M, lr, "means")),
            ("The sum over the workers is divided by K, and the loss was divided by all rows before.",
             _adam_path(*job, M * K, lr)),
            ("Every row's prediction is held against every row's target there, not only its own.",
             _adam_path(*job, M, lr, "crosses")),
            ("Gradients of earlier steps are still there when later ones come.",
             _adam_path(*job, M, lr, "piles")),
        )  # fmt: skip
        label = f"with {workers(K)}" + ", real processes" * (world == "processes")
        yield Case(args, partial(judge, _adam_path(*job, M, lr)), K, label, world, mistakes=mistakes)


def _adam_path(
    w: Array, d: int, h: int, data: Any, M: int, lr: float, mistake: str = ""
) -> tuple[Array, Array]:
    """(w, first moment) after Adam's steps in one process. mistake: "means", "crosses" or "piles"."""
    w, m, v, g = w.copy(), np.zeros(len(w)), np.zeros(len(w)), np.zeros(len(w))
    for t, step in enumerate(data, 1):
        sums = [_squares(w, d, h, X, y, mistake == "crosses") for X, y in step]
        parts = [max(len(y), 1) * len(step) if mistake == "means" else M for _, y in step]
        g = g * (mistake == "piles") + sum(x / part for x, part in zip(sums, parts, strict=True))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w, m


def _squares(w: Array, d: int, h: int, X: Array, y: Array, crosses: bool) -> Array:
    """The gradient of the sum of squared errors of Linear(d, h), Tanh, Linear(h, 1), whose parameters lie in w."""
    W, b, a, c = np.split(w, [h * d, h * d + h, h * d + 2 * h])
    z = np.tanh(X @ W.reshape(h, d).T + b)
    e = 2 * (len(y) * (z @ a + c) - y.sum() if crosses else z @ a + c - y)
    back = e[:, None] * a * (1 - z * z)
    return np.concatenate([(back.T @ X).ravel(), back.sum(axis=0), z.T @ e, [e.sum()]])


def _sharded(right: tuple[Array, Array], run: Run, T: int) -> None:
    (w, m), K, n = right, run.K, len(right[0])
    for rank, result in enumerate(run.results):
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise Wrong(f"rank {rank} must return two things, w and its chunk of the first moment")
        if np.shape(result[1]) == (n,) and K > 1:
            raise Wrong(f"rank {rank} has all of the first moment: what is sharded then?")
        same_array(result[0], w, f"rank {rank}'s w", 1e-7, 1e-9)
        mine = m[rank * n // K : (rank + 1) * n // K]
        same_array(result[1], mine, f"rank {rank}'s moment", 1e-7, 1e-9)
    most = T * (reduce_scatter.bytes(K, n, 8) + all_gather.bytes(K, n, 8))
    talked(run, int(max(most)), "a reduce-scatter and an all-gather of n numbers in each step")


# -- 4: the factor 1.5 ----------------------------------------------------------------------------------------------


def _times(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(4):
        m, (p, g) = int(rng.integers(3, 17)), rng.choice([(1, 4), (4, 2), (2, 8), (8, 4)]).tolist()
        f = float(rng.uniform(0.01, 0.4))
        right = {"freed": 1.5 * m, "kept": (m + 1) / 2, "careless": 1.5, "bytes": (2 * p + g) / (2 * g)}
        right |= {"even": g / 2, "frozen": (2 * p + f * g) / (2 * f * g)}
        yield derived(
            (m, p, g, f), right, f"m = {m}, p = {p}, g = {g}, f = {f:.3f}",
            ("That sets one micro-batch of stage 3 against a step of data parallelism.", "freed", 1.5),
            ("That gathers in every micro-batch: when do the parameters change?", "kept", m),
            ("That gathers twice a step: was anything freed in between?", "kept", (2 + m) / 2),
            ("Both jobs send in every micro-batch here; that lets only one do so.", "careless", 1.5 * m),
            ("That lets half of an all-reduce of gradients be parameters.", "bytes", (2 * p + g) / (p + g)),
            ("That counts one gather; after the forward pass what was gathered is gone.",
             "bytes", (p + g) / (2 * g)),
            ("That gathers only what is trained; a layer computes with all it has.",
             "frozen", (2 * p + g) / (2 * g)),
            ("That has data parallelism sum gradients that nobody has.", "frozen", (2 * p + f * g) / (2 * g)),
        )  # fmt: skip


_MEMORY = ("labkit_book.planner.memory.zero_memory",)
# -- a pipeline's bubble ----------------------------------------------------------------------------------------------

# No less than 21: the last stage begins after two forward passes and is busy for 15; two backward passes follow.
PIPELINE = Puzzle(
    [f"stage {s}" for s in range(3)],
    partial(pipeline, 3, 5, 3, {"F": 1.0, "B": 2.0}),
    good=27,
    bound=21,
)

EXERCISES = (
    Exercise("A-1", "What the overlap hides", "measure", 3, "", once(_overlap_judge), (4,)),
    Exercise("A-2", "Kept, and held for a moment", "derive", 3, "memory", _memory, (1,), (), _MEMORY),
    Exercise("A-3", "An optimizer in pieces", "build", 5, "sharded_adam", _adam, (3,)),
    Exercise("A-4", "One and a half times as much", "criticise", 3, "times", _times, (2,)),
    Exercise("A-5", "A pipeline's bubble", "puzzle", 3, "", once(PIPELINE.judge), (1,), puzzle=PIPELINE),
)
