"""One worker's training run under any optimiser: the iterates, one at a time.

`labkit.learn.sgd` keeps every iterate of plain SGD; here they are handed out as they come, so that a long run of a large
model need not be stored. Symbols: w (d,), T steps, ``eta`` the learning rate, t = 0, 1, ... the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.optimisers import Optimiser
from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Diverged, Rate, rate, start


def walk(
    problem: Problem,
    w0: ArrayLike,
    optimiser: Optimiser,
    eta: Rate,
    batches: Iterable[ArrayLike | None],
    T: int | None = None,
) -> Iterator[Array]:
    """Yield w after each step, (d,), a new array every time; the start is not yielded.

    The other arguments are those of `labkit.learn.sgd`, and with ``Momentum(0)`` so are the iterates. Raises
    Diverged at the first w that is not finite, ValueError for bad input when the first step is asked for.
    """
    w = start(problem, w0)
    memory = optimiser.start(w)
    for t, idx in enumerate(batches if T is None else islice(batches, T)):
        now = rate(eta, t)
        with QUIETLY():
            w, memory = optimiser.step(w, problem.grad(w, idx), now, memory)
        if not np.isfinite(w).all():
            raise Diverged(t, now)
        yield w
