"""Instructor's key of problem set 10.9."""

from __future__ import annotations

import math

import numpy as np

from labkit import Link, launch
from labkit.collectives import best, doubling, halving, ring
from labkit.exercises import Case, close
from labkit.learn import LeastSquares

# -- 1 and 2 ----------------------------------------------------------------------------------------------------------


def bytes_over_bound(sent, nbytes):
    K = len(sent)
    return max(sent) / (2 * (K - 1) / K * nbytes)


def least_seconds(K, nbytes, alpha, beta, rounds=lambda K: (K - 1).bit_length(), join=max):
    if nbytes == 0:
        return 0.0
    return join(alpha * rounds(K), 2 * (K - 1) / K * nbytes / beta)


# -- 3 ----------------------------------------------------------------------------------------------------------------


def fewest_rounds_max(comm, x):
    """Dissemination: after round i everybody knows the 2^(i+1) workers up to himself; a maximum may count twice."""
    best, step = x.copy(), 1
    while step < comm.K:
        theirs = comm.sendrecv(
            best, (comm.rank + step) % comm.K, np.empty_like(x), (comm.rank - step) % comm.K
        )
        best, step = np.maximum(best, theirs), 2 * step
    return best


def max_around_the_ring(comm, x):
    best, passing = x.copy(), x
    for _ in range(comm.K - 1):
        right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        passing = comm.sendrecv(passing, right, np.empty_like(x), left)
        best = np.maximum(best, passing)
    return best


def max_by_doubling(comm, x):
    """Right for powers of two; otherwise some partners do not exist."""
    best, step = x.copy(), 1
    while step < comm.K:
        theirs = comm.sendrecv(best, comm.rank ^ step, np.empty_like(x), comm.rank ^ step)
        best, step = np.maximum(best, theirs), 2 * step
    return best


def max_one_round_short(comm, x):
    best, step = x.copy(), 1
    while 2 * step <= comm.K:
        theirs = comm.sendrecv(
            best, (comm.rank + step) % comm.K, np.empty_like(x), (comm.rank - step) % comm.K
        )
        best, step = np.maximum(best, theirs), 2 * step
    return best


def max_passes_its_own(comm, x):
    best, step = x.copy(), 1
    while step < comm.K:
        theirs = comm.sendrecv(x, (comm.rank + step) % comm.K, np.empty_like(x), (comm.rank - step) % comm.K)
        best, step = np.maximum(best, theirs), 2 * step
    return best


def max_up_and_down(comm, x):
    """Through rank 0, one after another."""
    best = x.copy()
    if comm.rank == 0:
        for k in range(1, comm.K):
            best = np.maximum(best, comm.recv(np.empty_like(x), k))
        for k in range(1, comm.K):
            comm.send(best, k)
        return best
    comm.send(x, 0)
    return comm.recv(np.empty_like(x), 0)


def sum_in_the_fewest_rounds(comm, x):
    return doubling.allreduce(comm, x)


# -- 4 ----------------------------------------------------------------------------------------------------------------


def coordinates_reached(owner, t):
    d, c = len(owner) - 1, 0
    for _ in range(t):
        if c < d:
            mine = owner[c]
            while c <= d and owner[c] == mine:
                c += 1
    return min(c, d)


def to_the_end_of_the_chain(owner, t):
    """Counts the fixed end as a coordinate."""
    c = 0
    for _ in range(t):
        if c < len(owner):
            mine = owner[c]
            while c < len(owner) and owner[c] == mine:
                c += 1
    return c


def by_runs_of_equal_length(owner, t):
    run = int(np.argmax(np.asarray(owner) != owner[0])) or len(owner)
    return min(t * run, len(owner) - 1)


def everyone_moves_in_turn(owner, t):
    """Lets every worker move once a round, one after the other: worker 1 would have to know what 0 has just done."""
    d, c = len(owner) - 1, 0
    for _ in range(t):
        for k in range(max(owner) + 1):
            while c <= d and owner[c] == k:
                c += 1
    return min(c, d)


# -- 5 ----------------------------------------------------------------------------------------------------------------


def one_bit(x, u):
    low, high = x.min(), x.max()
    p = (x - low) / (high - low) if high > low else np.zeros_like(x)
    return np.where(u < p, high, low), ((high - x) * (x - low)).sum()


def with_estimates(change):
    return lambda x, u: (change(x, u), one_bit(x, u)[1])


def with_variance(change):
    return lambda x, u: (one_bit(x, u)[0], change(x, u))


# -- 6 ----------------------------------------------------------------------------------------------------------------

FORMS = {each.name: each for each in (ring, halving, doubling)}


def best_way(K, nbytes, alpha, beta):
    return best(K, nbytes, Link(alpha, beta), FORMS)


def best_without_folds(K, nbytes, alpha, beta):
    """As if every K were a power of two."""
    L = math.log2(K)
    seconds = {
        "ring": 2 * (K - 1) * (alpha + nbytes / K / beta),
        "halving": 2 * L * alpha + 2 * (K - 1) / K * nbytes / beta,
        "doubling": L * (alpha + nbytes / beta),
    }
    return min(seconds, key=seconds.get)


SOLUTIONS = {
    "10.9-1": bytes_over_bound,
    "10.9-2": least_seconds,
    "10.9-3": fewest_rounds_max,
    "10.9-4": coordinates_reached,
    "10.9-5": one_bit,
    "10.9-6": best_way,
}

MUTANTS = {
    "10.9-1": [
        lambda sent, nbytes: np.mean(sent) / (2 * (len(sent) - 1) / len(sent) * nbytes),
        lambda sent, nbytes: sum(sent) / (2 * (len(sent) - 1) * nbytes),
        lambda sent, nbytes: max(sent) / (2 * nbytes),
        lambda sent, nbytes: max(sent) / ((len(sent) - 1) / len(sent) * nbytes),
        lambda sent, nbytes: 1 / bytes_over_bound(sent, nbytes),
        lambda sent, nbytes: max(sent) / (2 * (len(sent) - 1) * nbytes),
    ],
    "10.9-2": [
        lambda *a: least_seconds(*a, join=lambda x, y: x + y),
        lambda *a: least_seconds(*a, join=min),
        lambda *a: least_seconds(*a, rounds=math.log2),
        lambda *a: least_seconds(*a, rounds=lambda K: K.bit_length() - 1),
        lambda *a: least_seconds(*a, rounds=lambda K: 2 * (K - 1)),
        lambda *a: least_seconds(*a, rounds=lambda K: K.bit_length()),
        lambda K, nbytes, alpha, beta: max(
            alpha * (K - 1).bit_length(), 2 * (K - 1) / K * nbytes / beta
        ),  # n = 0
        lambda K, nbytes, alpha, beta: least_seconds(K, nbytes, alpha, 1 / beta),
    ],
    "10.9-3": [
        max_around_the_ring,
        max_by_doubling,
        max_one_round_short,
        max_passes_its_own,
        max_up_and_down,
        sum_in_the_fewest_rounds,
        lambda comm, x: x.copy(),
    ],
    "10.9-4": [
        lambda owner, t: min(t, len(owner) - 1),
        lambda owner, t: min(t + 1, len(owner) - 1),
        lambda owner, t: coordinates_reached(owner, t + 1),
        to_the_end_of_the_chain,
        by_runs_of_equal_length,
        everyone_moves_in_turn,
    ],
    "10.9-5": [
        with_estimates(lambda x, u: np.where(u < 0.5, x.max(), x.min())),
        with_estimates(lambda x, u: np.where(x > x.mean(), x.max(), x.min()) + 0 * u),
        with_estimates(lambda x, u: np.where(u > (x - x.min()) / max(np.ptp(x), 1e-9), x.max(), x.min())),
        with_estimates(lambda x, u: np.sign(x) * np.linalg.norm(x, 1) / len(x) + 0 * u),
        with_estimates(lambda x, u: x + 0 * u),
        with_variance(lambda x, u: ((x.max() - x) * (x - x.min())).mean()),
        with_variance(lambda x, u: len(x) * np.ptp(x) ** 2 / 4),
        with_variance(lambda x, u: ((one_bit(x, u)[0] - x) ** 2).sum(axis=1).mean()),  # measured, not exact
        lambda x, u: one_bit(x, u)[0],
        lambda x, u: (
            np.where(u < (x - x.min()) / (x.max() - x.min()), x.max(), x.min()),
            one_bit(x, u)[1] / 2,
        ),
    ],
    "10.9-6": [
        best_without_folds,
        lambda K, nbytes, alpha, beta: "ring",
        lambda K, nbytes, alpha, beta: "halving",
        lambda K, nbytes, alpha, beta: "doubling" if nbytes < alpha * beta else "ring",
        lambda K, nbytes, alpha, beta: best_way(K, nbytes / 8, alpha, beta),
        lambda K, nbytes, alpha, beta: max(
            FORMS, key=lambda name: FORMS[name].time(K, nbytes, Link(alpha, beta))
        ),
        lambda K, nbytes, alpha, beta: FORMS[best_way(K, nbytes, alpha, beta)].time,
    ],
}


def by_doing_it(rng):
    """The rule against workers who take so many local steps that each gets to the end of its run."""

    def chain(d):
        """Its springs as examples: row i pulls coordinate i + 1 to i, the ends are held at 1 and 0."""
        return LeastSquares(np.eye(d + 1, d) - np.eye(d + 1, d, k=-1), np.eye(d + 1)[0])

    def work(comm, problem, owner, t):
        w = np.zeros(problem.d)
        for _ in range(t):
            mine = w
            for _ in range(2 * problem.d):
                part = np.flatnonzero(owner == comm.rank)
                mine = mine - 0.6 * problem.grad_sum(mine, part) / problem.N
            w = doubling.allreduce(comm, mine) / comm.K
        return max(np.flatnonzero(w), default=-1) + 1

    for K in (2, 3):
        for t in (1, 2, 3):
            owner = rng.integers(0, K, 12)
            owner[:2] = owner[0]
            found = launch(work, K, chain(11), owner, t).results[0]

            def judge(answer, found=found):
                close(answer, float(found), "the number of coordinates", rtol=0.0)

            yield Case((owner, t), judge, label=f"owner = {owner.tolist()}, t = {t}")


HIDDEN = {"10.9-4": by_doing_it}
