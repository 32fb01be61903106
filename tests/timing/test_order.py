"""The slowest of K workers: E max and E max(x - slowest, 0), against textbook formulas, scipy's quadrature and sampling."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from labkit.timing.laws import (
    Constant,
    LogNormal,
    OneStraggler,
    Pareto,
    PerWorker,
    Scaled,
    ShiftedExponential,
    Trace,
    TruncatedNormal,
    Uniform,
    draw,
)
from labkit.timing.order import expected_max, expected_shortfall

SMOOTH = [Uniform(0.08, 0.12), *(TruncatedNormal(0.1, sd) for sd in (0.02, 0.2))]
SMOOTH += [ShiftedExponential(0.08, 0.02)]
SMOOTH += [*(LogNormal(0.1, sd) for sd in (0.5, 2.0)), *(Pareto(0.08, a) for a in (1.2, 4.0))]
MIXED = [
    OneStraggler(Uniform(0.08, 0.12), 1.3, rank=2),
    OneStraggler(ShiftedExponential(0.08, 0.02), 0.5),
    OneStraggler(LogNormal(0.1, 0.5), 3.0),
    PerWorker((Constant(0.1), Uniform(0.05, 0.2), TruncatedNormal(0.1, 0.05), LogNormal(0.1, 0.2))),
]


def test_textbook_formulas():
    assert expected_max(Constant(0.3), 10) == 0.3
    assert expected_max(Uniform(1, 3), 3) == pytest.approx(2.5)
    harmonic = math.fsum(1 / j for j in range(1, 1001))
    assert expected_max(ShiftedExponential(2.0, 0.5), 1000) == pytest.approx(2 + 0.5 * harmonic, rel=1e-12)
    # normal: E max of 2 is sigma / sqrt(pi), of 3 it is 1.5 sigma / sqrt(pi) (David & Nagaraja, section 3.2);
    # at mu = 10 sigma the truncation at 0 is below rounding
    assert expected_max(TruncatedNormal(10, 1), 2) == pytest.approx(10 + 1 / math.sqrt(math.pi), rel=1e-12)
    assert expected_max(TruncatedNormal(10, 1), 3) == pytest.approx(10 + 1.5 / math.sqrt(math.pi), rel=1e-12)
    assert expected_max(Scaled(Uniform(1, 3), 4.0), 3) == pytest.approx(10)
    # one straggler among constants sets the pace: 7 workers at 90 ms, one at 300 ms
    assert expected_max(OneStraggler(Constant(0.09), 0.3 / 0.09), 8) == pytest.approx(0.3)


@pytest.mark.parametrize("K", [2, 10, 10_000, 10**6])
def test_pareto_is_the_product_over_workers(K):
    product = math.exp(-math.fsum(math.log1p(-1 / (1.5 * j)) for j in range(1, K + 1)))
    assert expected_max(Pareto(0.1, 1.5), K) == pytest.approx(0.1 * product, rel=1e-11)


@pytest.mark.parametrize("K", [7, 10**6, *(pytest.param(K, marks=pytest.mark.weekly) for K in (2, 1000))])
@pytest.mark.parametrize("law", SMOOTH[:5], ids=repr)  # scipy's general rule copes with light tails
def test_quadrature_agrees_with_scipy(law, K):
    points = law.isf(np.minimum(np.logspace(1.3, -12, 28) / K, 1.0))
    later = lambda x: -math.expm1(K * math.log1p(-law.sf(x))) if law.sf(x) < 1 else 1.0  # noqa: E731
    area, _ = integrate.quad(later, points[0], points[-1], points=points[1:-1], limit=500)
    assert expected_max(law, K) == pytest.approx(points[0] + area, rel=1e-7)


def test_a_tail_without_a_mean_has_no_expected_maximum():
    assert expected_max(Pareto(0.1, 1.0), 4) == math.inf
    assert expected_max(OneStraggler(Pareto(0.1, 0.8), 2.0), 4) == math.inf


@pytest.mark.parametrize("law", SMOOTH[::3], ids=repr)
def test_a_straggler_no_slower_than_the_rest_changes_nothing(law):
    for K in (2, 64, 10**6):
        assert expected_max(OneStraggler(law, 1 + 1e-12), K) == pytest.approx(expected_max(law, K), rel=1e-9)


@pytest.mark.parametrize("slowdown", [1.5, 10.0])
def test_uniform_with_one_straggler_is_a_polynomial(slowdown):
    # E max = hi - integral of F(x)^(K-1) G(x): over [0, 1] F = x and G = x / slowdown; beyond it F = 1
    K = 5
    exact = slowdown - (1 / slowdown) / (K + 1) - (slowdown**2 - 1) / (2 * slowdown)
    assert expected_max(OneStraggler(Uniform(0, 1), slowdown), K) == pytest.approx(exact, rel=1e-12)


def test_a_trace_counts_its_own_slowest_and_stands_by_itself():
    times = np.array([[1.0, 5.0, 3.0], [2.0, 4.0, 6.0]])
    assert expected_max(Trace(times), 2) == pytest.approx(13 / 3)
    with pytest.raises(ValueError, match="recorded times must be a Trace by themselves"):
        expected_max(PerWorker((Trace(times).worker(0), Constant(1.0))), 2)


@pytest.mark.parametrize("law", SMOOTH[:6] + MIXED, ids=repr)
def test_sampling_agrees_with_both_expectations(law):
    # Means of n maxima within z standard errors; two-sided false alarm 1e-6 each, and the seeds are fixed.
    # LogNormal(0.1, 2.0) is skewed: 200 000 draws bring it near the normal limit.
    n, K = 200_000, 4
    slowest, z = draw(law, K, n, seed=8).max(axis=0), stats.norm.isf(0.5e-6)
    x = float(np.median(slowest))
    short = np.maximum(x - slowest, 0)
    for drawn, expected in ((slowest, expected_max(law, K)), (short, expected_shortfall(law, K, x))):
        assert abs(drawn.mean() - expected) < z * drawn.std() / math.sqrt(n) + 1e-15


@pytest.mark.parametrize("law", [LogNormal(1.0, 0.3), OneStraggler(LogNormal(1.0, 0.1), 1.5), Uniform(0, 2)])
def test_far_beyond_all_times_the_shortfall_is_x_less_the_expected_maximum(law):
    assert expected_shortfall(law, 6, 500.0) == pytest.approx(500.0 - expected_max(law, 6), rel=1e-9)


def test_the_shortfall_of_laws_that_jump_is_exact():
    assert expected_shortfall(Constant(2.0), 5, 1.5) == 0
    assert expected_shortfall(OneStraggler(Constant(2.0), 2.0), 5, 4.5) == pytest.approx(0.5, rel=1e-12)
    times = np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 1.0]])
    assert expected_shortfall(Trace(times), 2, 4.0) == pytest.approx((1 + 2 + 0) / 3)
    assert expected_shortfall(Trace(times).worker(0), 1, 4.0) == pytest.approx((3 + 2 + 0) / 3, rel=1e-12)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="K must be a whole number >= 1, got 0"):
        expected_max(Uniform(0, 1), 0)
    with pytest.raises(ValueError, match=r"^x must be a finite number >= 0"):
        expected_shortfall(Constant(1.0), 2, math.nan)
