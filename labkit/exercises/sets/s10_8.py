"""Problem set 10.8: large batches.

The judges compute what is right from the questions: Goyal et al. 2017 (sections 2 and 3), You, Gitman and Ginsburg 2017
(Algorithm 1), You et al. 2020 (Algorithm 2), McCandlish et al. 2018 (section 2.4). No solutions here.

Symbols: K workers, b examples each, B = K b, ``eta`` the learning rate, m the momentum, v a velocity, S steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.learn.critical import Hyperbola

Array = NDArray[Any]


def _parts(answer: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(answer, (tuple, list)) or len(answer) != len(names):
        raise Wrong(f"return {len(names)} things, {', '.join(names)}, not {type(answer).__name__}")
    return tuple(answer)


# -- 1: the rate of step t --------------------------------------------------------------------------------------------


def _rate_at(rng: np.random.Generator) -> Iterator[Case]:
    for rule in ("linear", "sqrt"):
        for warm in (0, int(rng.integers(4, 30))):
            eta, K = float(rng.uniform(0.01, 0.3)), int(rng.integers(3, 40))
            top = eta * (K if rule == "linear" else K**0.5)
            for t in (0, 1, warm // 2, max(warm - 1, 0), warm, warm + 1, warm + 1000):
                expected = top if t >= warm else eta + (top - eta) * t / warm
                label = f"{rule} rule, K = {K}, eta = {eta:.3f}, warm_steps = {warm}, t = {t}"
                yield Case((t, eta, K, rule, warm), _close_judge(expected, "the rate"), label=label)


def _close_judge(expected: float, what: str) -> Callable[[Any], None]:
    return lambda answer: close(answer, expected, what, rtol=1e-9)


# -- 2: one step of a large batch -------------------------------------------------------------------------------------


def _large_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, kind in (
        (1, "the rate stands still"),
        (2, "the rate stands still"),
        (3, "the rate rises"),
        (4, "the rate falls"),
        (5, "the first step"),
    ):
        d, m, decay = int(rng.integers(5, 9)), float(rng.uniform(0.5, 0.95)), float(rng.uniform(0.05, 0.3))
        sizes = rng.permutation(np.arange(1, K + 1)) * 5 + int(rng.integers(1, 9))
        means, w = rng.standard_normal((K, d)), rng.standard_normal(d)
        eta = float(rng.uniform(0.05, 0.3))
        last = {"the rate rises": 0.6 * eta, "the rate falls": 3.0 * eta}.get(kind, eta)
        v = np.zeros(d) if kind == "the first step" else rng.standard_normal(d)
        new_v = m * v * (eta / last) + eta * (sizes @ means / sizes.sum() + decay * w)
        args = tuple(
            (b * g, int(b), w.copy(), v.copy(), eta, last, m, decay)
            for g, b in zip(means, sizes, strict=True)
        )
        label = f"with K = {K} worker{'s' * (K > 1)}; {kind}"
        yield Case(args, _large_step_judge(w - new_v, new_v, K, d), K, label)


def _large_step_judge(w: Array, v: Array, K: int, d: int) -> Callable[[Run], None]:
    def judge(run: Run) -> None:
        most = 2 * (K - 1) * (d + 1) * 8
        for rank, nbytes in enumerate(run.bytes_sent):
            if run.K > 1 and nbytes == 0:
                raise Wrong(f"no bytes were sent by rank {rank}: how can the others know its gradient?")
            if nbytes > most:
                raise Wrong(
                    f"rank {rank} sent {int(nbytes)} bytes, more than 2 (K - 1) (d + 1) numbers: send less"
                )
        pairs = [_parts(answer, ("w", "v")) for answer in run.results]
        for rank, (its_w, its_v) in enumerate(pairs):
            same_array(its_v, v, f"v of rank {rank}", rtol=1e-9, atol=1e-12)
            same_array(its_w, w, f"w of rank {rank}", rtol=1e-9, atol=1e-12)
        if any(np.asarray(p[0]).tobytes() != np.asarray(pairs[0][0]).tobytes() for p in pairs):
            raise Wrong("the ranks hold different bits: they will drift apart")

    return judge


# -- 3 and 4: LARS and LAMB -------------------------------------------------------------------------------------------

_SHAPES = ((4, 3), (4,), (2, 4), (2,))
_KINDS = (
    "ordinary layers",
    "a layer whose weights are zero",
    "a layer whose gradient is zero",
    "tiny gradients",
)


def _parts_of(rng: np.random.Generator, kind: str) -> tuple[list[Array], list[Array]]:
    weights = [rng.standard_normal(shape) * rng.uniform(0.2, 3) for shape in _SHAPES]
    grads = [rng.standard_normal(shape) * rng.uniform(0.2, 3) for shape in _SHAPES]
    if kind == _KINDS[1]:
        weights[0] *= 0
    if kind == _KINDS[2]:
        grads[2] *= 0
    if kind == _KINDS[3]:
        grads = [1e-6 * g for g in grads]
    return weights, grads


def _quotient(above: Any, below: Any) -> float:
    return float(above / below) if above and below else 1.0


def _lists_judge(names: tuple[str, ...], expected: tuple[list[Array], ...]) -> Callable[[Any], None]:
    def judge(answer: Any) -> None:
        for given, right, name in zip(_parts(answer, names), expected, names, strict=True):
            if not isinstance(given, (list, tuple)) or len(given) != len(right):
                raise Wrong(f"{name} should be a list of {len(right)} arrays, one per layer")
            for layer, (array, wanted) in enumerate(zip(given, right, strict=True)):
                same_array(array, wanted, f"{name}[{layer}]", rtol=1e-7, atol=1e-12)

    return judge


def _lars_step(rng: np.random.Generator) -> Iterator[Case]:
    for kind in _KINDS:
        for decay in (0.0, float(rng.uniform(0.01, 0.2))):
            weights, grads = _parts_of(rng, kind)
            v = [rng.standard_normal(shape) for shape in _SHAPES]
            eta, trust, m = (float(x) for x in rng.uniform((0.5, 0.001, 0.5), (3.0, 0.05, 0.95)))
            new_w, new_v = [], []
            for w, g, u in zip(weights, grads, v, strict=True):
                below = np.linalg.norm(g) + decay * np.linalg.norm(w)
                rho = _quotient(trust * np.linalg.norm(w), below) if w.ndim > 1 else 1.0
                new_v.append(m * u + eta * rho * (g + (w.ndim > 1) * decay * w))
                new_w.append(w - new_v[-1])
            label = f"{kind}, decay = {decay:.2f}, eta = {eta:.2f}"
            judge = _lists_judge(("new_w", "new_v"), (new_w, new_v))
            yield Case((weights, grads, v, eta, trust, m, decay), judge, label=label)


def _lamb_step(rng: np.random.Generator) -> Iterator[Case]:
    for kind in _KINDS:
        for t in (1, int(rng.integers(3, 12))):
            weights, grads = _parts_of(rng, kind)
            a = [(t > 1) * rng.standard_normal(shape) for shape in _SHAPES]
            q = [(t > 1) * rng.uniform(0.1, 2, size=shape) for shape in _SHAPES]
            eta, decay = float(rng.uniform(0.01, 0.1)), float(rng.uniform(0.01, 0.2))
            new_a = [0.9 * x + (1 - 0.9) * g for x, g in zip(a, grads, strict=True)]
            new_q = [0.999 * x + (1 - 0.999) * g * g for x, g in zip(q, grads, strict=True)]
            new_w = []
            for w, mean, square in zip(weights, new_a, new_q, strict=True):
                r = mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-6) + decay * w
                new_w.append(w - eta * _quotient(np.linalg.norm(w), np.linalg.norm(r)) * r)
            label = f"{kind}, t = {t}, decay = {decay:.2f}"
            judge = _lists_judge(("new_w", "new_a", "new_q"), (new_w, new_a, new_q))
            yield Case((weights, grads, a, q, t, eta, decay), judge, label=label)


# -- 5: two measurements, and what they promise -----------------------------------------------------------------------


def _what_it_buys(rng: np.random.Generator) -> Iterator[Case]:
    for label in ("workers below B_crit", "workers far above B_crit", "one worker"):
        law = Hyperbola(float(rng.uniform(20, 500)), float(rng.uniform(50, 900)))
        B1, B2 = int(rng.integers(4, 40)), int(rng.integers(300, 4000))
        b, K = int(rng.integers(1, 9)), int(rng.integers(2, 7))
        if label.startswith("one"):
            K = 1
        elif "above" in label:
            b, K = 64, int(rng.integers(100, 1000))
        S1, S2 = float(law.steps(B1)), float(law.steps(B2))
        speedup = float(law.steps(b) / law.steps(K * b))
        says = f"{label}: {S1:.1f} steps at B = {B1}, {S2:.1f} at B = {B2}; b = {b}, K = {K}"
        yield Case(
            (B1, S1, B2, S2, b, K), _buys_judge((law.S_min, law.B_crit, speedup, speedup / K)), label=says
        )


def _buys_judge(expected: tuple[float, ...]) -> Callable[[Any], None]:
    names = ("S_min", "B_crit", "speedup", "efficiency")

    def judge(answer: Any) -> None:
        for given, right, name in zip(_parts(answer, names), expected, names, strict=True):
            close(given, right, name, rtol=1e-6)

    return judge


# -- 6: choose K, given a price ---------------------------------------------------------------------------------------


def _cheapest(rng: np.random.Generator) -> Iterator[Case]:
    kinds = ("a generous deadline", "a tight deadline", "a deadline nobody meets", "a slow network")
    for kind in (*kinds, "a tight deadline"):
        law = Hyperbola(float(rng.uniform(500, 2000)), float(rng.uniform(400, 3000)))
        b, per_example = int(rng.integers(8, 65)), float(rng.uniform(0.5e-3, 2e-3))
        sum_s = b * per_example * float(rng.uniform(0.05, 0.4)) * (20 if kind == "a slow network" else 1)
        price = float(rng.uniform(1, 9)) / 3600
        K = np.arange(1, 201)
        seconds = law.steps(K * b) * (b * per_example + np.where(K > 1, sum_s, 0.0))
        cost = price * K * seconds
        deadline = {
            "a generous deadline": 1.2 * seconds[0],
            "a deadline nobody meets": 0.9 * seconds.min(),
        }.get(kind, float(seconds.min() + rng.uniform(0.05, 0.3) * (seconds[0] - seconds.min())))
        fits = seconds <= deadline
        best = int(K[fits][np.argmin(cost[fits])]) if fits.any() else None
        expected = None if best is None else (best, seconds[best - 1], cost[best - 1])
        label = (
            f"{kind}: S_min = {law.S_min:.0f}, B_crit = {law.B_crit:.0f}, b = {b}, deadline {deadline:.0f} s"
        )
        args = (law.S_min, law.B_crit, b, per_example, sum_s, price, float(deadline), 200)
        yield Case(args, _cheapest_judge(expected), label=label)


def _cheapest_judge(expected: tuple[int, float, float] | None) -> Callable[[Any], None]:
    def judge(answer: Any) -> None:
        K, seconds, cost = _parts(answer, ("K", "seconds", "cost"))
        if (K is None) != (expected is None):
            raise Wrong(
                "K is None, but some number of workers does meet the deadline"
                if K is None
                else f"K is {K!r}, but that many workers do not meet the deadline"
            )
        if expected is None:
            if seconds is not None or cost is not None:
                raise Wrong("where no K meets the deadline, seconds and cost should be None too")
            return
        if number(K, "K") != int(number(K, "K")):
            raise Wrong(f"K should be a whole number of workers, but is {K!r}")
        for given, right, name in zip((K, seconds, cost), expected, ("K", "seconds", "cost"), strict=True):
            close(given, float(right), name, rtol=1e-8)

    return judge


EXERCISES = (
    Exercise(
        "10.8-1",
        "The rate of step t",
        "build",
        2,
        "rate_at",
        _rate_at,
        objectives=(1, 2),
    ),
    Exercise("10.8-2", "One step of a large batch", "build", 4, "large_step", _large_step, objectives=(1, 2)),
    Exercise(
        "10.8-3",
        "A step of LARS",
        "build",
        4,
        "lars_step",
        _lars_step,
        objectives=(4,),
    ),
    Exercise(
        "10.8-4",
        "A step of LAMB",
        "build",
        4,
        "lamb_step",
        _lamb_step,
        objectives=(4,),
    ),
    Exercise(
        "10.8-5",
        "What do the next workers buy?",
        "build",
        3,
        "what_it_buys",
        _what_it_buys,
        objectives=(3,),
        withheld=("labkit.learn.fit_hyperbola",),
    ),
    Exercise(
        "10.8-6", "The cheapest that is fast enough", "build", 3, "cheapest", _cheapest, objectives=(3,)
    ),
)
