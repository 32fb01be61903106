"""E max(x - slowest, 0): against scipy, against counting, and against the expected maximum far out."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from labkit.timing import (
    Constant,
    LogNormal,
    OneStraggler,
    Pareto,
    PerWorker,
    ShiftedExponential,
    Trace,
    TruncatedNormal,
    Uniform,
    expected_max,
)
from labkit.timing.order import expected_shortfall

SMOOTH = {
    "lognormal": (LogNormal(1.0, 0.3), stats.lognorm(0.3, scale=1.0)),
    "exponential": (ShiftedExponential(1.0, 0.5), stats.expon(1.0, 0.5)),
    "uniform": (Uniform(1.0, 2.0), stats.uniform(1.0, 1.0)),
    "normal": (TruncatedNormal(1.0, 0.1), stats.norm(1.0, 0.1)),  # cut at 10 sigma: the same
    "pareto": (Pareto(1.0, 2.5), stats.pareto(2.5)),
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("K", [1, 7, 1000])
def test_it_is_the_integral_of_the_maximum_s_distribution(name, K):
    law, its = SMOOTH[name]
    middle = float(its.ppf(0.5 ** (1 / K)))
    for x in (0.5, 0.9 * middle, middle, 1.3 * middle):
        low, high = its.support()  # where the density jumps, scipy has to be told
        points = [t for t in (low, 1.0, middle, high) if 0 < t < x]
        oracle, _ = quad(lambda t: its.cdf(t) ** K, 0.0, x, limit=400, points=points or None)
        assert expected_shortfall(law, K, x) == pytest.approx(oracle, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    "law", [LogNormal(1.0, 0.3), OneStraggler(LogNormal(1.0, 0.1), 1.5), Uniform(0.0, 2.0)]
)
def test_far_beyond_all_times_it_is_x_less_the_expected_maximum(law):
    assert expected_shortfall(law, 6, 500.0) == pytest.approx(500.0 - expected_max(law, 6), rel=1e-9)


def test_laws_that_jump_are_exact():
    assert expected_shortfall(Constant(2.0), 5, 1.5) == 0
    assert expected_shortfall(Constant(2.0), 5, 3.5) == pytest.approx(1.5, rel=1e-12)
    assert expected_shortfall(OneStraggler(Constant(2.0), 2.0), 5, 4.5) == pytest.approx(0.5, rel=1e-12)
    times = np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 1.0]])
    assert expected_shortfall(Trace(times), 2, 4.0) == pytest.approx((1 + 2 + 0) / 3)
    one = Trace(times).worker(0)
    assert expected_shortfall(one, 1, 4.0) == pytest.approx((3 + 2 + 0) / 3, rel=1e-12)


def test_different_laws_agree_with_many_draws():
    law, rng = PerWorker((Uniform(0.5, 1.5), LogNormal(1.0, 0.2), Constant(0.9))), np.random.default_rng(3)
    slowest = np.max([law.worker(k).sample(rng, 200_000) for k in range(3)], axis=0)
    short = np.maximum(1.3 - slowest, 0)
    error = short.std() / np.sqrt(len(short))
    # 5 standard errors of a fixed seed: a false alarm of a right code has a probability below 1e-6
    assert abs(expected_shortfall(law, 3, 1.3) - short.mean()) < 5 * error


@pytest.mark.parametrize("x", [-1.0, np.nan, np.inf, "1"])
def test_a_bad_x_is_refused_by_name(x):
    with pytest.raises(ValueError, match=r"^x must be a finite number >= 0"):
        expected_shortfall(Constant(1.0), 2, x)
