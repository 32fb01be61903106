"""The few things that numpy arrays and torch tensors call by different names."""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.comm.base import describe, is_torch


def copy(x: Any) -> Any:
    """A contiguous copy of ``x``, off any autograd graph."""
    describe(x, "x")
    return x.detach().clone().contiguous() if is_torch(x) else np.array(x, order="C")


def empty(x: Any, n: int) -> Any:
    """An uninitialised vector of ``n`` elements of the kind of ``x``."""
    return x.new_empty(n) if is_torch(x) else np.empty(n, x.dtype)


def flat(x: Any) -> Any:
    """``x`` as a vector over the same memory. Raises ValueError if its memory isn't one contiguous piece."""
    describe(x, "x")
    contiguous = x.is_contiguous() if is_torch(x) else x.flags.c_contiguous
    if not contiguous:
        raise ValueError("x must be contiguous to be reduced in place; pass x.copy() or x.contiguous()")
    if is_torch(x):
        return x.detach().view(-1)
    if not x.flags.writeable:
        raise ValueError("x must be writeable to be reduced in place; pass x.copy()")
    return x.reshape(-1)


def chunks(x: Any, K: int) -> list[Any]:
    """``K`` views that cut the vector ``x`` (n,) into parts of n // K or n // K + 1 elements; some empty if n < K."""
    n = len(x)
    return [x[i * n // K : (i + 1) * n // K] for i in range(K)]
