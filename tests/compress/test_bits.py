"""Packed codes take ceil(b d / 8) bytes, and come out as they went in."""

import numpy as np
import pytest

from labkit.compress import pack, packed_bytes, unpack
from labkit.compress.bits import pack_one_by_one


@pytest.mark.parametrize("b", range(1, 9))
def test_every_length_and_width_comes_back_and_fast_packing_is_the_naive_one(b):
    rng = np.random.default_rng(b)
    for d in [*range(40), 63, 64, 65, 1001]:
        codes = rng.integers(1 << b, size=d).astype(np.uint8)
        packed = pack(codes, b)
        assert packed.nbytes == packed_bytes(d, b) == -(-b * d // 8)
        assert packed.flags.c_contiguous
        np.testing.assert_array_equal(packed, pack_one_by_one(codes, b))
        np.testing.assert_array_equal(unpack(packed, b, d), codes)


def test_all_ones_fill_every_bit_and_nothing_beyond():
    packed = pack(np.full(3, 7), 3)
    assert packed.tolist() == [0b11111111, 0b00000001]


@pytest.mark.parametrize(
    "codes, b, says",
    [
        (np.array([4]), 2, "codes must fit in 2 bits, 0 to 3, got 4 to 4"),
        (np.array([-1]), 2, "codes must fit in 2 bits"),
        (np.array([1.0]), 2, "whole numbers, got float64"),
        (np.zeros((2, 2), int), 2, "vector of whole numbers"),
        (np.array([1]), 0, "b must be a whole number from 1 to 8, got 0"),
        (np.array([1]), 9, "b must be a whole number from 1 to 8, got 9"),
    ],
)
def test_what_does_not_fit_is_refused(codes, b, says):
    with pytest.raises(ValueError, match=says):
        pack(codes, b)


def test_a_message_of_another_length_is_refused():
    with pytest.raises(ValueError, match="packed must be 2 bytes for 5 codes of 3 bits, got 3 uint8"):
        unpack(np.zeros(3, np.uint8), 3, 5)
