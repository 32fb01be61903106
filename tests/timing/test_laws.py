"""Laws of compute time: quantiles, means and streams, against scipy and against each other."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from labkit.timing import (
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


@pytest.mark.parametrize("law", ALONE, ids=repr)
def test_the_mean_is_the_integral_of_the_survival_function(law):
    start, end = float(law.isf(1.0)), float(law.isf(1e-9))
    area, _ = integrate.quad(law.sf, start, end, limit=500, points=law.isf(np.logspace(-8, -1, 8)))
    assert start + area == pytest.approx(law.mean, rel=1e-5)  # the tail beyond isf(1e-9) is left out


def test_far_out_in_the_tail_quantile_and_survival_function_undo_each_other():
    q = np.logspace(-300, -20, 50)
    for law in (TruncatedNormal(0.1, 0.02), ShiftedExponential(0.0, 0.02), LogNormal(0.1, 0.5), Pareto(1, 3)):
        np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-9)


def test_a_heavy_tail_has_no_mean():
    assert Pareto(0.1, 1.0).mean == math.inf
    assert OneStraggler(Pareto(0.1, 0.9), 2.0).worker(0).mean == math.inf
    assert Pareto(0.1, 1.01).mean < math.inf


@pytest.mark.parametrize("law", ALONE, ids=repr)
def test_drawing_one_at_a_time_and_all_at_once_give_the_same_times(law):
    one, many = np.random.default_rng(3), np.random.default_rng(3)
    single = [float(law.sample(one)) for _ in range(60)]
    np.testing.assert_array_equal(law.sample(many, (3, 20)).ravel(), single)
    assert one.random() == many.random()


@pytest.mark.parametrize("law", ALONE + GROUPS, ids=repr)
def test_a_matrix_of_draws_is_the_streams_of_its_ranks(law):
    K, T = 3, 4 if "Trace" in repr(law) else 700
    X = draw(law, K, T, seed=11)
    assert X.shape == (K, T)
    for rank in range(K):
        assert list(itertools.islice(law.stream(rank, 11), T)) == X[rank].tolist()


def test_a_stream_comes_from_the_seed_and_the_rank_and_nothing_else():
    law = Uniform(0.0, 1.0)
    u = np.random.default_rng([5, 2]).random(8)
    np.testing.assert_allclose(list(itertools.islice(law.stream(2, 5), 8)), u, rtol=1e-15)
    X = draw(law, 4, 50, seed=5)
    np.testing.assert_array_equal(X, draw(law, 9, 50, seed=5)[:4])  # more workers change nobody's times
    assert len(np.unique(X)) == X.size
    assert not np.array_equal(X, draw(law, 4, 50, seed=6))


def test_a_straggler_draws_what_it_would_have_drawn_times_the_slowdown():
    base = LogNormal(0.1, 0.3)
    plain, slow = draw(base, 4, 20, 1), draw(OneStraggler(base, 2.5, rank=3), 4, 20, 1)
    np.testing.assert_array_equal(slow[:3], plain[:3])
    np.testing.assert_array_equal(slow[3], 2.5 * plain[3])


def test_workers_with_laws_of_their_own_follow_them():
    X = draw(PerWorker((Constant(1.0), Constant(2.0))), 2, 3, 0)
    np.testing.assert_array_equal(X, [[1, 1, 1], [2, 2, 2]])


@pytest.mark.parametrize("law", GROUPS, ids=repr)
def test_the_groups_of_a_law_count_every_worker_once(law):
    groups = law.groups(3)
    assert sum(groups.values()) == 3
    for rank in range(3):
        assert law.worker(rank) in groups


def test_a_trace_is_replayed_then_says_that_it_is_exhausted():
    stream = TRACE.stream(1, seed=0)
    assert [next(stream) for _ in range(4)] == [5, 6, 7, 8]
    with pytest.raises(ValueError, match="holds 4 steps"):
        next(stream)
    with pytest.raises(ValueError, match="at most 4 steps"):
        draw(TRACE, 3, 5, 0)


def test_a_recorded_law_draws_every_recorded_time_equally_often():
    law = TRACE.worker(0)
    n = 40_000
    counts = np.bincount(law.sample(np.random.default_rng(0), n).astype(int), minlength=5)[1:]
    # chi-squared with 3 degrees of freedom; false alarm 1e-6 (and the seed is fixed)
    assert ((counts - n / 4) ** 2 / (n / 4)).sum() < stats.chi2.isf(1e-6, 3)
    np.testing.assert_array_equal(law.sf([0.5, 1.0, 2.5, 4.0]), [1, 0.75, 0.5, 0])
    np.testing.assert_array_equal(law.isf([1.0, 0.75, 0.25, 1e-9]), [1, 2, 4, 4])


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Constant(-1), "t must be a finite number >= 0, got -1"),
        (lambda: Constant(True), "t must be .*got True"),
        (lambda: Uniform(0.2, 0.1), "high must be a finite number >= 0.2, got 0.1"),
        (lambda: Uniform(math.nan, 0.1), "low must be .*got nan"),
        (lambda: TruncatedNormal(0.1, 0.0), "sigma must be a finite number > 0, got 0.0"),
        (lambda: TruncatedNormal(-1.1, 0.1), "mu must be a finite number >= -1, got -1.1"),
        (lambda: ShiftedExponential(0.1, -0.1), "scale must be a finite number > 0, got -0.1"),
        (lambda: LogNormal(0.1, 11), "sigma must be a finite number > 0 and <= 10, got 11"),
        (lambda: Pareto("x", 1), "minimum must be a finite number > 0, got 'x'"),
        (lambda: OneStraggler(0.1, 2.0), "base must be a law"),
        (lambda: OneStraggler(Constant(0.1), 0), "slowdown must be a finite number > 0, got 0"),
        (lambda: PerWorker(()), "one law for each worker"),
        (lambda: PerWorker((Constant(1), 2)), "got 2 for rank 1"),
        (lambda: Trace([[1.0, -1.0]]), "got .*-1.0.* for worker 0, step 1"),
        (lambda: Trace([1.0]), r"times must be a \(K, T\) matrix"),
        (lambda: Constant(1).isf([0.5, 0.0]), r"q must be a probability in \(0, 1\], got .*0.0"),
        (lambda: Constant(1).isf(math.nan), r"q must be a probability in \(0, 1\], got .*nan"),
        (lambda: Constant(1).sample(7), "rng must be a numpy Generator"),
        (lambda: Constant(1).worker(-1), "rank must be a whole number >= 0, got -1"),
        (lambda: next(Constant(1).stream(0, -3)), "seed must be a whole number >= 0, got -3"),
        (lambda: draw(Constant(1), 0, 1, 0), "K must be a whole number >= 1, got 0"),
        (lambda: draw(Constant(1), 1, 2.5, 0), "T must be a whole number >= 1, got 2.5"),
        (lambda: draw(OneStraggler(Constant(1), 2.0, rank=4), 4, 1, 0), "rank must be below K = 4, got 4"),
        (lambda: draw(PerWorker((Constant(1),)), 2, 1, 0), "K must be at most 1.*got 2"),
        (lambda: draw(TRACE, 4, 1, 0), "K must be at most 3.*got 4"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_importing_the_room_brings_in_numpy_only():
    code = (
        "import sys, labkit.timing; print([m for m in ('scipy', 'torch', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
