"""Problem set 10.6: stale gradients, from a timeline to the largest step, and what to do instead of waiting.

Sources: Ho et al. 2013 (SSP), Zhang et al. 2016 (staleness-aware steps), Levin and May 1976 (delays), McMahan et al. 2017
(local steps, weighted by examples), Chen et al. 2016 (backup workers). No solutions here.

Symbols: K workers, T steps, U updates, ``tau`` staleness in versions, s ``slack``, H local steps, ``backups``, w (d,),
``eta`` the learning rate. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import dealt, each_rank, talked, unequal, workers

Array = NDArray[Any]


# -- 10.6-1: staleness from a timeline --------------------------------------------------------------------------------


def _staleness(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, kind in (
        (1, 5, "one worker"),
        (2, 4, "workers alike"),
        (4, 12, "workers alike"),
        (3, 20, "one of them very slow"),
        (5, 15, "with waits between the steps"),
    ):
        X = rng.exponential(1.0, (K, T)) + 0.05
        if kind.startswith("one of"):
            X[rng.integers(K)] *= 12
        waits = rng.uniform(0, 0.5, (K, T)) * (kind.startswith("with"))
        end = np.cumsum(X + waits, axis=1)
        start = end - X
        start[:, 1:] = np.where(waits[:, 1:] > 0, start[:, 1:], end[:, :-1])
        yield Case((start, end), _ages(start, end), label=f"K = {K}, T = {T}, {kind}")


def _ages(start: Array, end: Array) -> Callable[[Any], None]:
    applied = end.ravel()
    pairs = zip(start.ravel(), end.ravel(), strict=True)
    expected = np.array([((applied > s) & (applied < e)).sum() for s, e in pairs]).reshape(end.shape)

    def judge(tau: Any) -> None:
        same_array(tau, expected, "tau", atol=1e30)  # the shape, and that all is finite
        off = np.asarray(tau, dtype=float) - expected
        if off.any():
            k, t = (int(i) for i in np.argwhere(off)[0])
            way = "large: it counts updates that were not in between" if off[k, t] > 0 else "small"
            raise Wrong(
                f"tau is wrong in {int((off != 0).sum())} of {off.size} places; tau[{k}, {t}] is too {way}"
            )

    return judge


# -- 10.6-2: who may go -----------------------------------------------------------------------------------------------


def _may_go(rng: np.random.Generator) -> Iterator[Case]:
    yield Case(([3, 3, 2, 3], [0, 1, 3], 0), _goes([]), label="s = 0, and one has not arrived")
    yield Case(([3, 3, 3], [0, 1, 2], 0), _goes([0, 1, 2]), label="s = 0, and all are there")
    yield Case(([5], [0], 0), _goes([0]), label="K = 1 worker")
    yield Case(([4, 9, 6], [], 2), _goes([]), label="nobody waits")
    for slack in (1, 2, 4):
        K = int(rng.integers(4, 9))
        finished = rng.integers(10, 11 + slack + 1, size=K)
        finished[rng.integers(K)] = 10
        waiting = sorted(rng.permutation(K)[: K - 1].tolist())
        slowest = int(finished.min())
        yield Case(
            (finished.tolist(), waiting, slack),
            _goes([k for k in waiting if finished[k] - slowest <= slack]),
            label=f"K = {K}, s = {slack}",
        )


def _goes(expected: list[int]) -> Callable[[Any], None]:
    def judge(given: Any) -> None:
        if not isinstance(given, list | tuple | set | np.ndarray):
            raise Wrong("return a list of ranks")
        ranks = [int(number(k, "a rank")) for k in given]
        if len(set(ranks)) < len(ranks):
            raise Wrong(f"a rank stands twice in {ranks}")
        for k in sorted(set(ranks) ^ set(expected)):
            raise Wrong(f"rank {k} {'may not go yet' if k in ranks else 'is kept waiting, but may go'}")

    return judge


# -- 10.6-3: SGD along a schedule -------------------------------------------------------------------------------------


def _stale_sgd(rng: np.random.Generator) -> Iterator[Case]:
    for delay, aware in (
        ("no", False),
        ("constant", False),
        ("random", False),
        ("constant", True),
        ("random", True),
    ):
        U, d = int(rng.integers(12, 25)), int(rng.integers(2, 5))
        u = np.arange(U)
        tau = {"no": 0 * u, "constant": np.full(U, 3), "random": rng.integers(0, 6, size=U)}[delay]
        read = np.maximum(u - tau, 0)
        A, targets = rng.uniform(0.5, 1.5, d), rng.standard_normal((U, d))
        w0, eta = rng.standard_normal(d), float(rng.uniform(0.1, 0.3))

        def grad(w: Array, u: int, A: Array = A, targets: Array = targets) -> Array:
            if np.shape(w) != A.shape or np.ndim(u):  # it runs with the grader: nobody may make it large
                raise ValueError(
                    f"w must have shape {A.shape} and u be one number, got {np.shape(w)} and {u!r:.40}"
                )
            return A * (np.asarray(w) - targets[u])

        w = [w0]
        for i in range(U):
            step = eta / max(1, i - read[i]) if aware else eta
            w.append(w[i] - step * grad(w[read[i]], i))
        label = f"{delay} delay" + (", aware of staleness" if aware else "")
        yield Case((grad, w0.copy(), eta, read.tolist(), aware), _path(np.array(w)), label=label)


def _path(expected: Array) -> Callable[[Any], None]:
    def judge(w: Any) -> None:
        same_array(w, expected, "w", atol=1e30)
        off = np.abs(np.asarray(w, dtype=float) - expected).max(axis=1) > 1e-9
        if off.any():
            first = int(off.argmax())
            raise Wrong(
                "w[0] should be w0"
                if first == 0
                else f"version {first} is wrong; the versions before it are right"
            )

    return judge


# -- 10.6-4: the largest step for two delays --------------------------------------------------------------------------


def _largest_step(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((0, 0, 1.0), _frontier(0, 0, 1.0), label="no delay at all")
    yield Case((4, 4, 0.5), _frontier(4, 4, 0.5), label="p = q = 4, where the lab knows the answer")
    yield Case((0, 30, 0.9), _frontier(0, 30, 0.9), label="p = 0, q = 30, a = 0.9")
    for p, q in ((1, 7), (3, 20)):
        a = round(float(rng.uniform(0.3, 0.8)), 2)
        yield Case((p, q, a), _frontier(p, q, a), label=f"p = {p}, q = {q}, a = {a}")


def _radius(p: int, q: int, a: float, eta: float) -> float:
    n = max(p, q) + 1
    coefficients = np.zeros(n + 1)
    coefficients[:2] = 1.0, -1.0
    coefficients[1 + p] += eta * a
    coefficients[1 + q] += eta * (1 - a)
    return float(np.abs(np.roots(coefficients)).max())


def _frontier(p: int, q: int, a: float) -> Callable[[Any], None]:
    def judge(eta: Any) -> None:
        value = number(eta, "eta")
        if value <= 0:
            raise Wrong(f"eta should be positive, but is {value:.6g}")
        low = max(_radius(p, q, a, 0.998 * value * share) for share in (1.0, 0.93, 0.8, 0.6, 0.4, 0.2))
        if low >= 1:
            raise Wrong(
                f"a step 0.2 % below {value:.6g}, or a much smaller one, does not converge: eta is too large"
            )
        if _radius(p, q, a, 1.002 * value) < 1:
            raise Wrong(f"a step 0.2 % above {value:.6g} still converges: eta is too small")

    return judge


# -- 10.6-5: one round of local steps ---------------------------------------------------------------------------------


def _local_round(rng: np.random.Generator) -> Iterator[Case]:
    for K, H, empty in ((1, 3, False), (2, 1, False), (3, 4, False), (4, 3, True), (5, 8, False)):
        d = int(rng.integers(3, 7))
        sizes = unequal(rng, K, 5, (4, 8), empty)
        X, y = rng.standard_normal((sizes.sum(), d)), rng.standard_normal(sizes.sum())
        w, eta = rng.standard_normal(d), float(rng.uniform(0.02, 0.1))
        shards = dealt(X, y, sizes)
        expected = np.zeros(d)
        for Xk, yk in shards:
            own = w
            for _ in range(H if len(yk) else 0):
                own = own - eta * 2 * Xk.T @ (Xk @ own - yk) / len(yk)
            expected += len(yk) / len(y) * own
        args = tuple((Xk, yk, w.copy(), eta, H) for Xk, yk in shards)
        label = f"with {workers(K)}, H = {H}" + (", one of them without a row" if empty else "")
        yield Case(args, _round_judge(expected, K, d), K, label)


def _round_judge(expected: Array, K: int, d: int) -> Callable[[Run], None]:
    def judge(run: Run) -> None:
        talked(run, 8 * max(2 * (K - 1), 1) * (d + 1), "2 (K - 1) (d + 1) numbers of 8 bytes each")
        each_rank(run, expected, "w after the round")

    return judge


# -- 10.6-6: how many backups -----------------------------------------------------------------------------------------


def _backups(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, always_slow, heavy, comm_s, serial, parallel in (
        (8, 60, 1, False, 0.002, 100, 800),
        (8, 60, 0, False, 0.002, 100, 3000),
        (12, 80, 0, True, 0.010, 300, 600),
        (6, 40, 0, False, 0.500, 20, 400),
        (10, 80, 2, False, 0.0, 50, 2000),
        (1, 10, 0, False, 0.001, 50, 50),
    ):
        X = 0.01 * (1 + rng.pareto(1.6, (K, T))) if heavy else rng.uniform(0.009, 0.011, (K, T))
        X[rng.permutation(K)[:always_slow]] *= 4
        who = "a heavy tail" if heavy else f"{always_slow} always slow"
        label = f"K = {K}, {who}, comm_s = {comm_s}, serial = {serial}, parallel = {parallel}"
        args = X, comm_s, serial, parallel
        yield Case(args, _chosen(*args), label=label)


def _chosen(X: Array, comm_s: float, serial: float, parallel: float) -> Callable[[Any], None]:
    K = len(X)
    rounds_s = np.sort(X, axis=0).mean(axis=1) + comm_s  # entry m - 1: the first m gradients are enough
    total_s = (serial + parallel / np.arange(1, K + 1)) * rounds_s

    def judge(given: Any) -> None:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong("return two things, (backups, seconds)")
        b = number(given[0], "backups")
        if b not in range(K):
            raise Wrong(f"backups should be a whole number from 0 to K - 1 = {K - 1}, but is {given[0]!r}")
        if int(b) != K - 1 - int(np.argmin(total_s)):
            raise Wrong(f"{int(b)} backups are not the best choice")
        close(given[1], float(total_s.min()), "seconds")

    return judge


EXERCISES = (
    Exercise("10.6-1", "Staleness from a timeline", "build", 2, "staleness", _staleness, objectives=(2,)),
    Exercise("10.6-2", "Who may go", "build", 2, "may_go", _may_go, objectives=(3,)),
    Exercise(
        "10.6-3",
        "SGD along a schedule",
        "build",
        3,
        "stale_sgd",
        _stale_sgd,
        objectives=(1, 2),
        withheld=("labkit.learn.replay",),
    ),
    Exercise(
        "10.6-4",
        "The largest step for two delays",
        "build",
        4,
        "largest_step",
        _largest_step,
        objectives=(1,),
    ),
    Exercise(
        "10.6-5",
        "One round of local steps",
        "build",
        4,
        "local_round",
        _local_round,
        objectives=(3,),
        withheld=("labkit.learn.local_sgd",),
    ),
    Exercise("10.6-6", "How many backups", "build", 3, "best_backups", _backups, objectives=(3,)),
)
