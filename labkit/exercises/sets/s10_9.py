"""Problem set 10.9: distances from bounds, the fewest rounds, a chain with other splits, one bit a coordinate, the best way.

Sources: Patarasuk and Yuan 2009 (bytes), Chan et al. 2007 (rounds), Nesterov 2004 and Arjevani and Shamir 2015 (chain),
Suresh et al. 2017 (one bit). Symbols: K workers, ``nbytes`` bytes, alpha and beta of the link, d coordinates, t rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from labkit.collectives import doubling, halving, naive, ring, tree
from labkit.comm import Run, Simulated
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import workers
from labkit.network import Link, least_bytes, least_rounds, least_time

# -- 1: distance from the bytes bound ---------------------------------------------------------------------------------


def _distance(rng: np.random.Generator) -> Iterator[Case]:
    settings: list[tuple[int, int, Any]] = []
    for K in (2, 4, 5, 16):
        n = K * int(rng.integers(3, 50))
        settings += [(K, n, ring.bytes(K, n, 4)), (K, n, tree.bytes(K, n, 4)), (K, n, naive.bytes(K, n, 4))]
    K = int(rng.integers(3, 9))
    settings.append((K, 12, rng.integers(8 * 12, 20 * 12, K)))  # somebody's own, unevenly shared
    for K, n, sent in settings:

        def judge(answer: Any, want: float = float(np.max(sent) / least_bytes(K, 4 * n))) -> None:
            close(answer, want, "the ratio", rtol=1e-9)

        yield Case((np.array(sent), 4 * n), judge, label=f"{workers(K)}, a vector of {4 * n} bytes")


# -- 2: the least time ------------------------------------------------------------------------------------------------


def _least(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(4, 10**7), (4, 8), (5, 100), (33, 1000), (64, 10**5), (2, 10**6), (1, 10**6), (8, 0)]
    settings += [(int(rng.integers(3, 700)), int(10 ** rng.uniform(1, 8))) for _ in range(6)]
    for K, nbytes in settings:
        link = Link(float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10)))

        def judge(answer: Any, want: float = least_time(K, nbytes, link)) -> None:
            if abs(number(answer, "the time") - want) > 1e-15:
                close(answer, want, "the time", rtol=1e-9)

        label = (
            f"K = {K}, {nbytes} bytes, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        )
        yield Case((K, nbytes, link.alpha, link.beta), judge, label=label)


# -- 3: the fewest rounds, by doing it --------------------------------------------------------------------------------


def _maximum(rng: np.random.Generator) -> Iterator[Case]:
    for K in (2, 4, 3, 5, 1, 8, 6):
        n = int(rng.integers(2, 7))
        xs = -1 - rng.exponential(size=(K, n))  # all negative: an empty buffer of zeros would show

        def judge(run: Run, K: int = K, xs: Any = xs) -> None:
            for k, given in enumerate(run.results):
                if K > 1 and run.bytes_sent[k] == 0 and given is not None:
                    raise Wrong(f"rank {k} sent no bytes at all, so its data cannot have got anywhere")
            for k, given in enumerate(run.results):
                same_array(given, xs.max(axis=0), f"what rank {k} returned", rtol=0.0)
            rounds = round(run.elapsed_s)
            if rounds != least_rounds(K):
                raise Wrong(f"it took {rounds} rounds, more than the bound")

        label = f"{workers(K)}, n = {n} elements"
        world = Simulated(link=Link(1.0, np.inf))
        yield Case(tuple((x,) for x in xs), judge, K=K, label=label, world=world)


# -- 4: other splits of the chain -------------------------------------------------------------------------------------


def _furthest(owner: np.ndarray, t: int) -> int:
    """From coordinate c on, the owner of spring c goes to the end of its run of springs, once a round."""
    d, c = len(owner) - 1, 0
    for _ in range(t):
        if c >= d:
            break
        mine = owner[c]
        while c <= d and owner[c] == mine:
            c += 1
    return min(c, d)


def _coordinates(rng: np.random.Generator) -> Iterator[Case]:
    d = int(rng.integers(8, 14))
    springs = np.arange(d + 1)
    splits = [
        ("in turn", springs % 2),
        ("cut in halves", (springs > d // 2).astype(int)),
        ("in pairs", springs // 2 % 2),
        ("three workers in turn", springs % 3),
        ("all on worker 1", np.ones(d + 1, int)),
        ("at random", rng.integers(0, 2, d + 1)),
        ("at random, three workers", rng.integers(0, 3, 2 * d)),
    ]
    for name, owner in splits:
        for t in (1, 0, 2, 3, 40):

            def judge(answer: Any, want: int = _furthest(owner, t)) -> None:
                close(answer, float(want), "the number of coordinates", rtol=0.0)

            label = f"springs {name}: owner = {owner.tolist()}, t = {t}"
            yield Case((owner.copy(), t), judge, label=label)


# -- 5: one bit a coordinate ------------------------------------------------------------------------------------------


def _one_bit(rng: np.random.Generator) -> Iterator[Case]:
    repeats = 4000
    vectors = [
        ("normal numbers", rng.standard_normal(6)),
        ("all positive", 3 + rng.random(5)),
        ("two ends only", np.array([2.0, -1.0, 2.0, -1.0])),
        ("all equal", np.full(3, float(rng.uniform(0.5, 2)))),
        ("one spike", np.append(np.zeros(9), float(rng.uniform(1, 2)))),
    ]
    for name, x in vectors:
        low, high = x.min(), x.max()
        u = rng.random((repeats, len(x)))

        def judge(answer: Any, x: Any = x, low: float = low, high: float = high) -> None:
            if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
                raise Wrong(f"return two things, (estimates, variance), not {answer!r:.60}")
            shape = (repeats, len(x))
            if np.shape(answer[0]) != shape:
                raise Wrong(f"the estimates should have shape {shape}, but have {np.shape(answer[0])}")
            estimates = np.asarray(answer[0], dtype=float)
            near = np.minimum(np.abs(estimates - low), np.abs(estimates - high))
            if not (near <= 1e-9 * max(abs(low), abs(high))).all():
                raise Wrong("an estimate is neither min(x) nor max(x), so one bit cannot say which it is")
            if high > low and (np.ptp(estimates, axis=0) == 0)[(x > low) & (x < high)].any():
                raise Wrong("a coordinate between the ends has the same estimate in every row; use u")
            spread = np.sqrt((high - x) * (x - low) / repeats)
            off = np.abs(estimates.mean(axis=0) - x) > 5 * spread + 1e-9
            if off.any():
                i = int(np.argmax(off))
                raise Wrong(
                    f"the estimate is biased: coordinate {i} is {x[i]:.4g}, and its mean over {repeats} rows is "
                    f"{estimates[:, i].mean():.4g}, more than five standard errors away"
                )
            want = float(((high - x) * (x - low)).sum())
            if abs(number(answer[1], "the variance") - want) > 1e-12:
                close(answer[1], want, "the variance", rtol=1e-9)

        yield Case((x, u), judge, label=name)


# -- 6: the best way --------------------------------------------------------------------------------------------------

_FORMS = {each.name: each for each in (ring, halving, doubling)}


def _best(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(16, 100), (16, 10**8), (12, 10**8), (12, 10**5), (3, 10**8), (2, 10**7), (64, 10**6)]
    settings += [(int(rng.integers(3, 100)), int(10 ** rng.uniform(1, 9))) for _ in range(12)]
    for K, nbytes in settings:
        link = Link(float(rng.uniform(5e-6, 5e-5)), float(rng.uniform(5e8, 5e9)))
        seconds = {name: form.time(K, nbytes, link) for name, form in _FORMS.items()}
        ranking = sorted(seconds, key=seconds.__getitem__)
        if seconds[ranking[1]] < 1.01 * seconds[ranking[0]]:
            continue  # too near to a tie to ask

        def judge(answer: Any, right: str = ranking[0]) -> None:
            if not isinstance(answer, str) or answer not in _FORMS:
                raise Wrong(f"return one of {', '.join(map(repr, _FORMS))}, not {answer!r:.40}")
            if answer != right:
                raise Wrong(f"{answer!r} is not the fastest of the three")

        label = (
            f"K = {K}, {nbytes} bytes, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        )
        yield Case((K, nbytes, link.alpha, link.beta), judge, label=label)


EXERCISES = (
    Exercise(
        "10.9-1", "How far from the fewest bytes?", "build", 2, "bytes_over_bound", _distance, objectives=(1,)
    ),
    Exercise(
        "10.9-2",
        "The least time",
        "build",
        2,
        "least_seconds",
        _least,
        objectives=(1, 4),
        withheld=("labkit.network.least_time",),
    ),
    Exercise(
        "10.9-3",
        "Everyone's maximum in the fewest rounds",
        "build",
        3,
        "fewest_rounds_max",
        _maximum,
        objectives=(1,),
    ),
    Exercise(
        "10.9-4", "How far along the chain?", "build", 3, "coordinates_reached", _coordinates, objectives=(2,)
    ),
    Exercise("10.9-5", "One bit a coordinate", "build", 3, "one_bit", _one_bit, objectives=(3,)),
    Exercise("10.9-6", "The best of three", "build", 2, "best_way", _best, objectives=(4,)),
)
