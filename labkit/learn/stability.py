"""How large a step a delay allows: gradient descent on a quadratic with gradients that are tau versions old.

On F(w) = (lambda / 2) w^2 the update w_{u+1} = w_u - eta lambda w_{u-tau} has the solutions z^u with

    z^{tau+1} - z^tau + eta lambda = 0,

and shrinks if and only if every root lies inside the unit circle. Put z = exp(i theta) for the root that crosses it
first: |z - 1| = 2 sin(theta / 2) = eta lambda and the angle of z^tau (z - 1), tau theta + theta / 2 + pi / 2, must be pi,
so theta = pi / (2 tau + 1) and

    eta < (2 / lambda) sin(pi / (2 (2 tau + 1)))

(Levin and May 1976, *A note on difference-delay equations*, in the form 2 cos(pi tau / (2 tau + 1)); Kuruklis 1994).
In more dimensions the largest eigenvalue L of the Hessian decides. That is theory; `frontier` finds the same by running.

Symbols: ``tau`` delay in versions, ``eta`` learning rate, L smoothness, z a root, U updates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_LOOKS = 12  # etas tried at once, between the largest known to shrink and the smallest known to grow


def largest_eta(tau: ArrayLike, L: float = 1.0) -> Any:
    """The frontier ``(2 / L) sin(pi / (2 (2 tau + 1)))``, of tau's shape: any smaller eta > 0 converges, for all curvatures
    up to L. tau = 0 gives gradient descent's 2 / L. ValueError for tau < 0 or not whole, or L not > 0.

    >>> [round(float(largest_eta(tau)), 6) for tau in (0, 1, 10)]
    [2.0, 1.0, 0.14946]
    """
    given = np.asarray(tau)
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(f"tau must be a whole number of versions >= 0, or an array of them, got {tau!r}")
    if not (math.isfinite(L) and L > 0):
        raise ValueError(f"L must be finite and > 0, got {L!r}")
    eta = 2 / L * np.sin(np.pi / (2 * (2 * given + 1)))
    return float(eta) if eta.ndim == 0 else eta


def roots(tau: int, eta_lambda: float) -> NDArray[np.complex128]:
    """The tau + 1 roots of ``z^{tau+1} - z^tau + eta_lambda``, the largest in absolute value first."""
    if isinstance(tau, bool) or not isinstance(tau, (int, np.integer)) or tau < 0:
        raise ValueError(f"tau must be a whole number of versions >= 0, got {tau!r}")
    if not (math.isfinite(eta_lambda) and eta_lambda >= 0):
        raise ValueError(f"eta_lambda must be finite and >= 0, got {eta_lambda!r}")
    coefficients = np.zeros(tau + 2)
    coefficients[0], coefficients[1] = 1.0, -1.0
    coefficients[-1] += eta_lambda
    z = np.roots(coefficients).astype(np.complex128)  # eigenvalues of the companion matrix
    return z[np.argsort(-np.abs(z), kind="stable")]


def spectral_radius(tau: int, eta_lambda: float) -> float:
    """The factor by which delayed descent shrinks (< 1) or grows (> 1) a step, in the long run: the largest root's |z|."""
    return float(np.abs(roots(tau, eta_lambda)[0]))


def delayed_path(read: ArrayLike, eta_lambda: ArrayLike) -> Array:
    """The path of w_{u+1} = w_u - eta_lambda w_{read[u]} from w_0 = 1: (U + 1, n) for n values of eta_lambda.

    read: (U,), the version that update u reads, 0 <= read[u] <= u, or (U, n), a schedule for each eta_lambda. One gradient
    an update, as in asynchronous and SSP runs. Overflow is left as inf or nan. ValueError for bad input.
    """
    x = np.atleast_1d(np.asarray(eta_lambda, dtype=np.float64))
    if x.ndim != 1 or not (np.isfinite(x) & (x >= 0)).all():
        raise ValueError(f"eta_lambda must be finite and >= 0, one or a list of them, got {eta_lambda!r}")
    versions = np.asarray(read)
    if versions.ndim not in (1, 2) or versions.dtype.kind not in "iu" or 0 in versions.shape:
        raise ValueError(f"read must hold version numbers, (U,) or (U, n), got shape {versions.shape}")
    if versions.ndim == 2 and versions.shape[1] != len(x):
        raise ValueError(f"read must have a column for each of {len(x)} eta_lambda, got {versions.shape[1]}")
    own = np.arange(len(versions)).reshape(-1, *[1] * (versions.ndim - 1))
    if not ((versions >= 0) & (versions <= own)).all():
        raise ValueError("read must be versions that are there, 0 <= read[u] <= u")
    w = np.empty((len(versions) + 1, len(x)))
    w[0] = 1.0
    columns = np.arange(len(x))
    with np.errstate(over="ignore", invalid="ignore"):
        for u, version in enumerate(versions):
            stale = w[version] if versions.ndim == 1 else w[version, columns]
            np.subtract(w[u], x * stale, out=w[u + 1])
    return w


def grows(path: Array) -> NDArray[np.bool_]:
    """Whether a path (U + 1, n) is larger in its last third than in the one before; (n,). Not finite counts as larger."""
    if len(path) < 6:
        raise ValueError(f"path must hold at least 6 versions, two in each third, got {len(path)}")
    size = np.abs(path)
    third = len(path) // 3
    with np.errstate(invalid="ignore"):
        before, after = size[third : 2 * third].max(axis=0), size[2 * third :].max(axis=0)
        return ~((after < before) | (after == 0)) | ~np.isfinite(after)


def frontier(reads: ArrayLike, L: float = 1.0, precision: float = 1e-4) -> Any:
    """The largest eta that shrinks, found by running: for a schedule ``read`` (U,) a number, for (U, m) schedules (m,).

    Runs `delayed_path` for a dozen etas at once and every schedule, from 0 to 2 / L, which no delay can exceed,
    narrows the gap between the last eta that shrinks and the first that grows, and repeats until it is below
    ``precision`` times the eta. The run must be long against the delay: some tens of times (2 tau + 1) updates.
    ValueError for bad input.
    """
    if not (math.isfinite(L) and L > 0):
        raise ValueError(f"L must be finite and > 0, got {L!r}")
    if not 1e-9 <= precision < 1:
        raise ValueError(f"precision must be a relative error from 1e-9 to 1, got {precision!r}")
    versions = np.asarray(reads)
    columns = versions.reshape(len(versions), -1) if versions.ndim in (1, 2) else versions
    m = columns.shape[-1]
    low, high = np.zeros(m), np.full(m, 2.0 * (1 + precision))
    while ((high - low) > precision * high).any():
        etas = low + (high - low) * np.linspace(0, 1, _LOOKS + 2)[1:-1, None]  # (looks, m)
        wide = np.tile(columns, (1, _LOOKS))
        grown = grows(delayed_path(wide, etas.ravel())).reshape(_LOOKS, m)
        first = np.where(grown.any(axis=0), grown.argmax(axis=0), _LOOKS)
        edges = np.vstack([low, etas, high])
        low, high = edges[first, np.arange(m)], edges[first + 1, np.arange(m)]
    found = (low + high) / 2 / L
    return float(found[0]) if versions.ndim == 1 else found
