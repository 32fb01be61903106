"""The frontier of eta against tau: where the largest root crosses the unit circle, and where real paths begin to grow."""

import numpy as np
import pytest

from labkit.learn import LeastSquares, constant_delay, replay
from labkit.learn.stability import delayed_path, frontier, grows, largest_eta, roots, spectral_radius


@pytest.mark.parametrize("tau", [0, 1, 2, 3, 7, 20, 64])
def test_at_the_frontier_the_largest_root_lies_on_the_unit_circle_and_crosses_it_there(tau):
    for L in (0.1, 1.0, 30.0):
        eta = largest_eta(tau, L)
        assert abs(spectral_radius(tau, eta * L) - 1) < 1e-9
        assert spectral_radius(tau, 0.999 * eta * L) < 1 < spectral_radius(tau, 1.001 * eta * L)


@pytest.mark.parametrize("tau", [1, 4, 30])
def test_no_eta_below_the_frontier_has_a_root_outside(tau):
    below = largest_eta(tau) * np.linspace(0.001, 0.9999, 60)
    assert max(spectral_radius(tau, x) for x in below) < 1


def test_the_frontier_is_that_of_levin_and_may():
    taus = np.arange(100)
    np.testing.assert_allclose(largest_eta(taus), 2 * np.cos(np.pi * taus / (2 * taus + 1)), rtol=1e-12)
    assert largest_eta(0, L=4.0) == 0.5  # gradient descent
    golden = (np.sqrt(5) - 1) / 2
    np.testing.assert_allclose(largest_eta([1, 2]), [1, golden])


def test_the_roots_solve_the_equation_and_are_sorted():
    z = roots(6, 0.3)
    np.testing.assert_allclose(z**7 - z**6 + 0.3, 0, atol=1e-12)
    assert len(z) == 7 and (np.diff(np.abs(z)) <= 0).all()
    assert sorted(np.abs(roots(3, 0.0))) == [0, 0, 0, 1]  # eta = 0: nothing moves


def test_running_finds_the_frontier_of_theory_within_a_per_cent():
    taus = np.array([0, 1, 2, 5, 11, 24])
    reads = np.stack([constant_delay(3000, int(tau)).read for tau in taus], axis=1)
    np.testing.assert_allclose(frontier(reads, L=5.0), largest_eta(taus, L=5.0), rtol=0.01)
    assert frontier(reads[:, 3]) == pytest.approx(largest_eta(5), rel=0.01)


def test_the_rate_of_a_path_is_the_largest_root():
    """Oracle: numpy's roots. After the transient |w| shrinks by the radius each update."""
    x = np.array([0.03, 0.05])  # a real largest root: no oscillation to average over
    path = delayed_path(constant_delay(400, 4).read, x)
    np.testing.assert_allclose(path[-1] / path[-2], [spectral_radius(4, e) for e in x], rtol=1e-9)


def test_a_path_is_what_replay_does_on_a_quadratic_of_one_coordinate():
    problem = LeastSquares([[1.0]], [0.0])  # F = w^2, so lambda = 2
    rng = np.random.default_rng(0)
    schedule = constant_delay(200, 7)
    ours = delayed_path(schedule.read, [0.1, 0.15])
    for column, eta in enumerate((0.05, 0.075)):
        w = replay(problem, [1.0], eta, schedule, lambda k, t: None)
        np.testing.assert_allclose(ours[:, column], w[:, 0], rtol=1e-9, atol=1e-12)
    read = np.maximum(np.arange(50) - rng.integers(0, 5, size=(2, 50)), 0).T
    both = delayed_path(read, [0.3, 0.4])
    for column, x in enumerate((0.3, 0.4)):
        np.testing.assert_array_equal(both[:, column], delayed_path(read[:, column], x)[:, 0])


def test_in_several_dimensions_the_largest_curvature_decides():
    rng = np.random.default_rng(3)
    problem = LeastSquares(rng.standard_normal((60, 4)) * [3, 1, 0.5, 0.2], np.zeros(60))
    schedule, eta = constant_delay(1500, 6), largest_eta(6, problem.L)
    sizes = [
        np.abs(replay(problem, np.ones(4), c * eta, schedule, lambda k, t: None)).max(axis=1)
        for c in (0.97, 1.03)
    ]
    assert sizes[0][1000:].max() < sizes[0][500:1000].max()
    assert sizes[1][1000:].max() > sizes[1][500:1000].max()


def test_random_delays_allow_a_larger_step_than_a_constant_one_of_the_same_mean():
    """Not the theory of constant delays: that the mean decides is refuted. Twelve schedules, all beyond."""
    U, m = 3000, 4
    tau = np.random.default_rng(1).integers(0, 2 * m + 1, size=(U, 12))
    found = frontier(np.maximum(np.arange(U)[:, None] - tau, 0))
    assert (found > 1.2 * largest_eta(m)).all() and (found > 2 * largest_eta(2 * m)).all()


def test_what_overflows_grows_and_what_reaches_zero_shrinks():
    path = delayed_path(constant_delay(3000, 0).read, [0.0, 1.0, 1.9, 2.1, 9.0])
    assert grows(path).tolist() == [True, False, False, True, True]  # eta = 0: it does not shrink


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: largest_eta(-1), r"tau must be a whole number of versions >= 0"),
        (lambda: largest_eta(1.5), r"tau must be a whole number"),
        (lambda: largest_eta(1, L=0), r"L must be finite and > 0, got 0"),
        (lambda: roots(True, 0.1), r"tau must be a whole number"),
        (lambda: roots(2, float("nan")), r"eta_lambda must be finite and >= 0, got nan"),
        (lambda: delayed_path([0, 2], 0.1), r"read must be versions that are there"),
        (lambda: delayed_path([], 0.1), r"read must hold version numbers"),
        (lambda: delayed_path(np.zeros((4, 2), int), [0.1, 0.2, 0.3]), r"a column for each of 3"),
        (lambda: delayed_path([0, 1], -0.1), r"eta_lambda must be finite and >= 0"),
        (
            lambda: frontier(range(9), precision=0),
            r"precision must be a relative error from 1e-9 to 1, got 0",
        ),
        (lambda: frontier(range(9), L=-1.0), r"L must be finite and > 0"),
        (lambda: frontier([0, 1, 2]), r"path must hold at least 6 versions"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()
