"""The arguments of lab 10.10: a channel that takes one bucket after another, symbols, and every K by hand."""

import numpy as np
import pytest
import sympy


def test_why_10_10_step():
    rng = np.random.default_rng(10)
    for _ in range(300):
        K, L = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        x, a, theta = rng.uniform(0.1, 0.3, K), rng.uniform(0, 0.1), rng.uniform(0.1, 1)
        free = 0.0
        for bucket in range(
            1, L + 1
        ):  # a sum begins when all have brought the bucket, and the last is through
            brought = [each * (1 - theta) + each * theta * bucket / L for each in x]
            free = max(free, max(brought)) + a
        exposed = a + max(0.0, (L - 1) * (a - theta * x.max() / L))
        assert free - x.max() == pytest.approx(exposed)
        waits = [x.max() - each for each in x]
        assert np.mean(x) + np.mean(waits) + exposed == pytest.approx(free)


def test_why_10_10_tie():
    f1, f2, c1, c2, n1, n2, beta = sympy.symbols("f1 f2 c1 c2 n1 n2 beta", positive=True)
    (at,) = sympy.solve(f1 * (c1 + n1 / beta) - f2 * (c2 + n2 / beta), beta)
    assert sympy.simplify(at - (f1 * n1 - f2 * n2) / (f2 * c2 - f1 * c1)) == 0
    rng = np.random.default_rng(2)
    for _ in range(200):
        (f, g), (c, e), (n, m) = rng.uniform(0.5, 2, (3, 2))
        at = (f * n - g * m) / (g * e - f * c)

        def ahead(beta, f=f, g=g, c=c, e=e, n=n, m=m):
            return np.sign(f * (c + n / beta) - g * (e + m / beta))

        assert ahead(1e-9) == np.sign(f * n - g * m)  # fewer bytes win on slow links
        if at > 0:
            assert ahead(at * 0.99) != ahead(at * 1.01)
        else:
            assert ahead(1e-9) == ahead(1e9)


def test_why_10_10_middle():
    """Among many predictions in the range none has a smaller worst factor; dividing by it maps the middle to the middle."""
    rng = np.random.default_rng(3)
    for s1, s2 in np.sort(rng.uniform(0.1, 10, (50, 2)), axis=1):
        p = np.geomspace(s1, s2, 10_001)
        worst = np.maximum(p / s1, s2 / p)
        assert p[worst.argmin()] == pytest.approx(np.sqrt(s1 * s2), rel=1e-3)
        assert worst.min() == pytest.approx(np.sqrt(s2 / s1), rel=1e-3)
        assert 1 / np.sqrt(s1 * s2) == pytest.approx(np.sqrt((1 / s1) * (1 / s2)))


def test_why_10_10_price():
    K, k_c = sympy.symbols("K k_c", positive=True)
    time, price = 1 + k_c / K, K * (1 + k_c / K)
    assert sympy.solve(sympy.diff(time * price, K), K) == [k_c]
    least = sympy.limit(time, K, sympy.oo), sympy.limit(price, K, 0)
    assert (time.subs(K, k_c), sympy.simplify(price.subs(K, k_c))) == (2 * least[0], 2 * least[1])
