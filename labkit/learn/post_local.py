"""Post-local SGD: synchronous steps first, local steps later (Lin, Stich, Patel and Jaggi 2020, section 3.2).

Early on, when w moves fast, workers that go H steps alone drift far apart; later they hardly do. So the first ``switch``
steps synchronise every time, the others every H steps. ``switch = 0`` is local SGD; ``switch = T`` is synchronous SGD.

Symbols: K workers, T steps, H local steps per synchronisation after the switch, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.local import alone_and_together, check_H
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import Rate
from labkit.learn.sync import AllReduce, Shards

if TYPE_CHECKING:
    from labkit.comm.base import Comm


def post_local_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    H: int,
    allreduce: AllReduce,
    switch: int,
    T: int | None = None,
) -> Array:
    """Run post-local SGD as one worker sees it; returns its every iterate, (T + 1, d), beginning with w0.

    switch: how many steps are synchronous, a whole number >= 0 (from T on: all of them); later workers meet H, 2 H, ...
    steps after the switch, and after the last step. Each meeting is one all-reduce of d + 1 numbers. The other
    arguments, the weights by examples and the errors are those of ``local_sgd``.
    """
    check_H(H)
    if isinstance(switch, bool) or not isinstance(switch, (int, np.integer)) or switch < 0:
        raise ValueError(f"switch must be a whole number of synchronous steps >= 0, got {switch!r}")
    return alone_and_together(comm, problem, w0, eta, shards, H, allreduce, True, switch, T)
