"""The arguments of lab 10.6: eigenvalues, a Lyapunov equation, SSP by its definition, symbols; no path of the lab is run."""

import numpy as np
import pytest
import sympy
from scipy.linalg import solve_discrete_lyapunov


def step(tau, delay, a):
    """One update on the last tau + 1 versions, newest first: w - a w_{delay updates ago}."""
    M = np.eye(tau + 1, k=-1)
    M[0, 0] = 1.0
    M[0, delay] -= a
    return M


def radius(M):
    return abs(np.linalg.eigvals(M)).max()


def test_why_10_6_frontier():
    for tau in range(13):
        first = 2 * np.sin(np.pi / (2 * (2 * tau + 1)))
        assert radius(step(tau, tau, 0.999 * first)) < 1 < radius(step(tau, tau, 1.001 * first))
        beyond = [radius(step(tau, tau, a)) for a in np.linspace(1.01 * first, 3, 15)]
        assert min(beyond) > 1 and (np.diff(beyond) > 0).all()  # no larger step is safe again
    for angle in (0.3, 1.0, 2.5):  # how a root moves with a, from two neighbouring values of a
        z, h = np.exp(1j * angle), 1e-6
        assert (z / (1 - z)).real == pytest.approx(-0.5)
        for tau in (1, 4):
            a = z**tau * (1 - z)  # complex, for the identity holds off the real line too
            near = np.roots([1, -1, *[0] * (tau - 1), a + h * a])
            moved = near[abs(near - z).argmin()]
            assert np.log(moved / z) / (h * a) == pytest.approx(1 / a / (tau - z / (1 - z)), rel=1e-4)


def test_why_10_6_safe():
    rng = np.random.default_rng(0)

    def period(tau, delays, a):
        return np.linalg.multi_dot([step(tau, delay, a) for delay in [*delays][::-1]])

    for tau in (1, 3, 7):
        for _ in range(40):  # periodic schedules of any delays up to tau
            delays = rng.integers(tau + 1, size=rng.integers(2, 20))
            assert radius(period(tau, delays, 0.999 / tau)) < 1
    # and pi / (2 tau) would not be safe: eight of one version, then four that are seven old
    assert np.pi / 14 > 0.205 and radius(period(7, [*range(8), 7, 7, 7, 7], 0.205)) > 1


def oldest(times, K, s, T):
    """Largest staleness by SSP's definition: step t begins when all have finished step t - s - 1."""
    start, end = np.zeros((K, T)), np.zeros((K, T))
    for t in range(T):
        gate = end[:, t - s - 1].max() if t > s else 0.0
        start[:, t] = np.maximum(end[:, t - 1] if t else 0.0, gate)
        end[:, t] = start[:, t] + times[:, t]
    ends = np.sort(end.ravel())
    read = np.searchsorted(ends, start, side="right")
    own = np.searchsorted(ends, end)
    return int((own - read).max())


def test_why_10_6_slack():
    rng = np.random.default_rng(1)
    for K, s in ((2, 0), (4, 1), (5, 3), (3, 6)):
        bound, T = (K - 1) * (2 * s + 1), 2 * s + 2
        chance = max(oldest(rng.pareto(0.8, (K, 40)) + 0.01, K, s, 40) for _ in range(100))
        late = np.full((K, T), 1e-6) + 1e-9 * np.arange(K)[:, None]
        late[0, s], late[1:, 0] = 1.0, 0.1
        assert chance <= bound == oldest(late, K, s, T)


def test_why_10_6_noise():
    for tau in (1, 3, 7, 31):
        for part in (1.0, 0.5, 0.1):
            a = part / (np.e * (tau + 1))
            M = step(tau, tau, a)
            kick = np.zeros((tau + 1, tau + 1))
            kick[0, 0] = 1.0
            variance = solve_discrete_lyapunov(M, kick)[0, 0]  # the sum of h_j^2
            fresh = 1 / (2 * a - a * a)
            assert fresh < variance <= tau + fresh  # a delay does lift the floor, by so much at most
            w = np.linalg.matrix_power(M, 40) @ np.ones(tau + 1)
            assert 0 < w[0] <= (1 - a) ** 40
    assert radius(step(31, 31, 10 / (np.e * 32))) > 1  # the cap is needed
    tau = sympy.symbols("tau", positive=True)
    z = tau / (tau + 1)
    assert sympy.simplify(z**tau * (1 - z) * (tau + 1) - (1 + 1 / tau) ** (-tau)) == 0
    assert all(float(((1 + 1 / tau) ** tau).subs(tau, n)) < np.e for n in (1, 2, 10, 100))


def test_why_10_6_equals():
    x = sympy.symbols("x", positive=True)
    together = 2 * (sympy.pi / 4 * sympy.sin(x) / x + sympy.sin(x) / 2)  # K steps, in units of 1 / L
    assert together.subs(x, sympy.pi / 6) == 2 and sympy.limit(together, x, 0) == sympy.pi / 2
    slope = sympy.lambdify(x, sympy.diff(together, x))
    assert (slope(np.linspace(1e-3, np.pi / 6, 1000)) > 0).all()
    for K in (3, 8, 64):  # the frontier itself, by eigenvalues
        each = 2 * np.sin(np.pi / 2 / (2 * K - 1))
        assert radius(step(K - 1, K - 1, 0.999 * each)) < 1 < radius(step(K - 1, K - 1, 1.001 * each))
        assert np.pi / 2 < K * each < 2
