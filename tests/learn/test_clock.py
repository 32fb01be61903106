"""Error against seconds: the losses of a replay at the times of its updates, and the fairest step size for each method."""

import math

import numpy as np
import pytest

from labkit.learn import LeastSquares, constant_delay, linear_data, local_sgd_at_once, replay
from labkit.learn.clock import Curve, error_over_time, first_updates, local_error_over_time, tuned


def problem_of(N=96, d=5):
    X, y, _ = linear_data(N, d, np.random.default_rng(11))
    return LeastSquares(X, y)


def batches(rank, step):
    return np.random.default_rng([5, rank, step]).integers(96, size=8)


def test_the_curve_is_the_loss_of_each_version_at_the_second_it_came_to_be():
    problem, schedule = problem_of(), constant_delay(30, 2)
    w = replay(problem, np.ones(5), 0.05, schedule, batches)
    curve = error_over_time(problem, np.ones(5), 0.05, schedule, batches, points=1000)
    assert curve.seconds.tolist() == list(range(31)) and curve.eta == 0.05 and curve.diverged is None
    np.testing.assert_array_equal(curve.loss, [problem.loss(v) for v in w])
    few = error_over_time(problem, np.ones(5), 0.05, schedule, batches, points=4)
    assert few.seconds.tolist() == [0, 10, 20, 30]
    np.testing.assert_array_equal(few.loss, curve.loss[::10])


def test_local_rounds_are_seen_at_their_meetings():
    problem = problem_of()
    curve = local_error_over_time(problem, np.ones(5), 0.05, lambda t, k: batches(k, t), 3, 4, [0.5, 2.0])
    w = local_sgd_at_once(problem, np.ones(5), 0.05, lambda t, k: batches(k, t), 3, 4, T=6)
    assert curve.seconds.tolist() == [0, 0.5, 2.0]
    np.testing.assert_array_equal(curve.loss, [problem.loss(v) for v in w])


def test_the_time_to_a_target_is_when_the_loss_is_there_for_good_or_never():
    curve = Curve(0.1, np.array([0.0, 1.0, 3.0, 4.0, 6.0]), np.array([9.0, 2.0, 5.0, 1.0, 2.0]))
    assert [curve.time_to(x) for x in (10, 5.0, 3, 2.0, 1.5, 0.5)] == [0, 1, 4, 4, math.inf, math.inf]
    assert Curve(0.1, np.array([0.0, 1.0]), np.array([1.0, np.inf])).time_to(2.0) == math.inf


def test_tuning_takes_the_eta_that_is_first_at_the_target_and_a_diverging_one_never():
    problem, schedule = problem_of(), constant_delay(500, 6)
    etas = [0.005, 0.02, 0.05, 1e4]

    def run(eta):
        return error_over_time(problem, np.ones(5), eta, schedule, batches)

    curves = {eta: run(eta) for eta in etas}
    assert curves[1e4].diverged is not None and np.isinf(curves[1e4].loss).all()
    chosen = tuned(run, etas, target=0.05)
    assert chosen.time_to(0.05) == min(c.time_to(0.05) for c in curves.values()) < math.inf
    hopeless = tuned(run, etas, target=-1.0)
    assert hopeless.loss[-1] == min(c.loss[-1] for c in curves.values())


def test_the_first_updates_are_those_before_the_deadline_and_learn_the_same():
    problem, schedule = problem_of(), constant_delay(30, 3)
    cut = first_updates(schedule, 12.5)
    assert cut.U == 12 and cut.K == 4 and cut.where == schedule.where
    np.testing.assert_array_equal(
        replay(problem, np.ones(5), 0.05, cut, batches),
        replay(problem, np.ones(5), 0.05, schedule, batches)[:13],
    )


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda p: first_updates(constant_delay(5, 0), 0.5), r"until_s must be at least"),
        (
            lambda p: error_over_time(p, np.ones(5), 0.1, constant_delay(5, 0), batches, points=1),
            "points must be",
        ),
        (
            lambda p: local_error_over_time(p, np.ones(5), 0.1, lambda t, k: [0], 2, 2, [2.0, 1.0]),
            "meetings_s must",
        ),
        (lambda p: local_error_over_time(p, np.ones(5), 0.1, lambda t, k: [0], 2, 2, []), "meetings_s must"),
        (lambda p: tuned(lambda eta: None, [], 0.1), "etas must hold at least one learning rate"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call(problem_of())
