"""The times of an all-reduce by size, as nccl-tests, rccl-tests or ``python -m labkit doctor --json`` printed them.

A size between is interpolated. How far that may be off the times say themselves: each size is left out and asked for.

Symbols: K ranks; n bytes of the vector.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labkit.checks import FloatArray, integer, number

#: A line that nccl-tests puts before its times: a rank and its host.
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device")
#: Relative errors of sizes left out, of the largest and in the median, beyond which a prediction is doubted; and times the
#: largest size, how far beyond it one goes.
WORST, USUAL, BEYOND = 0.2, 0.12, 4.0


@dataclass(frozen=True)
class Sweep:
    """Measured times of one all-reduce, of one K or of several.

    points: (K, bytes, seconds) each: K >= 2, bytes > 0, seconds > 0. ValueError for anything else.
    """

    points: tuple[tuple[int, float, float], ...]

    def __post_init__(self) -> None:
        points = tuple(tuple(each) for each in self.points)
        for each in points:
            if len(each) != 3:
                raise ValueError(f"points must each be [K, bytes, seconds], got {list(each)!r}")
            integer("K of points", each[0], least=2)
            number("bytes of points", each[1], above=0)
            number("seconds of points", each[2], above=0)
        if not points:
            raise ValueError("points must hold at least one [K, bytes, seconds], got none")
        object.__setattr__(self, "points", points)

    def seconds(self, K: int, nbytes: float) -> float:
        """Of an all-reduce of ``nbytes`` bytes (> 0) by K >= 2 ranks."""
        return _between(self._rows, K, nbytes)

    @cached_property
    def errors(self) -> FloatArray:
        """Relative error of each (K, size), rising, predicted without all times of its size; nan where too few are left."""
        out = np.full(len(self._rows), math.nan)
        for i, (K, n, measured) in enumerate(self._rows):
            rest = self._rows[self._rows[:, 1] != n]
            if len(rest) >= 3:
                out[i] = math.expm1(abs(math.log(measured / _between(rest, K, n))))
        return out

    @property
    def bandwidth(self) -> float:
        """Bytes per second that the longest vector of the largest K got of a ring's links: 2 (K-1)/K n over its seconds."""
        K, n, seconds = self._rows[-1]
        return float(2 * (K - 1) / K * n / seconds)

    @cached_property
    def _rows(self) -> FloatArray:
        """(m, 3): K, n and the median of its seconds, rising."""
        times: dict[tuple[int, float], list[float]] = {}
        for K, n, s in self.points:
            times.setdefault((K, n), []).append(s)
        return np.array([(K, n, float(np.median(s))) for (K, n), s in sorted(times.items())])

    def doubt(self, K: int, nbytes: float) -> str:
        """Why nothing measured speaks for ``seconds`` there; "" where something does."""
        mine = self._rows[:, 0] == K
        n, s = self._rows[mine, 1:].T
        if len(n) < 4:
            return f"{len(n)} sizes were measured with K = {K}, and only four would do."
        miss = self.errors[mine]
        steep = np.diff(np.log(s)) / np.diff(np.log(n))
        far = nbytes > BEYOND * n[-1] or steep[-1] < 0.5 or miss[-1] > WORST
        if nbytes > n[-1] and far:
            return f"{nbytes:.3g} bytes: {nbytes / n[-1]:.3g} times the largest size measured, {n[-1]:.3g}."
        if nbytes < n[0] and steep[0] > 0.1:
            return f"{nbytes:.3g} bytes are below the smallest size measured, {n[0]:.3g}, where time still falls."
        inner = miss[1:-1]
        if np.mean(inner > 0.3) > 0.2 or np.median(inner) > USUAL:
            return f"sizes left out with K = {K} are missed by {np.median(inner):.0%} (median), {inner.max():.0%} (worst)."
        return ""


def _between(rows: FloatArray, K: float, n: float) -> float:
    """From size to size linear in the logarithms; beyond the largest with the last slope; for another K scaled as a ring."""
    Ks = rows[:, 0]
    near = Ks[np.argmin(np.abs(np.log(Ks / K)))]
    sizes, seconds = rows[Ks == near, 1:].T
    as_ring = (1 - 1 / K) / (1 - 1 / near)
    if n <= sizes[-1] or len(sizes) == 1:
        return float(as_ring * math.exp(np.interp(math.log(n), np.log(sizes), np.log(seconds))))
    slope = max(0.0, (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]))
    return float(as_ring * (seconds[-1] + slope * (n - sizes[-1])))


def read_sweep(text: str) -> Sweep:
    """The sweep in ``text``, whichever of the tools above printed it. ValueError for another text, and for wrong sums."""
    if text.lstrip().startswith("{"):
        try:
            return Sweep(json.loads(text)["measured"]["allreduce"]["points"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            right = "text must be labkit doctor's, with measured.allreduce.points"
            raise ValueError(f"{right}, got {error!r}") from None
    if other := re.search(r"(?!all_reduce)\b[a-z_]+_perf\b", text):
        raise ValueError(f"text must be of an all-reduce, but it is of {other[0]}")
    lines = text.splitlines()
    K = len({found[1] for line in lines if (found := _RANK.match(line))})
    points = tuple((K, n, s) for n, s in _printed(lines) if n > 0)
    if not K or not points:
        got = f"{K} ranks and {len(points)} rows of times"
        raise ValueError(f"text must be nccl-tests', with its head, or labkit doctor's, got {got}")
    return Sweep(points)


def _printed(lines: list[str]) -> Iterator[tuple[float, float]]:
    """(bytes, seconds) of every row under nccl-tests' heading, whose names say where they stand."""
    names: list[str] = []
    for line in lines:
        cells = line.split()
        if "algbw" in line:
            names = re.sub(r"\s?\([^)]*\)", "", line.strip("# ")).split()
        if not names or len(cells) < len(names) or not cells[0].isdecimal():
            continue
        columns = list(zip(names, cells, strict=False))
        row = dict(reversed(columns))  # of two columns with one name the first, out of place
        wrong = [int(cell) for name, cell in columns if name == "#wrong" and cell.isdigit()]
        if any(wrong):
            raise ValueError(f"text must hold right sums, but of {row['size']} bytes {max(wrong)} are #wrong")
        if not re.fullmatch(r"[\d.]+(e[+-]?\d+)?", row["time"]):
            raise ValueError(f"text must hold times > 0 us, got {row['time']!r} for {row['size']} bytes")
        yield float(row["size"]), 1e-6 * float(row["time"])
