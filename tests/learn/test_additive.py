"""Sums split over shards; objectives in which examples know each other don't."""

import numpy as np
import pytest

from labkit.learn import LogisticRegression, two_clouds
from labkit.learn.additive import (
    OBJECTIVES,
    central_differences,
    contrastive,
    mean_loss,
    pairwise_ranking,
    parts_gap,
    penalised,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X, y = two_clouds(60, 4, rng)
    return X, y, rng.standard_normal(4)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("cut", [[20, 40], [7], [10, 20, 50]])
def test_only_means_over_examples_split_into_their_parts(data, name, cut):
    X, y, w = data
    found = parts_gap(OBJECTIVES[name], w, X, y, np.split(np.arange(60), cut))
    is_a_sum = name in ("mean loss", "mean loss + penalty")
    assert found < 1e-8 if is_a_sum else found > 1e-3


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_shard_is_the_whole(data, name):
    X, y, w = data
    assert parts_gap(OBJECTIVES[name], w, X, y, [np.arange(60)]) < 1e-12


def test_the_mean_loss_is_the_packages_logistic_regression(data):
    X, y, w = data
    assert mean_loss(w, X, y) == pytest.approx(LogisticRegression(X, y).loss(w), rel=1e-12)
    assert penalised(w, X, y) == pytest.approx(LogisticRegression(X, y, l2=0.1).loss(w), rel=1e-12)


def test_contrastive_and_ranking_are_torchs(data):
    torch = pytest.importorskip("torch")
    X, y, w = data
    views = torch.from_numpy(X * w)
    partners = views + 0.1 * torch.roll(views, 1, dims=1)
    theirs = torch.nn.functional.cross_entropy(views @ partners.T, torch.arange(60))
    assert contrastive(w, X, y) == pytest.approx(float(theirs), rel=1e-12)
    z = torch.from_numpy(X @ w)
    positive, negative = z[y > 0], z[y == 0]
    pairs = torch.nn.functional.softplus(-(positive[:, None] - negative[None, :])).mean()
    assert pairwise_ranking(w, X, y) == pytest.approx(float(pairs), rel=1e-12)


def test_central_differences_are_the_gradient_to_second_order(data):
    X, y, w = data
    problem = LogisticRegression(X, y, l2=0.1)
    exact = problem.grad(w)
    errors = [np.abs(central_differences(problem.loss, w, h) - exact).max() for h in (0.1, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    np.testing.assert_allclose(central_differences(problem.loss, w), exact, rtol=1e-7, atol=1e-9)


def test_bad_input_is_refused(data):
    X, y, w = data
    with pytest.raises(ValueError, match="h must be finite and > 0, got 0"):
        central_differences(lambda v: 0.0, w, 0)
    with pytest.raises(ValueError, match="y must hold both labels"):
        pairwise_ranking(w, X, np.ones(60))
    for shards in ([], [[0, 1], []]):
        with pytest.raises(ValueError, match="shards must hold at least one row each"):
            parts_gap(mean_loss, w, X, y, shards)
