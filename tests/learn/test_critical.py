"""Steps against batch size: the hyperbola, the fit that finds it, and the fewest steps behind it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import LeastSquares, sgd
from labkit.learn.critical import Hyperbola, fewest_steps, fit_hyperbola, mean_noise_scale
from labkit.learn.noise import gradient_noise
from labkit.learn.noise_ball import ExpectedSGD


@pytest.fixture
def problem():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((500, 3)) * [1.0, 0.5, 0.25]
    y = X @ (rng.standard_normal(3) / [1.0, 0.5, 0.25]) + rng.standard_normal(500)
    return LeastSquares(X, y)


@given(st.floats(1, 1e4), st.floats(0.1, 1e5), st.floats(0.1, 1e7))
def test_steps_and_examples_lie_on_the_hyperbola_of_the_paper(S_min, B_crit, B):
    h = Hyperbola(S_min, B_crit)
    S, E = h.steps(B), h.examples(B)
    assert pytest.approx(B * S) == E
    over_steps, over_examples = B_crit / B, B / B_crit  # S / S_min - 1 and E / E_min - 1
    assert pytest.approx(S_min * (1 + over_steps)) == S
    assert pytest.approx(h.E_min * (1 + over_examples)) == E
    assert over_steps * over_examples == pytest.approx(1)


def test_at_the_critical_batch_both_bills_are_twice_the_least():
    h = Hyperbola(30.0, 64.0)
    assert h.steps(64) == 60 and h.examples(64) == 2 * h.E_min
    np.testing.assert_allclose(h.steps([1, 64]), [30 * 65, 60])


@given(st.floats(1, 1e4), st.floats(0.5, 1e4))
def test_the_fit_finds_the_hyperbola_it_was_given(S_min, B_crit):
    B = np.array([1, 8, 64, 512, 4096])
    found = fit_hyperbola(B, Hyperbola(S_min, B_crit).steps(B))
    assert found.S_min == pytest.approx(S_min, rel=1e-6) and found.B_crit == pytest.approx(B_crit, rel=1e-6)


def test_the_fit_weighs_relative_misfits_as_scipy_does():
    optimize = pytest.importorskip("scipy.optimize")
    B, rng = np.array([2.0, 8, 32, 128, 512]), np.random.default_rng(2)
    S = Hyperbola(20, 50).steps(B) * (1 + 0.05 * rng.standard_normal(5))
    theirs = optimize.least_squares(lambda p: p[0] * (1 + p[1] / B) / S - 1, [10.0, 10.0]).x
    ours = fit_hyperbola(B, S)
    np.testing.assert_allclose([ours.S_min, ours.B_crit], theirs, rtol=1e-5)


def test_a_flat_line_has_no_critical_batch():
    assert fit_hyperbola([1, 2, 4], [10, 10, 10]).B_crit == pytest.approx(0, abs=1e-9)
    assert fit_hyperbola([1, 2, 4], [10, 11, 12]).B_crit == 0.0


def test_the_fewest_steps_are_those_of_the_best_rate_on_the_grid(problem):
    w0 = np.zeros(3)
    law = ExpectedSGD(problem, 16)
    start_gap = law.path(w0, 0.1, 0).excess[0]
    best = fewest_steps(problem, w0, 16, 0.05 * start_gap)
    for eta in law.largest_eta * np.geomspace(0.98, 0.01, 25):
        steps = law.steps_to(0.05 * start_gap, w0, float(eta), 3000)
        if steps is not None and law.ball(float(eta)).excess <= 0.05 * start_gap:
            assert steps >= best.steps + (eta > best.eta * (1 + 1e-9))  # of ties the largest rate
    assert law.steps_to(0.05 * start_gap, w0, best.eta, best.steps) == best.steps
    assert fewest_steps(problem, w0, 16, start_gap).steps == 0


def test_measured_steps_follow_the_hyperbola_and_the_noise_scale_tells_its_order(problem):
    w0, sizes = np.zeros(3), np.array([2, 8, 32, 128, 512])
    target = 0.02 * (problem.loss(w0) - problem.loss(problem.optimum()))
    steps = np.array([fewest_steps(problem, w0, int(b), target).steps for b in sizes])
    found = fit_hyperbola(sizes, steps)
    np.testing.assert_allclose(steps, found.steps(sizes), rtol=0.1)
    assert steps[0] / steps[1] > 2.5 and steps[-2] / steps[-1] < 1.5  # of 4: most at first, little at last
    guess = mean_noise_scale(problem, sgd(problem, w0, 1 / problem.L, [None] * int(steps[-1]))[:-1])
    assert 1 / 5 < guess / found.B_crit < 5


def test_the_mean_scale_is_the_mean_of_the_scales(problem):
    points = np.random.default_rng(0).standard_normal((3, 3))
    scales = [gradient_noise(problem, w).scale for w in points]
    assert mean_noise_scale(problem, points) == pytest.approx(np.mean(scales))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: Hyperbola(0, 1), "S_min must be a finite number of steps > 0, got 0"),
        (lambda p: Hyperbola(1, -1), "B_crit must be a finite number of examples >= 0, got -1"),
        (lambda p: Hyperbola(1, 1).steps(0), "B must be finite and > 0, got 0"),
        (lambda p: fit_hyperbola([1, 1], [2, 3]), "B and S must be lists of equal length with two different"),
        (lambda p: fit_hyperbola([1, 2], [2, 3, 4]), "B and S must"),
        (lambda p: fit_hyperbola([1, 2], [np.nan, 3]), "S must be finite and > 0"),
        (lambda p: fit_hyperbola([1, 2, 4], [100, 45, 20]), "S must level off"),
        (lambda p: fewest_steps(p, np.zeros(3), 1, 1e-12, T=100), "target must be within reach of T = 100"),
        (lambda p: mean_noise_scale(p, []), "iterates must hold at least one w"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(problem, call, said):
    with pytest.raises(ValueError, match=said):
        call(problem)
