"""Problem set 10.6: stale gradients, from the largest step to seconds on one clock.

Sources: Levin and May 1976 (delays), Jury's conditions for a quadratic, Zhang et al. 2016 (aware of
staleness), Chen et al. 2016 (backup workers). Measurements are judged by their own data. No solutions here.

Symbols: K workers, T steps, U updates, ``tau`` staleness in versions, w (d,), ``eta`` the learning rate, L the largest
curvature, a the share of fresh gradient. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import comb
from typing import Any

import numpy as np

from labkit import evidence
from labkit.timing import Asynchronous, Synchronous
from labkit_book.problems.drawn import curve, labelled, shown
from labkit_book.problems.exercise import Case, Exercise, Wrong, same_array
from labkit_book.problems.measured import read as read_line
from labkit_book.problems.sets import Array, Judge, follow, handed_in, slips, steps

REPLAY = ("labkit.learn.replay",)
JUDGED = slice(3, None)


def _apart(x: Array, y: Array) -> Any:
    return np.median(x) / np.median(y)


# -- 1: when an old gradient helps ------------------------------------------------------------------------------------


def _two_ages(rng: np.random.Generator) -> Iterator[Case]:
    for a in (0.0, 0.3, 0.55, float(rng.uniform(0.62, 0.72)), float(rng.uniform(0.78, 0.95))):
        L, eta = float(rng.uniform(0.5, 4)), float(rng.uniform(0.1, 0.9))
        x, real = eta * L, 2 * a - 1
        by_product, by_minus_one = 1 / (1 - a) / L, (2 / real if real > 0 else np.inf) / L
        turning = (1 - 2 * a) / (2 * (1 - a))
        right = {
            "polynomial": np.array([1, a * x - 1, (1 - a) * x]),
            "at_minus_one": 2 + x - 2 * a * x,
            "product": (1 - a) * x,
            "largest": min(by_product, by_minus_one),
            "swing": 2 * np.pi / np.arccos(turning) if turning > -1 else 2.0,
            "share": 0.75,
        }
        said = (
            ("This takes a for the share of the old gradient.", "polynomial", [1, (1 - a) * x - 1, a * x]),
            ("By this the curvature L makes no difference.", "polynomial", [1, a * eta - 1, (1 - a) * eta]),
            ("A term has changed sides and kept its sign.", "polynomial", [1, 1 - a * x, (a - 1) * x]),
            ("That is the limit of fresh gradients.", "largest", 2 / L),
            ("That is the limit where all of the gradient is one version old.", "largest", 1 / L),
            ("This mixes the limits of all fresh and all old; roots do not mix.", "largest", (1 + a) / L),
            ("The product of the roots is below 1 there, and yet one is outside.", "largest", by_product),
            ("No real root has left there, but a pair of others has.", "largest", by_minus_one),
            ("That is the swing of gradients that are all one version old.", "swing", 6.0),
            ("Look at both conditions at this share: only one of them binds.", "share", 0.5),
            ("At this share every gradient is fresh, and the old limit holds.", "share", 1.0),
        )
        yield Case((a, eta, L), steps(right), label=f"a = {a:.2f}, L = {L:.2f}", mistakes=slips(right, *said))


# -- 2: two schedules, the same ages ----------------------------------------------------------------------------------


def _schedules(rng: np.random.Generator) -> Iterator[Case]:
    for tau in (7, 3, int(rng.integers(9, 16))):
        eta_L, U = 2 * float(rng.uniform(1.1, 1.25)) / (tau + 1), 60 * (tau + 1)
        args = tau, eta_L, U
        yield Case(args, _schedules_judge(*args), label=f"tau = {tau}, eta L = {eta_L:.3f}")


def _schedules_judge(tau: int, eta_L: float, U: int) -> Judge:
    u = np.arange(U)

    def ages(read: Any, name: str) -> Array:
        same_array(read, np.zeros(U), name, atol=1e30)
        version = np.asarray(read, dtype=float)
        if (version != np.floor(version)).any() or (version < 0).any() or (version > u).any():
            raise Wrong(f"{name}: each update must read a version that is there, 0 <= read[u] <= u")
        if (u - version).max() != tau:
            raise Wrong(f"{name}: its oldest gradient is {(u - version).max():g} versions old, not tau")
        return u - version.astype(int)

    def end(tau_u: Array) -> float:
        w = [1.0]
        for i, t in enumerate(tau_u.tolist()):
            w.append(w[i] - eta_L * w[i - t])
        return max(map(abs, w[-U // 10 :]))

    def judge(answer: Any) -> None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong("return two lists, (calm, wild)")
        calm, wild = (ages(x, name) for x, name in zip(answer, ("calm", "wild"), strict=True))
        if calm.sum() != wild.sum():
            raise Wrong(f"they differ in mean staleness: {calm.mean():.3f} and {wild.mean():.3f}")
        if (np.sort(calm) != np.sort(wild)).any():
            raise Wrong("mean and maximum agree, but some age occurs more often in one than in the other")
        if end(calm) > 1e3 and end(wild) < 1e-3:
            raise Wrong("the first list is the one that grows, the second shrinks")
        if end(calm) > 1e-3:
            raise Wrong(f"calm does not shrink: |w| comes to {end(calm):.1g} in the last tenth")
        if end(wild) < 1e3:
            raise Wrong(f"wild does not explode: |w| is at most {end(wild):.1g} in the last tenth")

    return judge


# -- 3: no delay makes a difference -----------------------------------------------------------------------------------


def _stale_sgd(rng: np.random.Generator) -> Iterator[Case]:
    for i, delay in enumerate(("no", "constant", "random", "constant", "random")):
        aware, U, d = i > 2, int(rng.integers(12, 25)), int(rng.integers(2, 5))
        u = np.arange(U)
        tau = {"no": 0 * u, "constant": np.full(U, 3), "random": rng.integers(0, 6, size=U)}[delay]
        read = np.maximum(u - tau, 0)
        A, targets = rng.uniform(0.5, 1.5, d), rng.standard_normal((U, d))
        w0, eta = rng.standard_normal(d), float(rng.uniform(0.1, 0.3))

        def grad(w: Array, u: int, A: Array = A, targets: Array = targets) -> Array:
            if np.shape(w) != A.shape or np.ndim(u):  # it runs with the grader: nobody may make it large
                raise ValueError(f"w must have shape {A.shape} and u none, got {np.shape(w)}, {u!r:.40}")
            return A * (np.asarray(w) - targets[u])

        path = _walker(grad, w0, eta, read.tolist(), aware)
        same = path(at="newest")
        said = (
            ("Here the delay makes no difference: each gradient is taken at the newest w.", same),
            ("All versions are one and the same: the last.", np.tile(same[-1], (U + 1, 1))),
            ("The step starts at the version read, and loses what came since.", path(base="read")),
            ("A gradient one version old is taken for two versions old.", path(older=1)),
            ("Nobody asked to divide the steps here.", path(aware=True)),
            ("The steps are not divided, though this server minds the staleness.", path(aware=False)),
        )
        right = path()
        mistakes = tuple((text, _path(x)) for text, x in said if not np.allclose(x, right))
        label = f"{delay} delay" + (", aware of staleness" if aware else "")
        yield Case((grad, w0.copy(), eta, read.tolist(), aware), _path(right), label=label, mistakes=mistakes)


def _walker(grad: Callable, w0: Array, eta: float, read: list[int], aware: bool) -> Callable[..., Array]:
    """All versions of w, or, by its arguments, those that a mistake makes."""

    def path(base: str = "newest", at: str = "read", older: int = 0, aware: bool = aware) -> Array:
        w = [w0]
        for u, v in enumerate(read):
            version = {"newest": u, "read": v}
            divisor = max(1, u - v + older) if aware else 1
            w.append(w[version[base]] - eta / divisor * grad(w[version[at]], u))
        return np.array(w)

    return path


def _path(expected: Array) -> Judge:
    def judge(w: Any) -> None:
        same_array(w, expected, "w", atol=1e30)
        near = 2e-5 if np.asarray(w).dtype == np.float32 else 1e-9
        off = np.abs(np.asarray(w, dtype=float) - expected).max(axis=1) > near
        if off.any():
            first = int(off.argmax())
            raise Wrong(f"version {first} is wrong; those before it are right" if first else "w[0] is not w0")

    return judge


# -- 4: three policies, your clock ------------------------------------------------------------------------------------

SLOW = 3.0  # by how much the straggler is slower: in the notebook, too
WAYS = ("barrier", "backup", "none")


def _clock(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((), _clock_judge)


def _clock_judge(answer: Any) -> None:
    data = read_line(handed_in(answer), 3, 5)
    if set(data.at) != set(WAYS) or (data.values <= 0).any():
        raise Wrong(f"the data must be seconds of the settings {', '.join(map(repr, WAYS))}")
    barrier, backup, none = (data.values[data.at.index(way)] for way in WAYS)
    both = ((barrier, backup), (backup, none))
    pairs, lead = [evidence.median(x / y) for x, y in both], np.median(barrier / none)
    right: dict[str, Any] = {
        "ratios": np.array([pair.center for pair in pairs]),
        "intervals": np.array([[pair.low, pair.high] for pair in pairs]),
        "sooner": np.array([int(pair.low > 1) - int(pair.high < 1) for pair in pairs]),
        "even": SLOW / lead,
    }
    apart = [_apart(x, y) for x, y in both]
    loose = [[x.min() / y.max(), x.max() / y.min()] for x, y in both]
    follow(
        answer,
        right,
        ("'ratios' are the other way round: what is divided by what?", "ratios", 1 / right["ratios"]),
        ("'ratios' divide medians: what one round had in common no longer cancels", "ratios", apart),
        ("'intervals' pair the best of one way with the worst of another round", "intervals", loose),
        ("'sooner' goes by the middle, where the interval holds 1", "sooner", np.sign(right["ratios"] - 1)),
        ("'sooner' decides nothing, though an interval lies on one side of 1", "sooner", [0, 0]),
        ("'sooner' says the opposite of what the intervals say", "sooner", -right["sooner"]),
        ("'even' grows with the barrier's time: the proportion is upside down", "even", SLOW * lead),
        ("'even' divides medians: rounds are torn apart", "even", SLOW * _apart(none, barrier)),
        ("'even' is a share of today's slowness, and the slow worker is 3 times slower", "even", 1 / lead),
    )


# -- 5: one clock, drawn ----------------------------------------------------------------------------------------------


def _one_clock(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, fresh, stale in ((4, 12, 0.5, 0.12), (3, 9, 0.7, 0.2)):
        X = rng.uniform(0.008, 0.012, (K, T)) * (1 + 1.7 * (rng.random((K, T)) < 0.3))
        args = X, fresh, stale
        yield Case(args, _clock_drawn(_curves(*args)), label=f"K = {K}, T = {T}", mistakes=_misdrawn(*args))


def _descent(read: Array, eta: float) -> Array:
    """The loss w^2 / 2 at each version, from w = 1."""
    w = [1.0]
    for u, version in enumerate(read):
        w.append(w[u] - eta * w[version])
    return np.array(w) ** 2 / 2


def _curves(X: Array, fresh: float, stale: float) -> dict[str, tuple[Array, Array]]:
    """Of each policy: when there is a new version, in ms, and the loss."""
    every, out = np.arange(X.shape[1]), {}
    for name, policy in (("with the barrier", Synchronous()), ("with one backup", Synchronous(backups=1))):
        out[name] = np.append(0, 1e3 * policy.ends(X)), _descent(every, fresh)
    log = Asynchronous().updates(X)
    return out | {"without a barrier": (np.append(0, 1e3 * log.applied_s), _descent(log.read, stale))}


def _clock_drawn(curves: dict[str, tuple[Array, Array]]) -> Judge:
    def judge(answer: Any) -> None:
        axes = shown(answer)
        labelled(axes, "x", "ms")
        labelled(axes, "y")
        if axes["yscale"] != "log":
            raise Wrong("the y axis is not logarithmic: near the minimum all curves look alike")
        for name, (t, loss) in curves.items():
            curve(axes, t, loss, f"the loss {name} at the times of its updates")
        if not axes["legend"]:
            raise Wrong("there is no legend: which curve is which?")

    return judge


def _misdrawn(X: Array, fresh: float, stale: float) -> tuple[tuple[str, Judge], ...]:
    right = _curves(X, fresh, stale)
    (t, loss), (t_free, loss_free) = right["with the barrier"], right["without a barrier"]
    U = len(t_free) - 1
    said = (
        ("Without a barrier, this counts every gradient as fresh.", t_free, _descent(np.arange(U), stale)),
        ("Without a barrier, this takes the step that was chosen for fresh gradients.", t_free,
         _descent(Asynchronous().updates(X).read, fresh)),
        ("These are steps on the x axis, and no clock.", np.arange(U + 1.0), loss_free),
        ("These are seconds; the axis says ms.", t_free / 1e3, loss_free),
        ("Here a round with the barrier takes as long as a worker on average.",
         np.append(0, 1e3 * X.mean(axis=0).cumsum()), loss),
        ("Here workers meet once, at the end: each round's slowest is not waited for.",
         np.append(0, 1e3 * X.cumsum(axis=1).max(axis=0)), loss),
        ("Here the late worker is stopped and begins anew with all others; this one finishes first.",
         np.append(0, 1e3 * np.sort(X, axis=0)[-2].cumsum()), loss),
        ("A curve begins only after its first update.", t[1:], loss[1:]),
    )  # fmt: skip
    twice = "One curve is drawn twice: by it a backup saves no time.", partial(_has, t, loss, times=2)
    return twice, *((text, partial(_has, t, loss)) for text, t, loss in said)


def _has(t: Array, loss: Array, answer: Any, times: int = 1) -> None:
    for c in shown(answer)["curves"]:
        with suppress(Wrong):
            curve({"curves": [c]}, t, loss, "this")
            times -= 1
    if times > 0:
        raise Wrong("it has not")


# -- 6: tuned for one -------------------------------------------------------------------------------------------------


def _tuned(rng: np.random.Generator) -> Iterator[Case]:
    etas, at = 2.0 ** np.arange(-6, 1), np.arange(7)
    for barrier_at, free_at, price, n in ((5.0, 2.0, 0.8, 11), (6.5, 3.0, 1.0, 9), (4.0, -1.0, 1.3, 13)):
        args: Any = None
        while args is None or not _telling(args, even=n == 9, edge=n == 13):
            luck = np.exp(0.3 * rng.standard_normal((2, n, 7)))
            barrier, free = np.exp(0.2 * (at - barrier_at) ** 2), price * np.exp(0.2 * (at - free_at) ** 2)
            free[-1] = np.inf if barrier_at < 6 else free[-1]
            args = etas, barrier * luck[0], free * luck[1]
        yield Case(args, steps(_fair(args)), label=f"{n} seeds", mistakes=_unfair(args))


def _telling(args: Any, even: bool, edge: bool) -> bool:
    """Whether it matters which seeds choose, and that they do by a median; and a split and a rate of the kind asked for."""
    right, mean = _fair(args), tuple(_fair(args, by=np.mean)["rates"])
    own, others = tuple(right["rates"]), {tuple(_fair(args, of)["rates"]) for of in (slice(None), JUDGED)}
    finite, is_even, at_edge = np.isfinite(right["reported"]), right["chance"] == 1, right["edge"].any()
    return own != mean and not {own, mean} & others and finite and is_even == even and at_edge >= edge


def _fair(args: Any, chosen: slice = slice(3), judged: slice = JUDGED, by: Any = np.median) -> dict[str, Any]:
    etas, barrier, free = args
    b, f = (int(np.argmin(by(x[chosen], axis=0))) for x in (barrier, free))
    ratio = free[judged, f] / barrier[judged, b]
    return {
        "rates": etas[[b, f]],
        "reported": float(np.median(free[judged, b] / barrier[judged, b])),
        "fair": float(np.median(ratio)),
        "chance": min(1.0, 2 * _one_side(ratio)),
        "edge": np.isin([b, f], (0, len(etas) - 1)),
    }


def _one_side(ratio: Array) -> float:
    n, more = len(ratio), max((ratio < 1).sum(), (ratio > 1).sum())
    return sum(comb(n, i) for i in range(more, n + 1)) / 2**n


def _unfair(args: Any) -> tuple[tuple[str, Judge], ...]:
    etas, barrier, free = args
    right, again, seen = _fair(args), _fair(args, judged=slice(None)), _fair(args, slice(None))
    b, f = np.searchsorted(etas, right["rates"])
    ours, same, own = barrier[3:, b], free[3:, b], free[3:, f]
    best, one_side = np.median(free[3:].min(axis=1) / barrier[3:].min(axis=1)), _one_side(own / ours)
    return slips(
        right,
        ("These rates have seen the seeds that are to judge them.", "rates", seen["rates"]),
        ("These rates have seen the seeds that are to judge them.", "rates", _fair(args, JUDGED)["rates"]),
        ("In a mean one slow run decides.", "rates", _fair(args, by=np.mean)["rates"]),
        ("One rate for both: whose is it?", "rates", right["rates"][[0, 0]]),
        ("The seeds that chose the rate judge it, too.", "reported", again["reported"]),
        ("The report gave both the same rate; this does not.", "reported", right["fair"]),
        ("This is how many times as long the *barrier* takes.", "reported", np.median(ours / same)),
        ("Medians are divided: what a seed has in common stays in.", "reported", _apart(same, ours)),
        ("This has still one of them run with the other's rate.", "fair", right["reported"]),
        ("Here seeds that chose the rates judge them, too.", "fair", again["fair"]),
        ("A rate of its own for each seed: nobody knows it before.", "fair", best),
        ("This counts only the coins that favour who won; why not the other?", "chance", one_side),
        ("This counts some outcomes twice.", "chance", 2 * one_side),
    )


EXERCISES = (
    Exercise("10.6-1", "When an old gradient helps", "derive", 4, "two_ages", _two_ages, objectives=(1,)),
    Exercise("10.6-2", "The same ages, another end", "criticise", 4, "two_schedules", _schedules, (2,)),
    Exercise(
        "10.6-3", "No delay makes a difference", "debug", 3, "stale_sgd", _stale_sgd, (1, 2), (), REPLAY
    ),
    Exercise("10.6-4", "Three policies, your clock", "measure", 3, "", _clock, objectives=(3,)),
    Exercise("10.6-5", "One clock, drawn", "plot", 3, "one_clock", _one_clock, objectives=(3,)),
    Exercise("10.6-6", "Tuned for one", "criticise", 3, "second_tuning", _tuned, objectives=(3,)),
)
