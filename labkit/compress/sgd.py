"""Synchronous SGD that sends something smaller than the gradient: ``labkit.learn.sync_sgd`` with a scheme in between.

Each worker's gradient is weighted so that the plain mean over workers is the gradient of all examples (10.3), compressed and
exchanged; everyone takes the same step along the mean of what the messages say. With ``Identity`` it is synchronous SGD.

Symbols: K workers, b_k examples on worker k, M their sum, T steps, w (d,), ``eta`` the learning rate.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.comm.base import Comm
from labkit.compress.scheme import Scheme, rngs
from labkit.compress.wire import Array, OverComm
from labkit.learn.problems import Problem
from labkit.learn.sgd import QUIETLY, Diverged, Rate, descend, rate, start
from labkit.learn.sync import Shards, _refuse_none, schedule


class Trained(NamedTuple):
    """What a worker brings home.

    iterates: (T + 1, d), beginning with w0. encode_s, decode_s: (T,), real seconds of coding per step, in every world.
    wire_s: (T,), seconds of communication per step on the world's clock.
    """

    iterates: Array
    encode_s: Array
    wire_s: Array
    decode_s: Array


def compressed_sgd(
    comm: Comm,
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    shards: Shards,
    how: Scheme,
    T: int | None = None,
    seed: int = 0,
    coding_s: float | None = None,
) -> Trained:
    """Run SGD with compressed gradients as one worker sees it.

    w0, eta, shards, T: as in ``sync_sgd``; a shard may be empty. how: a scheme; a compressor is one that remembers nothing.
    seed: of all random choices, the same on every rank. coding_s: what encoding and decoding count for in a simulation,
    where computing is free; None: nothing. Raises ValueError for bad input or a step without examples, Diverged when w or a
    gradient stops being finite.
    """
    scheme = Scheme.of(how)
    pick, T = schedule(shards, T, comm.K)
    w = start(problem, w0)
    wire, draws = OverComm(comm), rngs(seed, comm.rank)
    memory = scheme.start(len(w), w.dtype, draws)
    iterates, spent = [w], []
    for t in comm.steps(T):
        mine = np.asarray(pick(t, comm.rank))
        M = sum(np.size(pick(t, k)) for k in range(comm.K))
        _refuse_none(M, t)
        with QUIETLY():
            g = comm.compute(partial(_weighted, problem, w, mine, comm.K / M)).astype(w.dtype, copy=False)
            if not np.isfinite(g).all():  # the gradient overflows before w does
                raise Diverged(t, rate(eta, t))
            wire.start()
            out, memory = scheme.mean(wire, g, memory, draws)
            spent.append(wire.stop())
        if coding_s is not None:
            comm.compute(seconds=coding_s)
        w = descend(w, rate(eta, t), out.mean, t)
        iterates.append(w)
    return Trained(np.array(iterates), *np.array(spent).reshape(T, 3).T)


def _weighted(problem: Problem, w: Array, mine: Array, K_over_M: float) -> Array:
    """This worker's gradient sum times K / M: its local mean if the shards are equal."""
    if mine.size == 0:
        return problem.grad_sum(w, mine)
    return problem.grad(w, mine) * (mine.size * K_over_M)
