"""Problem set B: failures.

Sources: Young 1974 and Daly 2006 (checkpoints), POSIX.1-2017 (rename and fsync), Conover 1999, section 3.4 (sign test).
Symbols: K workers, M the mean time between failures of the whole job, delta = ``delta_s`` a checkpoint stops the job, tau =
``interval_s`` of work between checkpoints. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit.extras import scipy
from labkit_book.problems.exercise import Case, Exercise, Wrong, number, once, same_array
from labkit_book.problems.puzzles import Puzzle, in_rounds
from labkit_book.problems.sets import Array, as_if, derived, spoke, talked, workers

# -- 1: an upload in the background ---------------------------------------------------------------------------------


def _upload(rng: np.random.Generator) -> Iterator[Case]:
    for i in range(6):
        K, M = int(rng.integers(500, 20000)), float(rng.uniform(4000, 40000))
        delta, blocking = float(rng.uniform(0.5, 5)), float(rng.uniform(20, 90))
        young = math.sqrt(2 * delta * M)
        u = young * float(rng.uniform(0.3, 0.8) if i % 2 else rng.uniform(1.3, 2.5))
        tau = u * float(rng.uniform(1.2, 3))
        best = max(young, u)
        lost = tau / 2 + u
        least = delta / best + (best / 2 + u) / M
        right = {"mtbf_s": M, "lost_s": lost, "share": delta / tau + lost / M, "best_s": best, "least": least,
                 "gain": math.sqrt(2 * blocking / M) - least}  # fmt: skip
        yield derived(
            (M * K, K, tau, delta, u, blocking), right,
            f"K = {K}, delta = {delta:.1f}, upload {u:.0f}, M = {M:.0f}, an interval of {tau:.0f} s",
            ("Half an interval is what is lost if a checkpoint is safe as soon as it is copied.", "lost_s", tau / 2),
            ("A failure during an upload loses more than the upload's own seconds: what is the newest safe state then?",
             "lost_s", tau / 2 + u / 2),
            ("Here every failure loses a whole interval, as if it always struck during an upload.", "lost_s", tau * 1.5),
            ("The job works on while it uploads: those seconds are not stolen from it, whatever else they do.",
             "best_s", math.sqrt(2 * (delta + u) * M)),
            ("Your best interval begins the next upload before the last one is through.", "best_s", young),
            ("What stands in the share and does not depend on the interval is still paid at the best one.",
             "least", delta / best + best / (2 * M)),
            ("That would be the smallest share if every interval were allowed.", "least", math.sqrt(2 * delta / M) + u / M),
        )  # fmt: skip


# -- 2: the hand-over -----------------------------------------------------------------------------------------------


def _hand_over(rng: np.random.Generator) -> Iterator[Case]:
    for K, world in ((1, "simulated"), (2, "simulated"), (3, "simulated"), (2, "processes")):
        shards = [(rng.standard_normal((24, 3)), rng.standard_normal(24)) for _ in range(K)]
        counts, seed = [int(n) for n in rng.integers(4, 9, size=K)], int(rng.integers(1000))
        args = tuple((*shard, None if k else seed, counts[k]) for k, shard in enumerate(shards))
        label = f"with {workers(K)}, {' + '.join(map(str, counts))} steps"
        wrong = [(said, _trained(shards, seed, counts, forget)) for said, forget in _FORGOTTEN]
        mistakes = as_if(_handed, *wrong) if K > 1 else ()
        judge = partial(_handed, _trained(shards, seed, counts))
        yield Case(args, judge, K, label, world, mistakes=mistakes)


_FORGOTTEN = (
    ("What is handed over are the weights alone: the next worker begins a new job with them.", "mgt"),
    *(
        ("Two of the things that a step reads and changes still begin anew with each worker.", x)
        for x in ("mg", "mt", "gt")
    ),
    ("The optimizer's memory of earlier gradients stays behind: its next step is that of a new one.", "m"),
    ("The next worker draws its batches from a generator that has not drawn yet.", "g"),
    ("The learning rate begins anew with each worker, as if no step had been taken.", "t"),
    ("The generator is seeded again as the job was: it draws a second time what it has drawn.", "s"),
    ("Your count takes the parts of the workers before for as long as your own.", "n"),
)


def _trained(shards: list[Any], seed: int, counts: list[int], forget: str = "") -> list[Array]:
    """Weights after each part; forget: m the memory, g the generator (s: seed it anew), t the steps (n: all parts alike)."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    weights, generator, t, ends = list(model.parameters()), torch.Generator().manual_seed(seed), 0, []
    for w in weights:
        w.data = torch.randn(w.shape, generator=generator, dtype=torch.float64)
    memory = [torch.zeros_like(w) for w in weights]
    for k, ((X, y), n) in enumerate(zip(shards, counts, strict=True)):
        if k and "m" in forget:
            memory = [torch.zeros_like(w) for w in weights]
        if k and "g" in forget:
            generator = torch.Generator()
        if k and "s" in forget:
            generator.manual_seed(seed)
        t = 0 if "t" in forget else k * n if "n" in forget else t
        for _ in range(n):
            mine = torch.randint(len(X), (6,), generator=generator)
            off = model(torch.from_numpy(X)[mine])[:, 0] - torch.from_numpy(y)[mine]
            grads = torch.autograd.grad(off.square().mean(), weights)
            for w, v, g in zip(weights, memory, grads, strict=True):
                v.mul_(0.9).add_(g)
                w.data.sub_(0.05 / (1 + t) ** 0.5 * v)
            t += 1
        ends.append(torch.cat([w.detach().ravel() for w in weights]).numpy())
    return ends


def _handed(ends: list[Array], run: Run) -> None:
    for rank, end in enumerate(ends):
        if rank < run.K - 1:
            spoke(run, rank, "where this job stands")
        same_array(run.results[rank], end, f"rank {rank}'s weights", rtol=1e-12, atol=1e-13)


# -- 3: the newest that is whole ------------------------------------------------------------------------------------


def _newest(rng: np.random.Generator) -> Iterator[Case]:
    yield _newest_case([(5, 2), (10, 2)], [[(5, 0), (5, 1), (10, 0), (10, 1)]], "all there, on one disk")
    thirds = [[(5, 0), (10, 0)], [(5, 1), (10, 1)], [(5, 2), (10, 2)]]
    yield _newest_case([(5, 3), (10, 3)], thirds, "as it was written")
    disks = (
        [(20, 1), (5, 0), (5, 3), (10, 0), (15, 0)],
        [(5, 1), (10, 1), (15, 1), (5, 2), (15, 2)],
        [(10, 2), (10, 3)],
    )
    written = [(5, 4), (10, 4), (15, 4), (20, 4)]
    yield _newest_case(written, list(disks), "fewer workers than parts, and some are damaged")
    yield _newest_case([(20, 2), (10, 3), (15, 2)], [[(20, 0), (10, 0), (15, 0)], [(20, 0), (10, 1), (15, 0)],
                                                     [(10, 2), (10, 1)]], "a part twice, another nowhere")  # fmt: skip
    yield _newest_case([(5, 2)], [[(5, 0)], [(5, 0)], [], [(5, 0)]], "nothing whole")
    for K, world in ((5, "simulated"), (3, "processes")):
        written = [(10 * int(t), int(rng.integers(1, 6))) for t in rng.permutation(np.arange(1, 6))]
        found: list[list[tuple[int, int]]] = [[] for _ in range(K)]
        for step, parts in written:
            for part in range(parts):
                if step <= 30 or part or parts == 1:  # of later ones, part 0 is damaged
                    for k in rng.permutation(K)[: int(rng.integers(1, 3))]:
                        found[k].append((step, part))
        yield _newest_case(written, found, "a job that has had several sizes", world)


def _newest_case(
    written: list[tuple[int, int]], disks: list[list[tuple[int, int]]], label: str, world: str = "simulated"
) -> Case:
    K, everywhere = len(disks), [set(d) for d in disks]
    union = set().union(*everywhere)
    copies = [x for d in disks for x in d]

    def top(whole: Any) -> list[int]:
        return [max([s for s, parts in written if whole(s, parts)], default=-1)] * K

    own = [max([s for s, _ in d], default=-1) for d in disks]
    right = top(lambda s, parts: all((s, p) in union for p in range(parts)))

    judge = partial(_goes_on, most=16 * sum(parts for _, parts in written) + 64)
    mistakes = as_if(
        judge,
        ("Rank r is asked for part r only: that works as long as the job starts with as many workers as before.",
         top(lambda s, parts: parts <= K and all((s, p) in everywhere[p] for p in range(parts)))),
        ("Every worker is to have every part here: who has ever written that many?",
         top(lambda s, parts: all((s, p) in d for d in everywhere for p in range(parts)))),
        ("This counts what is there, and a copy of one part makes up for another that is missing.",
         top(lambda s, parts: sum(c[0] == s for c in copies) >= parts)),
        ("Somebody has a part of that step: is that the step?", [max(own)] * K),
        ("Each has a newest part, and you take the oldest of these: nobody has said that it is complete.", [min(own)] * K),
    )  # fmt: skip
    args = tuple((list(written), list(d)) for d in disks)
    return Case(args, partial(judge, right), K, f"with {workers(K)}: {label}", world, mistakes=mistakes)


def _goes_on(values: list[int], run: Run, most: int) -> None:
    talked(run, most, "16 for each part and 64", "what is on its disk")
    for rank, value in enumerate(run.results):
        if (step := number(value, "the step")) != values[rank]:
            wrong = "lacks a part" if step > values[rank] else "is not the newest"
            raise Wrong(f"rank {rank} goes on from step {step:g}, which {wrong}")


# -- 4: a straggler has been found ----------------------------------------------------------------------------------

_K, _T, _SHARE = 8, 60, 0.25
_TIMES = 14  # that the rank was last
_JOBS = 40  # watched a day
_LEVEL, _POWER = 0.01, 0.9  # chances of a false alarm and of a true one


@cache
def _least(T: int, ranks: int = _K) -> int:
    """From which count on the bound for so many ranks is at most ``_LEVEL``."""
    return int(np.argmax(ranks * scipy("special").bdtrc(np.arange(-1, T + 1), T, 1 / _K) <= _LEVEL))


def _accused() -> Case:
    sf = scipy("special").bdtrc  # more than so many, by the binomial law
    one, Ts = float(sf(_TIMES - 1, _T, 1 / _K)), np.arange(20, 2000, 20)
    counts = np.array([_least(int(T)) for T in Ts])
    least = _least(_T)
    decide = int(Ts[np.argmax(sf(counts - 1, Ts, _SHARE) >= _POWER)])
    right = {"one": one, "any": _K * one, "jobs": _JOBS * _K * one, "least": least,
             "caught": float(sf(least - 1, _T, _SHARE)), "steps": decide}  # fmt: skip
    return derived(
        (), right, "",
        (f"That is the chance of more than {_TIMES}: is {_TIMES} not often enough to accuse?",
         "one", float(sf(_TIMES, _T, 1 / _K))),
        (f"That is the chance of exactly {_TIMES}: would {_TIMES + 1} have been less suspicious?",
         "one", one - float(sf(_TIMES, _T, 1 / _K))),
        ("This asks of rank 5 only; the recorder would have named any of the others as gladly.", "any", one),
        ("Eight counts that share 60 steps are taken for independent here: if one is large, what of the others?",
         "any", 1 - (1 - one) ** _K),
        (f"This lets each rank be accused in {100 * _LEVEL:g} % of all jobs, and there are eight of them.",
         "least", _least(_T, ranks=1)),
        (f"That is how often the team's own rule, {_TIMES} or more, accuses it.",
         "caught", float(sf(_TIMES - 1, _T, _SHARE))),
        ("A rank that is last in a quarter of the steps on average is not so in every job: this takes its mean for sure.",
         "steps", int(Ts[np.argmax(counts <= _SHARE * Ts)])),
        rtol=5e-3,  # students copy three digits
    )  # fmt: skip


# -- B-5: back to four ------------------------------------------------------------------------------------------------

# No less than 7: seat 0 alone has the pieces, so the last of six leaves it after 6, and two of the four have it then.
RECOVERY = Puzzle(
    [f"seat {k}" for k in range(4)],
    partial(in_rounds, [{p: frozenset({p}) for p in range(6)}, {}, {}, {}], alpha=0.0),
    good=8,
    bound=7,
)

EXERCISES = (
    Exercise("B-1", "An upload in the background", "derive", 4, "upload", _upload, (1,)),
    Exercise("B-2", "The hand-over", "debug", 4, "hand_over", _hand_over, (2,)),
    Exercise("B-3", "The newest that is whole", "build", 3, "newest", _newest, (3,)),
    Exercise("B-4", "A straggler has been found", "criticise", 3, "", lambda _: [_accused()], (4, 5)),
    Exercise("B-5", "Back to four", "puzzle", 3, "", once(RECOVERY.judge), (3,), puzzle=RECOVERY),
)
