"""The one door: a sentence for each bad argument, naming it, its value and what would be right."""

import math
from collections.abc import Collection, Sequence
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def number(
    name: str,
    value: Any,
    *,
    least: float = -inf,
    most: float = inf,
    above: float = -inf,
) -> float:
    """``value`` as a float if it is a finite real number with above < value, least <= value <= most."""
    x = (
        float(value)
        if isinstance(value, Real) and not isinstance(value, bool)
        else math.nan
    )
    if math.isfinite(x) and above < x and least <= x <= most:
        return x
    limits = {">": above, ">=": least, "<=": most}
    bounds = [
        f"{sign} {limit:g}" for sign, limit in limits.items() if math.isfinite(limit)
    ]
    right = f"a finite number {' and '.join(bounds)}".rstrip()
    raise ValueError(f"{name} must be {right}, got {value!r}")


def integer(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """``value`` as an int if it is a whole number from least to most (None: any)."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    right = f">= {least}" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name} must be a whole number {right}, got {value!r}")


def one_of(name: str, value: object, allowed: Collection[object]) -> None:
    """Refuse ``value`` if it is not among the ``allowed``."""
    if value not in allowed:
        right = ", ".join(map(str, allowed))
        raise ValueError(f"{name} must be one of {right}, got {value!r}")


def matrix(name: str, value: ArrayLike, replicas: bool = False) -> FloatArray:
    """``value`` as a (K, T) array of finite seconds >= 0, no axis empty; (K, T, R) too where there may be replicas."""
    x = np.asarray(value, float)
    if not (x.ndim == 2 or (replicas and x.ndim == 3)) or 0 in x.shape:
        right = "(K, T) or (K, T, R)" if replicas else "(K, T)"
        raise ValueError(
            f"{name} must have shape {right} with no empty axis, got {x.shape}"
        )
    if not (
        x.min() >= 0 and x.max() < inf
    ):  # the minimum of anything with a nan is nan
        k, t, *r = at = tuple(np.argwhere(~(np.isfinite(x) & (x >= 0)))[0].tolist())
        where = f"worker {k}, step {t}" + (f" of replica {r[0]}" if r else "")
        raise ValueError(
            f"{name} must hold finite seconds >= 0, got {x[at]!r} for {where}"
        )
    return x


def freeze(record: Any, names: Sequence[str], dtype: type) -> None:
    """Make these fields of a frozen dataclass read-only arrays, as long as the first of them."""
    length = np.shape(getattr(record, names[0]))
    for name in names:
        given = np.asarray(getattr(record, name))
        array: NDArray[Any] = given.astype(dtype)
        if array.shape != length or array.ndim != 1:
            raise ValueError(
                f"{name} must be a 1-D array like {names[0]}, got shape {array.shape}"
            )
        if dtype is int and (array != given).any():
            raise ValueError(
                f"{name} must be whole numbers, got {given[array != given][0]!r}"
            )
        array.setflags(write=False)
        object.__setattr__(record, name, array)


def every(
    what: str, ok: NDArray[np.bool_], right: str, record: Any, names: Sequence[str]
) -> None:
    """Refuse the first entry of a record's arrays that is not ``ok``, by its number and what it holds."""
    if not ok.all():
        i = int(np.argmin(ok))
        got = ", ".join(f"{name} {getattr(record, name)[i]}" for name in names)
        raise ValueError(f"{what} {i} must have {right}, got {got}")


def workers(K: ArrayLike) -> NDArray[np.int64]:
    """``K``, a number of workers or an array of them, as whole numbers >= 1."""
    given = np.asarray(K)
    if given.dtype.kind not in "iu" or np.any(given < 1):
        raise ValueError(
            f"K must be a whole number of workers >= 1, or an array, got {K!r}"
        )
    return given.astype(np.int64)


def amounts(name: str, value: ArrayLike) -> FloatArray:
    """``value``, a number or an array of them, as finite floats >= 0."""
    given = np.asarray(value)
    if (
        given.dtype.kind not in "iuf"
        or not np.all(np.isfinite(given))
        or np.any(given < 0)
    ):
        raise ValueError(
            f"{name} must be a finite number >= 0, or an array, got {value!r}"
        )
    return given.astype(float)


def plain(value: Any) -> Any:
    """A float for a number, an array for an array."""
    return float(value) if np.ndim(value) == 0 else value
