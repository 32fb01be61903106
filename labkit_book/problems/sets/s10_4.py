"""Problem set 10.4: asynchronous SGD.

Source: Dean et al. 2012 (workers that don't wait, and a busy server). Symbols: K workers (ranks 1 to K; rank 0 is the
server), T steps, U updates, w (d,), ``tau`` staleness, ``eta`` the learning rate, m of d features.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit import evidence
from labkit.comm.run import Run
from labkit.comm.simulated import Simulated
from labkit.network.link import Link
from labkit.timing import Asynchronous, Trace
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.sets import Array, derived, follow, pasted, workers

FREE = Link(alpha=0.0, beta=1e30)
SERVER = ("labkit_book.labs.server.parameter_server",)


# -- 1: the sum of all staleness --------------------------------------------------------------------------------------


def _sums(rng: np.random.Generator) -> Iterator[Case]:
    for K, G in ((2, 9), (4, 40), (7, 300)):
        who = np.concatenate([rng.permutation(K), rng.integers(K, size=G - K)])
        lasts = np.array([np.flatnonzero(who == k)[-1] for k in range(K)])
        n, absent, m = int((who == 0).sum()), int(rng.integers(1, K)), int(rng.integers(2, 6))
        ages, slow, all_ = int(rng.integers(1, G)), float(rng.integers(2, 9)), int((lasts + 1).sum()) - G
        right = {"one": lasts[0] + 1 - n, "all": all_, "under_way": (K - 1) * G - all_}
        right |= {"mean": K - 1 - absent - ages / G, "workers": (K - 1) * (K - 2 + 1 / slow + slow) / K}
        right["seldom"] = K * (m + 1) / 2 - 1
        yield derived(
            (lasts, n, K, G, absent, ages, slow, m), right, f"with K = {K}, U = {G}",
            ("By this a worker takes home the version from before its own update.", "one", lasts[0]),
            ("This forgets that at the end not every gradient has been applied.", "all", (K - 1) * G),
            ("By this a worker takes home the version from before its own update.", "all", lasts.sum()),
            ("By this a gradient just begun has an age of 1 already.", "under_way", K * G - lasts.sum()),
            ("This counts only the ages of those who do deliver at some time.", "mean", K - 1 - ages / G),
            ("That is the mean over gradients: of the slow worker there are few.", "workers", K - 1),
            ("So old is the oldest gradient after a pull, and not all of them.", "seldom", m * K - 1),
            ("This counts what the others have pushed, and not its own.", "seldom", (K - 1) * (m + 1) / 2),
        )  # fmt: skip


# -- 2: a server that keeps books -------------------------------------------------------------------------------------


def _push_pull(rng: np.random.Generator) -> Iterator[Case]:
    for K, slow, real in ((1, 1.0, 0), (4, 1.0, 0), (3, 6.0, 0), (2, 1.0, 1)):
        T, d, eta = int(rng.integers(3, 8)), int(rng.integers(2, 6)), float(rng.uniform(0.1, 0.4))
        times = rng.uniform(0.01, 0.02, size=(K, T))
        times[-1] *= slow
        w0, targets = rng.standard_normal(d), rng.standard_normal((K, d))
        args = ((w0, None, eta, T), *((w0, target, eta, T) for target in targets))
        came = None if real else Asynchronous().updates(times).rank + 1
        world: Any = "processes" if real else Simulated(FREE, Trace(np.vstack([np.zeros(T), times])))
        label = f"with {workers(K)}" + (", one of them slow" if slow > 1 else "") + ", real processes" * real
        judge = partial(_served, w0, targets, eta, T, came)
        said = (
            ("This applies every gradient with the full step, however stale it is.", {"scale": lambda t: 1}),
            ("Here one version of staleness leaves the step whole.", {"scale": lambda t: 1 / max(1, t)}),
            ("Here a worker's own last update makes its next gradient stale.", {"home": 0}),
            ("Here a worker gets a w without its own last gradient in it.", {"at": lambda v: max(v - 1, 0)}),
            ("Here a worker goes on with the w that it began with.", {"at": lambda v: 0}),
        )
        mistakes = tuple((text, partial(judge, **other)) for text, other in said)
        yield Case(args, judge, K + 1, label, world, mistakes=mistakes)


def _served(
    w0: Array, targets: Array, eta: float, T: int, came: Any, run: Run,
    scale: Any = lambda tau: 1 / (1 + tau), home: int = 1, at: Any = int,
) -> None:  # fmt: skip
    """came: who came when; None where only the server's book can tell. Of mistakes, scale: of the step, by staleness; home:
    0 if the book makes each answer older by one; at: the version with which a worker goes on, by the one it should have.
    """
    K = len(targets)
    for rank, nbytes in enumerate(run.bytes_sent):
        if not 0 < nbytes <= 8 * T * (len(w0) + 2) * (1 if rank else K):
            raise Wrong(f"rank {rank} sent {int(nbytes)} bytes; the task is d numbers a step each way")
    if came is not None and run.elapsed_s < 0.01:
        raise Wrong("no time was spent: no gradient was computed in comm.compute")
    if not isinstance(run.results[0], (tuple, list)) or len(run.results[0]) != 3:
        raise Wrong("return three things on rank 0, (w, who, taus)")
    w, who, taus = run.results[0]
    same_array(who, np.zeros(K * T), "who", atol=1e30)
    order = np.asarray(who).astype(int)
    if [int((order == k).sum()) for k in range(1, K + 1)] != [T] * K:
        raise Wrong(f"the book must hold every worker {T} times, ranks 1 to K, and does not")
    if came is not None and not np.array_equal(order, came):
        raise Wrong("the book's order is not the one in which the gradients came: who waited for whom?")
    versions, last, expected = [w0], [0] * (K + 1), []
    for u, k in enumerate(order.tolist()):
        expected.append(u - last[k] + (1 - home) * (last[k] > 0))
        g = versions[at(last[k])] - targets[k - 1]
        versions.append(versions[u] - eta * scale(expected[u]) * g)
        last[k] = u + 1
    same_array(taus, np.array(expected), "taus, going by who came when,", rtol=0)
    same_array(w, versions[-1], "w of the server, going by its book,", rtol=1e-9, atol=1e-12)
    for k in range(1, K + 1):
        what = f"what worker {k} pulled last, which should be the w that its own last gradient made,"
        same_array(run.results[k], versions[at(last[k])], what)


# -- 3: what your memory loses ----------------------------------------------------------------------------------------

FEATURES, _SIZES = 10, (20, 200, 2000)  # m, of d: in the notebook, too


def _lost_judge(answer: Any) -> None:
    answer, v = pasted(answer, ("used", "interval", "falls", "enough"), _SIZES, 5)
    each = np.array([v[d] * d / FEATURES for d in _SIZES])
    few, many = each[0], each[-1]
    apart = evidence.median(many - few)
    right = {"used": each.mean(axis=1), "interval": np.array([apart.low, apart.high])}
    right |= {"falls": int(apart.low > 0) - int(apart.high < 0), "enough": many.mean() * FEATURES / 1e-4}
    lost = np.array([v[d].mean() for d in _SIZES])
    torn = [many.min() - few.max(), many.max() - few.min()]
    hasty = 9 if right["falls"] else np.sign(apart.center)
    follow(
        answer, right,
        ("'used' repeats what was lost; how much does the bound allow?", "used", lost),
        ("this interval tears the rounds apart: what they have in common stays in", "interval", torn),
        ("this interval has the opposite sign: what minus what?", "interval", [-apart.high, -apart.low]),
        ("this interval is of one setting: it compares nothing", "interval", [many.min(), many.max()]),
        ("the interval holds 0, so these data do not know the sign of the difference", "falls", hasty),
        ("these data do say more: the whole interval lies on one side of 0", "falls", 0),
        ("'falls' says the opposite of what the interval says", "falls", -right["falls"]),
        ("'enough' goes by the bound; your machine's own share is not in it", "enough", FEATURES / 1e-4),
        ("by 'enough' an update touches one coordinate only", "enough", many.mean() / 1e-4),
        rtol=1e-3,
    )  # fmt: skip


# -- 4: 1.7 times faster ----------------------------------------------------------------------------------------------


def _second_look(rng: np.random.Generator) -> Iterator[Case]:
    drawn, price = float(rng.uniform(0.015, 0.025)), float(rng.uniform(1.2, 4))
    for K, t, slow, c, dearer, spread in (
        (8, drawn, 1.85, 0.001, 1.3, 0.05),
        (8, drawn, 1.85, 0.001, 1.65, 0.3),
        (16, drawn, 3.0, 0.0043, 1.9, 0.1),
        (32, drawn, 1.3, 0.0037, 1.1, 0.1),
        (4, 2**-6, 2.0, 2**-10, price, 0.2),  # both equally fast at K = 33, to the bit
    ):
        seeds = int(rng.integers(6, 11))
        fresh = rng.normal(900, 60, seeds).round()
        stale = (fresh * dearer * np.exp(spread * rng.standard_normal(seeds))).round()
        yield _looks(K, t, slow, c, fresh, stale)


def _rates(K: int, t: float, slow: float, c: float) -> tuple[float, float]:
    return K / (slow * t + c), min((K - 1) / (t + c) + 1 / (slow * t + c), 1 / c)


def _looks(K: int, t: float, slow: float, c: float, fresh: Array, stale: Array) -> Case:
    with_, without = _rates(K, t, slow, c)
    faster = without / with_
    sooner = evidence.median(ratio := faster * fresh / stale)
    verdict = int(sooner.low > 1) - int(sooner.high < 1)
    right: dict[str, Any] = {"with": with_, "without": without, "sooner": sooner.center}
    right |= {"interval": np.array([sooner.low, sooner.high]), "verdict": verdict}
    right["flip"] = int((slow * t + c) / c) + 1
    full = next(k for k in range(1, 10**6) if _rates(k, t, slow, c)[1] == 1 / c)
    medians = faster * np.median(fresh) / np.median(stale)
    hasty = 9 if verdict else np.sign(sooner.center - 1)
    return derived(
        (K, t, slow, c, fresh, stale), right, f"K = {K}",
        ("This lets the server work once for each gradient of a round.", "with", K / (slow * t + K * c)),
        ("Here the server has no work at all: its time is missing.", "without", (K - 1) / t + 1 / (slow * t)),
        ("That compares gradients a second: a stale one counts like a fresh one.", "sooner", faster),
        ("This is the other way round: how much later it arrives.", "sooner", np.median(1 / ratio)),
        ("This divides medians: what a seed has in common stays in.", "sooner", medians),
        ("The middle lies on one side of 1, the interval on both: that settles nothing.", "verdict", hasty),
        ("There the server is just full: the barrier's group may still be slower.", "flip", full),
        ("With so many workers there are not fewer: both make the same.", "flip", (slow * t + c) / c),
    )  # fmt: skip


EXERCISES = (
    Exercise("10.4-1", "The sum of all staleness", "derive", 4, "staleness_sums", _sums, (2,)),
    Exercise("10.4-2", "A server that keeps books", "build", 4, "push_pull", _push_pull, (2, 3), (), SERVER),
    Exercise("10.4-3", "What your memory loses", "measure", 3, "", once(_lost_judge), (5, 6)),
    Exercise("10.4-4", "1.7 times faster", "criticise", 3, "second_look", _second_look, (1, 4)),
)
