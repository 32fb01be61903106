"""The arguments of lab 10.5 and its second half, by search, plain loops and symbols, without labkit."""

import math
from collections import Counter

import pytest
import sympy
from replay import fewest_messages, messages


@pytest.mark.parametrize("K", [2, 3, 4])
def test_why_10_5_bytes(K):
    """An element's messages are the least in which K can tell each other everything, one way at a time."""
    assert fewest_messages(K) == 2 * (K - 1)
    sent = [sum(1 for j in range(2 * (K - 1)) for c in range(K) if (k - j) % K == c) for k in range(K)]
    assert sent == [2 * (K - 1)] * K  # the ring's chunks: K elements' messages, evenly
    assert sum(sent) == K * fewest_messages(K)


def clock(rounds, K, n, alpha, beta):
    """Seconds of rounds of (from, to, bytes), each worker with a clock of its own and one port each way."""
    at = [0.0] * K
    for each in rounds:
        end = list(at)
        for a, b, m in each:
            done = max(at[a], at[b]) + alpha + m / beta
            end[a], end[b] = max(end[a], done), max(end[b], done)
        at = end
    return max(at)


@pytest.mark.parametrize("K", [2, 3, 5, 8, 12, 16])
def test_why_10_5_costs(K):
    alpha, beta, n = 3e-5, 2e9, 960_000
    bits = [2**i for i in range((K - 1).bit_length())]
    up = [[(k, k - b, n) for k in range(K) if k % (2 * b) == b] for b in bits]
    server = [[(k, 0, n)] for k in range(1, K)]
    hops, left = [], K
    while left > 1:
        hops.append((left - left // 2, left // 2))
        left -= left // 2
    halving = [[(r, (r + h) % K, c * n / K) for r in range(K)] for h, c in hops]
    ring = [[(r, (r + 1) % K, n / K) for r in range(K)]] * (K - 1)
    ups, t = math.ceil(math.log2(K)), alpha + n / beta
    prices = 2 * (K - 1) * t, 2 * ups * t, 2 * (K - 1) * (alpha + n / K / beta)
    prices = *prices, 2 * ups * alpha + 2 * (K - 1) / K * n / beta
    for rounds, price in zip((server, up, ring, halving), prices, strict=True):
        there_and_back = rounds + [[(b, a, m) for a, b, m in each] for each in reversed(rounds)]
        assert clock(there_and_back, K, n, alpha, beta) == pytest.approx(price, rel=1e-9)


def test_why_10_5_tie():
    n, K, up, a, b = sympy.symbols("n K l alpha beta", positive=True)
    tree, ring = 2 * up * (a + n / b), 2 * (K - 1) * (a + n / (K * b))
    (at,) = sympy.solve(sympy.Eq(tree, ring), n)
    assert sympy.simplify(at - a * b * K * (K - 1 - up) / (K * up - (K - 1))) == 0
    r1, r2, v1, v2 = sympy.symbols("r1 r2 v1 v2", positive=True)
    general = sympy.solve(sympy.Eq(r1 * a + v1 * n / b, r2 * a + v2 * n / b), n)[0]
    assert sympy.simplify(general - a * b * (r2 - r1) / (v1 - v2)) == 0
    assert float(at.subs({K: 16, up: 4, a: 5e-6, b: 50e9})) == pytest.approx(897_959, rel=1e-5)


def parents(K):
    """A binary tree by bisection over 1 .. K - 1, the highest power of two first, and 0 on top; child: parent."""
    found = {}

    def hang(low, step, above):
        at = low + step
        if step < 1:
            return
        if at < K:
            found[at] = above
            hang(low, step // 2, at)
            hang(at, step // 2, at)
        else:
            hang(low, step // 2, above)

    hang(0, 2 ** ((K - 1).bit_length() - 1), 0)
    return found


@pytest.mark.parametrize("K", [4, 6, 8, 10, 16, 22, 32, 64])
def test_two_trees_use_no_port_twice_in_a_round(K):
    one = parents(K)
    edges = [(a, b, 0) for a, b in one.items()] + [(K - 1 - a, K - 1 - b, 1) for a, b in one.items()]
    inner = [{b for _, b, i in edges if i == tree} for tree in (0, 1)]
    assert not inner[0] & inner[1]  # a leaf of one at least
    assert max(Counter(a for a, _, _ in edges).values()) <= 2 >= max(Counter(b for _, b, _ in edges).values())
    colour = {}
    for start in edges:
        todo = [] if start in colour else [(start, 0)]
        while todo:
            e, c = todo.pop()
            if e in colour:
                assert colour[e] == c  # no odd cycle
                continue
            colour[e] = c
            todo += [(f, 1 - c) for f in edges if f != e and (f[0] == e[0] or f[1] == e[1])]
    first = {}
    for e in sorted(edges, key=lambda e: -depth(e, edges)):  # the deepest first
        ready = max((first[f] + 1 for f in edges if f[1] == e[0] and f[2] == e[2]), default=0)
        first[e] = ready + (ready + colour[e]) % 2
    D, S = max(first.values()), 5
    sent = [(t + 2 * s, *e[:2]) for e, t in first.items() for s in range(S)]  # (round, from, to)
    assert len({(t, a) for t, a, _ in sent}) == len({(t, b) for t, _, b in sent}) == len(sent)
    assert max(sent)[0] + 1 == 2 * S + D - 1
    assert 2 * math.log2(K) >= D


def depth(e, edges):
    up = {(a, i): b for a, b, i in edges}
    k, far = e[1], 1
    while (k, e[2]) in up:
        k, far = up[k, e[2]], far + 1
    return far


def test_the_best_number_of_segments_of_two_trees():
    S, a, n, b, d = sympy.symbols("S alpha n beta d", positive=True)  # d: D - 1
    time = 2 * (2 * S + d) * (a + n / (2 * S * b))
    (best,) = sympy.solve(sympy.diff(time, S), S)
    least = 2 * (sympy.sqrt(d * a) + sympy.sqrt(n / b)) ** 2
    assert sympy.simplify(time.subs(S, best) - sympy.expand(least)) == 0


@pytest.mark.parametrize(("H", "L"), [(2, 2), (3, 4), (4, 8)])
def test_why_10_5_hosts(H, L):
    K = H * L
    # In chunks of 1 / K.
    leaves = Counter(a // L for a, b, _ in 2 * messages(range(K), 1) if a // L != b // L)
    assert leaves == dict.fromkeys(range(H), 2 * (K - 1))
    assert fewest_messages(H) == 2 * (H - 1)  # a host seen as one worker: an average port's vectors, times H


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_why_10_5_seats(m):
    K = 2**m
    seats = {"packed": [k // (K // 2) for k in range(K)], "in turn": [k % 2 for k in range(K)]}
    box = {"packed": (2 * (K - 1) / K, 2 * (K * K - 1) / (3 * K)), "in turn": (K - 1, 1)}
    for name, host in seats.items():
        leave = {
            h: sum(host[k] == 0 != host[(k + h) % K] for k in range(K)) for h in (2**i for i in range(m))
        }
        ring, halving = 2 * (K - 1) * leave[1] / K, 2 * sum(h * n for h, n in leave.items()) / K
        assert (ring, halving) == pytest.approx(box[name])
