"""Problem set 10.10: choosing a configuration.

Sources: McCandlish et al. 2018, section 2 (steps), David and Nagaraja 2003, section 7.2 (order statistics). Symbols: K
workers, b examples each, B = K b, S_min and B_crit of the hyperbola, alpha and beta of a link, T steps; f, how many times
the steps a method needs; c its seconds and n its bytes of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from labkit_book.problems.exercise import Case, Exercise, Wrong, number, once, same_array
from labkit_book.problems.measured import read
from labkit_book.problems.sets import Array, Judge, Parts, derived, follow, pasted, slips

# -- 1: foretell a step, then take it -------------------------------------------------------------------------------

_SEEN, _UNSEEN, _ROUNDS = ("1x16", "1x64", "2x16"), "2x64", 9
_ROUNDED = 5e-3  # students copy three digits


def _foretold_judge(answer: Any) -> None:
    keys = ("predicted_ms", "low_ms", "high_ms", "promise", "then", "verdict")
    answer, v = pasted(answer, keys, _SEEN, _ROUNDS)
    then = read(answer["then"], 1, _ROUNDS)
    if then.at != (_UNSEEN,):
        raise Wrong(f"then is to be of {_UNSEEN}, not of {', '.join(map(str, then.at))}")
    one, more, two = (1e3 * v[at] for at in _SEEN)
    said, at = more + two - one, 1e3 * float(np.median(then.values))
    torn = {end: end(more) + end(two) - end(one) for end in (np.median, np.min, np.max)}
    word = "too low" if at > said.max() else "too high" if at < said.min() else "holds"
    follow(
        answer, {"predicted_ms": np.median(said), "low_ms": said.min(), "high_ms": said.max(),
                 "promise": (_ROUNDS - 1) / (_ROUNDS + 1), "verdict": word},
        ("it is four times the whole step of two workers, and so of what does not grow with the batch",
         "predicted_ms", np.median(4 * two)),
        ("here talking grows with the batch as computing does", "predicted_ms", np.median(two * more / one)),
        ("three medians may come from three rounds: was the machine equally busy in all of them?",
         "predicted_ms", torn[np.median]),
        ("the rounds have been torn apart", "low_ms", torn[np.min]),
        ("the rounds have been torn apart", "high_ms", torn[np.max]),
        ("it takes the least and the greatest of nine for the least and the greatest there can be",
         "promise", 1.0),
        ("a tenth value can fall out at either end, and you bar only one", "promise", 0.9),
        ("a habit of statisticians is no property of nine numbers", "promise", 0.95),
        ("of 'holds', 'too low' and 'too high', where does the middle of `then` lie?", "verdict", ""),
    )  # fmt: skip


# -- 2: how sure is the ranking -------------------------------------------------------------------------------------


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
        yield derived(
            (c1, n1, c2, n2, f, beta, sigma), right,
            f"c = {c1:.3f} and {c2:.3f} s, f = {f:.2f}, {8e-9 * beta:.2f} Gbit/s",
            ("f multiplies only the bytes here: does a step more not also compute?", "tie", (n1 - f * n2) / (c2 - c1)),
            ("At a bandwidth of nearly zero and at an endless one you ask for the wrong part of a step.",
             "everywhere", n1 / n2),
            ("This is a slope in bytes per second, not one in per cent of per cent: its value depends on the units.",
             "elasticity", sum(slope) * tie / f),
            *(("f stands in two places of the tie, and only one of them moves in your elasticity.", "elasticity", one)
              for one in slope),
            ("This compares the bytes at that bandwidth and leaves out what does not depend on it.",
             "break_even", n1 / n2),
            ("This is how many seeds it takes if the error of a mean falls like 1 over their number.",
             "seeds", math.ceil(math.sqrt(need))),
            ("One trial in three misses the mean by more than one standard error, and you ask for no more than one.",
             "seeds", math.ceil(need / 4)),
        )  # fmt: skip


# -- 3: a bill that counts twice ------------------------------------------------------------------------------------

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
        parts = [number(x, name) for name, x in Parts(answer, _PARTS).items()]
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


# -- 4: 94 per cent -------------------------------------------------------------------------------------------------

_B = 32
_RATE = {1: 250, 8: 1800, 16: 3500, 32: 6850, 64: 13500}  # examples per second of K workers with 32 each
_B_CRIT = 1024  # of the model
_TOTAL = 256  # the batch of all workers, in the end
_OVERLAP = ("shown", "refuted", "not decided")  # the last is right: the table says nothing of it


def _sooner(K: int) -> float:
    return (_B + _B_CRIT) / _RATE[1] / ((K * _B + _B_CRIT) / _RATE[K])


def _vendor() -> Case:
    beyond = 64 * _B / _RATE[64] - (0.008 + 0.00375 * _B)  # of a step of 64 workers, what is not computing
    alone, shared = 0.008 + 0.00375 * _TOTAL, 0.008 + 0.00375 * _TOTAL / 64
    right = {
        "efficiency": _RATE[64] / (64 * _RATE[1]), "sooner": _sooner(64), "dearer": 64 / _sooner(64),
        "most_K": max(K for K in _RATE if _sooner(K) >= K / 2), "fixed_batch": alone / (beyond + shared),
    }  # fmt: skip

    def judge(answer: Any) -> None:
        why = "what would the table show if the sum took less, or if less of it were hidden?"
        said, all_of_it = f"of {', '.join(_OVERLAP)}, {why}", right | {"overlap": _OVERLAP[-1]}
        follow(Parts(answer, all_of_it), all_of_it, (said, "overlap", ""), rtol=_ROUNDED)

    return Case((), judge, mistakes=slips(right,
        ("That is the vendor's own number: what was its 100 per cent?", "efficiency", _RATE[64] / (8 * _RATE[8])),
        ("This takes examples per second for progress: a batch 64 times as large needs other numbers of examples.",
         "sooner", _RATE[64] / _RATE[1]),
        ("Only the steps are counted here, as if each took as long on 64 workers as on one.",
         "sooner", (1 + _B_CRIT / _B) / (1 + _B_CRIT / (64 * _B))),
        ("This pays for as many examples as one worker needs: do 64 need no more?", "dearer", 1 / right["efficiency"]),
        ("This asks for half of the machine's rate, and the question is for half of the time to the target.",
         "most_K", 64),
        ("A few examples a worker take less time than 32, but you let only the computing shrink, and nothing stay.",
         "fixed_batch", 64 * right["efficiency"]),
        rtol=_ROUNDED))  # fmt: skip


EXERCISES = (
    Exercise("10.10-1", "Foretell a step, then take it", "measure", 4, "", once(_foretold_judge), (1,)),
    Exercise("10.10-2", "How sure is the ranking?", "derive", 4, "sure", _sure, (3,)),
    Exercise("10.10-3", "A bill that counts twice", "debug", 3, "bill", _bill, (4,)),
    Exercise("10.10-4", "94 per cent", "criticise", 3, "", lambda rng: [_vendor()], (1, 2)),
)
