"""The straggler report: its sums, its test's false-alarm rate, and what it says with nothing to judge."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from labkit.timing.laws import Constant, OneStraggler, PerWorker, ShiftedExponential, Uniform, draw
from labkit.timing.policy import Synchronous
from labkit.timing.report import straggler_report
from labkit.timing.timeline import Timeline

NOISE = ShiftedExponential(0.08, 0.02)


def arrivals(A):
    """A timeline that holds arrivals (K, S) and nothing else."""
    A = np.asarray(A, dtype=float)
    points = [(f"point {s}", A[:, s]) for s in range(A.shape[1])]
    return Timeline.from_spans(len(A), [], arrivals=points, measured=True, where="here")


def of_bsp(law, K, S, seed=0):
    return straggler_report(Synchronous().timeline(draw(law, K, S, seed)))


def test_the_sums_by_hand():
    report = straggler_report(arrivals([[1.0, 10.0, 20.0], [2.0, 10.5, 20.0], [4.0, 10.2, 20.5]]))
    np.testing.assert_array_equal(report.times_last, [0, 1, 2])
    np.testing.assert_allclose(report.mean_late_s, [0, 1.5 / 3, 3.7 / 3])
    assert report.waited_s == pytest.approx((3 + 2) + (0.5 + 0.3) + (0.5 + 0.5))
    np.testing.assert_allclose(report.caused_s, [0, 2 * 0.3, 2 * 2.0 + 2 * 0.5])
    np.testing.assert_allclose(report.share, [0, 1 / 3, 2 / 3])


def test_the_probability_is_scipys_binomial_test_times_the_ranks():
    report = of_bsp(NOISE, 5, 60, seed=1)
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


def test_a_straggler_later_still_from_some_step_on_is_named_and_hardly_ever_a_worker_alike(monkeypatch):
    """Its points resemble each other in how late it is, not in who is late. The workers alike remember all of the record."""
    rng = np.random.default_rng(2)
    later = rng.standard_normal((3, 60))
    later[1] += np.where(np.arange(60) < 25, 30, 33)
    jobs = [arrivals(A) for A in (later, *alike(rng, 1000, 3, 60, math.exp(-1 / 60)))]
    named = [straggler_report(job).stragglers for job in jobs]
    monkeypatch.setattr("labkit.timing.report._CLEAR", math.inf)
    without = [straggler_report(job).stragglers for job in jobs]
    assert (named[0], without[0]) == ((1,), ())
    assert sum(map(bool, named[1:])) <= sum(map(bool, without[1:])) + 5


TWO = PerWorker((Uniform(0.08, 0.1),) * 6 + (Uniform(0.2, 0.3),) * 2)
ALWAYS_3 = OneStraggler(Uniform(0.09, 0.1), 2.0, rank=3)


@pytest.mark.parametrize("report, named, says", [
    (of_bsp(OneStraggler(NOISE, 1 / 0.7, rank=6), 8, 50), (6,), "Rank 6 is a persistent straggler: last at "),
    (of_bsp(TWO, 8, 60), (6, 7), "Ranks 6, 7 are persistent stragglers: together last at 60 of 60 points"),
    (of_bsp(NOISE, 8, 50), (), "Everyone's noise: rank "),
    (of_bsp(ALWAYS_3, 4, 4), (), "Too few points to tell: rank 3 .* takes 5 points"),  # 4 * (1/4)**5 < 0.01
    (of_bsp(ALWAYS_3, 4, 5), (3,), "Rank 3 is"),
    (of_bsp(Constant(0.1), 8, 200), (), "Nobody is late"),
    (straggler_report(arrivals([np.linspace(0, 1, 40), np.linspace(1, 0, 40)])), (), "Too few .* than one"),
    (straggler_report(arrivals(np.ones((4, 0)))), (), "There is no point that all 4 workers reached"),
    (straggler_report(arrivals(np.ones((1, 3)))), (), "One worker waits for nobody"),
])  # fmt: skip
def test_the_verdict_names_whom_it_should_and_says_why(report, named, says):
    assert report.stragglers == named
    assert re.match(says, report.verdict) and str(report).endswith(report.verdict)


def test_of_many_ranks_sixteen_rows_are_printed_and_of_alike_neighbours_the_blocks_are_told():
    report = of_bsp(NOISE, 20, 50)
    rows = [int(row.split()[0]) for row in str(report).splitlines() if re.match(r" +\d", row)]
    assert len(rows) == 16 and min(report.times_last[rows]) >= np.delete(report.times_last, rows).max()
    assert "(the 16 most often last of 20)" in str(report)
    times = alike(np.random.default_rng(0), 1, 4, 400, 0.5)[0] + [[0], [0], [3], [0]]
    report = straggler_report(arrivals(times))
    assert (
        report.block > 1
        and f"(judged in blocks of {report.block}, as neighbours are alike)" in report.verdict
    )


def test_rounding_makes_no_late_worker_and_points_that_somebody_never_reached_do_not_count():
    one = np.cumsum(np.full(50, 0.1))
    assert not straggler_report(arrivals(np.stack([one, one + 1e-15]))).times_last.any()
    assert straggler_report(arrivals([[1.0, math.nan], [2.0, 3.0]])).S == 1


@pytest.mark.parametrize("rate", [0, 1.5])
def test_a_false_alarm_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="false_alarm must be"):
        straggler_report(arrivals([[1.0], [2.0]]), rate)
