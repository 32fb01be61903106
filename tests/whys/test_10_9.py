"""The arguments of lab 10.9, by exhaustive search on small cases, exact fractions, symbols and sampling."""

from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import sympy as sp
from replay import fewest_rounds


def rounds_of(K):
    """Every way to send in one round: each worker to one other or to none, nobody receives twice."""
    for to in product(*([None, *(j for j in range(K) if j != k)] for k in range(K))):
        receivers = [j for j in to if j is not None]
        if receivers and len(receivers) == len(set(receivers)):
            yield to


def test_why_10_9_rounds():
    """No schedule finishes earlier than ceil(log2 K); for powers of two exchanging with a partner attains it."""
    for K in range(2, 9):
        assert fewest_rounds(K) == sp.ceiling(sp.log(K, 2))
    for m in (1, 2, 3):
        knows = [{k} for k in range(2**m)]
        for bit in range(m):
            knows = [mine | knows[k ^ 1 << bit] for k, mine in enumerate(knows)]
        assert all(len(mine) == 2**m for mine in knows)


def told(state, to):
    """What each worker knows after a round, as bits: its own, and what the one that sends to it knew."""
    return tuple(mine | sum(state[k] for k, j in enumerate(to) if j == r) for r, mine in enumerate(state))


def test_why_10_9_corner():
    """In all pairs of rounds that finish for four, everybody sends in both. With K - 2 messages before the last of the
    fewest rounds, no last round can tell everybody all: only for K = 2."""
    ways, alone = list(rounds_of(4)), (1, 2, 4, 8)
    finished = [(x, y) for x, y in product(ways, repeat=2) if told(told(alone, x), y) == (15,) * 4]
    assert finished and all(None not in first + second for first, second in finished)
    assert all(m > 2 * Fraction(2**m - 1, 2**m) for m in range(2, 12)) and Fraction(1) == 2 * Fraction(1, 2)
    for K in (2, 3, 4, 5):
        states = {(tuple(1 << k for k in range(K)), K - 2)}
        for _ in range(fewest_rounds(K) - 1):
            sent = [(to, K - to.count(None)) for to in rounds_of(K)]
            states |= {(told(state, to), left - n) for state, left in states for to, n in sent if n <= left}
        last = product([state for state, _ in states], permutations(range(K)))
        assert any(told(state, to) == (2**K - 1,) * K for state, to in last) == (K == 2)


def spring(i, w):
    """Gradient of (w_i - w_(i+1))^2 / 8 by plain lists; w_0 = 1 and w_(d+1) = 0 are held."""
    ends = [Fraction(1), *w, Fraction(0)]
    pull = (ends[i] - ends[i + 1]) / 4
    g = [Fraction(0)] * (len(w) + 2)
    g[i], g[i + 1] = pull, -pull
    return g[1:-1]


def test_why_10_9_coordinate():
    """In exact fractions: own steps of random lengths, and a round gains one coordinate; two where springs lie in pairs."""

    def furthest(owner, rounds, seed):
        rng = np.random.default_rng(seed)
        d, reach = len(owner) - 1, []
        both = [[Fraction(0)] * d, [Fraction(0)] * d]
        for _ in range(rounds):
            for k in (0, 1):
                w = both[k]
                for _ in range(4):
                    length = Fraction(int(rng.integers(1, 9)), 4)
                    steps = [spring(i, w) for i in range(d + 1) if owner[i] == k]
                    w = [x - length * sum(g) for x, g in zip(w, zip(*steps, strict=True), strict=True)]
                both[k] = w
            mean = [(a + b) / 2 for a, b in zip(*both, strict=True)]
            both = [mean, list(mean)]
            reach.append(max(i + 1 for i, x in enumerate(mean) if x))
        return reach

    assert furthest([0, 1, 0, 1, 0, 1, 0], 4, 0) == [1, 2, 3, 4]
    assert furthest([0, 0, 1, 1, 0, 0, 1], 2, 0) == [2, 4]


def test_why_10_9_chain():
    """The least value by a linear system in fractions."""
    for d, t in ((5, 0), (5, 2), (9, 4), (9, 9)):
        A = sp.zeros(t, t)
        for i in range(t):
            A[i, i] = 2
            if i:
                A[i, i - 1] = A[i - 1, i] = -1
        e = sp.Matrix([1] + [0] * (t - 1)) if t else sp.Matrix([])
        w = list(A.solve(e)) if t else []
        ends = [sp.Integer(1), *w, *([sp.Integer(0)] * (d + 1 - t))]
        f = sum((a - b) ** 2 for a, b in pairwise(ends)) / 8
        assert f == sp.Rational(1, 8 * (t + 1))


def test_why_10_9_bits():
    """The shrunk estimate in symbols; and no unbiased code of points on a circle is better than the bound, where the best
    codes with 2^b points (a regular polygon around the disc) are searched."""
    om, x2 = sp.symbols("omega x2", positive=True)
    shrunk = om / (1 + om) ** 2 + (1 / (1 + om) - 1) ** 2 * x2
    assert sp.simplify(shrunk.subs(x2, 1) - om / (1 + om)) == 0 and sp.diff(shrunk, x2).is_positive
    b, d = sp.symbols("b d", positive=True)
    r2 = om / (1 + om)
    volumes = r2 * 4 ** (b / d)
    assert sp.simplify(volumes.subs(om, 1 / (4 ** (b / d) - 1)) - 1) == 0  # equal there

    for bits in (2, 3, 4):  # the unit disc in 2^bits corners around it: the centre is the worst point
        corners = 2**bits
        radius = 1 / np.cos(np.pi / corners)
        assert radius**2 > 1 / (4 ** (bits / 2) - 1)
    for bits in (1, 2, 5):  # one dimension: 2^b levels, worst halfway
        levels = np.linspace(-1, 1, 2**bits)
        x = (levels[0] + levels[1]) / 2
        omega = np.mean((levels[:2] - x) ** 2)
        assert np.isclose(omega * (4**bits - 1), (2**bits + 1) / (2**bits - 1))
