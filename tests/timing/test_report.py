"""The straggler report: its sums, its test's false-alarm rate, and what it says with nothing to judge."""

import math

import numpy as np
import pytest
from scipy import stats

from labkit.timing import (
    Constant,
    OneStraggler,
    PerWorker,
    ShiftedExponential,
    Synchronous,
    Timeline,
    Uniform,
    draw,
    straggler_report,
)

NOISE = ShiftedExponential(0.08, 0.02)


def arrivals(A):
    """A timeline that holds arrivals (K, S) and nothing else."""
    A = np.asarray(A, dtype=float)
    points = [(f"point {s}", A[:, s]) for s in range(A.shape[1])]
    return Timeline.from_spans(len(A), [], arrivals=points, measured=True, where="here")


def test_the_sums_by_hand():
    report = straggler_report(arrivals([[1.0, 10.0, 20.0], [2.0, 10.5, 20.0], [4.0, 10.2, 20.5]]))
    np.testing.assert_array_equal(report.times_last, [0, 1, 2])
    np.testing.assert_allclose(report.mean_late_s, [0, 1.5 / 3, 3.7 / 3])
    assert report.waited_s == pytest.approx((3 + 2) + (0.5 + 0.3) + (0.5 + 0.5))
    np.testing.assert_allclose(report.caused_s, [0, 2 * 0.3, 2 * 2.0 + 2 * 0.5])
    np.testing.assert_allclose(report.share, [0, 1 / 3, 2 / 3])


def test_the_group_waits_as_long_as_the_timeline_says():
    timeline = Synchronous().timeline(draw(NOISE, 6, 40, 3), 0.01)
    assert straggler_report(timeline).waited_s == pytest.approx(timeline.idle_s)


def test_the_probability_is_scipys_binomial_test_times_the_ranks():
    report = straggler_report(Synchronous().timeline(draw(NOISE, 5, 60, 1)))
    for times, p in zip(report.times_last, report.p_values, strict=True):
        one = stats.binomtest(int(times), 60, 1 / 5, alternative="greater").pvalue
        assert p == pytest.approx(min(1, 5 * one), rel=1e-9)


@pytest.mark.parametrize("K, S", [(2, 40), (8, 30), (64, 20)])
def test_alike_workers_raise_no_more_false_alarms_than_stated(K, S):
    n, rate = 1000, 0.05
    last = np.random.default_rng(K).random((n, K, S))
    alarms = sum(bool(straggler_report(arrivals(A), rate).stragglers) for A in last)
    # alarms <= Binomial(n, rate); the bound fails by chance with probability 1e-6 (and the seed is fixed)
    assert alarms <= stats.binom.isf(1e-6, n, rate)


def alike(rng, n, K, S, rho):
    """n jobs of K workers alike, (n, K, S): lateness that follows itself from step to step with autocorrelation rho."""
    x = rng.standard_normal((n, K, S))
    for s in range(1, S):
        x[..., s] = rho * x[..., s - 1] + math.sqrt(1 - rho**2) * x[..., s]
    return x


@pytest.mark.parametrize("K, S, rho", [(4, 120, 0.0), (2, 100, 0.5), (8, 60, 0.5), (8, 200, 0.8)])
def test_workers_alike_but_slow_for_a_stretch_of_steps_are_no_stragglers(K, S, rho):
    """Judged step by step, autocorrelation 0.5 raises 13 to 28 % of false alarms where 5 are allowed, and 0.8 raises 70."""
    jobs = alike(np.random.default_rng(K), 400, K, S, rho)
    alarms = sum(bool(straggler_report(arrivals(A), 0.05).stragglers) for A in jobs)
    assert alarms <= stats.binom.isf(1e-3, 400, 0.07)


@pytest.mark.parametrize("rho, power", [(0.0, 0.99), (0.5, 0.95), (0.8, 0.9)])
def test_a_straggler_is_named_also_where_steps_are_correlated(rho, power):
    """Late by twice the scatter of a step, in 200 steps of 8 workers."""
    jobs = alike(np.random.default_rng(1), 100, 8, 200, rho)
    jobs[:, 5] += 2
    reports = [straggler_report(arrivals(A)) for A in jobs]
    assert np.mean([5 in report.stragglers for report in reports]) >= power
    assert (np.median([report.block for report in reports]) == 1) == (rho == 0)
    assert all((f"in blocks of {r.block}" in r.verdict) == (r.block > 1) for r in reports if r.stragglers)


def test_points_that_say_all_the_same_accuse_nobody():
    drift = np.linspace(0, 1, 40)
    report = straggler_report(arrivals(np.stack([drift, 1 - drift])))
    assert report.block == 0 and not report.stragglers and "little more than one" in report.verdict


def test_a_worker_whose_clock_is_30_percent_down_is_named():
    report = straggler_report(Synchronous().timeline(draw(OneStraggler(NOISE, 1 / 0.7, rank=6), 8, 50, 0)))
    assert report.stragglers == (6,)
    assert report.verdict.startswith("Rank 6 is a persistent straggler: last at ")
    assert report.caused_s.argmax() == 6


def test_two_stragglers_are_both_named():
    laws = (Uniform(0.08, 0.1),) * 6 + (Uniform(0.2, 0.3),) * 2
    report = straggler_report(Synchronous().timeline(draw(PerWorker(laws), 8, 60, 0)))
    assert report.stragglers == (6, 7)
    assert report.verdict.startswith("Ranks 6, 7 are persistent stragglers: together last at 60 of 60 points")


def test_noise_is_called_noise():
    report = straggler_report(Synchronous().timeline(draw(NOISE, 8, 50, 0)))
    assert report.stragglers == () and report.verdict.startswith("Everyone's noise: rank ")


def test_too_few_points_are_called_too_few_and_one_more_suffices():
    def always_rank_3(S):
        return straggler_report(
            Synchronous().timeline(draw(OneStraggler(Uniform(0.09, 0.1), 2.0, rank=3), 4, S, 0))
        )

    # 4 * (1/4)**S <= 0.01 from S = 5 on
    assert always_rank_3(4).stragglers == () and "takes 5 points" in always_rank_3(4).verdict
    assert always_rank_3(5).stragglers == (3,)


def test_ties_accuse_nobody_and_rounding_makes_no_late_worker():
    report = straggler_report(Synchronous().timeline(draw(Constant(0.1), 8, 200, 0), 0.003))
    assert not report.times_last.any() and report.verdict.startswith("Nobody is late")
    one = np.cumsum(np.full(50, 0.1))
    rounded = np.stack([one, one + 1e-15])
    assert not straggler_report(arrivals(rounded)).times_last.any()


def test_points_that_somebody_never_reached_do_not_count():
    report = straggler_report(arrivals([[1.0, math.nan], [2.0, 3.0]]))
    assert (report.S, report.skipped) == (1, 1)


@pytest.mark.parametrize("K", [1, 4])
def test_nothing_to_judge(K):
    for S in (0, 3) if K == 1 else (0,):
        report = straggler_report(arrivals(np.ones((K, S))))
        assert report.stragglers == () and report.waited_s == 0
        assert report.verdict.endswith(".") and "waited 0.00 ms" in str(report)


def test_the_table_has_a_row_a_rank_and_stays_short():
    assert len(str(straggler_report(Synchronous().timeline(draw(NOISE, 4, 9, 0)))).splitlines()) == 1 + 4 + 2
    assert (
        len(str(straggler_report(Synchronous().timeline(draw(NOISE, 500, 9, 0)))).splitlines()) == 1 + 16 + 3
    )


@pytest.mark.parametrize("rate", [0, 1, -0.1, "x"])
def test_a_false_alarm_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="false_alarm must be"):
        straggler_report(arrivals([[1.0], [2.0]]), rate)
