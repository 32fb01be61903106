"""SSP's promise: the regret of a convex run stays below theorem 1."""

import numpy as np
import pytest

from labkit.learn import LogisticRegression, constant_delay, replay, two_clouds
from labkit.learn.ssp_bound import regret, ssp_rate, ssp_regret_bound
from labkit.timing import OneStraggler, ShiftedExponential, draw, one_by_one, ssp


@pytest.mark.parametrize("slack", [0, 1, 3, 8])
def test_a_convex_run_stays_below_theorem_1_at_every_update_and_within_its_assumptions(slack):
    K, T = 6, 100
    problem = LogisticRegression(*two_clouds(300, 4, np.random.default_rng(2), distance=1.5))
    rows = np.random.default_rng(4).integers(300, size=(K, T))
    best = np.zeros(4)
    for _ in range(2000):
        best = best - problem.grad(best) / problem.L
    assert np.linalg.norm(problem.grad(best)) < 1e-4
    L = float(np.linalg.norm(problem.X, axis=1).max())  # a gradient is (p - y) x
    F = 1.2 * float(np.linalg.norm(best)) / np.sqrt(2)
    law = OneStraggler(ShiftedExponential(0.5, 0.5), 3.0, rank=2)
    schedule = one_by_one(ssp(draw(law, K, T, seed=slack), slack))
    w = replay(problem, np.zeros(4), ssp_rate(F, L, slack, K), schedule, lambda k, t: rows[k, t : t + 1])
    assert (((w - best) ** 2).sum(axis=1) / 2 <= F**2).all()
    measured = regret(problem, w, schedule, lambda k, t: rows[k, t : t + 1], best)
    bound = ssp_regret_bound(F, L, slack, K, np.arange(1, schedule.U + 1))
    assert (measured <= bound).all()
    assert measured[-1] > 0.01 * bound[-1]  # a comparison, not nothing


def test_the_rate_and_the_bound_are_those_of_the_theorem():
    assert ssp_rate(3.0, 2.0, 1, 4)(0) == pytest.approx(3 / (2 * 4))
    assert ssp_rate(3.0, 2.0, 1, 4)(8) == pytest.approx(3 / (2 * 4) / 3)
    assert ssp_regret_bound(3.0, 2.0, 1, 4, 25) == pytest.approx(4 * 3 * 2 * 4 * 5)
    four = ssp_regret_bound(1.0, 1.0, 3, 4, [100, 400])
    assert four[1] == 2 * four[0]  # a square root


def test_the_regret_compares_each_gradients_own_loss_at_the_version_it_read():
    problem = LogisticRegression(*two_clouds(40, 3, np.random.default_rng(2)))
    schedule, best = constant_delay(6, 2), np.ones(3)
    w = np.random.default_rng(0).standard_normal((7, 3))
    ours = regret(problem, w, schedule, lambda k, t: [k + t], best)
    by_hand = [
        problem.loss(w[max(u - 2, 0)], [u % 3 + u // 3]) - problem.loss(best, [u % 3 + u // 3])
        for u in range(6)
    ]
    np.testing.assert_allclose(ours, np.cumsum(by_hand))


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: ssp_rate(1.0, 1.0, -1, 3), r"slack must be a whole number >= 0, got -1"),
        (lambda: ssp_regret_bound(1.0, 1.0, 1, 0, 5), r"K must be a whole number >= 1, got 0"),
        (lambda: ssp_rate(0.0, 1, 1, 1), r"F must be finite and > 0"),
        (lambda: ssp_regret_bound(1, -1.0, 1, 1, 5), r"L must be finite and > 0"),
        (lambda: ssp_regret_bound(1, 1, 1, 1, 1.5), r"U must be a whole number"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_a_thinned_record_has_no_regret_to_compute():
    problem = LogisticRegression(*two_clouds(40, 3, np.random.default_rng(2)))
    with pytest.raises(ValueError, match="iterates must be all 7 versions of 3 numbers"):
        regret(problem, np.zeros((3, 3)), constant_delay(6, 2), lambda k, t: [0], np.zeros(3))
