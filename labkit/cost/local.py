"""What local methods cost: H steps of computation, then one all-reduce (local SGD, DiLoCo).

T steps take ``T t_comp + ceil(T / H) t_comm`` seconds if all workers compute alike: nobody waits in between. What fewer
meetings cost in *steps* no formula here says; it has to be measured.

Symbols: K workers, T steps, H local steps per synchronisation, n elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.cost.closed_forms import Counts, _amount, _plain, _whole, ring_bytes


def local_rounds(T: ArrayLike, H: ArrayLike) -> Any:
    """Synchronisations in T steps with one after every H and one after the last: ceil(T / H).

    T: whole numbers >= 0. H: whole numbers >= 1. They broadcast. ValueError for anything else.

    >>> int(local_rounds(T=100, H=30))
    4
    """
    steps, every = np.asarray(T), np.asarray(H)
    for name, value, least in (("T", steps, 0), ("H", every, 1)):
        if value.dtype.kind not in "iu" or (value < least).any():
            raise ValueError(f"{name} must be a whole number >= {least}, got {value.tolist()!r}")
    return -(-steps // every)


def local_time(T: ArrayLike, H: ArrayLike, t_comp: ArrayLike, t_comm: ArrayLike) -> Any:
    """Seconds of T steps that compute ``t_comp`` each, with an all-reduce of ``t_comm`` seconds after every H of them.

    H = 1: synchronous training. Returns a float for numbers, an array for arrays. ValueError for negative or
    non-finite times, and as ``local_rounds``.
    """
    return _plain(np.asarray(T) * _amount(t_comp, "t_comp") + local_rounds(T, H) * _amount(t_comm, "t_comm"))


def local_bytes(K: int, n: int, itemsize: int, T: int, H: int) -> Counts:
    """Bytes each rank sends in T steps, (K,), with a ring all-reduce of n elements after every H and the last."""
    return ring_bytes(K, n, itemsize) * _whole(local_rounds(T, H), "T and H")
