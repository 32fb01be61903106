"""The door of this room: one sentence for each bad argument, naming it, its value and what would be right."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def number(
    name: str, value: object, *, least: float = -math.inf, most: float = math.inf, above: float = -math.inf
) -> float:
    """``value`` as a float if it is a finite real number with above < value, least <= value <= most."""
    ok = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    x = float(value) if ok else math.nan  # type: ignore[arg-type]
    if not (math.isfinite(x) and above < x and least <= x <= most):
        bounds = [f"> {above:g}"] if above > -math.inf else []
        bounds += [f">= {least:g}"] if least > -math.inf else []
        bounds += [f"<= {most:g}"] if most < math.inf else []
        raise ValueError(
            f"{name} must be a finite number {' and '.join(bounds)}".rstrip() + f", got {value!r}"
        )
    return x


def integer(name: str, value: object, least: int = 0) -> int:
    """``value`` as an int if it is a whole number >= least."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def generator(rng: object) -> np.random.Generator:
    """``rng`` if it is a numpy Generator."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy Generator such as np.random.default_rng(7), got {rng!r}")
    return rng


def matrix(name: str, value: ArrayLike) -> FloatArray:
    """``value`` as a (K, T) float array of finite seconds >= 0 with K >= 1 and T >= 1."""
    x = np.asarray(value, dtype=np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"{name} must be a (K, T) matrix of seconds with K, T >= 1, got shape {x.shape}")
    bad = ~(np.isfinite(x) & (x >= 0))
    if bad.any():
        k, t = np.argwhere(bad)[0]
        raise ValueError(f"{name} must hold finite seconds >= 0, got {x[k, t]!r} for worker {k}, step {t}")
    return x


def replicas(name: str, value: ArrayLike) -> FloatArray:
    """``value`` as a (K, T) or (K, T, R) float array of finite seconds >= 0, no axis empty."""
    x = np.asarray(value, dtype=np.float64)
    if x.ndim not in (2, 3) or 0 in x.shape:
        raise ValueError(f"{name} must have shape (K, T) or (K, T, R) with no empty axis, got {x.shape}")
    if not (x.min() >= 0 and x.max() < math.inf):  # the minimum of anything with a nan is nan
        k, t, *r = np.argwhere(~(np.isfinite(x) & (x >= 0)))[0]
        which = f" of replica {r[0]}" if r else ""
        raise ValueError(
            f"{name} must hold finite seconds >= 0, got {x[k, t, *r]!r} for worker {k}, step {t}{which}"
        )
    return x
