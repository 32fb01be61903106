"""Intervals hold what they promise, arriving means staying, and a grid says where its best lies."""

import math

import numpy as np
import pytest
import scipy.stats

from labkit import evidence


def test_the_interval_of_a_mean_is_scipy_s_and_holds_it_about_as_often_as_its_docstring_says():
    held = 0
    for seed in range(400):
        x = np.random.default_rng([seed, 9]).normal(size=5)
        got = evidence.mean(x)
        assert got.low <= got.center <= got.high and got.center == pytest.approx(x.mean())
        held += got.low < 0 < got.high
    # 17 times in 20; by chance alone outside these bounds once in 10^6 trials (binomial).
    assert scipy.stats.binom.ppf(1e-6, 400, 0.85) < held < scipy.stats.binom.isf(1e-6, 400, 0.85)


@pytest.mark.parametrize("n", [5, 6, 12, 25])
def test_the_interval_of_a_median_is_exact_for_any_law(n):
    rng = np.random.default_rng(n)
    x = rng.exponential(size=(4000, n))
    found = [evidence.median(row) for row in x]
    held = sum(f.low < math.log(2) < f.high for f in found)
    level = found[0].level
    assert level >= 0.95 or (n == 5 and level == 0.9375)
    assert abs(held / 4000 - level) < 5 * math.sqrt(level * (1 - level) / 4000)


def test_a_run_that_never_arrived_counts_in_a_median_and_is_refused_by_a_mean():
    values = [3.0, 1.0, math.inf, 2.0, 4.0]
    got = evidence.median(values)
    assert (got.center, got.low, got.high) == (3, 1, math.inf)
    assert got.values.tolist() == values
    assert got != evidence.median(values)  # told apart as objects, since arrays have no one truth value
    assert evidence.median([1, 2, math.inf, math.inf, math.inf, math.inf]).center == math.inf
    with pytest.raises(ValueError, match="take the median"):
        evidence.mean(values)
    for few in ([1.0, 2.0], [], [[1.0] * 5], [1, 2, 3, 4, math.nan]):
        with pytest.raises(ValueError, match="5 or more numbers"):
            evidence.median(few)


def test_an_experiment_sees_its_seeds_and_others_when_asked(monkeypatch):
    assert evidence.repeat(float, n=6, of=evidence.median).values.tolist() == [0, 1, 2, 3, 4, 5]
    assert str(evidence.repeat(lambda seed: 2.0)) == "2 (2 to 2, 5 seeds)"
    monkeypatch.setenv("LABKIT_SEEDS", "1000")
    assert evidence.repeat(float, n=5).values.tolist() == [1000, 1001, 1002, 1003, 1004]
    monkeypatch.setenv("LABKIT_SEEDS", "many")
    with pytest.raises(ValueError, match="LABKIT_SEEDS must be a whole number"):
        evidence.seeds(5)
    with pytest.raises(ValueError, match="n must be"):
        evidence.seeds(0)


def test_arriving_is_reaching_and_staying():
    path = [9, 2, 5, 3, 1, 1]
    assert evidence.reach_and_stay(path, 3) == 3 and evidence.reach_and_stay(path, 2) == 4
    assert evidence.reach_and_stay(path, 0.5) is None and evidence.reach_and_stay([], 1) is None
    assert evidence.reach_and_stay([1, 1], 1) == 0
    assert [evidence.reach_and_stay(path, 5, stay=s) for s in (1, 5, 6)] == [1, 1, None]
    assert evidence.reach_and_stay([1, math.nan, 1], 2) == 2
    with pytest.raises(ValueError, match="stay must be"):
        evidence.reach_and_stay(path, 1, stay=0)


def test_the_best_of_a_grid_and_whether_it_lies_at_the_edge():
    inner = evidence.tune(lambda eta: None if eta > 1 else (eta - 0.4) ** 2, (0.2, 0.4, 0.8, 1.6))
    assert inner.best == 0.4 and not inner.at_edge and inner.scores[-1] == math.inf
    assert evidence.tune(lambda eta: -eta, (1, 2, 4)).at_edge
    with pytest.raises(ValueError, match="no point of the grid"):
        evidence.tune(lambda eta: math.nan, (1, 2))
