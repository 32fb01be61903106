"""Laws of compute time: quantiles, means and streams, against scipy and against each other."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

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

PAIRS = [
    (Uniform(0.08, 0.12), stats.uniform(0.08, 0.04)),
    (TruncatedNormal(0.1, 0.02), stats.truncnorm(-5, np.inf, 0.1, 0.02)),
    (TruncatedNormal(0.1, 0.2), stats.truncnorm(-0.5, np.inf, 0.1, 0.2)),
    (TruncatedNormal(-0.3, 0.1), stats.truncnorm(3, np.inf, -0.3, 0.1)),
    (ShiftedExponential(0.08, 0.02), stats.expon(0.08, 0.02)),
    (LogNormal(0.1, 0.5), stats.lognorm(0.5, scale=0.1)),
    (Pareto(0.08, 2.5), stats.pareto(2.5, scale=0.08)),
    (Scaled(ShiftedExponential(0.08, 0.02), 3.0), stats.expon(0.24, 0.06)),
]
ALONE = [law for law, _ in PAIRS] + [Constant(0.1), Uniform(0.1, 0.1)]
TRACE = Trace(np.arange(1.0, 13.0).reshape(3, 4))
GROUPS = [
    OneStraggler(Uniform(0.08, 0.12), 2.0, rank=1),
    PerWorker((Constant(0.1), LogNormal(0.1, 0.5), OneStraggler(Pareto(0.1, 3.0), 4.0, rank=2))),
    OneStraggler(OneStraggler(ShiftedExponential(0.1, 0.1), 2.0, rank=0), 3.0, rank=2),
    OneStraggler(TRACE, 2.0, rank=1),
    TRACE,
]


@pytest.mark.parametrize("law, oracle", PAIRS, ids=[repr(law) for law, _ in PAIRS])
def test_quantiles_tails_and_mean_are_scipys(law, oracle):
    q = np.concatenate([np.logspace(-15, -0.01, 60), [0.5, 0.999, 1.0]])
    x = law.isf(q)  # through scipy's sf: its truncnorm.isf is off by 1e-4 in the tail
    np.testing.assert_allclose(oracle.sf(x), q, rtol=1e-9, atol=2e-15)
    np.testing.assert_allclose(law.sf(x), oracle.sf(x), rtol=1e-9, atol=2e-15)
    assert law.mean == pytest.approx(oracle.mean(), rel=1e-9)


def test_far_out_in_the_tail_quantile_and_survival_function_undo_each_other():
    q = np.logspace(-300, -20, 50)
    for law in (TruncatedNormal(0.1, 0.02), ShiftedExponential(0.0, 0.02), LogNormal(0.1, 0.5), Pareto(1, 3)):
        np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-9)


def test_a_heavy_tail_has_no_mean_and_a_law_of_one_time_jumps():
    assert Pareto(0.1, 1.0).mean == math.inf > Pareto(0.1, 1.01).mean
    assert Uniform(0.1, 0.1).sf([0.09, 0.1]).tolist() == Constant(0.1).sf([0.09, 0.1]).tolist() == [1, 0]
    assert OneStraggler(Pareto(0.1, 0.9), 2.0).worker(0).mean == math.inf


@pytest.mark.parametrize("law", ALONE + GROUPS, ids=repr)
def test_a_matrix_of_draws_is_the_streams_of_its_ranks_and_counts_every_worker_once(law):
    K, T = 3, 4 if "Trace" in repr(law) else 700
    X, groups = draw(law, K, T, seed=11), law.groups(K)
    for rank in range(K):
        assert list(itertools.islice(law.stream(rank, 11), T)) == X[rank].tolist()
        assert law.worker(rank) in groups
    assert sum(groups.values()) == K


def test_a_stream_comes_from_the_seed_and_the_rank_and_nothing_else():
    law = Uniform(0.0, 1.0)
    u = np.random.default_rng([5, 2]).random(8)
    np.testing.assert_allclose(list(itertools.islice(law.stream(2, 5), 8)), u, rtol=1e-15)
    X = draw(law, 4, 50, seed=5)
    np.testing.assert_array_equal(X, draw(law, 9, 50, seed=5)[:4])  # more workers change nobody's times
    assert not np.array_equal(X, draw(law, 4, 50, seed=6))
    slow = draw(OneStraggler(law, 2.5, rank=3), 4, 50, seed=5)  # what it would have drawn times the slowdown
    np.testing.assert_array_equal(slow, X * [[1], [1], [1], [2.5]])


def test_a_trace_is_replayed_then_says_that_it_is_exhausted():
    stream = TRACE.stream(1, seed=0)
    assert [next(stream) for _ in range(4)] == [5, 6, 7, 8]
    with pytest.raises(ValueError, match="holds 4 steps"):
        next(stream)


def test_a_recorded_law_draws_every_recorded_time_equally_often():
    law, n = TRACE.worker(0), 40_000
    counts = np.bincount(law.sample(np.random.default_rng(0), n).astype(int), minlength=5)[1:]
    # chi-squared with 3 degrees of freedom; false alarm 1e-6 (and the seed is fixed)
    assert ((counts - n / 4) ** 2 / (n / 4)).sum() < stats.chi2.isf(1e-6, 3)
    assert law.mean == 2.5
    np.testing.assert_array_equal(law.sf([0.5, 1.0, 2.5, 4.0]), [1, 0.75, 0.5, 0])
    np.testing.assert_array_equal(law.isf([1.0, 0.75, 0.25, 1e-9]), [1, 2, 4, 4])


@pytest.mark.parametrize("make, words", [
    (lambda: Constant(-1), "t must be a finite number >= 0, got -1"),
    (lambda: Uniform(0.2, 0.1), "high must be a finite number >= 0.2, got 0.1"),
    (lambda: TruncatedNormal(-1.1, 0.1), "mu must be a finite number >= -1, got -1.1"),
    (lambda: TruncatedNormal(0.1, -0.1), "sigma must be a finite number > 0, got -0.1"),
    (lambda: ShiftedExponential(0.1, -0.1), "scale must be a finite number > 0, got -0.1"),
    (lambda: LogNormal(0.1, 11), "sigma must be a finite number > 0 and <= 10, got 11"),
    (lambda: Pareto("x", 1), "minimum must be a finite number > 0, got 'x'"),
    (lambda: OneStraggler(Constant(0.1), 0), "slowdown must be a finite number > 0, got 0"),
    (lambda: Trace([[1.0, -1.0]]), "got .*-1.0.* for worker 0, step 1"),
    (lambda: draw(Constant(1), 0, 1, 0), "K must be a whole number >= 1, got 0"),
    (lambda: draw(Constant(1), 1, 2.5, 0), "T must be a whole number >= 1, got 2.5"),
    (lambda: draw(OneStraggler(Constant(1), 2.0, rank=4), 4, 1, 0), "rank must be below K = 4, got 4"),
    (lambda: draw(PerWorker((Constant(1),)), 2, 1, 0), "rank must be a whole number from 0 to 0, got 1"),
    (lambda: draw(TRACE, 3, 5, 0), "T must be at most the trace's 4 steps"),
])  # fmt: skip
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
