"""Problem set A: sharded synchronous training.

What is right is computed from the questions, or from the student's own data: overlap (Li et al. 2020, section 3.2), ZeRO's
memory and volume (Rajbhandari et al. 2020, sections 3.1, 5 and 7), Adam (Kingma and Ba 2015), the ring's bytes.

Symbols: K workers, P parameters, n elements; chunk r is elements r n // K to (r + 1) n // K and belongs to rank r; p, g, s
bytes of a parameter, its gradient, its optimizer state. No solutions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives import all_gather, reduce_scatter
from labkit.comm.run import Run
from labkit_book.problems.drawn import curve, labelled, shown
from labkit_book.problems.exercise import Case, Exercise, Wrong, same_array
from labkit_book.problems.measured import Measurements, read
from labkit_book.problems.sets import Array, Judge, dict_of, if_it_were, slip, steps, workers

RTOL, ATOL = 1e-9, 1e-12


# -- 1: what overlap hides ------------------------------------------------------------------------------------------

LAYERS, LAYER_MS, SUM_MS = 6, 10.0, {"fast": 6.0, "slow": 16.0}
SETTINGS = tuple(f"{net} {way}" for net in SUM_MS for way in ("blocking", "overlapped"))
REPEATS, T_9 = 10, 2.262  # Student's t for 95 % and 10 - 1 degrees of freedom
PREDICTED_MS = {net: (LAYERS - 1) * min(LAYER_MS, s) for net, s in SUM_MS.items()}


def _overlap(rng: np.random.Generator) -> Iterator[Case]:
    mistakes = [
        ("That hides the last bucket's sum, too: behind which layer?",
         _measured_as("fast_predicted_ms", LAYERS * SUM_MS["fast"])),
        ("On the slow network that hides more than a layer's 10 ms behind a layer.",
         _measured_as("slow_predicted_ms", (LAYERS - 1) * SUM_MS["slow"])),
        ("On the slow network that hides something behind the first layer, when there is nothing to send.",
         _measured_as("slow_predicted_ms", LAYERS * LAYER_MS)),
    ]  # fmt: skip
    for net, ms in SUM_MS.items():
        took = LAYERS * (LAYER_MS + ms) - PREDICTED_MS[net]
        mistakes += [
            ("That is as wide as single runs scatter: an interval for the mean of ten is narrower.",
             _measured_as(f"{net}_ms", lambda d: _interval(d, 1))),
            ("The interval lies on the wrong side of zero: which of the two ways is to be the shorter?",
             _measured_as(f"{net}_ms", lambda d: [-x for x in _interval(d)[::-1]])),
            ("That is how long an overlapped pass takes, not what it saves.",
             _measured_as(f"{net}_predicted_ms", took)),
        ]  # fmt: skip
    yield Case((), _overlap_judge, mistakes=tuple(mistakes))


def _saved(data: Measurements, net: str) -> Array:
    """What overlapping saved, in each round."""
    blocking, overlapped = (data.values[data.at.index(f"{net} {way}")] for way in ("blocking", "overlapped"))
    return blocking - overlapped


def _interval(saved: Array, n: int = REPEATS) -> list[float]:
    half = T_9 * float(saved.std(ddof=1)) / n**0.5
    return [float(saved.mean()) - half, float(saved.mean()) + half]


def _measured_as(key: str, value: float | Callable[[Array], Any]) -> Judge:
    """A judge to which ``key`` is right if it is ``value``, or ``value`` of what the student saved on that network."""

    def judge(answer: Any) -> None:
        saved = _saved(read(answer["data"], len(SETTINGS), REPEATS), key.split("_")[0])
        right = value(saved) if callable(value) else value
        same_array(answer[key], np.array(right), repr(key), rtol=0, atol=0.06)

    return judge


def _overlap_judge(answer: Any) -> None:
    keys = [f"{net}_{what}" for net in SUM_MS for what in ("ms", "predicted_ms", "agrees")]
    data = read(dict_of(answer, ("data", *keys))["data"], len(SETTINGS), REPEATS)
    if set(data.at) != set(SETTINGS) or data.values.shape[1] != REPEATS:
        raise Wrong(f"measure the settings {', '.join(SETTINGS)}, and each {REPEATS} times")
    for net in SUM_MS:
        (low, high), said = _interval(_saved(data, net)), PREDICTED_MS[net]
        _measured_as(f"{net}_ms", _interval)(answer)
        _measured_as(f"{net}_predicted_ms", said)(answer)
        agrees, near = answer[f"{net}_agrees"], min(abs(said - low), abs(said - high)) < 0.06
        if not isinstance(agrees, (bool, np.bool_)):
            raise Wrong(f"{net}_agrees is {agrees!r}, which is neither True nor False")
        if not near and agrees != (low <= said <= high):
            raise Wrong(f"{net}_agrees does not follow from the interval and the prediction beside it")


# -- 2: what a worker keeps, and holds for a moment -----------------------------------------------------------------


def _bytes(p: float, g: float, s: float, K: int) -> list[float]:
    return [p + g + s, p + g + s / K, p + (g + s) / K, (p + g + s) / K]


def _memory(rng: np.random.Generator) -> Iterator[Case]:
    kinds = (
        ("mixed precision", (2, 2, 12)), ("single precision", (4, 4, 8)),
        ("gradients added up in single precision", (2, 4, 12)), ("8-bit parameters", (1, 2, 10)),
    )  # fmt: skip
    for label, (p, g, s) in kinds:
        P, K = int(rng.integers(1, 80)) * 10**9, int(rng.integers(2, 65))
        u = float(rng.uniform(0.1, 0.9)) * p / (2 * p + g)
        at = f"{label}: P = {P:.3g}, K = {K}, bytes {p}, {g} and {s}, unit {u:.3f}"
        kept = P * np.array(_bytes(p, g, s, K))
        moment = u * P * (2 * p + g)
        right = {"kept": kept, "peak": kept[3] + moment, "share": p / (2 * p + g)}
        right["workers"] = p / (p - u * (2 * p + g))
        other_way = np.array([p + g + s, p / K + g + s, (p + g) / K + s, (p + g + s) / K]) * P
        one, both, cut = (kept[3] + u * P * x for x in (p + g, 2 * (p + g), 2 * p + g / K))
        slips = (
            ("That shards the parameters first and the optimizer's state last.", slip("kept", other_way)),
            ("That forgets the unit that was asked for ahead of its turn.", slip("peak", one)),
            ("That has a gradient of the next unit, too, which has not computed yet.", slip("peak", both)),
            ("That gradient is cut among the workers already; at this moment it is not.", slip("peak", cut)),
            ("Those are the guests of the moment alone: the shards have not left.", slip("peak", moment)),
            ("That share belongs to a peak with one whole unit of parameters.", slip("share", p / (p + g))),
        )  # fmt: skip
        yield Case((P, K, p, g, s, u), steps(right), label=at, mistakes=slips)


# -- 3: memory against K --------------------------------------------------------------------------------------------

KS = 2 ** np.arange(8)


def _figure(rng: np.random.Generator) -> Iterator[Case]:
    for sizes, room in (((2, 2, 12), (6.5, 9.5)), ((4, 4, 8), (9.5, 12.5))):
        P = int(rng.integers(4, 12)) * 10**9
        beside, capacity = float(rng.uniform(20, 50)) * P, float(rng.uniform(*room)) * P
        kept = P * np.array([_bytes(*sizes, K) for K in KS.tolist()]).T / 1e9
        batch, C = beside / 1e9 / KS, capacity / 1e9
        mistakes = (
            ("These curves hold no activations.", _figure_judge(kept, C)),
            ("Here the activations do not care how many share the batch.", _figure_judge(kept + batch[0], C)),
            ("These heights count 1024 bytes cubed, and a GB is a billion.",
             _figure_judge((kept + batch) * 1e9 / 2**30, C * 1e9 / 2**30)),
            ("The points say where a stage would begin to fit if there were no activations.",
             _figure_judge(kept + batch, C, kept)),
        )  # fmt: skip
        label = f"P = {P:.3g}, bytes {sizes}, activations {beside / 1e9:.1f} GB, capacity {C:.1f} GB"
        judge = _figure_judge(kept + batch, C)
        yield Case((P, *sizes, beside, capacity), judge, label=label, mistakes=mistakes)


def _figure_judge(curves: Array, capacity: float, marked_by: Any = None) -> Judge:
    """curves: (4 stages, numbers of workers). marked_by: the curves by which a stage fits; None: the same."""
    fits = [np.flatnonzero(gb <= capacity)[:1] for gb in (curves if marked_by is None else marked_by)]
    points = [(KS[i[0]], gb[i[0]]) for i, gb in zip(fits, curves, strict=True) if len(i)]

    def judge(answer: Any) -> None:
        axes = shown(answer)
        labelled(axes, "x")
        labelled(axes, "y", "GB")
        if (axes["xscale"], axes["yscale"]) != ("log", "log"):
            raise Wrong("both axes are to be logarithmic: else the small values can't be told apart")
        for stage, gb in enumerate(curves):
            curve(axes, KS, gb, f"what a worker holds in stage {stage}")
        if not any(len(c["y"]) and np.allclose(c["y"], capacity, rtol=1e-6) for c in axes["curves"]):
            raise Wrong("no line says how much a worker has room for")
        try:
            if points:
                at, gb = np.transpose(points)
                curve(axes, at, gb, "where the stages begin to fit")
        except Wrong:
            raise Wrong("what is marked are not the points at which the stages begin to fit") from None
        if not axes["legend"]:
            raise Wrong("four curves without a legend: who can tell the stages apart?")

    return judge


# -- 4: an optimizer in pieces --------------------------------------------------------------------------------------


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
        judge_of = partial(_adam_judge, K=K, n=n, T=T)
        job = (w, d, h, data)
        mistakes = if_it_were(
            judge_of,
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
        yield Case(args, judge_of(_adam_path(*job, M, lr)), K, label, world, mistakes=mistakes)


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


def _adam_judge(right: tuple[Array, Array], K: int, n: int, T: int) -> Judge:
    (w, m), bounds = right, [i * n // K for i in range(K + 1)]

    def judge(run: Run) -> None:
        for rank, result in enumerate(run.results):
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise Wrong(f"rank {rank} must return two things, w and its chunk of the first moment")
            if np.shape(result[1]) == (n,) and K > 1:
                raise Wrong(f"rank {rank} has all of the first moment: what is sharded then?")
            same_array(result[0], w, f"rank {rank}'s w", 1e-7, 1e-9)
            same_array(result[1], m[bounds[rank] : bounds[rank + 1]], f"rank {rank}'s moment", 1e-7, 1e-9)
        most = T * (reduce_scatter.bytes(K, n, 8) + all_gather.bytes(K, n, 8))
        _sent_at_most(run, most, "in each step a reduce-scatter and an all-gather do")

    return judge


def _sent_at_most(run: Run, most: Any, what: str) -> None:
    for rank, nbytes in enumerate(run.bytes_sent):
        if nbytes > most[rank]:
            raise Wrong(f"rank {rank} sent {int(nbytes)} bytes, more than {what}")


# -- 5: a clip in pieces --------------------------------------------------------------------------------------------


def _clip(rng: np.random.Generator) -> Iterator[Case]:
    kinds = (
        (1, "longer"), (2, "longer"), (4, "longer"), (3, "shorter"), (4, "zero"),
        (3, "infinite on one rank"), (2, "not a number on one rank"), (5, "longer"), (2, "infinite on one rank"),
    )  # fmt: skip
    for i, (K, kind) in enumerate(kinds):
        world = "processes" if i + 1 == len(kinds) else "simulated"
        n = 3 if K == 5 else int(rng.integers(2 * K, 6 * K))
        w, g, eta = rng.standard_normal(n), rng.standard_normal((K, n)), float(rng.uniform(0.1, 0.5))
        mean = g.mean(axis=0)
        g, mean = (0 * g, 0 * mean) if kind == "zero" else (g, mean)
        c = {"zero": 1.0, "shorter": 1.8}.get(kind, 0.5) * (float(np.linalg.norm(mean)) or 1.0)
        right = w - eta * _clipped(mean, c)
        mistakes = _clip_mistakes(w, g, eta, c, K, n)
        if "on one rank" in kind:
            g[0, n - 1], right, mistakes = np.inf if "infinite" in kind else np.nan, w, ()
        args = tuple((w.copy(), g[k].copy(), eta, c) for k in range(K))
        label = f"with {workers(K)}, n = {n}; the mean gradient is {kind}" + " than c" * kind.endswith("er")
        yield Case(args, _clip_judge(right, K, n), K, label, world, mistakes=mistakes)


def _clipped(x: Array, c: float, length: Any = None) -> Array:
    length = np.linalg.norm(x) if length is None else length
    return x * (c / length) if length > c else x


def _clip_mistakes(w: Array, g: Array, eta: float, c: float, K: int, n: int) -> Any:
    mean, edges = g.mean(axis=0), [i * n // K for i in range(1, K)]
    lengths = [np.linalg.norm(x) for x in np.split(mean, edges)]
    own = np.concatenate([_clipped(x, c) for x in np.split(mean, edges)])
    before = np.mean([_clipped(x, c) for x in g], axis=0)
    return if_it_were(
        lambda direction: _clip_judge(w - eta * direction, K, n),
        ("Each chunk is held against c by itself: together they can be longer, and point elsewhere.", own),
        ("Every worker's own gradient is held against c here, before there is a mean.", before),
        ("Lengths of chunks are added as if all pointed the same way.", _clipped(mean, c, sum(lengths))),
        ("That is held against c before the root is taken.", _clipped(mean, c, np.sum(mean**2))),
        ("It is the sum that is held against c here, and it is longer than the mean.", _clipped(K * mean, c) / K),
    )  # fmt: skip


def _clip_judge(right: Array, K: int, n: int) -> Judge:
    most = reduce_scatter.bytes(K, n, 8) + all_gather.bytes(K, n, 8) + 16 * K

    def judge(run: Run) -> None:
        for rank, w in enumerate(run.results):
            if np.shape(w) == np.shape(right) and not np.isfinite(np.asarray(w, float)).all():
                raise Wrong(f"rank {rank}'s w holds values that are not finite: who let them in?")
            same_array(w, right, f"rank {rank}'s w", RTOL, ATOL)
        _sent_at_most(run, most, "a reduce-scatter, an all-gather and a sum of one number do")

    return judge


# -- 6: the factor 1.5 ----------------------------------------------------------------------------------------------


def _times(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(4):
        m, (p, g) = int(rng.integers(3, 17)), rng.choice([(1, 4), (4, 2), (2, 8), (8, 4)]).tolist()
        f = float(rng.uniform(0.01, 0.4))
        right = {"freed": 1.5 * m, "kept": (m + 1) / 2, "careless": 1.5, "bytes": (2 * p + g) / (2 * g)}
        right |= {"even": g / 2, "frozen": (2 * p + f * g) / (2 * f * g)}
        slips = (
            ("That sets one micro-batch of stage 3 against a step of data parallelism.", slip("freed", 1.5)),
            ("That gathers in every micro-batch: when do the parameters change?", slip("kept", m)),
            ("That gathers twice a step: was anything freed in between?", slip("kept", (2 + m) / 2)),
            ("Both jobs send in every micro-batch here; that lets only one do so.", slip("careless", 1.5 * m)),
            ("That lets half of an all-reduce of gradients be parameters.", slip("bytes", (2 * p + g) / (p + g))),
            ("That counts one gather; after the forward pass what was gathered is gone.",
             slip("bytes", (p + g) / (2 * g))),
            ("That gathers only what is trained; a layer computes with all it has.",
             slip("frozen", (2 * p + g) / (2 * g))),
            ("That has data parallelism sum gradients that nobody has.", slip("frozen", (2 * p + f * g) / (2 * g))),
        )  # fmt: skip
        label = f"m = {m}, p = {p}, g = {g}, f = {f:.3f}"
        yield Case((m, p, g, f), steps(right), label=label, mistakes=slips)


_MEMORY = "labkit_book.planner.memory.zero_"
EXERCISES = (
    Exercise("A-1", "What the overlap hides", "measure", 3, "", _overlap, (1,)),
    Exercise("A-2", "Kept, and held for a moment", "derive", 3, "memory", _memory, (2,), (), (_MEMORY + "memory",)),
    Exercise("A-3", "Memory against K", "plot", 3, "memory_figure", _figure, (2,), (), (_MEMORY + "memory",)),
    Exercise("A-4", "An optimizer in pieces", "build", 5, "sharded_adam", _adam, (4,)),
    Exercise("A-5", "A clip that lets too much through", "debug", 3, "clipped_step", _clip, (4,)),
    Exercise("A-6", "One and a half times as much", "criticise", 3, "times", _times, (3,), (),
             (_MEMORY + "bytes", _MEMORY + "factor")),
)  # fmt: skip
