"""What a benchmark printed, as numbers: the times of an all-reduce by size, read from the text of the tool that took them.

nccl-tests and rccl-tests (``all_reduce_perf``, layouts of 2017 to 2026), gloo's ``benchmark`` (its median, p50), ``python -m
labkit doctor --json``. Columns are found by their names, not by their places.

Symbols: K ranks; n bytes of the vector.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.checks import integer, number

#: What mpirun puts before a line it passes on.
_TAG = re.compile(r"^\s*(\[\d+,\d+\])?<std\w+>:?")
#: A line that nccl-tests puts before its times: a rank and its host.
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device")


@dataclass(frozen=True)
class Sweep:
    """Measured times of one all-reduce, of one K or of several.

    points: (K, bytes, seconds) each: K >= 2, bytes >= 0, seconds > 0. hosts: (K, hosts) where known; else each rank counts
    as a host. ``+`` joins sweeps. ValueError for anything else.

    >>> (Sweep(((2, 1e6, 1e-3),)) + Sweep(((4, 1e6, 2e-3),))).Ks
    (2, 4)
    """

    points: tuple[tuple[int, float, float], ...]
    hosts: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.points, Iterable) or not len(points := [tuple(each) for each in self.points]):
            raise ValueError(f"points must be at least one [K, bytes, seconds], got {self.points!r}")
        for each in points:
            if len(each) != 3:
                raise ValueError(f"points must each be [K, bytes, seconds], got {list(each)!r}")
            integer("K of points", each[0], least=2)
            number("bytes of points", each[1], least=0)
            number("seconds of points", each[2], above=0)
        object.__setattr__(self, "points", tuple(points))
        object.__setattr__(self, "hosts", tuple((int(K), int(H)) for K, H in self.hosts))

    @property
    def Ks(self) -> tuple[int, ...]:
        """The numbers of ranks that were measured, rising."""
        return tuple(sorted({K for K, _, _ in self.points}))

    def __add__(self, other: Sweep) -> Sweep:
        return Sweep(self.points + other.points, tuple(dict(self.hosts + other.hosts).items()))


def read_sweep(text: str, *, K: int | None = None, hosts: int | None = None) -> Sweep:
    """The sweep in ``text``, whichever of the tools above printed it.

    K: ranks, and hosts: where the text does not say them, as where its head was cut off.
    Returns a ``Sweep``. ValueError, in one sentence, for a text with no rows, of two formats, with a time that is none, with
    rows whose sums were wrong, and for a K that is missing or another than the text's.
    """
    if text.lstrip().startswith("{"):
        return _of_doctor(text)
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    kinds = [kind for kind, (head, _) in _FORMATS.items() if any(head in line for line in lines)]
    if len(kinds) != 1:
        got = " and ".join(kinds) or ("the heading of none" if text.strip() else "an empty text")
        raise ValueError(f"text must be of one of {', '.join(_FORMATS)} or labkit doctor, got {got}")
    if other := re.search(r"(?!all_reduce)\b[a-z_]+_perf\b", text):
        raise ValueError(f"text must be of an all-reduce, but it is of {other[0]}")
    where = {found[1]: found[2] for line in lines if (found := _RANK.match(line))}  # of nccl-tests
    said = {len(where)} if where else {int(found) for found in re.findall(r"processes ?= ?(\d+)", text)}
    if len(said | ({K} if K else set())) != 1:
        got = ", ".join(map(str, sorted(said))) or "none"
        raise ValueError(f"K must be the ranks of this {kinds[0]} text: it says {got}, K = {K} was given")
    (ranks,) = said or {K or 0}
    rows = list(_rows(lines, *_FORMATS[kinds[0]]))
    if not rows:
        raise ValueError(f"text must hold at least one row of times, but this of {kinds[0]} has none")
    hosts = len(set(where.values())) or None if hosts is None else integer("hosts", hosts, least=1)
    return Sweep(tuple((ranks, n, s) for n, s in rows if n > 0), () if hosts is None else ((ranks, hosts),))


#: Formats: what stands in the heading of their columns, and the name of the column of times (in microseconds).
_FORMATS = {"nccl-tests": ("algbw", "time"), "gloo": ("p50 (us)", "p50")}


def _rows(lines: list[str], head: str, time: str) -> Iterable[tuple[float, float]]:
    """(bytes, seconds) of every row under a heading; nccl-tests' of out of place, the first column of times."""
    names: list[str] = []
    for line in lines:
        if head in line:
            names = re.sub(r"\s?\([^)]*\)", "", line.strip("# ")).split()
        cells = line.split()
        if not names or not cells or not cells[0].isdecimal() or len(cells) < 2:
            continue
        if len(cells) < len(names):
            raise ValueError(f"text must have {len(names)} columns in every row, got {line.strip()!r}")
        both = list(zip(names, cells, strict=False))
        row = dict(both[::-1])  # of two of a name the first
        if row.get("redop") == "none":
            raise ValueError("text must be of an all-reduce, but its redop is none")
        if wrong := [cell for name, cell in both if name == "#wrong" and cell.isdigit() and int(cell)]:
            raise ValueError(f"text must hold right sums, but of {cells[0]} bytes {wrong[0]} are #wrong")
        seconds = float(row[time]) * 1e-6 if re.fullmatch(r"[\d.]+(e[+-]?\d+)?", row[time]) else math.nan
        if not seconds > 0:
            raise ValueError(f"text must hold times > 0 us, got {row[time]!r} for {cells[0]} {names[0]}")
        yield float(row.get("size", cells[0])) * (4 if names[0] == "elements" else 1), seconds


def _of_doctor(text: str) -> Sweep:
    try:
        return Sweep(json.loads(text)["measured"]["allreduce"]["points"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"text must be labkit doctor's, with measured.allreduce.points, got {error!r}"
        ) from None
