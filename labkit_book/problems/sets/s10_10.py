"""Problem set 10.10: choosing a configuration.

The judges compute what is right from the questions, or from what a student has measured: time to accuracy as steps times
seconds (McCandlish et al. 2018, section 2, for the steps), the tie of two straight lines in 1 / beta, what a log says of a
step that waits for the last, and the order statistics of a few repeats (David and Nagaraja 2003, section 7.2). No solutions
here.

Symbols: K workers, b examples each, B = K b, S_min and B_crit of the hyperbola, alpha and beta of a link, T steps; f, how
many times the steps a method needs; c its seconds and n its bytes of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit_book.problems.drawn import curve, labelled, shown
from labkit_book.problems.exercise import Case, Exercise, Wrong, choices, close, number, same_array
from labkit_book.problems.measured import read
from labkit_book.problems.sets import Judge, dict_of, if_it_were, slips, steps, talked, workers

Array = NDArray[np.float64]
Points = list[tuple[Array, Array]]


# -- 1: foretell a step, then take it -------------------------------------------------------------------------------

_SEEN, _UNSEEN, _ROUNDS = ("1x16", "1x64", "2x16"), "2x64", 9
_ROUNDED = 5e-3  # students copy three digits


def _foretold(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((), _foretold_judge, mistakes=(
        ("This makes four times of the whole step of two workers: also of what does not grow with the batch.",
         _if_foretold(lambda v: np.median(4 * v["2x16"]))),
        ("Here talking grows with the batch as computing does: is that what the planner assumes?",
         _if_foretold(lambda v: np.median(v["2x16"] * v["1x64"] / v["1x16"]))),
        ("Three medians may come from three rounds: was the machine equally busy in all of them?",
         _if_foretold(lambda v: np.median(v["1x64"]) + np.median(v["2x16"]) - np.median(v["1x16"]))),
        ("A chance of 1 takes the least and the greatest of nine for the least and the greatest there can be.",
         lambda answer: close(answer["promise"], 1.0, rtol=_ROUNDED)),
        ("A tenth value can fall out at either end, and you bar only one.",
         lambda answer: close(answer["promise"], 0.9, rtol=_ROUNDED)),
        ("A habit of statisticians is no property of nine numbers: what was never computed from them?",
         lambda answer: close(answer["promise"], 0.95, rtol=_ROUNDED)),
    ))  # fmt: skip


def _few(answer: Any) -> tuple[dict[Any, Array], Array]:
    """What was measured in each setting, and what it says of the fourth; ms, a value for each round."""
    few = read(answer["data"], 3, _ROUNDS)
    if set(few.at) != set(_SEEN):
        raise Wrong(f"data are to be of {', '.join(_SEEN)}, not of {', '.join(map(str, few.at))}")
    v = dict(zip(few.at, 1e3 * few.values, strict=True))
    return v, v["1x64"] + v["2x16"] - v["1x16"]


def _if_foretold(wrong: Callable[[dict[Any, Array]], Any]) -> Judge:
    def as_if(answer: Any) -> None:
        v, said = _few(answer)
        close(answer["predicted_ms"], float(wrong(v)), rtol=_ROUNDED)
        if np.isclose(answer["predicted_ms"], np.median(said), rtol=_ROUNDED):
            raise Wrong("then it is something else")

    return as_if


def _foretold_judge(answer: Any) -> None:
    dict_of(answer, ("data", "predicted_ms", "low_ms", "high_ms", "promise", "then", "verdict"))
    (_, said), then = _few(answer), read(answer["then"], 1, _ROUNDS)
    if then.at != (_UNSEEN,):
        raise Wrong(f"then is to be of {_UNSEEN}, not of {', '.join(map(str, then.at))}")
    low, high, at = said.min(), said.max(), 1e3 * float(np.median(then.values))
    close(answer["predicted_ms"], float(np.median(said)), "predicted_ms", rtol=_ROUNDED)
    for name, right, word in (("low_ms", low, "least"), ("high_ms", high, "greatest")):
        if abs(number(answer[name], name) - right) > _ROUNDED * abs(right):
            raise Wrong(f"{name} is not the {word} of what your rounds foretell, one round at a time")
    close(answer["promise"], (len(said) - 1) / (len(said) + 1), "promise", rtol=_ROUNDED)
    words = ("holds", "too low", "too high")
    if answer["verdict"] not in words:
        raise Wrong(f"verdict must be one of {', '.join(map(repr, words))}, not {answer['verdict']!r}")
    if answer["verdict"] != (words[0] if low <= at <= high else words[1] if at > high else words[2]):
        raise Wrong("your verdict does not follow from your data: where does the middle of `then` lie?")


# -- 2: time against money ------------------------------------------------------------------------------------------

_KS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def _pareto(rng: np.random.Generator) -> Iterator[Case]:
    yield _pareto_case(32, 7000.0, 4096.0, 2.5, (0.128, 0.030, 0.0008), 1.25)
    S, B, price, message_s, f = (
        float(x) for x in rng.uniform((2e3, 1e3, 1, 4e-4, 1.15), (9e3, 3e3, 4, 8e-4, 1.3))
    )
    yield _pareto_case(16, S, B, price, (0.080, 0.025, message_s), f)


def _pareto_case(
    b: int, S_min: float, B_crit: float, price: float, step: tuple[float, float, float], f: float
) -> Case:
    compute_s, wire_s, message_s = step
    K = np.array(_KS, float)
    ring_s = 2 * (K - 1) * message_s + 2 * (K - 1) / K * wire_s
    methods = {"sync": (1.0, list(compute_s + ring_s)), "local": (f, list(compute_s + ring_s / 8))}

    def points(factor: bool = True, all_pay: bool = True) -> Points:
        """(price, hours) of each method."""
        found = []
        for times, step_s in methods.values():
            h = (times if factor else 1.0) * S_min * (1 + B_crit / (K * b)) * np.array(step_s) / 3600
            found.append((h * (K if all_pay else 1) * price, h))
        return found

    def judge_of(drawn: tuple[Points, Any, int]) -> Judge:
        each, (x, y), knee = drawn

        def judge(answer: Any) -> None:
            axes = shown(answer)
            labelled(axes, "x", "EUR")
            labelled(axes, "y", "h")
            if (axes["xscale"], axes["yscale"]) != ("log", "log"):
                raise Wrong("one per cent is not equally long everywhere here: are both axes logarithmic?")
            for name, (cost, time) in zip(methods, each, strict=True):
                curve(axes, cost, time, f"price and time of {name}")
            curve(axes, x, y, "what nobody beats in both, of the two methods together")
            curve(axes, x[knee : knee + 1], y[knee : knee + 1], "the knee")

        return judge

    def whole(each: Points) -> tuple[Array, Array]:
        """The points that none beats, of all."""
        x, y = (np.concatenate(v) for v in zip(*each, strict=True))
        best = [not np.any((x <= p) & (y <= q) & ((x < p) | (y < q))) for p, q in zip(x, y, strict=True)]
        return x[best], y[best]

    def asked(each: Points, front: Any = None, pick: Any = np.multiply) -> tuple[Points, Any, int]:
        """Each method, what none beats, and where on that the knee is."""
        front = whole(each) if front is None else front
        return each, front, int(np.argmin(pick(*front)))

    right = points()
    own = whole(right[:1]), whole(right[1:])
    return Case(
        (_KS, b, S_min, B_crit, price, methods),
        judge_of(asked(right)),
        label=f"b = {b}, B_crit = {B_crit:.0f}, {f:.2f} times the steps",
        mistakes=if_it_were(
            judge_of,
            ("This pays for one worker, whatever K is: who pays for the others?", asked(points(all_pay=False))),
            ("Here a local step is worth a step of sync: that makes it look faster than it is.",
             asked(points(factor=False))),
            ("You ask of each method alone what nobody beats: the other method may beat it.",
             asked(right, [np.concatenate(v) for v in zip(*own, strict=True)])),
            ("Your knee is the fastest configuration: the last second is bought there at any price.",
             asked(right, pick=lambda x, y: y)),
            ("Your knee is the cheapest configuration: time counts for nothing there.", asked(right, pick=lambda x, y: x)),
        ),
    )  # fmt: skip


# -- 3: how sure is the ranking -------------------------------------------------------------------------------------


def _sure(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(5):
        c1, n1 = float(rng.uniform(0.05, 0.3)), float(rng.uniform(2e7, 4e8))
        c2, n2 = c1 * float(rng.uniform(0.85, 1.05)), n1 / float(rng.uniform(3, 20))
        f = float(rng.uniform(1.25, 1.8))
        tie = (n1 - f * n2) / (f * c2 - c1)
        beta = tie * float(rng.uniform(0.5, 0.9))
        even, sigma = (c1 + n1 / beta) / (c2 + n2 / beta), float(rng.uniform(0.1, 0.4))
        slope = -f * n2 / (n1 - f * n2), -f * c2 / (f * c2 - c1)
        need = (2 * sigma / (even - f)) ** 2
        right = {"tie": tie, "everywhere": c1 / c2, "nowhere": n1 / n2, "elasticity": sum(slope), "break_even": even,
                 "seeds": math.ceil(need)}  # fmt: skip
        mistakes = slips(right,
            ("f multiplies only the bytes here: does a step more not also compute?", "tie", (n1 - f * n2) / (c2 - c1)),
            ("At a bandwidth of nearly zero and at an endless one you ask for the wrong part of a step.",
             "everywhere", n1 / n2),
            ("This is a slope in bytes per second, not one in per cent of per cent: its value depends on the units.",
             "elasticity", sum(slope) * tie / f),
            *(("f stands in two places of the tie, and only one of them moves in your elasticity.", "elasticity", one)
              for one in slope),
            ("Your elasticity has the wrong sign: more steps needed, and it would win at more bandwidths?",
             "elasticity", -sum(slope)),
            ("This compares the bytes at that bandwidth and leaves out what does not depend on it.",
             "break_even", n1 / n2),
            ("This is how many seeds it takes if the error of a mean falls like 1 over their number.",
             "seeds", math.ceil(math.sqrt(need))),
            ("One trial in three misses the mean by more than one standard error, and you ask for no more than one.",
             "seeds", math.ceil(need / 4)),
            ("Who can run a part of a trial?", "seeds", need),
        )  # fmt: skip
        label = f"c = {c1:.3f} and {c2:.3f} s, f = {f:.2f}, {8e-9 * beta:.2f} Gbit/s"
        yield Case((c1, n1, c2, n2, f, beta, sigma), steps(right), label=label, mistakes=mistakes)


# -- 4: a bill that counts twice ------------------------------------------------------------------------------------

_PARTS = ("load", "work", "wait", "sum")


def _bill(rng: np.random.Generator) -> Iterator[Case]:
    for K, ahead, slow, label in (
        (1, False, 1.0, "one worker, loading before each step"),
        (4, False, 1.6, "four workers, one slow"),
        (4, True, 1.0, "four workers alike, who load ahead"),
        (6, True, 1.5, "six who load ahead, one slow"),
        (3, True, 1.0, "three who load ahead, with a loader that is slower than they compute"),
    ):
        T, load = 12, 0.080 if label.endswith("compute") else 0.015
        loads, works = (x * rng.uniform(0.9, 1.1, size=(K, T)) for x in (load, 0.050))
        works[K // 2] *= slow
        sums = 0.010 * rng.uniform(0.8, 1.2, size=T)
        loaded, ready, left = np.empty((K, T)), np.empty((K, T)), np.empty(T)
        free, begun = np.zeros(K), 0.0
        for t in range(T):
            loaded[:, t] = (free if ahead else begun) + loads[:, t]
            free = np.maximum(begun, loaded[:, t])
            ready[:, t] = free + works[:, t]
            begun = left[t] = ready[:, t].max() + sums[t]
        yield _bill_case(loaded, ready, left, float(rng.uniform(1, 4)), f"{label}, {T} steps")


def _bill_case(loaded: Array, ready: Array, left: Array, price: float, label: str) -> Case:
    K = len(loaded)
    begun, last = np.append(0.0, left[:-1]), ready.max(axis=0)
    start = np.maximum(begun, loaded)
    each = {"load": start - begun, "work": ready - start, "wait": last - ready,
            "sum": np.tile(left - last, (K, 1))}  # fmt: skip
    right = {part: float(x.sum()) * price / 3600 for part, x in each.items()}
    whole = K * left[-1] * price / 3600

    def judge(answer: Any) -> None:
        parts = [number(x, name) for name, x in dict_of(answer, _PARTS).items()]
        if abs(sum(parts) / whole - 1) > 1e-6:
            said = ("more", "twice") if sum(parts) > whole else ("less", "not at all")
            raise Wrong("your parts add up to {} than the bill: something is counted {}".format(*said))
        for name in _PARTS:
            if abs(float(answer[name]) - right[name]) > 1e-6 * whole:
                raise Wrong(f"the parts add up, but the share of {name!r} is not what the log says")

    def given(load: Array, work: Array, comm: Array, by: float = 1.0, scaled: bool = False) -> Judge:
        want = np.array([x.sum() for x in (load, work, last - ready, comm)]) * price / 3600
        want *= whole / want.sum() if scaled else by
        return lambda answer: same_array([answer[p] for p in _PARTS], want, rtol=1e-8, atol=1e-12)

    summed, long, hidden = each["sum"], left - ready, ready - loaded
    mistakes = (
        ("A rank that has arrived waits inside the all-reduce, and you charge it for talking all that time, too.",
         given(each["load"], each["work"], long)),
        ("A batch that was there before its step began makes the step's work longer than the step here.",
         given(each["load"], hidden, summed)),
        ("That is the program as it was given: is no second of a rank in two of its parts?",
         given(each["load"], hidden, long)),
        ("The parts add up because they were made to: scaling a double count leaves its shape.",
         given(each["load"], hidden, long, scaled=True)),
        ("Loading that nobody waited for is on this bill, and taken off it elsewhere, as a negative part.",
         given(loaded - begun, hidden, summed)),
        ("This is the bill of one worker.", given(each["load"], each["work"], summed, 1 / K)),
        ("Here every second costs what an hour costs.", given(each["load"], each["work"], summed, 3600)),
    )  # fmt: skip
    return Case((loaded, ready, left, price), judge, label=label, mistakes=mistakes)


# -- 5: 94 per cent -------------------------------------------------------------------------------------------------

_B = 32
_RATE = {1: 250, 8: 1800, 16: 3500, 32: 6850, 64: 13500}  # examples per second of K workers with 32 each
_B_CRIT = 1024  # of the model
_TOTAL = 256  # the batch of all workers, in the end
_OVERLAP = {"overlap": "adaeba83389833e9"}


def _sooner(K: int) -> float:
    return (_B + _B_CRIT) / _RATE[1] / ((K * _B + _B_CRIT) / _RATE[K])


def _vendor() -> Case:
    beyond = 64 * _B / _RATE[64] - (0.008 + 0.00375 * _B)  # of a step of 64 workers, what is not computing
    alone, shared = 0.008 + 0.00375 * _TOTAL, 0.008 + 0.00375 * _TOTAL / 64
    right = {
        "efficiency": _RATE[64] / (64 * _RATE[1]), "sooner": _sooner(64), "dearer": 64 / _sooner(64),
        "most_K": max(K for K in _RATE if _sooner(K) >= K / 2), "fixed_batch": alone / (beyond + shared),
    }  # fmt: skip
    judged = steps(right, rtol=_ROUNDED)
    chosen = choices("10.10-5", {"overlap": ("shown", "refuted", "not decided")}, _OVERLAP)

    def judge(answer: Any) -> None:
        dict_of(answer, (*right, "overlap"))
        judged({name: answer[name] for name in right})
        try:
            chosen({"overlap": answer["overlap"]})
        except Wrong as wrong:
            if "choices are right" not in str(wrong):
                raise
            said = "what would the table show if the sum took less, or if less of it were hidden?"
            raise Wrong(f"overlap: {said}") from None

    return Case((), judge, mistakes=slips(right,
        ("That is the vendor's own number: what was its 100 per cent?", "efficiency", _RATE[64] / (8 * _RATE[8])),
        ("This takes examples per second for progress: a batch 64 times as large needs other numbers of examples.",
         "sooner", _RATE[64] / _RATE[1]),
        ("Only the steps are counted here, as if each took as long on 64 workers as on one.",
         "sooner", (1 + _B_CRIT / _B) / (1 + _B_CRIT / (64 * _B))),
        ("Here the job is 64 times as dear: is it rented for as long as before?", "dearer", 64),
        ("This pays for as many examples as one worker needs: do 64 need no more?", "dearer", 1 / right["efficiency"]),
        ("This asks for half of the machine's rate, and the question is for half of the time to the target.",
         "most_K", 64),
        ("A few examples a worker take less time than 32, but you let only the computing shrink, and nothing stay.",
         "fixed_batch", 64 * right["efficiency"]),
        ("A step of 64 workers is all computing here: the table says otherwise.", "fixed_batch", alone / shared),
        rtol=_ROUNDED))  # fmt: skip


# -- 6: a fair share ------------------------------------------------------------------------------------------------


def _shares(rng: np.random.Generator) -> Iterator[Case]:
    yield _shares_case(17, [0.010], [0.002], "it has all examples")
    slow_one = [0.001, 0.001, 0.001, 0.002]
    yield _shares_case(64, [0.010] * 4, slow_one, "one takes twice as long for an example")
    yield _shares_case(40, [0.005, 0.030, 0.005], [0.001] * 3, "one takes long to begin")
    yield _shares_case(12, [0.002, 0.500, 0.002], [0.001] * 3, "one begins when the others could be done")
    for K, world in ((5, "simulated"), (3, "processes")):
        o, e = rng.uniform(0.002, 0.02, size=K), rng.uniform(0.0005, 0.003, size=K)
        yield _shares_case(int(rng.integers(50, 120)), list(o), list(e), "all different", world)


def _shares_case(B: int, o: list[float], e: list[float], label: str, world: str = "simulated") -> Case:
    K = len(o)
    start, each = np.array(o), np.array(e)
    ends = start[:, None] + each[:, None] * np.arange(1, B + 1)  # when a worker is done with its j-th example
    best = float(np.sort(ends, axis=None)[B - 1])

    def takes(b: Array) -> float:
        return float(np.where(b > 0, start + each * b, 0.0).max())

    def split_of(run: Run) -> tuple[Array, list[Any]]:
        pairs = [list(r) if isinstance(r, (tuple, list, np.ndarray)) else [] for r in run.results]
        if any(len(pair) != 2 for pair in pairs):
            raise Wrong("return two things on every rank, its number of examples and the seconds of the step")
        return np.array([number(pair[0], "the number of examples") for pair in pairs]), [p[1] for p in pairs]

    def judge(run: Run) -> None:
        talked(run, 64 * K, "8 numbers of 8 bytes a worker", "what this worker's pace is")
        b, said = split_of(run)
        if (b != np.round(b)).any() or (b < 0).any():
            raise Wrong(f"there are no {b[(b != np.round(b)) | (b < 0)][0]:g} examples")
        if b.sum() != B:
            raise Wrong(f"the ranks take {b.sum():.0f} examples together, and the batch has {B}")
        if takes(b) > best * (1 + 1e-9):
            raise Wrong("one example fewer for the last worker, given to another, would end the step sooner")
        for rank, seconds in enumerate(said):
            close(seconds, takes(b), f"the step that rank {rank} foretells for these shares")

    def if_split(b: Array) -> Judge:
        def as_if(run: Run) -> None:
            if takes(b) <= best * (1 + 1e-9):
                raise Wrong("then it is something else")
            same_array(split_of(run)[0], b)

        return as_if

    def if_each_for_itself(run: Run) -> None:
        b, said = split_of(run)
        same_array(b.sum(), np.array(B))
        same_array([float(x) for x in said], start + each * b)

    def if_nobody_rests(run: Run) -> None:
        rests = start + each > best
        if not rests.any() or split_of(run)[0][rests].min() < 1:
            raise Wrong("not this one")

    alike = np.full(K, float(B // K)) + (np.arange(K) < B % K)
    by_pace = np.floor(B / each / np.sum(1 / each))
    by_pace += np.arange(K) < B - by_pace.sum()
    mistakes = (
        ("This divides by the pace alone, and a worker also needs its time before the first example.", if_split(by_pace)),
        ("Everybody takes the same number of examples: the slowest decides how long that lasts.", if_split(alike)),
        ("Everybody takes one example at least here, however long it takes to begin.", if_nobody_rests),
        ("Each rank foretells when it is done itself: who waits for whom?", if_each_for_itself),
    )  # fmt: skip
    args = tuple((B, a, c) for a, c in zip(o, e, strict=True))
    return Case(args, judge, K, f"with {workers(K)}, {B} examples: {label}", world, mistakes=mistakes)


EXERCISES = (
    Exercise("10.10-1", "Foretell a step, then take it", "measure", 4, "", _foretold, objectives=(1,)),
    Exercise("10.10-2", "Time against money", "plot", 3, "pareto", _pareto, objectives=(2,)),
    Exercise("10.10-3", "How sure is the ranking?", "derive", 4, "sure", _sure, objectives=(3,)),
    Exercise("10.10-4", "A bill that counts twice", "debug", 3, "bill", _bill, objectives=(4,)),
    Exercise(
        "10.10-5",
        "94 per cent",
        "criticise",
        3,
        "",
        lambda rng: [_vendor()],
        objectives=(1, 2),
    ),
    Exercise("10.10-6", "A fair share", "build", 3, "fair_share", _shares, objectives=(1, 4)),
)
