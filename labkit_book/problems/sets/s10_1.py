"""Problem set 10.1: empirical risk minimisation, the gradient is a sum.

Sources: Bottou, Curtis and Nocedal 2018, section 2; Li, Beirami, Sanjabi and Smith 2021 (the tilted loss). Symbols: K
workers, N rows in all, w (d,), l2 the penalty, ``tau`` the tilt of the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.sets import Array, Parts, as_if, dealt, derived, follow, pasted, talked, workers

# -- 1: inputs that expose one program each -----------------------------------------------------------------

# Why a program is off at an input, and why it is not.
_OFF = {
    "A": "the penalty pulls there, and A does not count it as often as the rows",
    "B": "the shards differ there in their size and in their means, and B makes nothing of the sizes",
    "C": "the rows cannot be shared out evenly there, and C divides as if they were",
    "D": "D has lost digits there that the others kept",
}
_NOT = {
    "A": "nothing pulls on w there, or there are no more rows than workers: A has nothing to miscount",
    "B": "every worker deserves the same weight there, or all of them say the same",
    "C": "every worker could have the same number of rows there, so what C divides by is N",
    "D": "the sums survive in 32 bits there: single precision alone is no harm",
}


def _exposes(answer: Any) -> None:
    parts = Parts(answer, _OFF, "keep the dict as it was, an input for each program,")
    for name, given in parts.items():
        with parts.of(name):
            _exposed(name, given)
    parts.end()


def _exposed(name: str, given: Any) -> None:
    right, programs = _programs(name, *_an_input(given, name))
    off = {p: [abs(g - right) / abs(right) for g in values] for p, values in programs.items()}
    if min(off[name]) <= 0.1:
        why = _NOT[name] if min(off[name]) <= 1e-3 else "it is off, but by no more than a tenth"
        raise Wrong(f"the input for {name} does not expose {name}: {why}")
    if name == "B" and programs["B"][0] * right >= 0:
        said = "what B computes is off, but it still has the sign of the right gradient"
        raise Wrong(f"at the input for B, {said}")
    for other in _OFF:
        if other != name and max(off[other]) >= 1e-3:
            raise Wrong(f"the input for {name} accuses {other} as well: {_OFF[other]}")


def _an_input(given: Any, name: str) -> tuple[list[Array], float, float]:
    shape = f"the input for {name} must be (shards, w, l2), with 1 to 8 shards of 1 to 9 rows (x, y) each"
    try:
        shards, w, l2 = given
        rows = [np.array(shard, dtype=float) for shard in shards]
        w, l2 = float(w), float(l2)
    except (TypeError, ValueError):
        raise Wrong(shape) from None
    if not 1 <= len(rows) <= 8 or any(a.ndim != 2 or a.shape[1] != 2 or not 1 <= len(a) <= 9 for a in rows):
        raise Wrong(shape)
    largest = max(np.abs(np.concatenate(rows)).max(), abs(w), abs(l2))
    if not largest <= 1e6 or l2 < 0:
        raise Wrong(f"the input for {name} must hold finite numbers of at most a million, and l2 >= 0")
    return rows, w, l2


def _programs(name: str, rows: list[Array], w: float, l2: float) -> tuple[float, dict[str, list[float]]]:
    """The gradient, and what each program makes of it; several values where the order of adding matters."""
    K, n = len(rows), np.array([len(a) for a in rows])
    sums = np.array([2 * float(a[:, 0] @ (a[:, 0] * w - a[:, 1])) for a in rows])
    N, total = int(n.sum()), float(sums.sum())
    right = total / N + l2 * w
    if right == 0:
        raise Wrong(f"the input for {name} has no slope at all: nothing can be off by a share of it")
    short = [np.cumsum(np.roll(sums, k), dtype=np.float32)[-1] for k in range(K)]
    return right, {
        "A": [(total + K * l2 * w) / N],
        "B": [float((sums / n).mean()) + l2 * w],
        "C": [total / (N // K * K) + l2 * w],
        "D": [float(s) / N + l2 * w for s in short],
    }


# -- 2: the gradient of a tilted loss -----------------------------------------------------------------------


def _derived(rng: np.random.Generator) -> Iterator[Case]:
    for sizes, tau in (([3, 1, 6], 0.7), ([5], 1.3), ([2] * 4, 0.2)):
        N, d = sum(sizes), int(rng.integers(2, 5))
        f, G = rng.uniform(0, 3, N), rng.standard_normal((N, d))
        e = np.exp(tau * f)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        share = np.bincount(owner, e) / e.sum()
        p, var = e / e.sum(), float(f.var())
        right = {"rows": p, "gradient": p @ G, "workers": share, "slope": var / 2}
        n = np.array(sizes, float)
        yield derived(
            (f, G, tau, sizes), right, f"sizes = {sizes}",
            ("These weights belong to a mean of exponentials; but F is its logarithm.", "rows", e / N),
            ("The second step no longer uses the weights of the first.", "gradient", tau * (p @ G)),
            ("Workers weighted by their rows: that is right where all rows count alike.", "workers", n / N),
            ("Every worker counts alike here, whatever its losses are.", "workers", np.full(len(n), 1 / len(n))),
            ("Twice too much: of the exponential's square term only a part is left.", "slope", var),
            ("The logarithm has been taken for a straight line.", "slope", (f * f).mean() / 2),
            ("That is all that a small tau adds, itself included.", "slope", tau * var / 2),
        )  # fmt: skip


# -- 3: a tilted loss, by workers ---------------------------------------------------------------------------


def _tilted(rng: np.random.Generator) -> Iterator[Case]:
    for K, tau in ((1, 0.7), (2, 0.4), (3, 0.9), (4, 0.3), (5, 0.6), (3, 2000.0)):
        d = int(rng.integers(3, 6))
        shards, w = dealt(rng, K, d, 3, (1, 4), empty=K == 4), rng.standard_normal(d)
        label = f"with {workers(K)}, tau = {tau:g}" + (", one without rows" if K == 4 else "")
        yield _tilted_case(shards, w, tau, label)


def _tilted_case(shards: list[tuple[Array, Array]], w: Array, tau: float, label: str) -> Case:
    X, y = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    sizes = [len(part) for _, part in shards]
    K, N, f, G = len(sizes), len(y), (X @ w - y) ** 2, 2 * (X @ w - y)[:, None] * X
    tops = [max(f[at].max(initial=0), 0) for at in np.split(np.arange(N), np.cumsum(sizes)[:-1])]
    p, q = np.exp(tau * f - (tau * f).max()), np.exp(tau * (f - np.repeat(tops, sizes)))
    inside = q / np.repeat([max(a.sum(), 1e-300) for a in np.split(q, np.cumsum(sizes)[:-1])], sizes)
    g = (p / p.sum()) @ G
    mistakes = [
        ("Each worker has made its exponents small in its own way: its sums no longer compare with the others'.",
         q @ G / q.sum()),
        ("That is an average of the workers' own tilted gradients, by their rows: not the weights that they deserve.",
         (inside * np.repeat(sizes, sizes) / N) @ G),
        ("The rows are weighted, and then divided by how many they are: the weights do not add up to one.",
         np.exp(np.minimum(tau * f, 700)) @ G / N),
        ("All rows count alike here: the tilt is not in it.", G.mean(axis=0)),
        ("There is a factor tau too much: what stands in front of the logarithm?", tau * g),
        ("The losses have a half in them here, as if the square brought no 2 down.", g / 2) if K == 1 else
        ("Once divided by all weights, and then by the workers besides.", g / K),
    ]  # fmt: skip
    args = tuple((a, b, w.copy(), tau) for a, b in shards)
    return Case(args, partial(_tilts, g), K, label, mistakes=as_if(_tilts, *mistakes))


def _tilts(g: Array, run: Run) -> None:
    K, d = run.K, len(g)
    talked(run, 8 * max(2 * (K - 1), 1) * (d + 1 + K), "2 (K - 1) (d + 1 + K) numbers of 8 bytes")
    for rank, given in enumerate(run.results):
        if np.shape(given) == g.shape and not np.isfinite(np.asarray(given, float)).all():
            raise Wrong(f"rank {rank} has found no number: infinity over infinity, or 0 over 0")
        same_array(given, g, f"the gradient of rank {rank}", rtol=1e-7, atol=1e-10)


# -- 4: by the bytes or by the clock ------------------------------------------------------------------------

_ROWS, _K, _D, _ROUNDS = 16_000, 4, 20, 9


def _by_the_clock(answer: Any) -> None:
    answer, v = pasted(answer, ("by_bytes", "steps", "clock", "share"), ("ship", "sum"), _ROUNDS)
    ship, total = v["ship"], v["sum"]
    even = _ROWS / 2  # N / (2 K)
    ratio, ships, sums = np.sort(ship / total), np.sort(ship), np.sort(total)
    ends, torn = ratio[[0, -1]], ships[[1, -2]] / sums[[-2, 1]]
    clock = "sooner" if ratio[-2] < even else "later" if ratio[1] > even else "not decided"
    beta = (_K - 1) * _ROWS * (_D + 1) * 8 / np.median(ship)
    one = (_D + 1) * 8 / beta / np.median(total)
    share = 2 * (_K - 1) / _K * one
    follow(
        answer, {"by_bytes": even, "steps": ratio[[1, -2]], "clock": clock, "share": share},
        ("a worker's rows have been taken for those of all", "by_bytes", even / _K),
        ("rank 0 has been made to send, too", "by_bytes", even * _K / (_K - 1)),
        ("only half of an all-reduce has been counted", "by_bytes", 2 * even),
        ("one worker's messages of a step stand against everybody's rows", "by_bytes", even * _K),
        ("from the least to the greatest is as wide as the most disturbed round makes it", "steps", ends),
        ("as short as this, it misses more often than once in twenty", "steps", ratio[[2, -3]]),
        ("a shipment is measured in all-reduces here, not the other way round", "steps", 1 / ratio[[-2, 1]]),
        ("a shipment of one round has been divided by an all-reduce of another", "steps", torn),
        ("that does not follow from your own by_bytes and steps", "clock", ""),
        ("all workers' bytes have been put one behind the other", "share", _K * share),
        ("the vector has been counted as sent once", "share", one),
        ("every part of the vector has been sent once too often in either half of the ring",
         "share", 2 * one),
        ("that is what the bytes leave unexplained", "share", 1 - share),
    )  # fmt: skip


EXERCISES = (
    Exercise("10.1-1", "A check that lets everything pass", "debug", 4, "", once(_exposes), (1, 2)),
    Exercise("10.1-2", "What a tilt does", "derive", 4, "tilt", _derived, (4,)),
    Exercise("10.1-3", "A tilted loss", "build", 3, "tilted_gradient", _tilted, (1, 4)),
    Exercise("10.1-4", "By the bytes or by the clock?", "measure", 3, "", once(_by_the_clock), (3,)),
)
