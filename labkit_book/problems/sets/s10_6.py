"""Problem set 10.6: stale gradients, from the largest step to seconds on one clock.

Sources: Levin and May 1976 (delays), Jury's conditions for a quadratic, Zhang et al. 2016 (aware of staleness), Chen et al.
2016 (backup workers). Symbols: K workers, T steps, U updates, ``tau`` staleness in versions, w (d,), ``eta`` the learning
rate, L the largest curvature, a the share of fresh gradient. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit import evidence
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.sets import Array, Judge, as_if, derived, follow, pasted

# -- 1: when an old gradient helps ------------------------------------------------------------------------------------


def _two_ages(rng: np.random.Generator) -> Iterator[Case]:
    for a in (0.0, 0.3, 0.55, float(rng.uniform(0.62, 0.72)), float(rng.uniform(0.78, 0.95))):
        L, eta = float(rng.uniform(0.5, 4)), float(rng.uniform(0.1, 0.9))
        x, real = eta * L, 2 * a - 1
        by_product, by_minus_one = 1 / (1 - a) / L, (2 / real if real > 0 else np.inf) / L
        turning = (1 - 2 * a) / (2 * (1 - a))
        right = {"polynomial": np.array([1, a * x - 1, (1 - a) * x]), "at_minus_one": 2 + x - 2 * a * x}
        swing = 2 * np.pi / np.arccos(turning) if turning > -1 else 2.0
        right |= {"product": (1 - a) * x, "largest": min(by_product, by_minus_one), "swing": swing}
        right["share"] = 0.75
        yield derived(
            (a, eta, L), right, f"a = {a:.2f}, L = {L:.2f}",
            ("This takes a for the share of the old gradient.", "polynomial", [1, (1 - a) * x - 1, a * x]),
            ("A term has changed sides and kept its sign.", "polynomial", [1, 1 - a * x, (a - 1) * x]),
            ("That is the limit of fresh gradients.", "largest", 2 / L),
            ("This mixes the limits of all fresh and all old; roots do not mix.", "largest", (1 + a) / L),
            ("The product of the roots is below 1 there, and yet one is outside.", "largest", by_product),
            ("That is the swing of gradients that are all one version old.", "swing", 6.0),
            ("Look at both conditions at this share: only one of them binds.", "share", 0.5),
        )  # fmt: skip


# -- 2: two schedules, the same ages ----------------------------------------------------------------------------------


def _schedules(rng: np.random.Generator) -> Iterator[Case]:
    for tau in (7, 3, int(rng.integers(9, 16))):
        eta_L, U = 2 * float(rng.uniform(1.1, 1.25)) / (tau + 1), 60 * (tau + 1)
        args = tau, eta_L, U
        yield Case(args, _schedules_judge(*args), label=f"tau = {tau}, eta L = {eta_L:.3f}")


def _ages(read: Any, name: str, tau: int, U: int) -> Array:
    u = np.arange(U)
    same_array(read, np.zeros(U), name, atol=1e30)
    version = np.asarray(read, dtype=float)
    if (version != np.floor(version)).any() or (version < 0).any() or (version > u).any():
        raise Wrong(f"{name}: each update must read a version that is there, 0 <= read[u] <= u")
    if (u - version).max() != tau:
        raise Wrong(f"{name}: its oldest gradient is {(u - version).max():g} versions old, not tau")
    return u - version.astype(int)


def _schedules_judge(tau: int, eta_L: float, U: int) -> Judge:
    def end(tau_u: Array) -> float:
        w = [1.0]
        for i, t in enumerate(tau_u.tolist()):
            w.append(w[i] - eta_L * w[i - t])
        return max(map(abs, w[-U // 10 :]))

    def judge(answer: Any) -> None:
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong("return two lists, (calm, wild)")
        calm, wild = _ages(answer[0], "calm", tau, U), _ages(answer[1], "wild", tau, U)
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

        path = partial(_versions, grad, w0, eta, read.tolist(), aware=aware)
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
        mistakes = as_if(_path, *((text, x) for text, x in said if not np.allclose(x, right)))
        label = f"{delay} delay" + (", aware of staleness" if aware else "")
        args = grad, w0.copy(), eta, read.tolist(), aware
        yield Case(args, partial(_path, right), label=label, mistakes=mistakes)


def _versions(
    grad: Callable, w0: Array, eta: float, read: list[int], aware: bool,
    base: str = "newest", at: str = "read", older: int = 0,
) -> Array:  # fmt: skip
    """All versions of w, or, by the last three, those that a mistake makes."""
    w = [w0]
    for u, v in enumerate(read):
        version = {"newest": u, "read": v}
        divisor = max(1, u - v + older) if aware else 1
        w.append(w[version[base]] - eta / divisor * grad(w[version[at]], u))
    return np.array(w)


def _path(expected: Array, w: Any) -> None:
    same_array(w, expected, "w", atol=1e30)
    near = 2e-5 if np.asarray(w).dtype == np.float32 else 1e-9
    off = np.abs(np.asarray(w, dtype=float) - expected).max(axis=1) > near
    if off.any():
        first = int(off.argmax())
        raise Wrong(f"version {first} is wrong; those before it are right" if first else "w[0] is not w0")


# -- 4: three policies, your clock ------------------------------------------------------------------------------------

SLOW = 3.0  # by how much the straggler is slower: in the notebook, too


def _clock_judge(answer: Any) -> None:
    answer, v = pasted(answer, ("ratios", "intervals", "sooner", "even"), ("barrier", "backup", "none"), 5)
    barrier, backup, none = v["barrier"], v["backup"], v["none"]
    both = ((barrier, backup), (backup, none))
    lead, pairs = np.median(barrier / none), [evidence.median(x / y) for x, y in both]
    low, middle, high = np.array([(pair.low, pair.center, pair.high) for pair in pairs]).T
    right: dict[str, Any] = {"ratios": middle, "intervals": np.stack([low, high], axis=1)}
    right |= {"sooner": (low > 1).astype(int) - (high < 1), "even": SLOW / lead}
    apart = [np.median(x) / np.median(y) for x, y in both]
    loose = [[x.min() / y.max(), x.max() / y.min()] for x, y in both]
    follow(
        answer, right,
        ("'ratios' are the other way round: what is divided by what?", "ratios", 1 / middle),
        ("'ratios' divide medians: what one round had in common no longer cancels", "ratios", apart),
        ("'intervals' pair the best of one way with the worst of another round", "intervals", loose),
        ("'sooner' goes by the middle, where the interval holds 1", "sooner", np.sign(middle - 1)),
        ("'sooner' decides nothing, though an interval lies on one side of 1", "sooner", [0, 0]),
        ("'sooner' says the opposite of what the intervals say", "sooner", -right["sooner"]),
        ("'even' grows with the barrier's time: the proportion is upside down", "even", SLOW * lead),
        ("'even' divides medians: rounds are torn apart", "even", SLOW / apart[0] / apart[1]),
        ("'even' is a share of today's slowness, and the slow worker is 3 times slower", "even", 1 / lead),
        rtol=1e-3,
    )  # fmt: skip


EXERCISES = (
    Exercise("10.6-1", "When an old gradient helps", "derive", 4, "two_ages", _two_ages, (1,)),
    Exercise("10.6-2", "The same ages, another end", "criticise", 4, "two_schedules", _schedules, (2,)),
    Exercise("10.6-3", "No delay makes a difference", "debug", 3, "stale_sgd", _stale_sgd, (1, 2)),
    Exercise("10.6-4", "Three policies, your clock", "measure", 3, "", once(_clock_judge), (3,)),
)
