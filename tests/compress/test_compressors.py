"""What every compressor promises: the stated bytes, what it keeps, and one sentence for what it can't take."""

import numpy as np
import pytest

from labkit.compress import QSGD, Identity, RandomK, Sign, TopK
from labkit.compress.sparse import _largest

ALL = [
    Identity(), QSGD(1), QSGD(7), QSGD(127), QSGD(4, bucket=5), TopK(1), TopK(0.3), RandomK(1),
    RandomK(0.3, unbiased=True), Sign(),
]  # fmt: skip
DTYPES = [np.float32, np.float64]


def there_and_back(c, x, seed=0):
    message = c.encode(x, np.random.default_rng(seed))
    return message, c.decode(message, len(x), x.dtype, np.random.default_rng(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", ALL, ids=str)
def test_a_message_is_as_long_as_it_says_for_every_length_and_dtype(c, dtype):
    for d in [*range(1, 20), 100]:
        x = np.random.default_rng(d).standard_normal(d).astype(dtype)
        before = x.copy()
        message, back = there_and_back(c, x)
        assert message.ndim == 1 and message.flags.c_contiguous
        assert message.nbytes == c.nbytes(d, x.itemsize)
        assert back.shape == (d,) and back.dtype == dtype and np.isfinite(back).all()
        np.testing.assert_array_equal(x, before)
        assert not np.shares_memory(message, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", ALL, ids=str)
def test_zero_stays_zero(c, dtype):
    assert (there_and_back(c, np.zeros(9, dtype))[1] == 0).all()


def test_sizes_are_those_of_the_papers():
    d = 1_000_003
    assert QSGD(1).nbytes(d, 4) == 4 + -(-2 * d // 8)
    assert QSGD(7).nbytes(d, 4) == 4 + -(-4 * d // 8)
    assert QSGD(127).nbytes(d, 8) == 8 + d
    assert QSGD(7, bucket=512).nbytes(d, 4) == 4 * -(-d // 512) + -(-4 * d // 8)
    assert TopK(0.01).nbytes(d, 4) == 10_001 * (4 + 4)  # an index for each value
    assert RandomK(0.01).nbytes(d, 4) == 10_001 * 4  # none
    assert Sign().nbytes(d, 4) == 4 + -(-d // 8)
    assert TopK(0.07).nbytes(100, 4) == 7 * 6  # 0.07 * 100 is 7.000000000000001 in binary
    assert TopK(1e-9).nbytes(100, 4) == 6  # a share is rounded up
    assert TopK(10).nbytes(65_536, 4) == 10 * (2 + 4) and TopK(10).nbytes(65_537, 4) == 10 * (4 + 4)


def test_top_k_keeps_the_largest_as_they_are_and_nothing_else():
    x = np.array([0.1, -5.0, 3.0, 0.0, -0.2, 4.0])
    np.testing.assert_array_equal(there_and_back(TopK(3), x)[1], [0, -5, 3, 0, 0, 4])
    np.testing.assert_array_equal(there_and_back(TopK(1.0), x)[1], x)


def test_the_quick_choice_is_that_of_sorting_ties_and_all():
    rng = np.random.default_rng(0)
    for _ in range(200):
        d = int(rng.integers(1, 30))
        x = rng.integers(-3, 4, size=d).astype(float)
        k = int(rng.integers(1, d + 1))
        np.testing.assert_array_equal(_largest(x, k), np.sort(np.argsort(-np.abs(x), kind="stable")[:k]))


def test_random_k_is_a_linear_map_so_sums_may_travel():
    c, rng = RandomK(0.4), np.random.default_rng(2)
    x, y = rng.standard_normal((2, 50))
    (mx, dx), (my, dy) = there_and_back(c, x), there_and_back(c, y)
    np.testing.assert_array_equal(c.decode(mx + my, 50, float, np.random.default_rng(0)), dx + dy)


def test_unbiased_random_k_is_right_on_average_over_all_choices():
    x, total, N = np.arange(1.0, 6.0), np.zeros(5), 4000
    for i in range(N):
        total += there_and_back(RandomK(2, unbiased=True), x, seed=i)[1]
    # each is 0 or 2.5 x: by Hoeffding the mean is within t of x but for 1 run in 1e6, in all five coordinates
    t = 2.5 * x * np.sqrt(np.log(2 * 5 / 1e-6) / (2 * N))
    assert (np.abs(total / N - x) < t).all()


def test_scaled_signs_are_as_near_as_signs_can_be():
    x = np.random.default_rng(3).standard_normal(77)
    back = there_and_back(Sign(), x)[1]
    np.testing.assert_allclose(np.abs(back), np.abs(x).mean(), rtol=1e-12)
    np.testing.assert_array_equal(back > 0, x >= 0)
    nearest = np.sum((x - back) ** 2)
    for other in (0.9, 0.99, 1.01, 1.1):
        assert nearest < np.sum((x - other * back) ** 2)


@pytest.mark.parametrize("big", [6e4, 3e38, 1e308])
def test_large_numbers_do_not_overflow_on_the_way(big):
    dtype = np.float32 if big == 3e38 else np.float64
    x = np.array([1, -1, 0.5, 0.25], dtype) * dtype(big)
    back = there_and_back(Sign(), x)[1]
    np.testing.assert_allclose(np.abs(back.astype(np.float64)), 0.6875 * big, rtol=1e-3)


@pytest.mark.parametrize("c", ALL, ids=str)
@pytest.mark.parametrize("x, says", [
    (np.array([]), "at least one number, got shape \\(0,\\)"),
    (np.zeros((2, 2)), "vector of at least one number, got shape \\(2, 2\\)"),
    ([1.0], "numpy vector .*, got list"),
    (np.array([1, 2]), "x must hold float32 or float64, got int64"),
    (np.array([1.0, np.nan, np.inf]), "finite to be compressed, got NaN or infinity in 2 of 3 places"),
])  # fmt: skip
def test_what_can_not_be_compressed_is_refused_in_one_sentence(c, x, says):
    with pytest.raises(ValueError, match=says):
        c.encode(x, np.random.default_rng(0))


@pytest.mark.parametrize(("make", "says"), [
    *[
        (lambda k=k: TopK(k), "k must be a whole number >= 1")
        for k in (0, -1, 0.0, 1.5, np.nan, True, "3", None)
    ],
    *[(lambda s=s: QSGD(s), "s must be a whole number from 1 to 127") for s in (0, 128, 2.0)],
    (lambda: QSGD(3, bucket=0), "bucket must be a whole number"),
    (
        lambda: RandomK(4).encode(np.ones(3), np.random.default_rng(0)),
        "k must be at most the d = 3 coordinates",
    ),
    (lambda: RandomK(1).decode(np.ones(1), 3, float), "rng must be given"),
])  # fmt: skip
def test_nonsense_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
