"""Batches obey the law of sampling, tested as statistics: 1e-6 is the false-alarm rate of each test, at a fixed seed.

A sampler that is right fails such a test for one seed in a million; each wrong sampler below is caught.
"""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import MLP, LeastSquares, LogisticRegression, minibatches, two_clouds
from labkit.learn.noise import (
    batch_variance,
    correction,
    evidence,
    example_gradients,
    gradient_noise,
    noise_of,
    scale_from_two,
)

FALSE_ALARM = 1e-6
N, R = 12, 6000


@pytest.fixture(params=["least squares", "logistic", "mlp"])
def problem(request):
    rng = np.random.default_rng(3)
    X, y = two_clouds(N, 3, rng)
    X[-1] *= 3  # an example that matters
    if request.param == "least squares":
        return LeastSquares(X, rng.standard_normal(N))
    return LogisticRegression(X, y, l2=0.1) if request.param == "logistic" else MLP(X, y, 2, 2)


@pytest.fixture
def gradients(problem):
    return example_gradients(problem, np.random.default_rng(4).standard_normal(problem.d))


def firsts(b, replacement, skip=0, seed=0):
    """R batches, each the (skip + 1)st of an epoch of its own."""
    rng = np.random.default_rng(seed)
    return [next(islice(minibatches(N, b, rng, replacement), skip, None)) for _ in range(R)]


def test_the_population_is_that_of_the_problem(problem):
    w = np.random.default_rng(4).standard_normal(problem.d)
    noise = gradient_noise(problem, w)
    np.testing.assert_allclose(noise.mean, problem.grad(w), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        noise.covariance, np.cov(example_gradients(problem, w).T, bias=True), rtol=1e-10, atol=1e-14
    )
    assert noise.scale == pytest.approx(noise.sigma2 / float(noise.mean @ noise.mean))


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize(("b", "skip"), [(1, 0), (5, 0), (5, 1), (11, 0)])
def test_minibatches_are_unbiased_and_have_the_variance_of_the_law(gradients, b, skip, replacement):
    found = evidence(gradients, firsts(b, replacement, skip), replacement)
    assert found.bias > FALSE_ALARM and found.variance > FALSE_ALARM


def test_all_examples_at_once_leave_no_noise(gradients):
    assert evidence(gradients, firsts(N, False), False) == (1.0, 1.0)
    assert evidence(gradients, firsts(N, True), False) == (0.0, 0.0)


def test_the_short_last_batch_is_unbiased_too(gradients):
    rng = np.random.default_rng(1)
    lasts = [list(minibatches(N, 5, rng))[-1] for _ in range(R)]
    assert {len(idx) for idx in lasts} == {2}
    assert min(evidence(gradients, lasts, False)) > FALSE_ALARM


def test_right_samplers_raise_false_alarms_at_the_stated_rate():
    """400 p-values of each kind: uniform if the test is honest (Kolmogorov-Smirnov, itself at 1e-6)."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(8)
    gradients = rng.standard_normal((N, 3))
    many = [evidence(gradients, rng.integers(N, size=(400, 4)), True) for _ in range(400)]
    for p in zip(*many, strict=True):
        assert stats.kstest(p, "uniform").pvalue > FALSE_ALARM


def wrong_samplers(rng):
    """A name, R batches of 5, and what the sampler claims to be."""

    def without(population=N):
        return rng.permutation(population)[:5]

    def sorted_block():
        first = rng.integers(N - 4)
        return np.arange(first, first + 5)

    def half_and_half():
        return np.concatenate([rng.permutation(6)[:3], 6 + rng.permutation(6)[:2]])

    yield "never draws the last example", [without(N - 1) for _ in range(R)], False
    yield "never draws the first, with replacement", list(rng.integers(1, N, size=(R, 5))), True
    yield "draws with replacement and says without", list(rng.integers(N, size=(R, 5))), False
    yield "draws without replacement and says with", [without() for _ in range(R)], True
    yield "takes neighbours", [sorted_block() for _ in range(R)], False
    yield "prefers the first half", [half_and_half() for _ in range(R)], False
    yield "draws one example and repeats it", list(np.repeat(rng.integers(N, size=(R, 1)), 5, axis=1)), True
    yield "draws one example too few", [np.append(idx := without()[:4], idx[0]) for _ in range(R)], False


@pytest.mark.parametrize("i", range(8))
def test_a_wrong_sampler_is_caught(i):
    rng = np.random.default_rng(5)
    gradients = np.linspace(-1, 2, N)[:, None] ** [1, 3]  # neighbours alike, the ends far out
    name, batches, replacement = list(wrong_samplers(rng))[i]
    assert min(evidence(gradients, batches, replacement)) < FALSE_ALARM, name


def test_a_forgotten_correction_is_caught_where_it_matters_and_only_there():
    gradients = np.random.default_rng(2).standard_normal((N, 2))
    assert evidence(gradients, firsts(6, False), True).variance < FALSE_ALARM
    assert evidence(gradients, firsts(1, False), True).variance > FALSE_ALARM  # for b = 1 there is none


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1e6))
def test_the_laws_limits(b, more, sigma2):
    big = b + more
    assert batch_variance(sigma2, b) == pytest.approx(sigma2 / b)
    assert batch_variance(sigma2, 1, big) == pytest.approx(sigma2)
    assert batch_variance(sigma2, big, big) == 0.0
    assert batch_variance(sigma2, b, big) <= batch_variance(sigma2, b) * (1 + 1e-12)
    assert batch_variance(sigma2, b, 10**12) == pytest.approx(batch_variance(sigma2, b))


def test_the_law_without_replacement_is_that_of_all_subsets():
    from itertools import combinations

    g = np.random.default_rng(0).standard_normal((7, 2))
    means = np.array([g[list(idx)].mean(axis=0) for idx in combinations(range(7), 3)])
    exact = ((means - g.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert batch_variance(noise_of(g).sigma2, 3, 7) == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(correction([1, 4, 7], 7), [1, 0.5, 0])


def test_the_scale_is_recovered_from_two_batch_sizes():
    noise = noise_of(np.random.default_rng(1).standard_normal((50, 4)) + 0.3)
    lengths = [float(noise.mean @ noise.mean) + noise.sigma2 / b for b in (4, 32)]
    assert scale_from_two(*lengths, 4, 32) == pytest.approx(noise.scale, rel=1e-12)
    assert noise_of(np.ones((3, 2))).scale == 0.0
    assert noise_of([[1.0], [-1.0]]).scale == np.inf
    assert noise_of(np.zeros((3, 2))).scale == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: batch_variance(-1.0, 2), "sigma2 must be finite and >= 0, got -1.0"),
        (lambda: batch_variance(np.nan, 2), "sigma2 must"),
        (lambda: batch_variance(1.0, 0), "b must be a whole number of examples >= 1, got 0"),
        (lambda: batch_variance(1.0, 2.5), "b must"),
        (lambda: batch_variance(1.0, 9, 8), "b must be from 1 to N = 8"),
        (lambda: correction(1, 0), "N must be a whole number >= 1, got 0"),
        (lambda: scale_from_two(1.0, 1.0, 8, 8), "b and B must"),
        (lambda: scale_from_two(np.nan, 1.0, 1, 8), "small2 must"),
        (lambda: noise_of(np.zeros((0, 3))), "gradients must be finite with shape"),
        (lambda: noise_of([[np.nan]]), "gradients must"),
        (lambda: evidence(np.eye(3), [[0], [1, 2]], True), "batches must be at least two lists of equal"),
        (lambda: evidence(np.eye(3), [[0]], True), "batches must"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
