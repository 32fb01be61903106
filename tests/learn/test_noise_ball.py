"""The recursion is the expectation: against every possible draw, against runs, against the theorem's bound."""

from itertools import product

import numpy as np
import pytest

from labkit.learn import Diverged, LeastSquares, LogisticRegression, linear_data, minibatches, sgd
from labkit.learn.decay import Decay
from labkit.learn.noise import gradient_noise
from labkit.learn.noise_ball import ExpectedSGD, NoiseBound, excess_bound, noise_bound


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, y, _ = linear_data(40, 3, rng, noise=1.0)
    X = X * [1.0, 0.7, 0.5]
    return LeastSquares(X, y)


def every_run(problem, w0, eta, b, T, replacement):
    """Mean squared distance and excess over *all* sequences of T batches, each as likely as any other."""
    from itertools import combinations

    draws = (
        list(product(range(problem.N), repeat=b))
        if replacement
        else [list(c) for c in combinations(range(problem.N), b)]
    )
    best = problem.optimum()
    ends = np.array([sgd(problem, w0, eta, [list(i) for i in seq])[-1] for seq in product(draws, repeat=T)])
    distance2 = ((ends - best) ** 2).sum(axis=1).mean()
    return distance2, np.mean([problem.loss(w) for w in ends]) - problem.loss(best)


@pytest.mark.parametrize(
    ("b", "T", "replacement"), [(1, 3, True), (2, 2, True), (2, 2, False), (4, 3, False)]
)
def test_the_path_is_the_mean_over_all_possible_runs(b, T, replacement):
    rng = np.random.default_rng(1)
    small = LeastSquares(rng.standard_normal((5, 2)), rng.standard_normal(5))
    w0, eta = np.array([1.0, -2.0]), Decay(0.2, 2.0)
    path = ExpectedSGD(small, b, replacement).path(w0, eta, T)
    expected = every_run(small, w0, eta, b, T, replacement)
    np.testing.assert_allclose([path.distance2[-1], path.excess[-1]], expected, rtol=1e-9)


def test_the_ball_is_where_the_path_ends_whatever_the_start(problem):
    law = ExpectedSGD(problem, 4)
    ball = law.ball(0.05)
    for w0 in (np.zeros(3), np.full(3, 9.0)):
        path = law.path(w0, 0.05, 2000)
        assert path.distance2[-1] == pytest.approx(ball.distance2, rel=1e-9)
        assert path.excess[-1] == pytest.approx(ball.excess, rel=1e-9)
    assert np.linalg.eigvalsh(ball.covariance)[0] > 0


def test_a_run_settles_in_the_ball(problem):
    """200 runs, time-averaged; z below 4.9 has a false-alarm rate of 1e-6."""
    law, eta, b, burn, T = ExpectedSGD(problem, 4), 0.1, 4, 60, 110
    rng, best = np.random.default_rng(3), problem.optimum()
    levels = []
    for _ in range(200):
        path = sgd(problem, best, eta, minibatches(problem.N, b, rng, replacement=True, epochs=None), T)
        levels.append(((path[burn:] - best) ** 2).sum(axis=1).mean())
    z = (np.mean(levels) - law.ball(eta).distance2) / (np.std(levels, ddof=1) / np.sqrt(len(levels)))
    assert abs(z) < 4.9


def test_for_small_steps_the_ball_is_half_eta_over_b_times_the_variance(problem):
    """S -> (eta / 2 b) times the solution of H S + S H = 2 Sigma; its excess is eta sigma2 / (4 b) to first order."""
    sigma2 = gradient_noise(problem, problem.optimum()).sigma2
    for b in (1, 8):
        assert ExpectedSGD(problem, b).ball(1e-6).excess == pytest.approx(1e-6 * sigma2 / (4 * b), rel=1e-4)


def test_all_examples_leave_no_ball_and_the_full_stable_range(problem):
    law = ExpectedSGD(problem, problem.N, replacement=False)
    assert law.c == 0 and law.ball(0.1).distance2 == pytest.approx(0, abs=1e-30)
    assert law.largest_eta == pytest.approx(2 / problem.L)


def test_below_the_largest_eta_runs_settle_and_above_they_grow(problem):
    law = ExpectedSGD(problem, 1)
    assert law.largest_eta < 2 / problem.L / 2  # far below the limit of the full gradient
    assert law.growth(0.99 * law.largest_eta) < 1 < law.growth(1.01 * law.largest_eta)
    with pytest.raises(ValueError, match=f"eta must be above 0 and below {law.largest_eta:.4g}"):
        law.ball(1.01 * law.largest_eta)
    with pytest.raises(Diverged, match="diverged: w is not finite after step"):
        law.path(np.zeros(3), 1.9 / problem.L, 20_000)


def test_steps_to_is_the_first_step_of_the_path_below_the_target(problem):
    law, w0 = ExpectedSGD(problem, 8), np.full(3, 2.0)
    excess = law.path(w0, 0.1, 100).excess
    t = law.steps_to(excess[30] * 1.0001, w0, 0.1, 100)
    assert t == np.nonzero(excess <= excess[30] * 1.0001)[0][0]
    assert law.steps_to(law.ball(0.1).excess * 0.5, w0, 0.1, 300) is None
    assert law.steps_to(1e-9, w0, 1.9 / problem.L, 20_000) is None  # diverges


# -- the bound ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("b", [1, 6])
def test_the_constants_bound_the_noise_everywhere(problem, b):
    bound, rng = noise_bound(problem, b), np.random.default_rng(6)
    for scale in (0.0, 0.01, 0.1, 1.0, 10.0, 1000.0):
        for _ in range(20):
            noise = gradient_noise(problem, problem.optimum() + scale * rng.standard_normal(3))
            assert noise.sigma2 / b <= (bound.M + bound.M_V * float(noise.mean @ noise.mean)) * (1 + 1e-9)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
def test_the_path_stays_below_the_theorem(problem, share):
    bound, w0 = noise_bound(problem, 4), np.full(3, 3.0)
    eta = share / (problem.L * (bound.M_V + 1))
    excess = ExpectedSGD(problem, 4).path(w0, eta, 400).excess
    for t, value in enumerate(excess):
        assert value <= excess_bound(eta, problem.L, problem.mu, bound, excess[0], t) * (1 + 1e-12)
    assert ExpectedSGD(problem, 4).ball(eta).excess <= excess_bound(eta, problem.L, problem.mu, bound)


# -- Robbins and Monro --------------------------------------------------------------------------------------


def test_the_sums_are_those_of_partial_sums_and_their_tails():
    for power in (1.5, 2.0):
        rule = Decay(0.3, 5.0, power)
        t = np.arange(200_000) + 5.0
        tail = 0.3 * (t[-1] + 0.5) ** (1 - power) / (power - 1)
        assert rule.total == pytest.approx((0.3 / t**power).sum() + tail, rel=1e-6)
    assert Decay(2.0, 3.0, 1.0).squares == pytest.approx(4 * (np.pi**2 / 6 - 1 - 1 / 4), rel=1e-12)
    sums = {
        p: (np.isinf(Decay(1, 1, p).total), np.isinf(Decay(1, 1, p).squares)) for p in (0, 0.5, 0.6, 1, 1.1)
    }
    assert sums == {
        0: (True, True), 0.5: (True, True), 0.6: (True, False), 1: (True, False), 1.1: (False, False)
    }  # fmt: skip
    assert [p for p in (0, 0.5, 0.6, 1, 1.1) if Decay(1, 1, p).robbins_monro] == [0.6, 1]


def test_decay_starts_where_it_is_told_and_is_a_rate_for_sgd(problem):
    rule = Decay.starting_at(0.1, 20.0, 0.75)
    assert rule(0) == pytest.approx(0.1) and rule(1) < rule(0)
    assert sgd(problem, np.zeros(3), rule, [None] * 3).shape == (4, 3)


def test_the_excess_falls_like_one_over_t_with_power_one(problem):
    law, c = ExpectedSGD(problem, 4), 2 / problem.mu
    excess = law.path(np.zeros(3), Decay(c, 20 * c * problem.L), 16_000).excess
    assert excess[16_000] / excess[8_000] == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda p: ExpectedSGD(LogisticRegression(p.X, p.y > 0), 1),
            "problem must be LeastSquares with mu > 0",
        ),
        (lambda p: ExpectedSGD(LeastSquares(np.ones((9, 2)), np.ones(9)), 1), "problem must be LeastSquares"),
        (lambda p: ExpectedSGD(p, 0), "b must be a whole number of examples >= 1, got 0"),
        (lambda p: ExpectedSGD(p, 41, replacement=False), "b must be from 1 to N = 40"),
        (lambda p: ExpectedSGD(p, 1).path(np.zeros(3), 0.1, -1), "T must be a whole number of steps >= 0"),
        (lambda p: ExpectedSGD(p, 1).path(np.zeros(2), 0.1, 1), "w0 must be 3 finite numbers"),
        (lambda p: ExpectedSGD(p, 1).path(np.zeros(3), np.nan, 1), "eta must be finite"),
        (lambda p: ExpectedSGD(p, 1).ball(0.0), "eta must be above 0 and below"),
        (lambda p: excess_bound(0.1, 1.0, 2.0, NoiseBound(1, 1)), "mu and L must satisfy"),
        (lambda p: excess_bound(0.6, 1.0, 0.5, NoiseBound(1, 1)), "eta must be above 0 and at most"),
        (lambda p: excess_bound(0.1, 1.0, 0.5, NoiseBound(1, 1), -1.0), "gap must be finite and >= 0"),
        (lambda p: noise_bound(p, 1, slack=1.0), "slack must be finite and > 1"),
        (lambda p: Decay(0.0), "c must be finite and > 0, got 0.0"),
        (lambda p: Decay(1.0, -1.0), "t0 must be finite and > 0"),
        (lambda p: Decay(1.0, 1.0, -0.5), "power must be finite and >= 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(problem, call, said):
    with pytest.raises(ValueError, match=said):
        call(problem)
