"""QSGD is unbiased and keeps its variance bound (Alistarh et al. 2017, lemma 3.1); packed codes come out as they went in."""

import numpy as np
import pytest

from labkit.compress import QSGD
from labkit.compress.quantise import _pack, _packed_bytes, _unpack

ALARM = 1e-6  # how often a statistical test below may fail although all is well; the seeds are fixed besides


def draws(c, x, N, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([c.decode(c.encode(x, rng), len(x), x.dtype) for _ in range(N)])


def level(x, s):
    return np.linalg.norm(x) / s


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("s", [1, 3, 16])
def test_it_is_right_on_average_in_every_coordinate(s, dtype):
    x = np.random.default_rng(s).standard_normal(23).astype(dtype)
    N = 3000
    mean = draws(QSGD(s), x, N).astype(float).mean(axis=0)
    # a coordinate takes one of two neighbouring levels, so Hoeffding's inequality holds with that width
    t = level(x, s) * np.sqrt(np.log(2 * len(x) / ALARM) / (2 * N))
    assert t < 0.06 * level(x, s)  # tight enough to notice rounding to the nearest level
    assert (np.abs(mean - x) < t).all()


@pytest.mark.parametrize("s", [1, 4, 16])
def test_its_variance_is_the_exact_one_and_below_the_bound(s):
    c, N, d = QSGD(s), 2000, 40
    x = np.random.default_rng(s).standard_normal(d)
    measured = np.sum((draws(c, x, N) - x) ** 2, axis=1).mean()
    # N d independent squares between 0 and a level's square
    t = level(x, s) ** 2 * np.sqrt(d * np.log(2 / ALARM) / (2 * N))
    assert abs(measured - c.variance(x)) < t
    assert c.variance(x) <= c.variance_bound(d) * (x @ x)
    assert c.variance_bound(d) == min(d / s**2, np.sqrt(d) / s)


def test_no_vector_exceeds_the_bound_and_one_comes_near():
    rng = np.random.default_rng(0)
    for _ in range(300):
        d, s = int(rng.integers(1, 200)), int(rng.integers(1, 20))
        x = rng.standard_normal(d) ** int(rng.integers(1, 6))
        assert QSGD(s).variance(x) <= (1 + 1e-12) * QSGD(s).variance_bound(d) * (x @ x)
    # 1 / 100 of a level each: variance sqrt(d) / s - 1, in units of the norm's square.
    equal = np.ones(10_000)
    assert QSGD(1).variance(equal) == pytest.approx(0.99 * QSGD(1).variance_bound(10_000) * 10_000)


def test_the_largest_level_is_never_passed():
    for dtype in (np.float32, np.float64):
        x = np.array([0, 0, -3, 0], dtype)
        for s in (1, 3, 100, 127):
            assert (draws(QSGD(s), x, 200) == x).all()  # all of the norm in one place: nothing to round


@pytest.mark.parametrize("tiny", [1e-40, 1e-20])
def test_norms_survive_where_squares_would_vanish(tiny):
    x = np.array([tiny, -tiny, 0], np.float32)
    back = draws(QSGD(127), x, 20)
    assert np.isfinite(back).all() and (np.sign(back) == np.sign(x)).all(axis=1).any()
    assert np.abs(back).max() <= 2 * tiny


def test_a_norm_beyond_the_dtype_is_refused():
    with pytest.raises(ValueError, match="norm that float32 can hold"):
        QSGD(3).encode(np.full(4, 3e38, np.float32), np.random.default_rng(0))


def test_buckets_are_quantised_by_themselves():
    x = np.array([1e6, 1e6, 1.0, 1.0, 1.0])
    alone = np.abs(draws(QSGD(1), x, 50)[:, 2:]).max()
    apart = np.abs(draws(QSGD(1, bucket=2), x, 50)[:, 2:]).max()
    assert apart <= 1.5 and (alone == 0 or alone > 1e5)
    assert QSGD(1, bucket=2).variance(x) < QSGD(1).variance(x)
    assert QSGD(2, bucket=8).variance_bound(1000) == QSGD(2).variance_bound(8)


# -- packing


def one_by_one(codes, b):
    """Packing as one would say it: every bit to its place."""
    bits = [int(code) >> j & 1 for code in codes for j in range(b)]
    return np.packbits(np.array(bits, dtype=np.uint8), bitorder="little")


@pytest.mark.parametrize("b", range(1, 9))
def test_every_length_and_width_comes_back_and_fast_packing_is_the_naive_one(b):
    rng = np.random.default_rng(b)
    for d in [*range(40), 63, 64, 65, 1001]:
        codes = rng.integers(1 << b, size=d).astype(np.uint8)
        packed = _pack(codes, b)
        assert packed.nbytes == _packed_bytes(d, b) == -(-b * d // 8)
        np.testing.assert_array_equal(packed, one_by_one(codes, b))
        np.testing.assert_array_equal(_unpack(packed, b, d), codes)
