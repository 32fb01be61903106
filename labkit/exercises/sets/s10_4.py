"""Problem set 10.4: asynchronous SGD.

The judges compute what is right from the questions: rates of workers that don't wait (Dean et al. 2012), the versions that
the asynchronous and the SSP recurrences say were there (Ho et al. 2013), a memory with loads and stores (Recht et al. 2011).
No solutions here.

Symbols: K workers (ranks 1 to K; rank 0 is the server), T steps, w (d,), ``tau`` staleness, ``eta`` the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit.comm.simulated import Simulated
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.exercises.sets import workers
from labkit.network.link import Link
from labkit.timing import Asynchronous, StaleSynchronous, Trace

Array = NDArray[Any]
FREE = Link(alpha=0.0, beta=1e30)


def _parts(answer: Any, names: tuple[str, ...]) -> tuple:
    if not isinstance(answer, (tuple, list)) or len(answer) != len(names):
        raise Wrong(f"return {len(names)} things, ({', '.join(names)})")
    return tuple(answer)


def _whole(answer: Any, expected: int, what: str) -> None:
    value = number(answer, what)
    if value != int(value):
        raise Wrong(f"{what} should be a whole number, but is {value:g}")
    if value != expected:
        raise Wrong(f"{what} is too {'large' if value > expected else 'small'}: {int(value)}")


# -- 1: throughput ----------------------------------------------------------------------------------------------------


def _throughput(rng: np.random.Generator) -> Iterator[Case]:
    for label, times in (
        ("four equal workers", np.full(4, 0.02)),
        ("one straggler", np.array([0.01, 0.01, 0.01, 0.07])),
        ("with K = 1 worker", rng.uniform(0.01, 0.1, 1)),
        ("all different", rng.uniform(0.01, 0.1, int(rng.integers(5, 12)))),
        ("many workers", rng.uniform(0.1, 2.0, 300)),
    ):
        slowest, all_of_them = times.max(), float((1 / times).sum())
        rates = len(times) / slowest, all_of_them, 1 / slowest / all_of_them
        yield Case((times,), _rates_judge(rates), label=label)


def _rates_judge(expected: tuple[float, ...]) -> Any:
    def judge(answer: Any) -> None:
        names = ("with_barrier", "without", "share")
        for value, right, name in zip(_parts(answer, names), expected, names, strict=True):
            close(value, right, name)

    return judge


# -- 2: staleness from the order of arrival ---------------------------------------------------------------------------


def _staleness(rng: np.random.Generator) -> Iterator[Case]:
    turns = np.tile(np.arange(4), 5)
    straggler = np.array([0, 1, 0, 1, 0, 1, 0, 1, 2, 0, 1, 0, 1, 0, 1, 0, 1, 2])
    for label, who, K in (
        ("four workers taking turns", turns, 4),
        ("with a straggler", straggler, 3),
        ("with K = 1 worker", np.zeros(6, dtype=int), 1),
        ("in random order", rng.integers(5, size=60), 5),
        ("where one worker never comes", rng.integers(1, 4, size=20), 4),
    ):
        last, tau = [0] * K, []
        for u, k in enumerate(who.tolist()):
            tau.append(u - last[k])
            last[k] = u + 1
        yield Case((who, K), _exact_judge(np.array(tau), "the staleness"), label=label)


def _exact_judge(expected: Array, what: str) -> Any:
    def judge(answer: Any) -> None:
        same_array(answer, expected, what, rtol=0, atol=1e-9)

    return judge


# -- 3: lost updates --------------------------------------------------------------------------------------------------


def _lost(rng: np.random.Generator) -> Iterator[Case]:
    yield _trace_case([(0, "load", 0), (1, "load", 0), (0, "store", 0), (1, "store", 0)], 1, "two that meet")
    yield _trace_case(
        [(0, "load", 0), (0, "store", 0), (1, "load", 0), (1, "store", 0)], 1, "two that do not"
    )
    yield _trace_case([(0, "load", 0), (1, "load", 1), (0, "store", 0), (1, "store", 1)], 2, "two cells")
    sleeper = (
        [(0, "load", 0)] + [(1, op, 0) for _ in range(6) for op in ("load", "store")] + [(0, "store", 0)]
    )
    yield _trace_case(sleeper, 1, "one is suspended in the middle")
    for cells, K in ((1, 3), (4, 3), (20, 4)):
        busy: dict[int, int] = {}
        events: list[tuple[int, str, int]] = []
        for k in rng.integers(K, size=120).tolist():
            if k in busy:
                events.append((k, "store", busy.pop(k)))
            else:
                busy[k] = int(rng.integers(cells))
                events.append((k, "load", busy[k]))
        events += [(k, "store", c) for k, c in busy.items()]
        yield _trace_case(events, cells, f"{K} workers, {cells} cell{'s' * (cells > 1)}")


def _trace_case(events: list[tuple[int, str, int]], cells: int, label: str) -> Case:
    memory, held, stores = np.zeros(cells, dtype=int), {}, np.zeros(cells, dtype=int)
    for worker, op, cell in events:
        if op == "load":
            held[worker] = memory[cell]
        else:
            memory[cell] = held[worker] + 1
            stores[cell] += 1

    def judge(answer: Any) -> None:
        values, lost = _parts(answer, ("values", "lost"))
        same_array(values, memory, "values", rtol=0)
        same_array(lost, stores - memory, "lost", rtol=0)

    return Case((events, cells), judge, label=label)


# -- 4: a server that minds the staleness -----------------------------------------------------------------------------


def _push_pull(rng: np.random.Generator) -> Iterator[Case]:
    for K, slow in ((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (3, 6.0)):
        T, d, eta = int(rng.integers(3, 8)), int(rng.integers(2, 6)), float(rng.uniform(0.1, 0.4))
        times = rng.uniform(0.01, 0.02, size=(K, T))
        times[-1] *= slow
        w0, targets = rng.standard_normal(d), rng.standard_normal((K, d))
        args = ((w0, None, eta, T), *((w0, target, eta, T) for target in targets))
        world = Simulated(FREE, Trace(np.vstack([np.zeros(T), times])))
        label = f"with {workers(K)}" + (", one of them slow" if slow > 1 else "")
        yield Case(args, _server_judge(w0, targets, eta, times), K + 1, label, world)


def _server_judge(w0: Array, targets: Array, eta: float, times: Array) -> Any:
    K, T = times.shape
    log, versions, last = Asynchronous().updates(times), [w0], dict[int, int]()
    for u, (k, read) in enumerate(zip(log.rank.tolist(), log.read.tolist(), strict=True)):
        versions.append(versions[-1] - eta / (1 + u - read) * (versions[read] - targets[k]))
        last[k] = u + 1

    def judge(run: Run) -> None:
        most = 8 * T * (len(w0) + 2)
        for rank, nbytes in enumerate(run.bytes_sent):
            if nbytes > most * (1 if rank else K):
                raise Wrong(f"rank {rank} sent {int(nbytes)} bytes; d numbers a step each way are enough")
            if nbytes == 0:
                raise Wrong(f"no bytes were sent by rank {rank}: who pushes, and who answers?")
        w, tau = _parts(run.results[0], ("w", "taus"))
        same_array(tau, log.tau, "taus (of the server)", rtol=0)
        same_array(w, versions[-1], "w (of the server)", rtol=1e-9, atol=1e-12)
        for k in range(K):
            what = f"what worker {k} pulled last"
            same_array(run.results[k + 1], versions[last[k]], what, rtol=1e-9, atol=1e-12)

    return judge


# -- 5: the leash -----------------------------------------------------------------------------------------------------


def _leash(rng: np.random.Generator) -> Iterator[Case]:
    for K, slack in ((1, 0), (2, 0), (3, 1), (4, 0), (4, 2), (3, 50)):
        T = int(rng.integers(8, 14))
        times = rng.uniform(0.01, 0.02, size=(K, T)) + 0.05 * (rng.random((K, T)) < 0.25)
        times[rng.integers(K)] *= 2 if K > 1 else 1
        world = Simulated(FREE, Trace(np.vstack([np.zeros(T), times])))
        label = f"with {workers(K)}, slack = {slack}"
        yield Case(((T, slack),) * (K + 1), _leash_judge(times, slack), K + 1, label, world)


def _leash_judge(times: Array, slack: int) -> Any:
    K, T = times.shape
    expected = StaleSynchronous(slack).timeline(times).arrivals_s

    def judge(run: Run) -> None:
        for k in range(K):
            done = run.results[k + 1]
            if np.shape(done) != (T,):
                raise Wrong(f"worker {k} should return the {T} times at which it had computed its steps")
            off = np.asarray(done, dtype=float) - expected[k]
            if (np.abs(off) > 1e-9).any():
                t = int(np.argmax(np.abs(off) > 1e-9))
                way = (
                    "late: it was held back, though it need not be"
                    if off[t] > 0
                    else "early: it was not held back"
                )
                raise Wrong(f"worker {k} finished step {t} too {way}")
        if run.messages_sent[0] != K * T or (run.messages_sent[1:] != T).any():
            raise Wrong(
                f"one message a step each way is enough, but the ranks sent {run.messages_sent.tolist()}"
            )

    return judge


# -- 6: Downpour's books ----------------------------------------------------------------------------------------------


def _downpour(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, n_push, n_fetch, P, itemsize in (
        (4, 10, 1, 1, 1000, 4),
        (1, 10, 5, 1, 1000, 4),
        (8, 100, 7, 3, 10**6, 2),
        (2, 1, 10, 10, 50, 8),
        (3, 12, 4, 6, 500, 4),
        tuple(int(x) for x in rng.integers([2, 50, 2, 2, 100, 1], [9, 300, 20, 20, 10**5, 9])),
    ):
        pushed_in = [t for t in range(T) if t % n_push == 0]
        pulls, left = sum(t % n_fetch == 0 for t in range(T)), T - 1 - pushed_in[-1]
        expected = len(pushed_in), pulls, left, K * (len(pushed_in) + pulls) * P * itemsize
        label = f"K = {K}, T = {T}, n_push = {n_push}, n_fetch = {n_fetch}, P = {P}, {itemsize} bytes each"
        yield Case((K, T, n_push, n_fetch, P, itemsize), _books_judge(expected), label=label)


def _books_judge(expected: tuple[int, ...]) -> Any:
    def judge(answer: Any) -> None:
        names = ("pushes", "pulls", "left", "server_bytes")
        for value, right, name in zip(_parts(answer, names), expected, names, strict=True):
            _whole(value, right, name)

    return judge


EXERCISES = (
    Exercise("10.4-1", "With and without a barrier", "build", 2, "throughput", _throughput, objectives=(1,)),
    Exercise("10.4-2", "Staleness from the guest book", "build", 3, "staleness", _staleness, objectives=(2,)),
    Exercise("10.4-3", "Count the lost updates", "build", 2, "lost_updates", _lost, objectives=(4,)),
    Exercise(
        "10.4-4",
        "A server that minds the staleness",
        "build",
        4,
        "push_pull",
        _push_pull,
        objectives=(2, 3),
        withheld=("labkit.learn.serve", "labkit.learn.work", "labkit.learn.parameter_server"),
    ),
    Exercise(
        "10.4-5",
        "The leash",
        "build",
        4,
        "leash",
        _leash,
        objectives=(1,),
        withheld=("labkit.learn.serve", "labkit.learn.work", "labkit.learn.parameter_server"),
    ),
    Exercise("10.4-6", "Downpour's books", "build", 3, "downpour_books", _downpour, objectives=(3,)),
)
