"""Set 2.2, barriers: the two axes, SSP's finish times, overlap, whom to blame, a barrier by hand, and what hurts whom.

Sources: Valiant 1990 (BSP), Ho et al. 2013 (SSP), Li et al. 2020, section 3.2.3 (overlap).
Symbols: K workers, T steps, S synchronisation points, L buckets, s ``slack``. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labkit.exercises.exercise import Case, Exercise, Wrong, choices, close, number, same_array
from labkit.network import Link
from labkit.timing import Kind, StaleSynchronous, overlap

# -- 2.2-1: two axes ------------------------------------------------------------------------------------

_SYSTEMS = ("all-reduce", "parameter server", "SSP")
_STATE = ("own copies", "one copy")
_PACE = ("synchronous", "bounded", "asynchronous")
_HURT = ("any hiccup", "old parameters", "always slow")
_OPTIONS = {
    f"{system}: {item}": options
    for system in _SYSTEMS
    for item, options in (("state", _STATE), ("pace", _PACE), ("hurt most by", _HURT))
}
_SEALED = {
    "all-reduce: state": "481efe98c9c3ac29",
    "all-reduce: pace": "b9040127c4f761fe",
    "all-reduce: hurt most by": "1fe2a15613ffc854",
    "parameter server: state": "2b5dc9578bee414d",
    "parameter server: pace": "f85ae1418b72f654",
    "parameter server: hurt most by": "8832b574e3893482",
    "SSP: state": "0264d5590651a0b0",
    "SSP: pace": "18a7b2763068a576",
    "SSP: hurt most by": "341d7a77b263f551",
}


def _axes(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((), choices("2.2-1", _OPTIONS, _SEALED))


# -- 2.2-2: SSP -----------------------------------------------------------------------------------------


def _ssp(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, slack, label in [
        (2, 4, 0, "s = 0, where SSP is BSP"),
        (3, 6, 1, "s = 1"),
        (4, 12, 3, "s = 3"),
        (5, 7, 7, "s = T, where nobody waits"),
        (1, 5, 0, "one worker"),
        (6, 1, 2, "a single step"),
    ]:
        X = rng.exponential(1.0, (K, T)) + 0.1
        yield Case(
            (X, slack),
            _finish(StaleSynchronous(slack).timeline(X).arrivals_s),
            label=f"K = {K}, T = {T}, {label}",
        )


def _finish(expected: np.ndarray) -> Callable[[Any], None]:
    def judge(F: Any) -> None:
        same_array(F, expected, "F", atol=1e30)  # the shape, and that all is finite
        off = np.asarray(F, dtype=float) - expected
        wrong = np.abs(off) > 1e-9 * expected
        if wrong.any():
            t = int(wrong.any(axis=0).argmax())  # the first step at which anybody is off
            k = int(wrong[:, t].argmax())
            way = (
                "early: it did not wait for all it has to"
                if off[k, t] < 0
                else "late: it waited for too much"
            )
            raise Wrong(f"worker {k} finishes step {t} too {way}; the steps before are right")

    return judge


# -- 2.2-3: overlap -------------------------------------------------------------------------------------


def _overlap(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((0.200, 0.060, 1), _total(0.200, 0.060, 1), label="200 ms, 60 ms, L = 1: nothing can overlap")
    yield Case((0.200, 0.060, 4), _total(0.200, 0.060, 4), label="200 ms, 60 ms, L = 4")
    for _ in range(3):
        p, share, L = rng.uniform(0.05, 0.3), rng.uniform(0.1, 0.9), int(rng.integers(2, 40))
        for a, longer in [(p * share, "the backward pass"), (p / share, "the all-reduce")]:
            label = f"{1e3 * p:.4g} ms backward, {1e3 * a:.4g} ms all-reduce, L = {L}: {longer} is longer"
            yield Case((p, a, L), _total(p, a, L), label=label)


def _total(p: float, a: float, L: int) -> Callable[[Any], None]:
    def judge(total: Any) -> None:
        close(total, overlap(p, a, L).total_s, "the step, in seconds,")

    return judge


# -- 2.2-4: whom to blame -------------------------------------------------------------------------------


def _blame(rng: np.random.Generator) -> Iterator[Case]:
    for K, S, hiccup, label in [
        (4, 3, False, "one rank is late every time"),
        (8, 20, False, "8 ranks, 20 points"),
        (5, 12, True, "one rank is often late, another had one long hiccup"),
        (2, 9, True, "two ranks"),
    ]:
        starts = np.cumsum(rng.uniform(1.0, 1.2, S))
        A = starts + rng.uniform(0.0, 0.02, (K, S))
        sick, other = rng.permutation(K)[:2]
        A[sick] += 0.05
        if hiccup:
            A[other, rng.integers(S)] += 3.0
        yield Case((A,), _names(A, int(sick)), label=f"K = {K}, S = {S}, {label}")


def _names(A: np.ndarray, rank: int) -> Callable[[Any], None]:
    def judge(given: Any) -> None:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong("return two things, (rank, lost_s)")
        if number(given[0], "rank") not in range(len(A)):
            raise Wrong(f"rank should be from 0 to {len(A) - 1}, but is {given[0]!r}")
        if int(given[0]) != rank:
            raise Wrong(f"rank {int(given[0])} is not the one that was last most often")
        close(given[1], float((A.max(axis=0) - A).sum()), "lost_s")

    return judge


# -- 2.2-5: a barrier by hand ---------------------------------------------------------------------------

_LINK = Link(alpha=1e-4, beta=1e9)


def _meet(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 2, 3, 4, 5):
        for late in sorted({0, K - 1, int(rng.integers(K))}):
            work = rng.uniform(0.01, 0.05, K)
            work[late] = 0.2
            label = f"K = {K}, rank {late} comes last"
            yield Case(tuple((float(s),) for s in work), _met(work, late), K=K, label=label, clock=True)


def _met(work: np.ndarray, late: int) -> Callable[[Any], None]:
    K = len(work)

    def judge(run: Any) -> None:
        if run.timeline.names:
            raise Wrong(
                f"your function calls comm.{run.timeline.names[0]}(); send and receive are all you have here"
            )
        off = np.abs(run.timeline.totals()[:, Kind.COMPUTE] - work) > 1e-9
        if off.any():
            raise Wrong(f"rank {int(off.argmax())} did not compute its work_s seconds, once")
        left = [number(t, f"what rank {k} returns") for k, t in enumerate(run.results)]
        for k, t in enumerate(left):
            spans = run.timeline.end_s[run.timeline.rank == k]
            if t < spans.max() - 1e-9:
                raise Wrong(
                    f"rank {k} returned {1e3 * t:.4g} ms, before it was through; return comm.now() at the end"
                )
            if t < work[late] - 1e-9:
                until = f"rank {late} was still computing until {1e3 * work[late]:.4g} ms"
                raise Wrong(f"rank {k} left after {1e3 * t:.4g} ms, but {until}")
        total, most = int(run.messages_sent.sum()), 2 * (K - 1)
        if total > most:
            raise Wrong(f"messages sent by all ranks: {total}; {most} are enough for {K} workers")
        if total < most:
            silent = [k for k in range(K) if run.messages_sent[k] == 0]
            who = f" (rank {silent[0]} sent none)" if silent else ""
            raise Wrong(f"messages sent by all ranks: {total}{who}; too few for all to hear of all")
        if max(left) > work[late] + (most + 1) * _LINK.seconds(8):
            raise Wrong(
                f"the last rank left {1e3 * (max(left) - work[late]):.4g} ms after the last had come; what did it wait for?"
            )

    return judge


# -- 2.2-6: in words ------------------------------------------------------------------------------------

_HURTS = (
    ("all-reduce: who waits for whom when one worker hiccups once, and a remedy with its price", 1),
    ("parameter server: what a slow worker does to its own gradients, and a remedy with its price", 1),
    ("SSP: when slack buys something and when it buys nothing, and why", 1),
)


EXERCISES = (
    Exercise("2.2-1", "Three systems on two axes", "build", 2, "", _axes, objectives=(1,)),
    Exercise(
        "2.2-2",
        "The dial: finish times under SSP",
        "build",
        3,
        "ssp_finish",
        _ssp,
        objectives=(2, 3),
        withheld=("labkit.timing.StaleSynchronous",),
    ),
    Exercise(
        "2.2-3",
        "Overlap, whichever is longer",
        "build",
        2,
        "overlapped_step",
        _overlap,
        objectives=(5, 6, 7),
        withheld=("labkit.timing.overlap",),
    ),
    Exercise(
        "2.2-4",
        "Whom to blame",
        "build",
        2,
        "blame",
        _blame,
        objectives=(4,),
        withheld=("labkit.timing.straggler_report",),
    ),
    Exercise("2.2-5", "A barrier by hand", "build", 3, "meet", _meet, objectives=(1,)),
    Exercise("2.2-6", "What hurts, and what helps", "build", 3, "", objectives=(3,), rubric=_HURTS),
)
