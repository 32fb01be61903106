"""Sparse least squares is least squares whose rows are mostly zero."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.learn import LeastSquares
from labkit.learn.sparse import SparseLeastSquares, sparse_data

SHAPES = [
    (40, 12, 3, False),
    (40, 12, 3, True),
    (30, 6, 6, False),
    (30, 6, 6, True),
    (25, 500, 4, False),
    (3, 1, 1, False),
]


def dense(p):
    X = np.zeros((p.N, p.d))
    np.put_along_axis(X, p.cols, p.vals, axis=1)
    return LeastSquares(X, p.y)


@pytest.mark.parametrize("N,d,m,intercept", SHAPES)
def test_loss_and_gradients_are_those_of_the_dense_problem(N, d, m, intercept):
    rng = np.random.default_rng(4)
    p, _ = sparse_data(N, d, m, rng, intercept=intercept)
    w, full = rng.standard_normal(d), dense(p)
    for idx in (None, np.array([0, 2, 2, 1]), [1]):
        assert np.isclose(p.loss(w, idx), full.loss(w, idx), rtol=1e-12)
        np.testing.assert_allclose(p.grad(w, idx), full.grad(w, idx), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(p.grad_sum(w, idx), full.grad_sum(w, idx), rtol=1e-10, atol=1e-12)
    assert not p.grad_sum(w, []).any()


@pytest.mark.parametrize("N,d,m,intercept", SHAPES)
def test_the_slope_is_the_gradient_in_the_examples_own_columns(N, d, m, intercept):
    rng = np.random.default_rng(5)
    p, _ = sparse_data(N, d, m, rng, intercept=intercept)
    w = rng.standard_normal(d)
    for i in range(3):
        g = np.zeros(d)
        g[p.cols[i]] = p.slope(i, w[p.cols[i]])
        np.testing.assert_allclose(g, dense(p).grad(w, [i]), atol=1e-12)


@pytest.mark.parametrize("N,d,m,intercept", SHAPES)
def test_the_data_have_the_columns_that_were_asked_for(N, d, m, intercept):
    p, w = sparse_data(N, d, m, np.random.default_rng(6), intercept=intercept)
    assert p.cols.shape == (N, m) and w.shape == (d,)
    assert all(len(set(row)) == m for row in p.cols.tolist())
    if intercept:
        assert not p.cols[:, 0].any() and (p.vals[:, 0] == 1).all() and (p.cols[:, 1:] > 0).all()


def test_without_noise_w_true_is_the_minimum_and_one_seed_gives_one_problem():
    (p, w), (q, _) = (sparse_data(50, 20, 3, np.random.default_rng(7), noise=0.0) for _ in range(2))
    assert p.loss(w) < 1e-28 and np.array_equal(p.cols, q.cols) and np.array_equal(p.y, q.y)


def test_columns_are_drawn_evenly():
    """4000 draws into 50 columns: chi-squared with 49 degrees of freedom exceeds 94.6 once in ten thousand seeds."""
    p, _ = sparse_data(1000, 50, 4, np.random.default_rng(8))
    counts = np.bincount(p.cols.ravel(), minlength=50)
    assert ((counts - 80) ** 2 / 80).sum() < 94.6


def test_the_estimated_conflicts_are_those_of_all_pairs():
    """20,000 pairs: the estimate is off by more than 4 standard deviations once in sixteen thousand seeds."""
    p, _ = sparse_data(200, 100, 5, np.random.default_rng(9))
    touched = np.zeros((p.N, p.d))
    np.put_along_axis(touched, p.cols, 1.0, axis=1)
    exact = (touched @ touched.T > 0).mean()
    assert abs(p.conflicts(np.random.default_rng(1)) - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)
    everywhere, _ = sparse_data(50, 100, 5, np.random.default_rng(9), intercept=True)
    assert everywhere.conflicts(np.random.default_rng(1)) == 1.0


@pytest.mark.parametrize(
    "change,words",
    [
        ({"cols": [[0, 0]]}, "cols must not name a column twice in one row"),
        ({"cols": [[0, 9]]}, "cols must be from 0 to d - 1 = 2, got 0 to 9"),
        ({"cols": [0, 1]}, "cols must be .* got shape"),
        ({"vals": [[1.0]]}, "vals and y must have shapes"),
        ({"y": [np.nan]}, "vals and y must be finite"),
        ({"d": 0}, "d must be a whole number >= 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        SparseLeastSquares(**{"cols": [[0, 1]], "vals": [[1.0, 2.0]], "y": [1.0], "d": 3, **change})


def test_bad_data_and_bad_questions_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="m must be at most d = 3, got 4"):
        sparse_data(5, 3, 4, rng)
    with pytest.raises(ValueError, match="rng must be a numpy Generator"):
        sparse_data(5, 3, 2, 7)
    p, w = sparse_data(5, 3, 2, rng)
    with pytest.raises(ValueError, match=r"w must have shape \(3,\), got \(4,\)"):
        p.loss(np.zeros(4))
    with pytest.raises(ValueError, match="idx must be from 0 to 4, got 5 to 5"):
        p.grad(w, [5])
    with pytest.raises(ValueError, match="grad needs at least one example"):
        p.grad(w, [])
