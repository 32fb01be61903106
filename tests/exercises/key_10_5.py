"""Instructor's key of problem set 10.5."""

from __future__ import annotations

import numpy as np

from labkit.comm import Simulated
from labkit.exercises import Case, Wrong
from labkit.network import Link


def edges(K, n):
    return [i * n // K for i in range(K + 1)]


# -- 1 ----------------------------------------------------------------------------------------------------------------


def reduce_scatter(comm, x, shift=1, add=True, equal=False):
    K, k = comm.K, comm.rank
    total, e = x.copy(), edges(K, len(x))
    if equal:
        e = [i * (len(x) // K) for i in range(K + 1)]
    part = [total[e[i] : e[i + 1]] for i in range(K)]
    for j in range(K - 1):
        out, into = (k - j - shift) % K, (k - j - shift - 1) % K
        inbox = np.empty_like(part[into])
        comm.sendrecv(part[out], (k + 1) % K, inbox, (k - 1) % K)
        if add:
            part[into] += inbox
        else:
            part[into][:] = inbox
    return part[k]


def rs_inplace(comm, x):
    K, k = comm.K, comm.rank
    e = edges(K, len(x))
    for j in range(K - 1):
        out, into = (k - j - 1) % K, (k - j - 2) % K
        inbox = np.empty_like(x[e[into] : e[into + 1]])
        comm.sendrecv(x[e[out] : e[out + 1]], (k + 1) % K, inbox, (k - 1) % K)
        x[e[into] : e[into + 1]] += inbox
    return x[e[k] : e[k + 1]].copy()


def rs_whole_vectors(comm, x):
    total, passing = x.copy(), x.copy()
    for _ in range(comm.K - 1):
        inbox = np.empty_like(x)
        comm.sendrecv(passing, (comm.rank + 1) % comm.K, inbox, (comm.rank - 1) % comm.K)
        passing = inbox
        total += passing
    e = edges(comm.K, len(x))
    return total[e[comm.rank] : e[comm.rank + 1]]


def rs_send_then_recv(comm, x):
    total, e, K, k = x.copy(), edges(comm.K, len(x)), comm.K, comm.rank
    for j in range(K - 1):
        out, into = (k - j - 1) % K, (k - j - 2) % K
        comm.send(total[e[out] : e[out + 1]], (k + 1) % K)
        total[e[into] : e[into + 1]] += comm.recv(np.empty(e[into + 1] - e[into]), (k - 1) % K)
    return total[e[k] : e[k + 1]]


def rs_as_in_the_lab(comm, x):
    """Finishes chunk k + 1, and returns it."""
    K, k = comm.K, comm.rank
    total, e = x.copy(), edges(K, len(x))
    part = [total[e[i] : e[i + 1]] for i in range(K)]
    for j in range(K - 1):
        into = (k - j - 1) % K
        part[into] += comm.sendrecv(part[(k - j) % K], (k + 1) % K, np.empty_like(part[into]), (k - 1) % K)
    return part[(k + 1) % K]


def rs_alone(comm, x):
    e = edges(comm.K, len(x))
    return comm.K * x[e[comm.rank] : e[comm.rank + 1]]


# -- 2 ----------------------------------------------------------------------------------------------------------------


def all_gather(comm, chunk, n, equal=False, shift=0):
    K, k = comm.K, comm.rank
    whole, e = np.empty(n), edges(K, n)
    if equal:
        e = [i * (n // K) for i in range(K + 1)]
    part = [whole[e[i] : e[i + 1]] for i in range(K)]
    part[k][:] = chunk
    for j in range(K - 1):
        comm.sendrecv(part[(k - j + shift) % K], (k + 1) % K, part[(k - j - 1 + shift) % K], (k - 1) % K)
    return whole


def ag_one_round_more(comm, chunk, n):
    whole, e, K, k = np.zeros(n), edges(comm.K, n), comm.K, comm.rank
    part = [whole[e[i] : e[i + 1]] for i in range(K)]
    part[k][:] = chunk
    for j in range(K if K > 1 else 0):
        comm.sendrecv(part[(k - j) % K], (k + 1) % K, part[(k - j - 1) % K], (k - 1) % K)
    return whole


def ag_everyone_to_everyone(comm, chunk, n):
    whole, e, K, k = np.zeros(n), edges(comm.K, n), comm.K, comm.rank
    whole[e[k] : e[k + 1]] = chunk
    for d in range(1, K):
        source = (k - d) % K
        comm.sendrecv(chunk, (k + d) % K, whole[e[source] : e[source + 1]], source)
    return whole


def ag_concatenated(comm, chunk, n):
    K, k = comm.K, comm.rank
    e, pieces = edges(K, n), [chunk]
    for j in range(K - 1):
        i = (k - j - 1) % K
        pieces.append(comm.sendrecv(pieces[-1], (k + 1) % K, np.empty(e[i + 1] - e[i]), (k - 1) % K))
    return np.concatenate(pieces)  # in the order of arrival, not of rank


# -- 3 ----------------------------------------------------------------------------------------------------------------


def bytes_each_rank_sends(K, n, itemsize, halves=2, same=False):
    size = np.diff(edges(K, n))
    sent = []
    for r in range(K):
        elements = 2 * n - size[(r + 1) % K] - size[(r + (1 if same else 2)) % K]
        sent.append(itemsize * (elements if halves == 2 else n - size[(r + 1) % K]))
    return sent


# -- 4 ----------------------------------------------------------------------------------------------------------------


def tie_bytes(K, alpha, beta, rounds=lambda K: (K - 1).bit_length()):
    L = rounds(K)
    return alpha * beta * (K - 1 - L) / (L - (K - 1) / K)


# -- 5 ----------------------------------------------------------------------------------------------------------------


def swap_with_neighbours(comm, x):
    if comm.K == 1:
        return x.copy(), x.copy()
    right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    from_left = comm.sendrecv(x, right, np.empty_like(x), left)
    from_right = comm.sendrecv(x, left, np.empty_like(x), right)
    return from_left, from_right


def swap_sends_first(comm, x):
    if comm.K == 1:
        return x.copy(), x.copy()
    right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    comm.send(x, right)
    comm.send(x, left)
    from_left = comm.recv(np.empty_like(x), left)
    return from_left, comm.recv(np.empty_like(x), right)


def swap_no_self(comm, x):
    right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    from_left = comm.sendrecv(x, right, np.empty_like(x), left)
    return from_left, comm.sendrecv(x, left, np.empty_like(x), right)


def swap_even_ranks_send_first(comm, x):
    """Breaks the circle for even K; for odd K two even ranks sit side by side."""
    if comm.K == 1:
        return x.copy(), x.copy()
    right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    a, b = np.empty_like(x), np.empty_like(x)
    if comm.rank % 2 == 0:
        comm.send(x, right)
        comm.send(x, left)
    comm.recv(a, left)
    comm.recv(b, right)
    if comm.rank % 2 == 1:
        comm.send(x, right)
        comm.send(x, left)
    return a, b


def swap_one_buffer(comm, x):
    if comm.K == 1:
        return x.copy(), x.copy()
    right, left, inbox = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K, np.empty_like(x)
    from_left = comm.sendrecv(x, right, inbox, left)
    from_right = comm.sendrecv(x, left, inbox, right)
    return from_left, from_right


def swap_through_everyone(comm, x):
    """Round the ring until everybody has everything: right, and K - 1 messages."""
    if comm.K == 1:
        return x.copy(), x.copy()
    right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    seen = [x]
    for _ in range(comm.K - 1):
        seen.append(comm.sendrecv(seen[-1], right, np.empty_like(x), left))
    return seen[1], seen[-1]


# -- 6 ----------------------------------------------------------------------------------------------------------------


def slow_port(seconds, middle=np.nanmedian):
    out, into = middle(seconds, axis=1), middle(seconds, axis=0)
    if np.max(out) / np.median(out) > np.max(into) / np.median(into):
        return int(np.argmax(out)), "out"
    return int(np.argmax(into)), "in"


def slowest_message(seconds):
    sender, receiver = np.unravel_index(np.nanargmax(seconds), seconds.shape)
    return (
        (int(sender), "out")
        if np.nanmean(seconds[sender]) > np.nanmean(seconds[:, receiver])
        else (int(receiver), "in")
    )


# -- 7 ----------------------------------------------------------------------------------------------------------------


def seat(K, H, rounds, wrap=True, ports=1, pick=min, both_ways=1):
    found = {}
    for name, host in (("packed", lambda k: k // (K // H)), ("in turn", lambda k: k % H)):
        found[name] = 0
        for hop, nbytes in rounds:
            for k in range(K):
                to = (k + hop) % K if wrap else k + hop
                if to < K and host(k) == 0 and host(to) != 0:
                    found[name] += nbytes
        found[name] *= ports * both_ways
    name = pick(found, key=found.get)
    return name, found[name]


def seat_by_hops(K, H, rounds):
    """As if every worker of a packed host had its partner elsewhere as soon as the hop is a host long."""
    packed = sum(m * (K // H if h >= K // H else 1) for h, m in rounds)
    in_turn = sum(m * (K // H) for h, m in rounds if h % H)
    return min(("packed", packed), ("in turn", in_turn), key=lambda found: found[1])


SOLUTIONS = {
    "10.5-1": reduce_scatter,
    "10.5-2": all_gather,
    "10.5-3": bytes_each_rank_sends,
    "10.5-4": tie_bytes,
    "10.5-5": swap_with_neighbours,
    "10.5-6": slow_port,
    "10.5-7": seat,
}

MUTANTS = {
    "10.5-1": [
        lambda comm, x: reduce_scatter(comm, x, shift=0),  # the lab's own numbering: finishes chunk k + 1
        rs_as_in_the_lab,
        lambda comm, x: reduce_scatter(comm, x, add=False),
        lambda comm, x: reduce_scatter(comm, x, equal=True),
        rs_inplace,
        rs_whole_vectors,
        rs_send_then_recv,
        rs_alone,
    ],
    "10.5-2": [
        lambda comm, chunk, n: all_gather(comm, chunk, n, shift=1),
        lambda comm, chunk, n: all_gather(comm, chunk, n, equal=True),
        ag_one_round_more,
        ag_everyone_to_everyone,
        ag_concatenated,
        lambda comm, chunk, n: np.resize(chunk, n),
    ],
    "10.5-3": [
        lambda K, n, itemsize: [2 * (K - 1) * n * itemsize / K] * K,
        lambda K, n, itemsize: [2 * (K - 1) * (n // K) * itemsize] * K,
        lambda K, n, itemsize: [2 * (K - 1) * -(-n // K) * itemsize] * K,
        lambda K, n, itemsize: bytes_each_rank_sends(K, n, 1),
        lambda K, n, itemsize: bytes_each_rank_sends(K, n, itemsize, halves=1),
        lambda K, n, itemsize: bytes_each_rank_sends(K, n, itemsize, same=True),
        lambda K, n, itemsize: sum(bytes_each_rank_sends(K, n, itemsize)),
    ],
    "10.5-4": [
        lambda K, alpha, beta: tie_bytes(K, alpha, beta, rounds=np.log2),
        lambda K, alpha, beta: tie_bytes(K, alpha, beta, rounds=lambda K: K.bit_length() - 1),
        lambda K, alpha, beta: tie_bytes(K, alpha, 1 / beta),
        lambda K, alpha, beta: alpha * beta,
        lambda K, alpha, beta: alpha * beta * (K - 1 - (K - 1).bit_length()) / (K - 1).bit_length(),
        lambda K, alpha, beta: tie_bytes(K, alpha, beta) / 4,  # in float32 elements
    ],
    "10.5-5": [
        swap_sends_first,
        swap_no_self,
        swap_even_ranks_send_first,
        swap_one_buffer,
        swap_through_everyone,
        lambda comm, x: swap_with_neighbours(comm, x)[::-1],
    ],
    "10.5-6": [
        slowest_message,  # one unlucky message decides
        lambda seconds: slow_port(seconds, np.nanmean),  # a mean listens to bad luck
        lambda seconds: slow_port(seconds.T),  # rows and columns the wrong way round
        lambda seconds: (slow_port(seconds)[0], "out"),
        lambda seconds: (int(np.nanargmax(np.nanmedian(seconds, 0) + np.nanmedian(seconds, 1))), "in"),
        lambda seconds: slow_port(-seconds),
        lambda seconds: slow_port(seconds)[0],
    ],
    "10.5-7": [
        lambda K, H, rounds: seat(K, H, rounds, wrap=False),  # the last worker has no right neighbour
        lambda K, H, rounds: seat(K, H, rounds, ports=H),  # of all hosts together
        lambda K, H, rounds: seat(K, H, rounds, both_ways=2),  # in and out are two directions
        lambda K, H, rounds: seat(K, H, rounds, pick=max),
        lambda K, H, rounds: ("packed", seat(K, H, rounds)[1]),
        seat_by_hops,
    ],
}


def swaps_of_many(rng):
    """More workers than the notebook asks about, on an uneven network."""
    for K in (6, 7, 12):
        xs = rng.standard_normal((K, 3))

        def judge(run, xs=xs, K=K):
            for k, (a, b) in enumerate(run.results):
                if not (np.array_equal(a, xs[k - 1]) and np.array_equal(b, xs[(k + 1) % K])):
                    raise Wrong(f"rank {k} has not what its neighbours brought")

        world = Simulated(link=lambda source, to: Link(1e-5 * (1 + source), 1e8))
        yield Case(tuple((x,) for x in xs), judge, K=K, label=f"K = {K}", world=world)


HIDDEN = {"10.5-5": swaps_of_many}
