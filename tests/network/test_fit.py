"""A link comes back from noisy times, its interval says how well, and samples that can't tell are refused.

Seeds are fixed, so nothing here is left to chance from run to run. For another seed the counts below would fail a right
program about once in 10,000 times: they allow four standard deviations of a binomial.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from labkit.collectives import ALLREDUCES, naive, ring, tree
from labkit.network import Link, Sample, fit

LINK = Link(alpha=50e-6, beta=1.25e8)
FORMS = (naive, tree, ring)


def measured(rng, m, scatter=0.05, disturbed=0, forms=FORMS, link=LINK, sizes=(2, 7.5), Ks=(2, 3, 4)):
    """m samples of sizes over some decades, with lognormal scatter; the last ``disturbed`` take 2 to 20 times as long."""
    samples, size = [], rng.permutation(np.logspace(*sizes, m))
    for i in range(m):
        form, K, nbytes = forms[i % len(forms)], int(rng.choice(Ks)), float(size[i])
        seconds = form.time(K, nbytes, link) * math.exp(scatter * rng.standard_normal())
        seconds *= rng.uniform(2, 20) if i >= m - disturbed else 1
        samples.append(Sample(form, K, nbytes, seconds))
    return samples


@given(st.floats(1e-7, 1e-2), st.floats(1e6, 1e11), st.integers(0, 2**32))
@settings(max_examples=40)
def test_times_without_scatter_give_the_link_back(alpha, beta, seed):
    link, samples = Link(alpha, beta), []
    for times_balanced in (0.01, 0.3, 1, 3, 100):  # sizes at which latency counts, and at which it doesn't
        n = times_balanced * alpha * beta
        samples += [Sample(form, 4, n, form.time(4, n, link)) for form in ALLREDUCES.values()]
    found = fit(np.random.default_rng(seed).permutation(np.array(samples, dtype=object)))
    assert found.link.alpha == pytest.approx(alpha, rel=1e-9)
    assert found.link.beta == pytest.approx(beta, rel=1e-9)
    assert found.alpha_interval[0] <= found.alpha_interval[1] < alpha * (1 + 1e-6)


@pytest.mark.parametrize("link", [Link(0.0, 1e9), Link(1e-4, math.inf)])
def test_a_link_without_latency_or_without_bytes_to_pay_is_found_where_nothing_scatters(link):
    found = fit(measured(np.random.default_rng(8), 20, scatter=0, link=link)).link
    assert found.alpha == pytest.approx(link.alpha, rel=1e-9, abs=1e-18)
    assert 1 / found.beta == pytest.approx(1 / link.beta, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("seed", range(10))
def test_a_fifth_of_the_times_disturbed_does_not_move_the_link(seed):
    samples = measured(np.random.default_rng([1, seed]), 40, disturbed=8)
    found = fit(samples)
    assert found != fit(samples)  # told apart as objects, since arrays have no one truth value
    assert found.link.alpha == pytest.approx(LINK.alpha, rel=0.15)
    assert found.link.beta == pytest.approx(LINK.beta, rel=0.06)
    assert 0.03 < found.scatter < 0.12  # that of the others


def test_without_disturbance_it_is_least_squares_as_scipy_has_it():
    samples = measured(np.random.default_rng(2), 60)
    counted = [(s.form.rounds(s.K), s.form.time(s.K, s.nbytes, Link(0, 1))) for s in samples]

    def log_seconds(_, log_alpha, log_beta):
        return np.log(np.array(counted) @ np.exp([log_alpha, -log_beta]))

    seconds = np.log([s.seconds for s in samples])
    theta, covariance = curve_fit(log_seconds, 0, seconds, p0=np.log([1e-5, 1e8]))
    deviation = np.sqrt(np.diag(covariance))
    found = fit(samples)
    assert abs(math.log(found.link.alpha) - theta[0]) < 0.5 * deviation[0]
    assert abs(math.log(found.link.beta) - theta[1]) < 0.5 * deviation[1]
    for interval, each in ((found.alpha_interval, deviation[0]), (found.beta_interval, deviation[1])):
        assert math.log(interval[1] / interval[0]) == pytest.approx(2 * 2.0 * each, rel=0.3)


@pytest.mark.parametrize(("m", "disturbed"), [(10, 0), (24, 4)])
def test_intervals_hold_the_true_link_about_as_often_as_they_say(m, disturbed):
    rng, repetitions = np.random.default_rng([3, m, disturbed]), 300
    held = np.zeros(2)
    for _ in range(repetitions):
        found = fit(measured(rng, m, disturbed=disturbed, Ks=(2, 4)))
        held += (
            found.alpha_interval[0] <= LINK.alpha <= found.alpha_interval[1],
            found.beta_interval[0] <= LINK.beta <= found.beta_interval[1],
        )
    slack = 4 * math.sqrt(0.95 * 0.05 / repetitions)
    assert np.all(np.abs(held / repetitions - 0.95) < slack), held / repetitions


# -- what can't be told is refused ---------------------------------------------------------------------------
_rng = np.random.default_rng(10)


@pytest.mark.parametrize(("samples", "why"), [
    ([], "at least three, got 0"),
    (measured(_rng, 2), "got 2"),
    ([Sample(ring, 4, 1e6, s) for s in (0.01, 0.011, 0.0105, 0.0101)], "must determine"),
    ([Sample(ring, 4, 1e6, 0.01)] * 3, "must determine"),
    ([Sample(tree, 4, 0, 1e-4 * i) for i in (1, 2, 3)], "must determine"),
    (measured(_rng, 12, sizes=(0, 1)), "must determine 1/beta.*measure longer vectors"),
    (measured(_rng, 12, sizes=(8, 9)), "must determine alpha.*measure shorter vectors"),
])  # fmt: skip
def test_samples_that_determine_too_little_are_refused_by_what_they_lack(samples, why):
    with pytest.raises(ValueError, match=f"samples must .*{why}" if "must" not in why else why):
        fit(samples)


@pytest.mark.parametrize(("K", "nbytes", "seconds", "says"), [
    (1, 1e6, 1.0, "K must be"), (2.0, 1e6, 1.0, "K must be"), (4, -1, 1.0, "nbytes must be"),
    *((4, 1e6, s, "seconds must be a finite number > 0") for s in (-1.0, 0.0, math.nan, math.inf, "1", None, True)),
])  # fmt: skip
def test_a_sample_of_nothing_and_seconds_that_no_clock_shows_are_refused(K, nbytes, seconds, says):
    with pytest.raises(ValueError, match=says):
        Sample(ring, K, nbytes, seconds)
