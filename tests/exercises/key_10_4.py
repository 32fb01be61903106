"""Key of problem set 10.4: solutions, and the mistakes that students make."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np

from labkit.comm.simulated import Simulated
from labkit.exercises import Case
from labkit.exercises.sets.s10_4 import FREE, _exact_judge, _leash_judge
from labkit.timing import Trace

# -- 1 ----------------------------------------------------------------------------------------------------------------


def throughput(times):
    rates = 1 / times
    return len(times) / times.max(), rates.sum(), rates.min() / rates.sum()


# -- 2 ----------------------------------------------------------------------------------------------------------------


def staleness(who, K, start=0, read=1):
    last, tau = [start] * K, []
    for u, k in enumerate(who):
        tau.append(u - last[k])
        last[k] = u + read
    return np.array(tau)


# -- 3 ----------------------------------------------------------------------------------------------------------------


def lost_updates(events, cells):
    memory, held, stores = np.zeros(cells, int), {}, np.zeros(cells, int)
    for worker, op, cell in events:
        if op == "load":
            held[worker] = memory[cell]
        else:
            memory[cell] = held[worker] + 1
            stores[cell] += 1
    return memory, stores - memory


def one_register(events, cells):
    return lost_updates([(0, op, cell) for _, op, cell in events], cells)


def atomic(events, cells):
    stores = np.bincount([c for _, op, c in events if op == "store"], minlength=cells)
    return stores, np.zeros(cells, int)


def one_cell(events, cells):
    return lost_updates([(k, op, 0) for k, op, _ in events], cells)


def lost_in_all(events, cells):
    memory, lost = lost_updates(events, cells)
    return memory, lost.sum()


def what_is_left(events, cells):
    return lost_updates(events, cells)[::-1]


def counts_overlaps(events, cells):
    """An update is lost if anyone else stored between its load and its store: counts the loser's meetings."""
    memory, seen, lost = lost_updates(events, cells)[0], {}, np.zeros(cells, int)
    version = Counter()
    for k, op, c in events:
        if op == "load":
            seen[k] = version[c]
        else:
            lost[c] += version[c] > seen[k]
            version[c] += 1
    return memory, lost


# -- 4 ----------------------------------------------------------------------------------------------------------------


def push_pull(comm, w0, target, eta, T, scale=lambda tau: 1 / (1 + tau), read=1, turns=False, fresh=True):
    w = w0.copy()
    if comm.rank:
        for _ in comm.steps(T):
            comm.compute()
            comm.send(w - target, 0)
            answer = comm.recv(np.empty_like(w), 0)
            w = answer if fresh else w
        return w
    K, g, taus = comm.K - 1, np.empty_like(w), []
    last = [0] * K
    for u in range(K * T):
        worker = comm.recv_any(g) - 1 if not turns else u % K
        if turns:
            comm.recv(g, worker + 1)
        taus.append(u - last[worker])
        w = w - eta * scale(taus[-1]) * g
        last[worker] = u + read
        comm.send(w, worker + 1)
    return w, taus


def answers_with_the_old_w(comm, w0, target, eta, T):
    if comm.rank:
        return push_pull(comm, w0, target, eta, T)
    w, g, K, taus = w0.copy(), np.empty_like(w0), comm.K - 1, []
    last = [0] * K
    for u in range(K * T):
        worker = comm.recv_any(g) - 1
        taus.append(u - last[worker])
        last[worker] = u + 1
        comm.send(w, worker + 1)
        w = w - eta / (1 + taus[-1]) * g
    return w, taus


def one_answer_short(comm, w0, target, eta, T):
    return push_pull(comm, w0, target, eta, T if comm.rank else T - 1)


def waits_for_all(comm, w0, target, eta, T):
    if comm.rank:
        return push_pull(comm, w0, target, eta, T)
    w, g, K, taus = w0.copy(), np.empty_like(w0), comm.K - 1, []
    for _ in range(T):
        for j in range(K):
            worker = comm.recv_any(g)
            w = w - eta / (1 + j) * g
            taus.append(j)
        for worker in range(1, K + 1):
            comm.send(w, worker)
    return w, taus


# -- 5 ----------------------------------------------------------------------------------------------------------------


def worker(comm, T):
    done, go = [], np.empty(1)
    for t in comm.steps(T):
        comm.compute()
        done.append(comm.now())
        comm.send(np.array([float(t)]), 0)
        comm.recv(go, 0)
    return done


def leash(comm, T, slack, slowest=min, off=0, only=False, strict=False):
    if comm.rank:
        return worker(comm, T)
    K, tick = comm.K - 1, np.empty(1)
    finished, waiting = [0] * K, []
    for _ in range(K * T):
        k = comm.recv_any(tick) - 1
        finished[k] += 1
        waiting.append(k)
        bound = slowest(finished) + slack + off
        free = [j for j in waiting if finished[j] < bound or (not strict and finished[j] == bound)]
        if all(f == T for f in finished):
            free = list(waiting)
        for j in free if not only else [j for j in free if j == k]:
            waiting.remove(j)
            comm.send(tick, j + 1)
    return None


def everyone_at_once(comm, T, slack):
    """Answers all when the slowest has moved, however far ahead they are."""
    if comm.rank:
        return worker(comm, T)
    K, tick = comm.K - 1, np.empty(1)
    finished, waiting = [0] * K, []
    for _ in range(K * T):
        k = comm.recv_any(tick) - 1
        before = min(finished)
        finished[k] += 1
        waiting.append(k)
        if min(finished) > before or finished[k] - min(finished) <= slack:
            for j in waiting:
                comm.send(tick, j + 1)
            waiting = []
    return None


def chatty(comm, T, slack):
    """Tells worker 0 everything twice."""
    if comm.rank:
        if comm.rank == 1:
            for _ in range(T):
                comm.send(np.zeros(1), 0)
        return worker(comm, T)
    for _ in range(T):
        comm.recv(np.empty(1), 1)
    return leash(comm, T, slack)


# -- 6 ----------------------------------------------------------------------------------------------------------------


def downpour_books(K, T, n_push, n_fetch, P, itemsize):
    pushes, pulls = -(-T // n_push), -(-T // n_fetch)
    return pushes, pulls, (T - 1) % n_push, K * (pushes + pulls) * P * itemsize


def rounded_down(K, T, n_push, n_fetch, P, itemsize):
    pushes, pulls = T // n_push, T // n_fetch
    return pushes, pulls, T % n_push, K * (pushes + pulls) * P * itemsize


def changed(i, how):
    def f(*q):
        answer = list(downpour_books(*q))
        answer[i] = how(*q)
        return tuple(answer)

    return f


SOLUTIONS = {
    "10.4-1": throughput,
    "10.4-2": staleness,
    "10.4-3": lost_updates,
    "10.4-4": push_pull,
    "10.4-5": leash,
    "10.4-6": downpour_books,
}

MUTANTS = {
    "10.4-1": [
        lambda times: throughput(times)[1::-1] + throughput(times)[2:],
        lambda times: (1 / times.max(), *throughput(times)[1:]),
        lambda times: (throughput(times)[0], len(times) / times.mean(), throughput(times)[2]),
        lambda times: (throughput(times)[0], 1 / times.mean(), throughput(times)[2]),
        lambda times: (*throughput(times)[:2], 1 / len(times)),
        lambda times: (*throughput(times)[:2], times.max() / times.sum()),
        lambda times: throughput(times)[:2],
    ],
    "10.4-2": [
        partial(staleness, read=0),
        partial(staleness, start=1),
        partial(staleness, start=-1),
        lambda who, K: np.full(len(who), K - 1),
        lambda who, K: staleness(who, K) + 1,
        lambda who, K: staleness(who, K).mean(),
        lambda who, K: np.bincount(staleness(who, K)),
    ],
    "10.4-3": [one_register, atomic, one_cell, lost_in_all, what_is_left, counts_overlaps],
    "10.4-4": [
        partial(push_pull, scale=lambda tau: 1.0),
        partial(push_pull, scale=lambda tau: 1 / max(1, tau)),
        partial(push_pull, scale=lambda tau: -1 / (1 + tau)),
        partial(push_pull, read=0),
        partial(push_pull, turns=True),
        partial(push_pull, fresh=False),
        answers_with_the_old_w,
        one_answer_short,
        waits_for_all,
        lambda *q: push_pull(*q)[0] if q[0].rank == 0 else push_pull(*q),
    ],
    "10.4-5": [
        partial(leash, slowest=max),
        partial(leash, off=1),
        partial(leash, off=-1),
        partial(leash, strict=True),
        partial(leash, only=True),
        lambda comm, T, slack: leash(comm, T, 10 * T),
        lambda comm, T, slack: leash(comm, T, 0),
        everyone_at_once,
        chatty,
    ],
    "10.4-6": [
        rounded_down,
        changed(0, lambda K, T, n_push, *q: T // n_push),
        changed(1, lambda K, T, n_push, n_fetch, *q: T // n_fetch),
        changed(1, lambda K, T, *q: T),
        changed(2, lambda *q: 0),
        changed(2, lambda K, T, n_push, *q: T % n_push),
        changed(3, lambda *q: downpour_books(*q)[3] // q[0]),
        changed(3, lambda *q: downpour_books(*q)[3] // q[5]),
        changed(3, lambda *q: downpour_books(*q)[3] * 8),
    ],
}


def long_guest_book(rng):
    who = rng.integers(9, size=2000)
    tau = [u - next((v + 1 for v in range(u - 1, -1, -1) if who[v] == who[u]), 0) for u in range(len(who))]
    yield Case((who, 9), _exact_judge(np.array(tau), "the staleness"), label="hidden, a long one")


def more_workers(rng):
    K, T, slack = 6, 20, 3
    times = rng.uniform(0.01, 0.05, size=(K, T))
    world = Simulated(FREE, Trace(np.vstack([np.zeros(T), times])))
    yield Case(((T, slack),) * (K + 1), _leash_judge(times, slack), K + 1, "hidden, K = 6", world)


HIDDEN = {"10.4-2": long_guest_book, "10.4-5": more_workers}
