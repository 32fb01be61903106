"""Packing codes of a few bits: d codes of b bits take ceil(b d / 8) bytes, least significant bit first.

Code i occupies the bits b i to b i + b - 1 of the stream, and bit j of the stream is bit j % 8 of byte j // 8.
Eight codes of b <= 8 bits fill b bytes exactly, so eight fit in one 64-bit word: that is what makes the packing fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.compress.base import whole

Bytes = NDArray[np.uint8]


def packed_bytes(d: int, b: int) -> int:
    """Bytes that d codes of b bits take."""
    return -(-b * d // 8)


def pack_one_by_one(codes: Any, b: int) -> Bytes:
    """``pack`` as one would say it: every bit to its place."""
    packed = np.zeros(packed_bytes(len(codes), b), dtype=np.uint8)
    for i, code in enumerate(codes):
        for j in range(b):
            if int(code) >> j & 1:
                at = b * i + j
                packed[at // 8] |= 1 << at % 8
    return packed


def pack(codes: Any, b: int) -> Bytes:
    """The codes (d,), whole numbers from 0 to 2^b - 1, in ceil(b d / 8) bytes. b: 1 to 8. ValueError for other codes.

    >>> packed = pack(np.array([0, 1, 2, 3, 3]), b=2)
    >>> len(packed), unpack(packed, b=2, d=5)
    (2, array([0, 1, 2, 3, 3], dtype=uint8))
    """
    b = whole(b, "b", 1, 8)
    codes = np.asarray(codes)
    if codes.ndim != 1 or codes.dtype.kind not in "biu":
        raise ValueError(f"codes must be a vector of whole numbers, got {codes.dtype} of shape {codes.shape}")
    if codes.size and (codes.min() < 0 or codes.max() >= 1 << b):
        raise ValueError(
            f"codes must fit in {b} bits, 0 to {(1 << b) - 1}, got {codes.min()} to {codes.max()}"
        )
    d = len(codes)
    if b == 8:
        return codes.astype(np.uint8)
    if b == 1:
        return np.packbits(codes.astype(np.uint8), bitorder="little")
    eights = np.zeros((-(-d // 8), 8), dtype=np.uint8)
    eights.reshape(-1)[:d] = codes
    words = np.zeros(len(eights), dtype="<u8")
    for j in range(8):
        words |= eights[:, j].astype(np.uint64) << np.uint64(b * j)
    return np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, :b]).reshape(-1)[: packed_bytes(d, b)]


def unpack(packed: Bytes, b: int, d: int) -> Bytes:
    """The d codes of b bits inside ``packed``, (d,) uint8. ValueError if ``packed`` has another length."""
    b = whole(b, "b", 1, 8)
    if packed.dtype != np.uint8 or packed.shape != (packed_bytes(d, b),):
        raise ValueError(
            f"packed must be {packed_bytes(d, b)} bytes for {d} codes of {b} bits, got {packed.size} {packed.dtype}"
        )
    if b == 8:
        return packed.copy()
    if b == 1:
        return np.unpackbits(packed, count=d, bitorder="little")
    eights = np.zeros((-(-d // 8), 8), dtype=np.uint8)
    rows = np.zeros(len(eights) * b, dtype=np.uint8)
    rows[: len(packed)] = packed
    eights[:, :b] = rows.reshape(-1, b)
    words = eights.view("<u8").reshape(-1)
    codes = np.empty((len(words), 8), dtype=np.uint8)
    for j in range(8):
        codes[:, j] = words >> np.uint64(b * j) & np.uint64((1 << b) - 1)
    return codes.reshape(-1)[:d]
