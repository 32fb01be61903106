"""Problem set 10.2: mini-batch SGD, its noise, its ball, and what a bigger batch buys.

Sources: Cochran 1977, theorem 2.2; McCandlish et al. 2018, section 2; Bach and Moulines 2013; Polyak and Juditsky 1992
(averages). Symbols: N examples, b per batch, K workers, B = K b, ``eta`` the learning rate, w (d,).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.sets import Array, as_if, derived, follow, pasted, talked, workers

# -- 1: four workers' samplers on trial ---------------------------------------------------------------------

_CAUSES = ("nothing", "forgets", "repeats", "no replacement", "one deck", "alike", "rewinds")
_INNOCENT = "You accuse a sampler that does what it says: chance alone makes as much difference as you found"
_GUILTY = {
    "forgets": "their variances are nearly those of the law, but are these batches right on average?",
    "repeats": "there is too much noise already in one worker, whatever the others do",
    "no replacement": "one worker has a little less noise than it says, and four have a quarter of that",
    "one deck": "four workers together have far less noise than four that know nothing of each other",
    "alike": "each worker by itself keeps the law, and their average does not",
    "rewinds": "all is as it says in one round, and even in the first few hundred: but 3000 rounds are more",
}


def _causes(rng: np.random.Generator) -> Iterator[Case]:
    order = ["nothing", *rng.permutation(_CAUSES[1:]).tolist(), "nothing"]
    for number, truth in enumerate(order, 1):
        b, K, d = int(4 * rng.integers(3, 5)), 4, int(rng.integers(2, 5))
        N = 4 * b + int(rng.integers(6, 13))
        G = rng.standard_normal((N, d)) + 2 * rng.standard_normal(d)
        g = G[_draws(truth, G, b, K, rng)].mean(axis=2)
        yield Case((G, g, b), partial(_caused, truth), label=f"log {number}: N = {N}, b = {b}")


def _draws(truth: str, G: Array, b: int, K: int, rng: np.random.Generator, R: int = 3000) -> Array:
    """Batches (R, K, b) of a sampler with this fault."""
    N = len(G)
    if truth in ("no replacement", "one deck"):
        hands, size = (R, b * K) if truth == "one deck" else (R * K, b)
        return rng.permuted(np.tile(np.arange(N), (hands, 1)), axis=1)[:, :size].reshape(R, K, b)
    drawn = rng.integers(N, size=(R, K, b))
    if truth == "forgets":  # an example that is neither average nor an outlier
        far = np.argsort(((G - G.mean(axis=0)) ** 2).sum(axis=1))[-N // 6]
        drawn = (far + 1 + rng.integers(N - 1, size=(R, K, b))) % N
    if truth == "repeats":
        drawn = np.repeat(drawn[..., : b // 4], 4, axis=2)
    if truth == "alike":
        drawn[:] = drawn[:, :1]
    return drawn[np.arange(R) % 375] if truth == "rewinds" else drawn


def _caused(truth: str, answer: Any) -> None:
    if not isinstance(answer, str) or answer not in _CAUSES:
        raise Wrong(f"the cause must be one of {', '.join(map(repr, _CAUSES))}, not {answer!r}")
    if answer != truth:
        raise Wrong(_INNOCENT if truth == "nothing" else f"{answer!r} it is not: {_GUILTY[truth]}")


# -- 2: the ball, in one dimension --------------------------------------------------------------------------


def _ball(rng: np.random.Generator) -> Iterator[Case]:
    for N, b, share in ((20, 1, 0.2), (20, 1, 0.8), (50, 8, 0.5), (20, 64, 0.9)):
        x, y = rng.standard_normal(N), rng.standard_normal(N)
        h = 2 * x * x
        g = 2 * x * (x * (x @ y) / (x @ x) - y)
        H, var, noise = float(h.mean()), float(h.var()) / b, float((g * g).mean()) / b
        limit = 2 * H / (H * H + var)
        eta = share * limit
        a, kept, added = 1 - eta * H, (1 - eta * H) ** 2 + eta**2 * var, eta**2 * noise
        v = added / (1 - kept)
        right = {"kept": kept, "added": added, "settles": v, "stable": limit,
                 "average": v * (1 + a) / (1 - a), "cured": noise / H**2}  # fmt: skip
        small = "This holds for small eta only, and nothing has to be neglected."
        yield derived(
            (x, y, eta, b), right, f"N = {N}, eta = {eta:.4g}, b = {b}",
            (small, "kept", 1 - 2 * eta * H),
            (small, "settles", eta * noise / (2 * H)),
            (small, "average", noise / H**2),
            ("All examples are taken to be curved alike: the batch's curvature is random, too.", "kept", a * a),
            ("The noise added is that of one example, not of a batch.", "added", added * b),
            ("That is a distance, and the question is about its square.", "settles", math.sqrt(v)),
            ("That is the limit of the full gradient.", "stable", 2 / H),
            ("The iterates are taken to know nothing of each other: each is the last one and a step.", "average", v),
            ("Each pair of iterates has been counted in one order only.", "average", v / (1 - a)),
        )  # fmt: skip


# -- 3: accumulate ------------------------------------------------------------------------------------------


def _accumulated(rng: np.random.Generator) -> Iterator[Case]:
    for K, m, most in ((1, 3, math.inf), (2, 4, math.inf), (3, 3, 0.5), (4, 5, 0.5), (5, 2, 100.0)):
        d = int(rng.integers(4, 8))
        counts = rng.integers(1, 9, size=(K, m)) if K > 2 else np.full((K, m), 6)
        if K > 2:
            counts[int(rng.integers(K)), int(rng.integers(m))] = 0
        if K == 4:
            counts[-1] = 0
        w, eta = rng.standard_normal(d), float(rng.uniform(0.05, 0.3))
        some = "one worker with nothing" if K == 4 else "some empty"
        sizes = f"uneven, {some}" if K > 2 else "all of one size"
        yield _step_case(counts, w, eta, most, rng, f"with {workers(K)}, {m} micro-batches each, {sizes}")


def _stepped(expected: Array, run: Run) -> None:
    K, d = run.K, len(expected)
    if max(run.messages_sent) > 2 * (K - 1):
        raise Wrong(f"a rank sent {max(run.messages_sent):g} messages: add up first, then talk once")
    talked(run, 16 * (K - 1) * (d + 1), "2 (K - 1) (d + 1) numbers of 8 bytes")
    for rank, given in enumerate(run.results):
        same_array(given, expected, f"w of rank {rank}", rtol=1e-9, atol=1e-12)


def _step_case(counts: Array, w: Array, eta: float, most: float, rng: Any, label: str) -> Case:
    K, d = len(counts), len(w)
    micros = [[(rng.standard_normal((n, d)), rng.standard_normal(n)) for n in row] for row in counts]

    def clip(g: Array) -> Array:
        return np.asarray(g * min(1.0, most / max(float(np.linalg.norm(g)), 1e-300)))

    sums = np.array([[2 * X.T @ (X @ w - y) for X, y in row] for row in micros])  # (K, m, d)
    means, N = sums / np.maximum(counts, 1)[..., None], counts.sum()
    each = sums.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)[:, None]  # the workers' means
    mean = sums.sum(axis=(0, 1)) / N
    right = w - eta * clip(mean)
    mistakes = (
        ("A short micro-batch counts as much here as a full one.", w - eta * clip(means.mean(axis=(0, 1)))),
        ("The micro-batches' means are added up: the step grows with their number.",
         w - eta * clip(means.sum(axis=1).mean(axis=0))),
        ("Only the last micro-batch is in this step: the ones before have been overwritten.",
         w - eta * clip(sums[:, -1].sum(axis=0) / max(counts[:, -1].sum(), 1))),
        ("Each worker's gradient has been clipped, and not that of all examples.",
         w - eta * (counts.sum(axis=1) @ [clip(g) for g in each] / N)),
        ("Each micro-batch has been clipped, and not the gradient of all examples.",
         w - eta * np.einsum("km,kmd->d", counts, [[clip(g) for g in row] for row in means]) / N),
        ("Nothing has been clipped here.", w - eta * mean),
        ("The step has been clipped, and not the gradient.", w - clip(eta * mean)),
        ("A short gradient has been made longer here.", w - eta * mean * min(most, 1e9) / np.linalg.norm(mean)),
        ("This is the step of another loss, of half the squared error.", w - eta * clip(mean / 2)) if K == 1 else
        ("Once divided by all examples, and then by the workers besides.", w - eta * clip(mean / K)),
    )  # fmt: skip
    known = as_if(_stepped, *((said, z) for said, z in mistakes if not np.allclose(z, right)))
    args = tuple((row, w.copy(), eta, most) for row in micros)
    return Case(args, partial(_stepped, right), K, label + f", most = {most:g}", mistakes=known)


# -- 4: your machine's fastest batch ------------------------------------------------------------------------

_BATCHES, _ROUNDS = (8, 32, 64, 4096), 9


def _machine(answer: Any) -> None:
    keys = ("example_s", "overhead_s", "best", "fastest", "p", "decided")
    answer, v = pasted(answer, keys, _BATCHES, _ROUNDS)
    t, B = np.array([v[B] for B in _BATCHES]), np.array(_BATCHES, float)
    low, high = np.median(t[0]), np.median(t[-1])
    e = (high - low) / (B[-1] - B[0])
    o = low - B[0] * e
    run = 8.7 * (1 + 39.4 / B)[:, None] * t
    first, second = np.argsort(np.median(run, axis=1))[:2]
    wins = int((run[first] < run[second]).sum())
    tail = sum(math.comb(_ROUNDS, i) for i in range(max(wins, _ROUNDS - wins), _ROUNDS + 1))
    p, just = min(1.0, 2 * tail / 2**_ROUNDS), 2 * math.comb(_ROUNDS, wins) / 2**_ROUNDS
    right = {"example_s": e, "overhead_s": o, "best": math.sqrt(39.4 * o / e), "fastest": B[first], "p": p}
    follow(
        answer, right | {"decided": "yes" if p < 0.05 else "no"},
        ("a step's overhead has been shared out to its examples", "example_s", high / B[-1]),
        ("its examples take a part of the smallest step's time", "overhead_s", low),
        ("that is the critical batch, whatever a step costs", "best", 39.4),
        ("there the two costs of one step are equal: the number of steps has not been asked", "best", o / e),
        ("the square of what falls and of what grows", "best", 39.4 * o / e),
        ("that is the batch with the shortest step", "fastest", B[t.mean(axis=1).argmin()]),
        ("that is the batch with the cheapest example", "fastest", B[(np.median(t, axis=1) / B).argmin()]),
        ("one direction only has been counted: before the data, either might have been faster", "p", p / 2),
        ("a chance of just so many rounds, not of so many or more", "p", just),
        ("that is a share of rounds", "p", wins / _ROUNDS),
        ("that does not follow from your own p", "decided", ""),
    )  # fmt: skip


EXERCISES = (
    Exercise("10.2-1", "Samplers on trial", "debug", 4, "cause", _causes, (1,)),
    Exercise("10.2-2", "A ball and two cures", "derive", 4, "ball", _ball, (2, 3)),
    Exercise("10.2-3", "Accumulate, then talk once", "build", 3, "accumulated_step", _accumulated, (6,)),
    Exercise("10.2-4", "Your machine's fastest batch", "measure", 3, "", once(_machine), (4, 5)),
)
