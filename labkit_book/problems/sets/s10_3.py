"""Problem set 10.3: synchronous SGD, exact, at the price of a barrier.

Sources: Bottou, Curtis and Nocedal 2018, section 4; David and Nagaraja 2003 (order statistics), Chen et al. 2016 (backup
workers), Patarasuk and Yuan 2009 (ring). Symbols: K workers, b_k rows on worker k, M their sum, w (d,), ``eta`` the
learning rate, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit_book.problems.exercise import Case, Exercise, Wrong, number, once
from labkit_book.problems.sets import Array, as_if, dealt, derived, each_rank, follow, pasted, workers

# -- 1: a loop with three faults ------------------------------------------------------------------------------------

_Step = list[tuple[Array, Array]]  # of each worker its rows and targets


def _loop(rng: np.random.Generator) -> Iterator[Case]:
    for K, kind in (
        (1, "long gradients"),
        (2, "equal shards"),
        (4, "unequal shards"),
        (3, "unequal shards, short gradients"),
        (5, "unequal shards, somebody without a row"),
    ):
        d, (apart, least) = int(rng.integers(4, 7)), (0, (8, 9)) if kind[:5] == "equal" else (5, (2, 6))
        run = [dealt(rng, K, d, apart, least, "without" in kind) for _ in range(3)]
        w, eta, decay = rng.standard_normal(d), float(rng.uniform(0.05, 0.2)), float(rng.uniform(0.2, 0.5))
        c = 1e3 if "short" in kind else float(rng.uniform(0.5, 1.5))
        yield _loop_case(run, w, (eta, decay, c), f"with {workers(K)}: {kind}")


def _loop_case(run: list[_Step], w: Array, recipe: tuple[float, ...], label: str) -> Case:
    right, K = _walk(run, w, recipe), len(run[0])
    most, formula = 16 * (K - 1) * (len(w) + 1) * len(run), "2 (K - 1) (d + 1) numbers of 8 bytes each a step"
    walked = partial(each_rank, what="w after the last step", most=most, formula=formula)
    args = tuple(([step[k] for step in run], w.copy(), *recipe) for k in range(K))
    known = (
        ("That is what comes of the mean of the workers' means: a row counts more on a worker that has few.", "means"),
        ("That is what comes of clipping on each worker: a mean of shortened vectors is no shortened mean.", "each"),
        ("That is what comes of stretching short gradients: clipping only ever shortens.", "stretched"),
        ("That is what comes of leaving the decay out of what is clipped.", "decay last"),
        ("That is what comes of adding the decay to a sum over rows, as if it were one more row.", "decay a row"),
    )  # fmt: skip
    wrong = [(sentence, _walk(run, w, recipe, fault)) for sentence, fault in known]
    mistakes = as_if(walked, *(x for x in wrong if not np.allclose(x[1], right)))
    return Case(args, partial(walked, right), K, label, mistakes=mistakes)


def _walk(run: list[_Step], w: Array, recipe: tuple[float, ...], fault: str = "") -> Array:
    """Where one worker with everybody's rows walks to; fault: what is done wrongly on the way."""
    eta, decay, c = recipe
    for step in run:
        M = sum(len(y) for _, y in step)
        extra = decay * w * (len(step) / M if fault == "decay a row" else 1)
        means = [(2 * X.T @ (X @ w - y) / len(y), len(y)) for X, y in step if len(y)]
        if fault == "each":
            means = [(_clipped(g + extra, c), b) for g, b in means]
        weights = [1 if fault == "means" else b for _, b in means]
        g = np.average([g for g, _ in means], axis=0, weights=weights)
        if fault != "each":
            g = g + extra * (fault != "decay last")
            g = g * c / np.linalg.norm(g) if fault == "stretched" else _clipped(g, c)
        w = w - eta * (g + extra * (fault == "decay last"))
    return w


def _clipped(g: Array, c: float) -> Array:
    return g * min(1.0, c / float(np.linalg.norm(g)))


# -- 2: the slowest of K, and doing without it ----------------------------------------------------------------------


def _slowest(rng: np.random.Generator) -> Iterator[Case]:
    for K, b in ((1, 0), (2, 1), (8, 0), (int(rng.integers(5, 40)), 3), (5000, 50)):
        a, theta = (float(x) for x in rng.uniform(0.01, 0.2, size=2))
        still = np.arange(K, 0, -1.0)
        H = math.fsum(1 / still)
        right = {"gaps": theta / still, "step": a + theta * H, "variance": theta**2 * math.fsum(1 / still**2)}
        right["doubling"] = theta * math.fsum(1 / j for j in range(K + 1, 2 * K + 1))
        right |= {"waiting": theta * K * (H - 1), "backup": a + theta * math.fsum(1 / still[: K - b])}
        yield derived(
            (K, b, a, theta), right,
            f"with {workers(K)}, {b} spare, at least {a:.3f} s, {theta:.3f} s more on average",
            ("Your 'gaps' are those of the last to finish first: "
             "is more or less time between finishes at the beginning?", "gaps", theta / still[::-1]),
            ("Your 'step' begins when the a seconds are over.", "step", theta * H),
            ("Your 'step' says that K workers are as slow as their logarithm: near, but not exact.",
             "step", a + theta * math.log(K)),
            ("Your 'variance' adds standard deviations. Of independent gaps something else adds up.",
             "variance", (theta * H) ** 2),
            ("Your 'waiting' is one worker's. All of them wait.", "waiting", theta * (H - 1)),
            ("Your 'waiting' counts the a seconds, too.", "waiting", K * (a + theta * (H - 1))),
            ("Your 'backup' is the step of a smaller group, from which nobody is left out.",
             "backup", a + theta * math.fsum(1 / still[b:])),
            ("Your 'doubling' is where it goes for very many workers, not what it is for these.",
             "doubling", theta * math.log(2)),
        )  # fmt: skip


# -- 3: the step against K ------------------------------------------------------------------------------------------


def _scaling(rng: np.random.Generator) -> Iterator[Case]:
    for most, n in ((11, 8e6), (12, 4e8)):
        tau, theta = (float(x) for x in rng.uniform((1e-4, 0.002), (3e-4, 0.005)))
        yield _scaling_case(2 ** np.arange(most), tau, theta, n)


def _scaling_case(Ks: Array, tau: float, theta: float, n: float, b: int = 64, B: int = 2048) -> Case:
    beta = 10e9
    H = np.array([math.fsum(1 / j for j in range(1, k + 1)) for k in Ks])
    share = 2 * (Ks - 1) / Ks

    def ms(H: Any = H, share: Any = share) -> dict[str, Any]:
        ring = 1e3 * share * n / beta
        weak, strong = (1e3 * (tau * rows + theta * H) + ring for rows in (b, B / Ks))
        best, more = int(strong.argmin()), ring > strong / 2
        first = Ks[int(more.argmax())] if more.any() else 0
        return {"ring": ring, "grown": weak, "divided": strong, "best": Ks[best], "larger": first}

    right = ms()
    return derived(
        (Ks.tolist(), b, B, tau, theta, n, beta), right,
        f"{len(Ks)} values of K, a vector of {n / 1e6:.0f} MB",
        ("Your 'grown' is in seconds.", "grown", right["grown"] / 1e3),
        ("In your 'grown' nobody waits for the slowest: it has the mean of one worker in it.", "grown", ms(1.0)["grown"]),
        ("In your 'grown' the slowest of K is late by a logarithm: near, but not exact.", "grown", ms(np.log(Ks))["grown"]),
        ("In your 'ring' a worker sends as many bytes when it is alone as among many.", "ring", ms(H, 0 * Ks + 2)["ring"]),
        ("Your 'ring' adds up, and hands the sum to nobody.", "ring", right["ring"] / 2),
        ("In your 'ring' a worker sends the whole vector in each round.", "ring", ms(H, 2 * (Ks - 1))["ring"]),
        ("Your 'best' is the largest K. Is the divided batch's step the shortest there?", "best", Ks[-1]),
    )  # fmt: skip


# -- 4: what one slow worker costs, measured ------------------------------------------------------------------------

_SLOWER, _BASE_MS = (1.0, 1.04, 1.5), 20.0


def _cost(answer: Any) -> None:
    keys = ("predicted_ms", "cost_ms", "decided", "lies", "repeats")
    answer, seconds = pasted(answer, keys, _SLOWER, 12)
    ms = {at: 1e3 * values for at, values in seconds.items()}
    if any(ms[at].min() < 0.98 * at * _BASE_MS for at in _SLOWER):
        raise Wrong("a step was shorter than its slowest worker computes: are these seconds, of one step?")
    n, alike = 12, ms[1.0]
    slowed = np.array([ms[at] for at in _SLOWER[1:]])
    predicted = (np.array(_SLOWER[1:]) - 1) * _BASE_MS
    pairs = slowed - alike
    s = pairs.std(axis=1, ddof=1)

    def interval(half: Array) -> Array:
        return np.stack([pairs.mean(axis=1) - half, pairs.mean(axis=1) + half], axis=1)

    apart = np.sqrt(slowed.var(axis=1, ddof=1) + alike.var(ddof=1))
    low, high = (right := interval(2 * s / math.sqrt(n))).T
    strangers, single = interval(2 * apart / math.sqrt(n)), interval(2 * s)
    with answer.of("repeats"):
        ratio, repeats = 2 * s[0] / predicted[0], number(answer["repeats"], "repeats")
        off = abs(repeats - max(2, math.ceil(ratio**2)))
        if off > 1 >= abs(repeats - ratio):
            said = "how much narrower does four times as many make it?"
            raise Wrong(f"'repeats' grows like the scatter: {said}")
        if off > 1:
            raise Wrong(f"'repeats' does not follow from your scatter: {answer['repeats']}")
    lies = np.where(predicted < low, "below", np.where(predicted > high, "above", "inside"))
    follow(
        answer, {"predicted_ms": predicted, "cost_ms": right, "decided": low > 0, "lies": lies},
        ("it is all that the slow one computes, not what it adds", "predicted_ms", predicted + _BASE_MS),
        ("it shares the delay among four: do three of them go on meanwhile?", "predicted_ms", predicted / 4),
        ("it forgets which runs are of one round: what they share drops out", "cost_ms", strangers),
        ("it says where the difference of a single round lies, not where its mean does", "cost_ms", single),
        ("it goes one standard error up and down", "cost_ms", interval(s / math.sqrt(n))),
        ("that does not follow from your intervals: which of them hold the cost zero?", "decided", ""),
        ("of your own intervals that is not true", "lies", ""),
        rtol=0.0, atol=0.0051,  # in ms, to two digits behind the point
    )  # fmt: skip


_READY = ("labkit.learn.sync_sgd", "labkit.sgd.one_step")
EXERCISES = (
    Exercise("10.3-1", "Three faults, no error message", "debug", 4, "sync_step", _loop, (1, 2), (), _READY),
    Exercise("10.3-2", "The slowest of K, and doing without it", "derive", 3, "slowest_of_K", _slowest, (3,)),
    Exercise("10.3-3", "How far does it scale?", "criticise", 3, "scaling", _scaling, (3, 4)),
    Exercise("10.3-4", "What one slow worker costs", "measure", 3, "", once(_cost), (3,)),
)
