"""Stale gradients: SGD along a schedule that says at which old version of w each gradient was computed.

    w_{u+1} = w_u - eta_u (1 / M_u) sum over the gradients g in update u of b_g c(tau_g) grad F_g(w_{read_g})

with tau_g = u - read_g (Dean et al. 2012, Downpour SGD; Ho et al. 2013). c = 1 is what a plain parameter server does; a
staleness-aware one divides the step by the staleness (Zhang et al. 2016, *Staleness-aware async-SGD*).
No stale gradient is in a schedule of barriers, and this is then mini-batch SGD on the joined batches.

Symbols: U updates, G gradients, ``tau`` staleness in versions, b_g the examples of a gradient, M_u those of an update,
w (d,), ``eta`` the learning rate, c ``scale``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, Problem
from labkit.learn.sgd import QUIETLY, Rate, descend, rate, start
from labkit.timing.updates import Updates

#: The numbers of the examples that a rank uses in its t-th step (None: all), a pure function of (rank, step).
Batches = Callable[[int, int], ArrayLike | None]
#: A factor >= 0 on the step of a gradient that is tau versions old.
Scale = Callable[[int], float]


def by_staleness(tau: int) -> float:
    """1 / max(1, tau): the step divided by the staleness, Zhang et al. 2016. Fresh gradients count in full."""
    return 1.0 / max(1, tau)


def by_age(tau: int) -> float:
    """1 / (tau + 1): as `by_staleness`, but a gradient one version old counts half already."""
    return 1.0 / (tau + 1)


def replay(
    problem: Problem,
    w0: ArrayLike,
    eta: Rate,
    updates: Updates,
    batches: Batches,
    scale: Scale | None = None,
    versions: ArrayLike | None = None,
) -> Array:
    """Run SGD along ``updates``; returns every version of w, (U + 1, d), beginning with w0.

    w0: (d,), its dtype (if floating) is that of the iterates. eta: a number or a function of the update u = 0, 1, ...,
    finite and >= 0. batches: the examples of a rank's step. scale: a factor for each gradient, by its staleness.
    versions: return only these, (len(versions), d), in rising order; memory is then that of the versions still to be
    read. Raises Diverged at the first update that leaves w not finite, ValueError for bad input.

    >>> problem = LeastSquares([[1.0]], [1.0])
    >>> replay(problem, [0.0], 0.25, constant_delay(U=3, tau=1), lambda rank, step: [0]).ravel()
    array([0.  , 0.5 , 1.  , 1.25])
    """
    wanted = _wanted(versions, updates.U)
    w = start(problem, w0)
    kept = {0: w}
    answer = np.empty((len(wanted), problem.d), dtype=w.dtype)
    place = {int(v): i for i, v in enumerate(wanted)}
    last_read = np.zeros(updates.U + 1, dtype=np.int64)
    np.maximum.at(last_read, updates.read, updates.into)
    done = _forgotten_after(last_read)
    if 0 in place:
        answer[place[0]] = w
    for u, gradients in _by_update(updates):
        with QUIETLY():
            g = _direction(problem, kept, u, gradients, batches, scale)
        w = descend(w, rate(eta, u), g, u)
        kept[u + 1] = w
        for version in done.get(u, ()):
            del kept[version]
        if u + 1 in place:
            answer[place[u + 1]] = w
    return answer


def constant_delay(U: int, tau: int) -> Updates:
    """The textbook's schedule: update u uses the gradient at version u - tau, or at version 0 while there is no older one.

    It is what tau + 1 equally fast workers do that take turns, one update a second. ValueError for a tau that no
    run of U updates can have: the delay must be shorter than the run.

    >>> constant_delay(U=5, tau=2).tau
    array([0, 1, 2, 2, 2])
    """
    for name, value, least in (("U", U, 1), ("tau", tau, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    if tau >= U:
        raise ValueError(f"tau must be shorter than the run of U = {U} updates, got {tau}")
    u = np.arange(U)
    return Updates(
        K=tau + 1,
        into=u,
        rank=u % (tau + 1),
        step=u // (tau + 1),
        read=np.maximum(u - tau, 0),
        applied_s=np.arange(1.0, U + 1),
        measured=False,
        where=f"constant delay, tau = {tau}",
    )


# -- one update -------------------------------------------------------------------------------------------------------


def _direction(
    problem: Problem,
    kept: dict[int, Array],
    u: int,
    gradients: list[tuple[int, int, int]],
    batches: Batches,
    scale: Scale | None,
) -> Array:
    """Mean of the update's gradients, by their numbers of examples, each scaled by its staleness."""
    if len(gradients) == 1:  # asynchronous or SSP
        rank, step, read = gradients[0]
        g = problem.grad(kept[read], _some(batches(rank, step), rank, step))
        return g if scale is None else _factor(scale, u - read) * g
    rows: dict[int, list[Array]] = {}  # by the version read: what was computed at the same w is one gradient
    for rank, step, read in gradients:
        idx = _some(batches(rank, step), rank, step)
        rows.setdefault(read, []).append(np.arange(problem.N) if idx is None else np.asarray(idx))
    joined = {read: np.concatenate(parts) for read, parts in rows.items()}
    M = sum(idx.size for idx in joined.values())
    total: Array | float = 0.0
    for read, idx in joined.items():
        g = problem.grad(kept[read], idx) * (idx.size / M)
        total = total + (g if scale is None else _factor(scale, u - read) * g)
    return np.asarray(total)


def _some(idx: ArrayLike | None, rank: int, step: int) -> ArrayLike | None:
    if idx is not None and np.size(idx) == 0:
        raise ValueError(f"batches must give at least one example, got none for rank {rank}, step {step}")
    return idx


def _factor(scale: Scale, tau: int) -> float:
    c = scale(tau)
    if not (math.isfinite(c) and c >= 0):
        raise ValueError(f"scale must be finite and >= 0, got {c!r} for tau = {tau}")
    return float(c)


def _by_update(updates: Updates) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """u and its gradients as (rank, step, version read)."""
    rows = np.stack([updates.rank, updates.step, updates.read], axis=1).tolist()
    edges = np.searchsorted(updates.into, np.arange(updates.U + 1)).tolist()
    for u in range(updates.U):
        yield u, [(rank, step, read) for rank, step, read in rows[edges[u] : edges[u + 1]]]


def _forgotten_after(last_read: Array) -> dict[int, list[int]]:
    """For each update the versions that nobody reads after it: those it made old itself, or read for the last time."""
    U = len(last_read) - 1
    after: dict[int, list[int]] = {}
    for version, last in enumerate(last_read.tolist()[:U]):
        after.setdefault(max(last, version), []).append(version)
    return after


def _wanted(versions: ArrayLike | None, U: int) -> Array:
    if versions is None:
        return np.arange(U + 1)
    wanted = np.asarray(versions)
    ok = wanted.ndim == 1 and wanted.dtype.kind in "iu" and (np.diff(wanted) > 0).all()
    if not (ok and wanted.size and wanted[0] >= 0 and wanted[-1] <= U):
        raise ValueError(f"versions must rise from 0 at least to U = {U} at most, got {versions!r}")
    return wanted
