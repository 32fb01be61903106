"""The one door: a sentence for each bad argument, naming it, its value and what would be right."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

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


def integer(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """``value`` as an int if it is a whole number from least to most (None: any)."""
    ok = isinstance(value, Integral) and not isinstance(value, bool)
    if not ok or value < least or (most is not None and value > most):  # type: ignore[operator]
        right = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {right}, got {value!r}")
    return int(value)  # type: ignore[call-overload]


def one_of(name: str, value: object, allowed: Collection[object]) -> None:
    """Refuse ``value`` if it is not among the ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")


def generator(rng: object) -> np.random.Generator:
    """``rng`` if it is a numpy Generator."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy Generator such as np.random.default_rng(7), got {rng!r}")
    return rng


def matrix(name: str, value: ArrayLike, replicas: bool = False) -> FloatArray:
    """``value`` as a (K, T) float array of finite seconds >= 0, no axis empty; (K, T, R) too where there may be replicas."""
    x = np.asarray(value, dtype=np.float64)
    if not (x.ndim == 2 or (replicas and x.ndim == 3)) or 0 in x.shape:
        right = "have shape (K, T) or (K, T, R)" if replicas else "be a (K, T) matrix of seconds"
        raise ValueError(f"{name} must {right} with no empty axis, got shape {x.shape}")
    if not (x.min() >= 0 and x.max() < math.inf):  # the minimum of anything with a nan is nan
        k, t, *r = np.argwhere(~(np.isfinite(x) & (x >= 0)))[0]
        which = f" of replica {r[0]}" if r else ""
        raise ValueError(
            f"{name} must hold finite seconds >= 0, got {x[k, t, *r]!r} for worker {k}, step {t}{which}"
        )
    return x


def column(name: str, value: ArrayLike, n: int, whole: bool = False) -> NDArray[Any]:
    """``value`` as a read-only array of n numbers, or of n whole numbers."""
    given = np.asarray(value)
    if given.shape != (n,) or given.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a 1-D array of {n} numbers, got shape {given.shape} of {given.dtype}"
        )
    if whole:
        every(name, given, given.astype(np.float64) % 1 == 0, "whole numbers")
    array = given.astype(np.int64 if whole else np.float64)
    array.setflags(write=False)
    return array


def every(name: str, array: NDArray[Any], ok: NDArray[np.bool_], right: str) -> None:
    """Refuse the first entry of ``array`` that is not ``ok``."""
    if not ok.all():
        i = int(np.argmin(ok.ravel()))
        raise ValueError(f"{name} must be {right}, got {array.flat[i]!r} at index {i}")


def workers(K: ArrayLike) -> NDArray[np.int64]:
    """``K``, a number of workers or an array of them, as whole numbers >= 1."""
    given = np.asarray(K)
    if given.dtype.kind not in "iu" or np.any(given < 1):
        raise ValueError(f"K must be a whole number of workers >= 1 (an int or an array of ints), got {K!r}")
    return given.astype(np.int64)


def amounts(name: str, value: ArrayLike) -> FloatArray:
    """``value``, a number or an array of them, as finite floats >= 0."""
    given = np.asarray(value)
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)) or np.any(given < 0):
        raise ValueError(f"{name} must be a finite number >= 0, or an array of them, got {value!r}")
    return given.astype(np.float64)


def plain(value: Any) -> Any:
    """A float for a number, an array for an array."""
    return float(value) if np.ndim(value) == 0 else value
