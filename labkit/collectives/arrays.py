"""The few things that numpy arrays and torch tensors call by different names, and how vectors are cut."""

from itertools import pairwise
from typing import Any

import numpy as np

from labkit.comm.base import Comm, describe, is_torch


def copy(x: Any) -> Any:
    """A contiguous copy of ``x``, off any autograd graph."""
    describe(x, "x")
    return x.detach().clone().contiguous() if is_torch(x) else np.array(x, order="C")


def empty(x: Any, n: int) -> Any:
    """An uninitialised vector of ``n`` elements of the kind of ``x``."""
    return x.new_empty(n) if is_torch(x) else np.empty(n, x.dtype)


def flat(x: Any) -> Any:
    """``x`` as a vector over the same memory. Raises ValueError if its memory isn't one contiguous, writeable piece."""
    describe(x, "x")
    if is_torch(x):
        if x.is_contiguous():
            return x.detach().view(-1)
    elif x.flags.c_contiguous and x.flags.writeable:
        return x.reshape(-1)
    raise ValueError("x must be contiguous and writeable to be reduced in place")


def chunks(x: Any, K: int) -> list[Any]:
    """``K`` views that cut the vector ``x`` (n,) into parts of n // K or n // K + 1 elements; some empty if n < K.

    >>> [part.tolist() for part in chunks(np.arange(7), 3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    return [x[i:j] for i, j in pairwise(chunk_bounds(len(x), K))]


def chunk_bounds(n: int, K: int) -> list[int]:
    """Where the chunks of n elements begin and end, (K + 1,): chunk i is i n // K to (i + 1) n // K."""
    return [i * n // K for i in range(K + 1)]


def exchange(comm: Comm, out: Any, to: int, into: Any, source: int) -> None:
    """Send and receive at once, as ``comm.sendrecv`` does, parts that may be empty: what is empty is not sent."""
    arriving = comm.irecv(into, source) if len(into) else None
    if len(out):
        comm.isend(out, to).wait()
    if arriving is not None:
        arriving.wait()
