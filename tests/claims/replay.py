"""Queues, paces and rings in plain loops, without labkit: what several oracles of the book count with."""

import heapq
import itertools


def turns(K, draw, n, server_s=0.0):
    """n gradients of K workers without a barrier, at a server that takes each for ``server_s``, first come first served.

    draw(k): worker k's next time. Yields (worker, version that it had read, when its gradient is in).
    """
    queue, read, free = [(draw(k), k) for k in range(K)], [0] * K, 0.0
    heapq.heapify(queue)
    for version in range(n):
        came, k = heapq.heappop(queue)
        free = max(free, came) + server_s
        yield k, read[k], free
        read[k] = version + 1
        heapq.heappush(queue, (free + draw(k), k))


def paced(K, T, seconds, may):
    """T steps of K workers, seconds(k, t) each, where one may start step t if may(t, steps that all have completed).

    Yields (worker, step, gradients that were there when it began, when it ended), until all is done or nobody may go on.
    """
    done, running, idle, clock, version = [0] * K, [], set(range(K)), 0.0, 0
    while True:
        for k in sorted(idle):
            if done[k] < T and may(done[k], min(done)):
                idle.remove(k)
                heapq.heappush(running, (clock + seconds(k, done[k]), k, version))
        if not running:
            return
        clock, k, began = heapq.heappop(running)
        yield k, done[k], began, clock
        done[k], version = done[k] + 1, version + 1
        idle.add(k)


def around(K):
    """Rounds in which worker k passes chunk k - round to the right until all have everybody's part of every chunk."""
    has, rounds = [[{k} for _ in range(K)] for k in range(K)], 0
    while any(len(chunk) < K for mine in has for chunk in mine):
        moving = [has[k][(k - rounds) % K] for k in range(K)]
        for k in range(K):
            has[k][(k - 1 - rounds) % K] = has[k][(k - 1 - rounds) % K] | moving[k - 1]
        rounds += 1
    return rounds


def messages(members, n):
    """Every message of one pass around a ring, a reduce-scatter or an all-gather of n bytes: (from, to, bytes)."""
    k = len(members)
    return [(r, members[(i + 1) % k], n / k) for _ in range(k - 1) for i, r in enumerate(members)]


def fewest_messages(K):
    """By breadth-first search: messages until everyone has heard of everyone, of all ways to send them one by one."""
    states, count, everyone = {tuple(1 << k for k in range(K))}, 0, (2**K - 1,) * K
    while everyone not in states:
        pairs = itertools.permutations(range(K), 2)
        states = {(*s[:b], s[b] | s[a], *s[b + 1 :]) for a, b in pairs for s in states}
        count += 1
    return count


def fewest_rounds(K):
    """By search over the sets of those who know of worker 0; all who know may each tell one other."""
    informed, rounds = {frozenset([0])}, 0
    while frozenset(range(K)) not in informed:
        after = set()
        for known in informed:
            told = min(len(known), K - len(known))
            after |= {known | frozenset(t) for t in itertools.combinations(set(range(K)) - known, told)}
        informed, rounds = after, rounds + 1
    return rounds
