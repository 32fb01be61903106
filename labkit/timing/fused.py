"""Two loops that numpy makes many passes of, compiled: K streams of random numbers side by side, and the recurrence of SSP.

Only where numba is installed (the extra ``fast``) and there is much to do: `labkit.timing.draws` asks. numpy's way stays
the reference, and every bit here is the same: the generator is numpy's PCG64 (O'Neill 2014, *PCG: a family of simple
fast space-efficient statistically good algorithms*, XSL-RR 128/64), a linear congruence modulo 2^128 whose upper and lower
halves lie in two numbers; workers are the inner loop, so that the processor's vectors hold a worker in each lane.

Times are >= 0, and the bits of such numbers, read as whole numbers, are in the same order: so the largest of many is found
among whole numbers, which compilers do in vectors too. Negative times and nan are larger than all others in this order.

Symbols: K workers, n steps, T steps in all. Compiled code is kept on disk, and runs without Python's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from labkit.checks import FloatArray

_U = np.uint64
_HIGH, _LOW = _U(0x2360ED051FC65DA4), _U(0x4385DF649FCCF645)  # PCG's multiplier
_LOW0, _LOW1 = _U(0x9FCCF645), _U(0x4385DF64)
_HALF, _32 = _U(0xFFFFFFFF), _U(32)
#: The bits of a number that no finite time >= 0 exceeds.
LARGEST = int(np.array(np.finfo(np.float64).max).view(np.uint64))

_given = types.Array(types.float64, 2, "C", readonly=True)
_states, _times, _row = types.uint64[:, ::1], types.float64[:, ::1], types.float64[::1]


def _compiled(*signature: Any) -> Any:
    return njit(signature, cache=True, nogil=True)


@intrinsic
def _bits(_context: Any, _number: Any) -> Any:
    """A float's 64 bits as a whole number."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@njit(inline="always")
def _next(high: _U, low: _U, up: _U, down: _U) -> tuple[_U, _U]:
    """State (high, low) times the multiplier, plus the increment (up, down), modulo 2^128."""
    low0, low1 = low & _HALF, low >> _32
    least = low0 * _LOW0
    middle = low1 * _LOW0 + (least >> _32)
    other = low0 * _LOW1 + (middle & _HALF)
    carried = low1 * _LOW1 + (middle >> _32) + (other >> _32)
    product = (other << _32) | (least & _HALF)
    after = product + down
    return carried + high * _LOW + low * _HIGH + up + _U(after < product), after


@_compiled(_states)
def seeded(hashed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(4, K) generators as numpy seeds them, state above increment; hashed: (K, 4) of `labkit.timing.draws.hashed`."""
    K, one = len(hashed), _U(1)
    S = np.empty((4, K), np.uint64)
    for k in range(K):
        a, b, c, d = hashed[k]
        up, down = (c << one) | (d >> _U(63)), (d << one) | one
        low = down + b
        S[0, k], S[1, k] = _next(up + a + _U(low < down), low, up, down)
        S[2, k], S[3, k] = up, down
    return S


@_compiled(_states, _times)
def draw_inplace(S: NDArray[np.uint64], q: FloatArray) -> None:
    """q (n, K): 1 less the next n uniform numbers of each of K generators; S (4, K) moves on."""
    high, low, up, down = S[0], S[1], S[2], S[3]  # in one piece each, or the loop below gets no vectors
    for t in range(len(q)):
        out = q[t]
        for k in range(len(out)):
            a, b = _next(high[k], low[k], up[k], down[k])
            high[k] = a
            low[k] = b
            x, turn = a ^ b, a >> _U(58)
            x = (x >> turn) | (x << ((_U(64) - turn) & _U(63)))
            out[k] = 1.0 - np.float64(np.int64(x >> _U(11))) * (1.0 / 9007199254740992.0)


@njit
def _step(x: FloatArray, F: FloatArray, bar: float, comm_s: float, worst: _U) -> tuple[_U, _U]:
    last = _U(0)
    for k in range(len(F)):
        own, seconds = F[k], x[k]
        f = (own if own > bar else bar) + seconds + comm_s
        F[k] = f
        last, worst = max(last, _bits(f)), max(worst, _bits(seconds))
    return last, worst


@_compiled(_given, _row, _row, types.int64, types.int64, types.float64)
def stale_synchronous_inplace(
    X: FloatArray, F: FloatArray, M: FloatArray, first: int, slack: int, comm_s: float
) -> _U:
    """Steps first, first + 1, ... of `StaleSynchronous.ends`; returns the largest bits of X, beyond `LARGEST` if any is bad.

    X: (n, K) their times. F: (K,) when everybody has finished what came before. M: (T,) the slowest, filled in.
    """
    worst, bits = _U(0), M.view(np.uint64)
    for t in range(first, first + len(X)):
        bar = M[t - 1 - slack] if t > slack else 0.0
        bits[t], worst = _step(X[t - first], F, bar, comm_s, worst)
    return worst
