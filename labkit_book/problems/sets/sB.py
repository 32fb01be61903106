"""Problem set B: failures.

What is right is computed from the questions, or from what a student has measured: first-order costs of checkpoints (Young
1974; Daly 2006), what a POSIX rename and fsync promise (POSIX.1-2017), torch's own optimizer and generator, binomial tails
and the sign test (Conover 1999, section 3.4). No solutions here.

Symbols: K workers, M the mean time between failures of the whole job, delta = ``delta_s`` a checkpoint stops the job, tau =
``interval_s`` of work between checkpoints. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit.extras import scipy
from labkit_book.problems.exercise import Case, Exercise, Wrong, number, same_array
from labkit_book.problems.measured import Measurements, read
from labkit_book.problems.sets import Array, Judge, dict_of, if_it_were, slips, spoke, steps, talked, workers

YEAR = 365.25 * 86400
_ROUNDED = 5e-3  # students copy three digits


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
        mistakes = slips(right,
            ("That is how long one of the workers lasts.", "mtbf_s", M * K),
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
            ("Your gain is a loss where the background is better.", "gain", -right["gain"]),
            ("Your own way is taken at any interval here, and the lab's at its best.",
             "gain", math.sqrt(2 * blocking / M) - right["share"]),
        )  # fmt: skip
        label = f"K = {K}, delta = {delta:.1f}, upload {u:.0f}, M = {M:.0f}, an interval of {tau:.0f} s"
        args = (M * K, K, tau, delta, u, blocking)
        yield Case(args, steps(right), label=label, mistakes=mistakes)


# -- 2: what a checkpoint costs here --------------------------------------------------------------------------------

_WAYS, _ROUNDS, _M = ("kept", "synced", "careful"), 15, 600.0


def _costs(rng: np.random.Generator) -> Iterator[Case]:
    def numbers(answer: Any) -> tuple[Measurements, dict[str, Any]]:
        data = read(answer["data"], 3, _ROUNDS)
        if set(data.at) != set(_WAYS):
            raise Wrong(f"the data are to be of {', '.join(_WAYS)}, not {data.at}")
        v = dict(zip(data.at, data.values, strict=True))
        longer, rounds = int(np.sum(v["synced"] > v["kept"])), data.values.shape[1]
        p = sum(math.comb(rounds, m) for m in range(longer, rounds + 1)) / 2**rounds
        low, high = (math.sqrt(2 * x * _M) for x in (v["careful"].min(), v["careful"].max()))
        regret = v["careful"].max() / low + low / (2 * _M) - high / _M
        return data, {"delta_s": float(np.median(v["careful"])), "low_s": low, "high_s": high,
                      "regret": regret, "longer": longer, "p": p}  # fmt: skip

    def judge(answer: Any) -> None:
        dict_of(answer, ("data", "delta_s", "low_s", "high_s", "regret", "longer", "p", "sync_costs"))
        _, right = numbers(answer)
        for name, value in right.items():
            if abs(number(answer[name], name) - value) > _ROUNDED * abs(value) + 1e-9:
                raise Wrong(f"{name} is {float(answer[name]):.4g}, and that does not follow from your data")
        if answer["sync_costs"] != ("yes" if right["p"] <= 0.01 else "not decided"):
            raise Wrong("your sync_costs does not follow from your p: what did you allow chance to do?")

    def if_it_is(name: str, f: Any) -> Judge:
        def as_if(answer: Any) -> None:
            data, right = numbers(answer)
            value = f(dict(zip(data.at, data.values, strict=True)), right)
            off = [abs(float(answer[name]) - x) > _ROUNDED * abs(x) + 1e-9 for x in (value, right[name])]
            if off != [False, True]:
                raise Wrong("then it is something else")

        return as_if

    yield Case((), judge, mistakes=(
        ("A mean lets one slow write speak for all of them.",
         if_it_is("delta_s", lambda v, r: v["careful"].mean())),
        ("That is the price of a write that a power cut may still undo.",
         if_it_is("delta_s", lambda v, r: np.median(v["kept"]))),
        ("An interval is not proportional to the price of a write: you stretch it by all of the spread.",
         if_it_is("high_s", lambda v, r: r["low_s"] * (r["high_s"] / r["low_s"]) ** 2)),
        ("Of what is lost you say how many times as much it is: which share of the time is that?",
         if_it_is("regret", lambda v, r: 1 + r["regret"] / (r["high_s"] / _M))),
        ("That is all that is lost at the wrong interval: how much of it would be lost at the right one, too?",
         if_it_is("regret", lambda v, r: r["regret"] + r["high_s"] / _M)),
        ("That is the chance of exactly so many rounds: would more of them have surprised you less?",
         if_it_is("p", lambda v, r: math.comb(len(v["kept"]), r["longer"]) / 2 ** len(v["kept"]))),
        ("That counts the rounds in which `kept` could have taken longer, too: was that the question?",
         if_it_is("p", lambda v, r: 2 * r["p"])),
        ("That is the chance of more rounds than you have counted: why not of these, too?",
         if_it_is("p", lambda v, r: r["p"] - math.comb(len(v["kept"]), r["longer"]) / 2 ** len(v["kept"]))),
    ))  # fmt: skip


# -- 3: where the power goes ----------------------------------------------------------------------------------------

_NAME, _DRAFT = "new.ckpt", "new.ckpt.draft"
_SAVES: dict[str, tuple[tuple[str, ...], ...]] = {  # as in the notebook
    "anna": (("write", _DRAFT), ("rename", _DRAFT, _NAME), ("sync", _NAME), ("sync_folder",)),
    "bob": (("write", _DRAFT), ("sync", _DRAFT), ("sync_folder",), ("rename", _DRAFT, _NAME)),
    "carla": (("rename", _NAME, "old.ckpt"), ("write", _DRAFT), ("sync", _DRAFT), ("rename", _DRAFT, _NAME),
              ("sync_folder",)),
    "dora": (("write", _DRAFT), ("sync", _DRAFT), ("rename", _DRAFT, _NAME), ("sync_folder",)),
    "two ranks": (("write", _DRAFT), ("sync", _DRAFT), ("write", _DRAFT), ("rename", _DRAFT, _NAME), ("sync", _NAME),
                  ("sync_folder",)),
}  # fmt: skip
_BAD = ("torn", "missing", "old")


def _refuted(answer: Any) -> None:
    dict_of(answer, tuple(_SAVES))
    for who, said in answer.items():
        operations = _SAVES[who]
        bad = [(done, what) for done in range(len(operations) + 1) for what in _found(who, done)]
        if isinstance(said, str):
            if said != "holds":
                raise Wrong(f"{who}: answer 'holds' or a pair, not {said!r}")
            if bad:
                raise Wrong(f"{who}: you let it pass. {_WHY[who]}")
            continue
        pair = list(said) if isinstance(said, (tuple, list)) else []
        if len(pair) != 2 or pair[1] not in _BAD:
            raise Wrong(f"{who}: a pair is (operations done, one of {', '.join(map(repr, _BAD))})")
        done, what = number(pair[0], f"{who}: operations done"), pair[1]
        if done != int(done) or not 0 <= done <= len(operations):
            raise Wrong(f"{who}: there are 0 to {len(operations)} operations to be done, not {done:g}")
        if (int(done), what) not in bad:
            if not bad:
                raise Wrong(f"{who}: cut after {int(done)} of the operations: what is on the disk by then?")
            if what == "old" and done < len(operations):
                raise Wrong(f"{who}: until the save has returned, the old checkpoint is as good as promised")
            raise Wrong(f"{who}: cut after {int(done)} of the operations, the disk does not show {what!r}")


_WHY = {
    "anna": "A name can be on the disk before the content that it names.",
    "bob": "Which operation comes after the folder was brought to the disk?",
    "carla": "Is there always something under the good name?",
    "two ranks": "Whose draft is it that gets the good name, and in what state?",
}


def _found(who: str, done: int) -> set[str]:
    """What of ``_BAD`` the disk may show under the good name if power is cut after so many operations of a save."""
    disk = _Disk(_NAME)
    for operation in _SAVES[who][:done]:
        disk.do(operation)
    return disk.after_a_cut(_NAME) & set(_BAD if done == len(_SAVES[who]) else _BAD[:2])


class _Disk:
    """Files as programs see them, and the folders that the disk may show after a cut; in all there was an old whole file."""

    def __init__(self, name: str) -> None:
        self.files = {name: ("old", True)}  # content, and whether it has been synced
        self.views = [dict(self.files)]

    def do(self, operation: tuple[str, ...]) -> None:
        verb, *names = operation
        if verb == "sync_folder":
            self.views = [dict(self.files)]
        elif verb == "rename":
            self.files[names[1]] = self.files.pop(names[0])
            self.views.append(dict(self.files))
        else:
            made = names[0] not in self.files
            self.files[names[0]] = ("new", verb == "sync")
            if made:
                self.views.append(dict(self.files))
            for view in self.views:  # contents change in place, wherever the disk knows this file
                if view.get(names[0], ("old",))[0] == "new":
                    view[names[0]] = self.files[names[0]]

    def after_a_cut(self, name: str) -> set[str]:
        """What may be found under ``name``."""
        found = set()
        for view in self.views:
            content, synced = view.get(name, ("missing", True))
            found |= {content} if synced else {content, "torn"}
        return found


# -- 4: the hand-over -----------------------------------------------------------------------------------------------


def _hand_over(rng: np.random.Generator) -> Iterator[Case]:
    for K, world in ((1, "simulated"), (2, "simulated"), (3, "simulated"), (2, "processes")):
        shards = [(rng.standard_normal((24, 3)), rng.standard_normal(24)) for _ in range(K)]
        counts, seed = [int(n) for n in rng.integers(4, 9, size=K)], int(rng.integers(1000))
        args = tuple((*shard, None if k else seed, counts[k]) for k, shard in enumerate(shards))
        label = f"with {workers(K)}, {' + '.join(map(str, counts))} steps"
        wrong = [(said, _trained(shards, seed, counts, forget)) for said, forget in _FORGOTTEN]
        mistakes = if_it_were(_handed, *wrong) if K > 1 else ()
        yield Case(args, _handed(_trained(shards, seed, counts)), K, label, world, mistakes=mistakes)


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


def _handed(ends: list[Array]) -> Judge:
    def judge(run: Run) -> None:
        for rank, end in enumerate(ends):
            if rank < run.K - 1:
                spoke(run, rank, "where this job stands")
            same_array(run.results[rank], end, f"rank {rank}'s weights", rtol=1e-12, atol=1e-13)

    return judge


# -- 5: the newest that is whole ------------------------------------------------------------------------------------


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
    most = 16 * sum(parts for _, parts in written) + 64

    def top(whole: Any) -> list[int]:
        return [max([s for s, parts in written if whole(s, parts)], default=-1)] * K

    own = [max([s for s, _ in d], default=-1) for d in disks]
    right = top(lambda s, parts: all((s, p) in union for p in range(parts)))

    def judge_of(values: list[int]) -> Judge:
        def judge(run: Run) -> None:
            talked(run, most, "16 for each part and 64", "what is on its disk")
            for rank, value in enumerate(run.results):
                if (step := number(value, "the step")) != values[rank]:
                    wrong = "lacks a part" if step > values[rank] else "is not the newest"
                    raise Wrong(f"rank {rank} goes on from step {step:g}, which {wrong}")

        return judge

    mistakes = if_it_were(
        judge_of,
        ("Rank r is asked for part r only: that works as long as the job starts with as many workers as before.",
         top(lambda s, parts: parts <= K and all((s, p) in everywhere[p] for p in range(parts)))),
        ("Every worker is to have every part here: who has ever written that many?",
         top(lambda s, parts: all((s, p) in d for d in everywhere for p in range(parts)))),
        ("This counts what is there, and a copy of one part makes up for another that is missing.",
         top(lambda s, parts: sum(c[0] == s for c in copies) >= parts)),
        ("Somebody has a part of that step: is that the step?", [max(own)] * K),
        ("Each has a newest part, and you take the oldest of these: nobody has said that it is complete.", [min(own)] * K),
        ("A step counts as complete here when as many of its parts are there as there are workers now.",
         top(lambda s, parts: len({p for t, p in union if t == s}) >= K)),
    )  # fmt: skip
    args = tuple((list(written), list(d)) for d in disks)
    return Case(args, judge_of(right), K, f"with {workers(K)}: {label}", world, mistakes=mistakes)


# -- 6: a straggler has been found ----------------------------------------------------------------------------------

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
    mistakes = slips(right,
        (f"That is the chance of more than {_TIMES}: is {_TIMES} not often enough to accuse?",
         "one", float(sf(_TIMES, _T, 1 / _K))),
        (f"That is the chance of exactly {_TIMES}: would {_TIMES + 1} have been less suspicious?",
         "one", one - float(sf(_TIMES, _T, 1 / _K))),
        ("This asks of rank 5 only; the recorder would have named any of the others as gladly.", "any", one),
        ("Eight counts that share 60 steps are taken for independent here: if one is large, what of the others?",
         "any", 1 - (1 - one) ** _K),
        ("In each of the jobs there are eight that may be named.", "jobs", _JOBS * one),
        (f"This lets each rank be accused in {100 * _LEVEL:g} % of all jobs, and there are eight of them.",
         "least", _least(_T, ranks=1)),
        (f"That is how often the team's own rule, {_TIMES} or more, accuses it.",
         "caught", float(sf(_TIMES - 1, _T, _SHARE))),
        ("A rank that is last in a quarter of the steps on average is not so in every job: this takes its mean for sure.",
         "steps", int(Ts[np.argmax(counts <= _SHARE * Ts)])),
        ("The count that accuses grows with the steps, and yours stays where it was with 60.",
         "steps", int(Ts[np.argmax(sf(least - 1, Ts, _SHARE) >= _POWER)])),
        rtol=_ROUNDED)  # fmt: skip
    return Case((), steps(right, rtol=_ROUNDED), mistakes=mistakes)


EXERCISES = (
    Exercise("B-1", "An upload in the background", "derive", 4, "upload", _upload, objectives=(1,)),
    Exercise("B-2", "What a checkpoint costs here", "measure", 3, "", _costs, objectives=(1,)),
    Exercise(
        "B-3",
        "Where the power goes",
        "criticise",
        3,
        "",
        lambda rng: [Case((), _refuted)],
        objectives=(3,),
    ),
    Exercise("B-4", "The hand-over", "debug", 4, "hand_over", _hand_over, objectives=(2,)),
    Exercise("B-5", "The newest that is whole", "build", 3, "newest", _newest, objectives=(3,)),
    Exercise(
        "B-6",
        "A straggler has been found",
        "criticise",
        3,
        "",
        lambda rng: [_accused()],
        objectives=(4,),
    ),
)
