"""Problem set 2.2: barriers, overlap, and whom to blame.

Sources: Valiant 1990 (BSP), Ho et al. 2013 (SSP), Li et al. 2020, section 3.2.3 (overlap). Symbols: K workers, T steps, S
synchronisation points, L buckets, s ``slack``. Times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.comm import Run, Simulated
from labkit.network import Link
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.puzzles import Puzzle, buckets
from labkit_book.problems.sets import Array, as_if, derived, follow, pasted

_INSTANT = Simulated(link=Link(alpha=0.0, beta=1e15))

# -- 2.2-1: in words ------------------------------------------------------------------------------------

_HURTS = (
    ("a program whose calls block and whose workers are not in step, and why", 1),
    ("all-reduce: who waits for whom when one worker hiccups once, and a remedy with its price", 1),
    ("parameter server: what a slow worker does to its own gradients, and a remedy with its price", 1),
    ("SSP: when slack buys something and when it buys nothing, and why", 1),
)

# -- 2.2-2: the slack that leaks ------------------------------------------------------------------------


def _ends(work: list[Array], slack: int, slowest: Callable[..., float] = max) -> list[Array]:
    """When each worker finishes each of its own steps; who has none left holds nobody back."""
    F: list[list[float]] = [[0.0] for _ in work]  # and before the first
    for t in range(max(map(len, work))):
        there = [f[min(max(t - slack, 0), len(x))] for f, x in zip(F, work, strict=True)]
        for k, x in enumerate(work):
            if t < len(x):
                free = slowest(there[:k] + there[k + 1 :], default=0.0)
                F[k].append(max(F[k][-1], free) + float(x[t]))
    return [np.array(f[1:]) for f in F]


def _slack_cases(rng: np.random.Generator) -> Iterator[Case]:
    for K, slack, kind in (
        (1, 0, "one worker"),
        (2, 1, "two workers"),
        (4, 1, "one of four slow"),
        (3, 0, "s = 0, a barrier"),
        (5, 2, "hiccups"),
        (4, 2, "unequally many steps"),
    ):
        T = int(rng.integers(8, 12))
        steps_of = rng.permutation(np.arange(K) * 3 + 4) if kind.startswith("unequally") else np.full(K, T)
        work = [rng.exponential(0.010, n) + 0.005 for n in steps_of]
        if kind.startswith("one of"):
            work[int(rng.integers(K))] *= 6
        label = f"K = {K}, s = {slack}: {kind}; steps: {', '.join(str(len(x)) for x in work)}"
        fastest = _ends(work, slack, min)
        mistakes = as_if(
            _finishes,
            ("Nobody waits for anybody here, whatever the slack is.", [np.cumsum(x) for x in work]),
            ("Somebody may be one step further ahead here than the slack says.", _ends(work, slack + 1)),
            ("This waits as at a barrier after every step: the slack is not used.", _ends(work, 0)),
            ("Here it is enough that the fastest is near: the slow ones are left behind.", fastest),
        )
        args = tuple((x.tolist(), slack) for x in work)
        known = mistakes[: min(2 * K - 1, 4) if slack else 0]  # of fewer, some are right
        judge = partial(_finishes, _ends(work, slack))
        yield Case(args, judge, K, label, _INSTANT, clock=True, mistakes=known)


def _finishes(expected: list[Array], run: Run) -> None:
    for k, F in enumerate(expected):
        same_array(run.results[k], F, f"what rank {k} returns", atol=1e30)
        off = np.asarray(run.results[k], dtype=float) - F
        if (wrong := np.abs(off) > 1e-6 * F).any():
            t = int(wrong.argmax())
            early = "somebody is too far behind then" if run.K > 1 else "its computing takes longer"
            said = f"early: {early}" if off[t] < 0 else "late: what was it still waiting for?"
            raise Wrong(f"rank {k} finishes step {t} too {said}")


# -- 2.2-3: a hiccup under overlap ----------------------------------------------------------------------


def _late(rng: np.random.Generator) -> Iterator[Case]:
    for a_over_p, h_over in ((0.3, 0.5), (3.0, 0.5), (2.5, 2.0), (1.0, 1.0), (0.8, 2.0), (1.6, 1.0)):
        L = int(rng.integers(3, 12))
        m, p = int(rng.integers(1, L)), float(rng.uniform(0.05, 0.3))
        a = p * a_over_p
        h = h_over * (m * (a - p) / L if a > p else p / 3) * float(rng.uniform(0.9, 1.1))
        yield _overlap_case(p, a, L, m, h)


def _overlap_case(p: float, a: float, L: int, m: int, h: float) -> Case:
    number_of = np.arange(1, L + 1)
    ready, still = number_of * p / L + h * (number_of > m), (L - number_of + 1) * a / L
    beyond = max(a - p, 0.0)
    forgiven = m * beyond / L
    right = {"chains": ready + still, "beyond": beyond, "rest": min(a, p) / L, "forgiven": forgiven}
    right["late"] = max(h - forgiven, 0.0)
    return derived(
        (p, a, L, m, h), right,
        f"{1e3 * p:.4g} ms backward, {1e3 * a:.4g} ms all-reduce, L = {L}, {1e3 * h:.4g} ms after bucket {m}",
        ("Each bucket comes late by the hiccup in your 'chains', also those that were complete before.",
         "chains", number_of * p / L + h + still),
        ("A bucket has the wire to itself in your 'chains': is nothing left to carry after it?",
         "chains", ready + a / L),
        ("Your 'beyond' is negative where the wire has time to spare: less than nothing can't stay exposed.",
         "beyond", a - p),
        ("Your 'rest' is the travel of one bucket, also where the wire is the slower of the two.", "rest", a / L),
        ("Your 'forgiven' is all that the wire has in hand then. Is the next bucket due at once?",
         "forgiven", min(a, p) / L + forgiven),
        ("Your 'forgiven' is the same after one bucket as after many. Is the queue at the wire as long?",
         "forgiven", beyond),
        ("Your 'late' charges the whole hiccup, as if nothing had been waiting for the wire.", "late", h),
        atol=1e-12,  # a picosecond
    )  # fmt: skip


# -- 2.2-4: one sick worker, or chance? -----------------------------------------------------------------


def _blame(rng: np.random.Generator) -> Iterator[Case]:
    for K, S, sick, label in (
        (4, 3, 1.0, "one rank is late every time"),
        (8, 20, 0.0, "8 ranks alike"),
        (8, 40, 0.4, "a rank that is often late"),
        (5, 12, 0.5, "one rank is often late, another had one long hiccup"),
        (2, 9, 0.7, "two ranks"),
    ):
        while True:  # until one rank alone was last most often
            A = np.cumsum(rng.uniform(1.0, 1.2, S)) + rng.uniform(0.0, 0.02, (K, S))
            A[int(rng.integers(K))] += 0.05 * (rng.random(S) < sick)
            if "hiccup" in label:
                A[int(rng.integers(K)), int(rng.integers(S))] += 3.0
            times = np.sort(np.bincount(A.argmax(axis=0), minlength=K))
            if times[-1] > times[-2]:
                break
        yield _blame_case(A, f"K = {K}, S = {S}, {label}")


def _blame_case(A: Array, label: str) -> Case:
    K, S = A.shape
    times = np.bincount(A.argmax(axis=0), minlength=K)
    rank, most = int(times.argmax()), int(times.max())
    points = A.argmax(axis=0) == rank
    gap = np.diff(np.sort(A, axis=0)[-2:], axis=0)[0]

    def tail(least: int) -> float:
        return math.fsum(math.comb(S, n) * (K - 1.0) ** (S - n) for n in range(least, S + 1)) / K**S

    p = tail(most)
    expected = {"rank": rank, "chance": min(1.0, K * p), "saved_s": float(gap[points].sum())}
    late = A - A.min(axis=0)
    return derived(
        (A,), expected, label,
        ("Your 'rank' has the largest mean lateness: one long pause outweighs many small delays there.",
         "rank", int(late.mean(axis=1).argmax())),
        ("Your 'rank' is the one that is first most often.",
         "rank", int(np.bincount(A.argmin(axis=0), minlength=K).argmax())),
        ("Your 'chance' is that of this rank alone. But who was named was picked, after a look at all.",
         "chance", p),
        ("Your 'chance' is that of exactly so many times; more often would have counted against it, too.",
         "chance", min(1.0, K * (p - tail(most + 1)))),
        ("Your 'saved_s' adds up what all the others wait. The clock on the wall runs once for all of them.",
         "saved_s", float((A.max(axis=0) - A)[:, points].sum())),
        ("Your 'saved_s' lets the rank come with the first. Would the others not still wait for somebody?",
         "saved_s", float(np.ptp(A, axis=0)[points].sum())),
    )  # fmt: skip


# -- 2.2-5: three supersteps, for real ------------------------------------------------------------------

_UNEVEN_MS = np.array([[18, 24, 20], [22, 20, 24], [20, 26, 18], [36, 22, 30]])
_SLOWEST_MS, _MEAN_MS = float(_UNEVEN_MS.max(axis=0).sum()), float(_UNEVEN_MS.mean(axis=0).sum())


def _three(answer: Any) -> None:
    keys = ("c_ms", "predicted_ms", "lies", "saved_ms", "decided")
    answer, seconds = pasted(answer, keys, ("empty", "uneven", "even"), 9)
    ms = {at: 1e3 * values for at, values in seconds.items()}
    for at, least in (("uneven", _SLOWEST_MS), ("even", _MEAN_MS)):
        if ms[at].min() < least:
            said = "was shorter than its computing takes: are these seconds, with the law?"
            raise Wrong(f"a run {at!r} {said}")
    c = float(np.median(ms["empty"])) / 3
    predicted, balanced, one = _SLOWEST_MS + 3 * c, _MEAN_MS + 3 * c, _UNEVEN_MS.sum(axis=1).max() + 3 * c
    low, high = ms["uneven"].min(), ms["uneven"].max()
    lies = "below" if predicted < low else "above" if predicted > high else "inside"
    typical = float(np.median(ms["uneven"]) - np.median(ms["even"]))
    saved = np.array([low - ms["even"].max(), high - ms["even"].min()])
    rounds = ms["uneven"] - ms["even"]
    right = {"c_ms": c, "predicted_ms": predicted, "lies": lies, "saved_ms": saved, "decided": saved[0] > 0}
    follow(
        answer, right,
        ("it is of all three supersteps together", "c_ms", 3 * c),
        ("it lets everybody work all the time: then nobody waits for the slowest", "predicted_ms", balanced),
        ("it lets one worker be the slowest every time", "predicted_ms", one),
        ("it has the communication of one superstep in it", "predicted_ms", _SLOWEST_MS + c),
        ("it has no communication in it", "predicted_ms", _SLOWEST_MS),
        ("of your own data that is not true", "lies", ""),
        ("it compares two typical runs: by how much do single ones differ?", "saved_ms", [typical] * 2),
        ("it pairs an even run with that of its own round only", "saved_ms", [rounds.min(), rounds.max()]),
        ("it is what the formula says, and not what was measured", "saved_ms", [_SLOWEST_MS - _MEAN_MS] * 2),
        ("it is negative where a balance saves something", "saved_ms", -saved[::-1]),
        ("that does not follow from your least saving: is every run with a balance shorter?", "decided", ""),
        rtol=0.0, atol=0.0051,  # to two digits behind the point
    )  # fmt: skip


# -- 2.2-6: buckets behind a backward pass --------------------------------------------------------------

READY = (27.0, 22.0, 18.0, 16.0, 12.0, 9.0, 6.0, 3.0)  # of layers 0 to 7, the last first
SIZES = (1.0, 1.0, 3.0, 2.0, 5.0, 5.0, 2.0, 7.0)
CUTS = Puzzle(
    ["backward", "all-reduce"],
    partial(buckets, READY, SIZES, 3.0),
    good=44,
    bound=38,  # three buckets and no pause; the test of puzzles tries all cuts
    unit="ms",
    mistakes=(
        ("A single bucket: nothing is sent before the backward pass is over.", lambda given: len(given) == 1),
        ("A bucket for each layer: each of them pays to be started.", lambda given: len(given) == len(READY)),
    ),
)

_OURS = ("labkit.timing.straggler_report",)
EXERCISES = (
    Exercise("2.2-1", "What hurts, and what helps", "criticise", 4, "", objectives=(1, 3), rubric=_HURTS),
    Exercise("2.2-2", "The slack that leaks", "debug", 4, "ssp_worker", _slack_cases, (3,)),
    Exercise("2.2-3", "What a hiccup costs under overlap", "derive", 3, "overlapped_step", _late, (5, 6, 7)),
    Exercise("2.2-4", "One sick worker, or chance?", "criticise", 2, "blame", _blame, (4, 9, 10), (), _OURS),
    Exercise("2.2-5", "Three supersteps, for real", "measure", 3, "", once(_three), (2, 8, 9)),
    Exercise("2.2-6", "Where to cut the buckets", "puzzle", 3, "", once(CUTS.judge), (5, 7), puzzle=CUTS),
)
