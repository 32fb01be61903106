"""The claims of lab 10.9 by another route: counting in plain loops, and linear algebra."""

import math

import numpy as np
from replay import around


def floors(K):
    """Least vectors through some port, and least rounds: K - 1 messages to add up and as many to tell, shared by K ports;
    and how often the number of those who know can double before it is K."""
    rounds, know = 0, 1
    while know < K:
        know, rounds = 2 * know, rounds + 1
    return 2 * (K - 1) / K, rounds


def test_10_9_ring(verdict):
    """Sets of contributions are passed round until every worker has everybody's in every chunk."""
    least_bytes, few_rounds = [], []
    for K in (*range(2, 17), 64):
        rounds = around(K)
        bytes_floor, rounds_floor = floors(K)
        least_bytes.append(math.isclose(rounds / K, bytes_floor))  # a chunk of 1/K in every round
        few_rounds.append(rounds == rounds_floor)
    assert rounds == 21 * rounds_floor  # K = 64
    assert verdict == ("true" if all(few_rounds) else "true if" if all(least_bytes) else "false")


def chain(d):
    """The springs of f(w) = 1/8 sum of squares, as rows of differences, and the held end."""
    D = np.zeros((d + 1, d))
    D[np.arange(d), np.arange(d)] = 1
    D[np.arange(1, d + 1), np.arange(d)] = -1
    end = np.zeros(d + 1)
    end[0] = 1  # spring 0 pulls w_1 to 1
    return D, end


def rounds_below(d, H, T=50):
    """Rounds in which H local steps on a chain cut in halves are below what whole gradients can reach: t coordinates after
    t rounds, the best such point by linear algebra. Local steps are an affine map, applied by its power."""
    D, end = chain(d)

    def error(w):
        return ((D[:, : len(w)] @ w - end) ** 2).sum() / 8 - 1 / (8 * (d + 1))

    def errors(deals):
        maps = []
        for mine in deals:
            A, b = D[mine].T @ D[mine] / 2, D[mine].T @ end[mine] / 2  # twice its share of the gradient
            step = np.block([[np.eye(d) - A, b[:, None]], [np.zeros((1, d)), np.ones((1, 1))]])
            maps.append(np.linalg.matrix_power(step, H))
        w, found = np.append(np.zeros(d), 1.0), []
        for _ in range(T):
            w = sum(m @ w for m in maps) / 2
            found.append(error(w[:d]))
        return np.array(found)

    best = np.array([error(np.linalg.lstsq(D[:, :t], end, rcond=None)[0]) for t in range(1, T + 1)])
    springs = np.arange(d + 1)
    assert (errors([springs[::2], springs[1::2]]) >= best * (1 - 1e-9)).all()
    return np.flatnonzero(errors(np.split(springs, 2)) < best * (1 - 1e-9)) + 1


def test_10_9_chain(verdict):
    own = rounds_below(101, 100)
    assert (own[0], own[-1]) == (1, 24)
    assert all(len(rounds_below(d, H, 15)) for d in (31, 301) for H in (4, 10, 1000))
    assert not any(len(rounds_below(d, H, 15)) for d in (31, 101) for H in (3, 10**6))
    assert verdict == ("true if" if len(own) else "true")
