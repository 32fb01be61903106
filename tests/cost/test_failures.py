"""Young, Daly and goodput: against each other, the simulation, and a published run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from labkit.cost.failures import best_interval, daly, goodput, mtbf, wall_time, young
from labkit.timing.failures import run_with_failures

CASES = [(1.0, 1e4), (30.0, 3 * 3600.0), (600.0, 3600.0), (5000.0, 3600.0)]


def test_a_job_of_K_workers_fails_K_times_as_often():
    one = mtbf(54 * 86400 * 16384 / 419, 16384)  # Llama 3: 419 unexpected interruptions in 54 days
    assert round(one / 3600, 1) == 3.1
    assert mtbf(1e6, 10) == 1e5


@pytest.mark.parametrize(("write", "M"), CASES)
def test_the_best_interval_minimises_the_expected_time_whatever_a_restart_costs(write, M):
    best = best_interval(write, M)
    for R in (0.0, 300.0):
        found = minimize_scalar(
            lambda tau, R=R: wall_time(1e5, tau, write, R, M),
            bounds=(1e-3 * best, 20 * best),
            method="bounded",
        )
        assert best == pytest.approx(found.x, rel=1e-3)


@pytest.mark.parametrize("ratio", [1e-16, 1e-12, 1e-9, 9e-7, 1.1e-6, 1e-3, 2.0])
def test_the_best_interval_solves_its_equation_however_short_the_write(ratio):
    """exp(-(tau + delta) / M) = 1 - tau / M (Daly 2006, equation 13's derivative), in 60 digits by Newton's method."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        r = Decimal(ratio)
        x = min((2 * r).sqrt(), Decimal("0.9"))
        for _ in range(60):
            x += (x + (1 - x).ln() + r) * (1 - x) / x
    assert best_interval(ratio, 1.0) == pytest.approx(float(x), rel=2e-10)


def test_young_and_daly_tend_to_the_best_interval_as_writing_becomes_cheap_and_daly_is_nearer():
    before = math.inf
    for write in (300.0, 30.0, 3.0, 0.3):
        best = best_interval(write, 3600.0)
        off_young, off_daly = abs(young(write, 3600.0) / best - 1), abs(daly(write, 3600.0) / best - 1)
        assert off_daly < off_young < before
        before = off_young
    assert before < 0.01 and daly(5000.0, 2000.0) == 2000.0


@pytest.mark.parametrize(("write", "M"), CASES[:3])
def test_the_simulation_takes_as_long_as_the_closed_form_says(write, M):
    """Within 4.9 standard errors: a false alarm has probability 1e-6."""
    tau, R = best_interval(write, M), 120.0
    done = run_with_failures(20 * tau, tau, write, R, M, np.random.default_rng(7), replicas=4000)
    expected = wall_time(20 * tau, tau, write, R, M)
    error = done.wall_s.std(ddof=1) / math.sqrt(len(done.wall_s))
    assert abs(done.wall_s.mean() - expected) < 4.9 * error
    assert error < 0.01 * expected
    assert 1 / np.mean(1 / done.goodput) == pytest.approx(goodput(tau, write, R, M), rel=0.03)


def test_every_second_of_a_run_is_accounted_for():
    work, tau, write, restart = 95.0, 10.0, 1.0, 0.0
    done = run_with_failures(work, tau, write, restart, 40.0, np.random.default_rng(1), replicas=200)
    assert done.wall_s == pytest.approx(work + 10 * write + done.lost_s)
    assert done.failures.mean() == pytest.approx(done.wall_s.mean() / 40.0, rel=0.1)


def test_without_failures_only_writing_is_paid():
    done = run_with_failures(95.0, 10.0, 1.0, 5.0, 1e12, np.random.default_rng(1))
    assert done.wall_s.tolist() == [105.0] and done.failures.tolist() == [0] and done.lost_s.tolist() == [0.0]
    assert wall_time(100.0, 10.0, 1.0, 5.0, 1e12) == pytest.approx(110.0)


def test_where_nothing_can_be_finished_it_is_said():
    assert wall_time(1e4, 1e4, 1.0, 1.0, 1.0) == math.inf
    assert goodput(1e4, 1.0, 1.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="take a shorter interval_s"):
        run_with_failures(1e3, 1e3, 1.0, 0.0, 1.0, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mtbf(1.0, 0), "K must be a whole number of workers >= 1, got 0"),
        (lambda: mtbf(0.0, 2), "worker_mtbf_s must be a finite number of seconds > 0, got 0.0"),
        (lambda: young(-1.0, 2.0), "write_s must be a finite number of seconds > 0, got -1.0"),
        (lambda: daly(1.0, math.nan), "mtbf_s must be a finite number of seconds > 0, got nan"),
        (lambda: wall_time(1.0, 1.0, 1.0, -2.0, 1.0), "restart_s must be a finite number of seconds >= 0"),
        (lambda: goodput(0.0, 1.0, 1.0, 1.0), "interval_s must be a finite number"),
        (lambda: run_with_failures(1, 1, 1, 1, 1, None), "rng must be a numpy Generator"),
        (
            lambda: run_with_failures(0, 1, 1, 1, 1, np.random.default_rng()),
            "work_s must be a finite number > 0",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
