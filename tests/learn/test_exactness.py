"""Each way to lose exactness shows a gap, and each repair closes it to rounding."""

import numpy as np
import pytest

from labkit.learn import LeastSquares, LogisticRegression, linear_data, minibatches, split, two_clouds
from labkit.learn.exactness import (
    batch_norm,
    clip,
    clipping,
    dropout,
    dropout_mask,
    gap,
    one_by_one,
    padded_shards,
    padding,
    replacement,
    short_last_batch,
    summation_order,
    unequal_shards,
)

ROUNDING, VISIBLE = 1e-13, 1e-3


@pytest.fixture(params=["least squares", "logistic"])
def problem(request):
    rng = np.random.default_rng(5)
    if request.param == "least squares":
        X, y, _ = linear_data(101, 6, rng)
        return LeastSquares(X, y)
    return LogisticRegression(*two_clouds(101, 6, rng))


@pytest.fixture
def w():
    return np.random.default_rng(6).standard_normal(6)


def assert_mended(result):
    assert result.broken > VISIBLE
    assert result.repaired < ROUNDING


def test_unequal_shards_need_the_weights_of_their_sizes(problem, w):
    assert_mended(unequal_shards(problem, w, [np.arange(10), np.arange(10, 101)]))
    assert unequal_shards(problem, w, split(np.arange(100), 4)).broken < ROUNDING  # equal ones don't


def test_a_short_last_batch_must_be_divided_by_its_own_size(problem, w):
    *_, last = minibatches(101, 4 * 8, np.random.default_rng(0))
    assert len(last) == 5
    assert_mended(short_last_batch(problem, w, last, K=4, b=8))
    full = next(minibatches(101, 4 * 8, np.random.default_rng(0)))
    assert short_last_batch(problem, w, full, K=4, b=8).broken < ROUNDING


def test_padding_counts_examples_twice(problem, w):
    assert_mended(padding(problem, w, K=8))
    assert padding(problem, w, K=101).broken < ROUNDING  # divides: nothing to pad


@pytest.mark.parametrize("drop_last", [False, True])
def test_padded_shards_are_those_of_torch(drop_last):
    torch_data = pytest.importorskip("torch.utils.data")
    for N in [1, 2, 3, 7, 8, 10, 16, 101]:
        for K in [1, 2, 3, 4, 7, 8, 20, 64]:
            ours = padded_shards(N, K, drop_last)
            for rank in range(K):
                sampler = torch_data.DistributedSampler(
                    range(N), num_replicas=K, rank=rank, shuffle=False, drop_last=drop_last
                )
                assert list(ours[rank]) == list(sampler)


def test_padded_shards_refuse_nothing_to_deal():
    with pytest.raises(ValueError, match="N and K must"):
        padded_shards(0, 2)


def test_local_batch_norm_sees_other_statistics():
    x = np.random.default_rng(0).standard_normal((64, 5)) * 3 + 1
    assert_mended(batch_norm(x, split(np.arange(64), 8)))
    assert_mended(batch_norm(x, [np.arange(10), np.arange(10, 64)]))  # the sums know the sizes


def test_synced_batch_norm_is_that_of_torch():
    torch = pytest.importorskip("torch")
    from labkit.learn.exactness import normalise

    x = np.random.default_rng(0).standard_normal((16, 3))
    theirs = torch.nn.BatchNorm1d(3, affine=False, dtype=torch.float64)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(normalise(x, x.mean(axis=0), x.var(axis=0)), theirs, rtol=1e-12)


def test_clipping_belongs_after_the_mean(problem, w):
    shards = split(np.arange(100), 10)
    # short enough to clip some workers' gradients, and the mean too
    norms = [np.linalg.norm(problem.grad(w, s)) for s in shards]
    assert_mended(clipping(problem, w, shards, c=min(norms)))
    assert clipping(problem, w, shards, c=10 * max(norms)).broken < ROUNDING  # nobody clips


def test_clip_is_torchs():
    torch = pytest.importorskip("torch")
    for g, c in [(np.array([3.0, 4.0]), 1.0), (np.array([0.3, 0.4]), 1.0), (np.zeros(2), 1.0)]:
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        parameter.grad = torch.from_numpy(g.copy())
        torch.nn.utils.clip_grad_norm_([parameter], c)
        np.testing.assert_allclose(clip(g, c), parameter.grad.numpy(), rtol=1e-5)  # torch adds 1e-6


def test_dropout_masks_must_go_with_the_example():
    X, y, _ = linear_data(64, 6, np.random.default_rng(0))
    w = np.random.default_rng(1).standard_normal(6)
    assert_mended(dropout(X, y, w, K=4, p=0.3, seed=9))
    assert dropout(X, y, w, K=4, p=0.0, seed=9).broken < ROUNDING


def test_dropout_masks_keep_the_mean():
    mask = dropout_mask(0, np.arange(20_000), 20_000, 2, p=0.25)
    assert set(np.unique(mask)) == {0.0, 1 / 0.75}
    assert mask.mean() == pytest.approx(1.0, abs=0.02)


def test_a_batch_with_replacement_is_a_multiset(problem, w):
    idx = np.random.default_rng(0).integers(101, size=101)
    assert_mended(replacement(problem, w, idx, K=4))
    assert replacement(problem, w, np.arange(40), K=4).broken < ROUNDING  # no duplicates, no harm


def test_the_same_sum_in_another_order_has_other_bits():
    parts = np.random.default_rng(0).standard_normal((16, 50))
    result = summation_order(parts)
    assert 0.0 < result.broken < ROUNDING
    assert result.repaired == 0.0
    two = summation_order(parts[:2])
    assert two.broken == 0.0  # a + b = b + a; only associativity is lost


def test_one_by_one_is_the_gradient():
    X, y, _ = linear_data(300, 7, np.random.default_rng(0))
    w = np.ones(7)
    assert gap(one_by_one(X, y, w), LeastSquares(X, y).grad(w)) < ROUNDING
    by_hand = np.zeros(7)
    for x, label in zip(X, y, strict=True):
        z = 0.0
        for a, b in zip(x, w, strict=True):
            z += a * b
        by_hand += x * (z - label)
    np.testing.assert_array_equal(one_by_one(X, y, w), 2 * by_hand / 300)  # to the bit
