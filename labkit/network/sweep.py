"""What a benchmark printed, as numbers: the times of an all-reduce by size, read from the text of the tool that took them.

nccl-tests and rccl-tests (``all_reduce_perf``, layouts of 2017 to 2026), gloo's ``benchmark``, ``osu_allreduce``, IMB's
``Allreduce``, ``python -m labkit doctor --json``. Columns are found by their names, not by their places. Of gloo the median
(p50) is taken, of OSU and IMB the average over ranks.

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


def read_sweep(text: str, *, K: int | None = None, hosts: int | None = None, in_place: bool = False) -> Sweep:
    """The sweep in ``text``, whichever of the tools above printed it.

    K: ranks, and hosts: where the text does not say them (OSU never, nccl-tests always, unless its head was cut off).
    in_place: of nccl-tests the second column of times instead of the first.
    Returns a ``Sweep``. ValueError, in one sentence, for a text with no rows, of two formats, with a time that is none, with
    rows whose sums were wrong, and for a K that is missing or another than the text's.
    """
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    if not text.strip():
        raise ValueError("text must be what a benchmark printed, but it is empty")
    if text.lstrip().startswith("{"):
        return _of_doctor(text)
    kinds = [name for name, (head, _) in _FORMATS.items() if any(re.search(head, line) for line in lines)]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "the heading of none"
        raise ValueError(f"text must be of one of {', '.join(_FORMATS)} or labkit doctor, got {got}")
    (kind,) = kinds
    if other := re.search(r"(?!all_reduce)\b[a-z_]+_perf\b", text):
        raise ValueError(f"text must be of an all-reduce, but it is of {other[0]}")
    said, where = _ranks(lines)
    if K is not None and said not in (None, K):
        raise ValueError(f"K must be the {said} ranks that the {kind} text lists, got {K}")
    if (K := said if K is None else K) is None:
        raise ValueError(f"K must be given, for this {kind} text does not say its number of ranks")
    rows = list(_rows(lines, *_FORMATS[kind], in_place))
    if not rows:
        raise ValueError(f"text must hold at least one row of sizes and times, but this of {kind} has none")
    hosts = where if hosts is None else integer("hosts", hosts, least=1)
    return Sweep(tuple((K, n, s) for n, s in rows if n > 0), () if hosts is None else ((K, hosts),))


#: Formats: what stands in the heading of their columns, and the name of the column of times (in microseconds).
_FORMATS = {
    "nccl-tests": ("algbw", "time"), "gloo": (r"p50 \(us\)", "p50"), "OSU": (r"Latency ?\(us\)", "Latency"),
    "IMB": (r"t_avg\[usec\]", "t_avg[usec]"),
}  # fmt: skip


def _rows(lines: list[str], head: str, time: str, in_place: bool) -> Iterable[tuple[float, float]]:
    """(bytes, seconds) of every row under a heading; rows end with the numbers that the heading names."""
    names: list[str] = []
    for line in lines:
        if re.search(head, line):
            names = re.sub(r"\s?\([^)]*\)|(Avg|Min|Max) (?=Latency)", "", line.strip("# ")).split()
            continue
        cells = line.split()
        if not names or not cells or not re.fullmatch(r"\d+", cells[0]) or len(cells) < 2:
            continue
        if len(cells) < len(names):
            raise ValueError(f"text must have {len(names)} columns in every row, got {line.strip()!r}")
        both = list(zip(names, cells, strict=False))
        row = dict(
            both if in_place and time == "time" else both[::-1]
        )  # of two of a name the last, or the first
        if row.get("redop") == "none":
            raise ValueError("text must be of an all-reduce, but its redop is none")
        if wrong := [cell for name, cell in both if name == "#wrong" and cell.isdigit() and int(cell)]:
            raise ValueError(
                f"text must hold right sums, but of {cells[0]} bytes {wrong[0]} elements are #wrong"
            )
        seconds = float(row[time]) * 1e-6 if re.fullmatch(r"[\d.]+(e[+-]?\d+)?", row[time]) else math.nan
        if not seconds > 0:
            raise ValueError(f"text must hold times > 0 us, got {row[time]!r} for {cells[0]} {names[0]}")
        yield float(row.get("size", cells[0])) * (4 if names[0] == "elements" else 1), seconds


def _ranks(lines: list[str]) -> tuple[int | None, int | None]:
    """Ranks and hosts, where the text says them."""
    ranks = {int(found[1]): found[2] for line in lines if (found := _RANK.match(line))}
    if ranks:
        return len(ranks), len(set(ranks.values()))
    processes = {found for line in lines for found in re.findall(r"processes ?= ?(\d+)", line)}
    if len(processes) > 1:
        raise ValueError(f"text must be of one number of ranks, got {', '.join(sorted(processes))}")
    return (int(processes.pop()) if processes else None), None


def _of_doctor(text: str) -> Sweep:
    try:
        points = json.loads(text)["measured"]["allreduce"]["points"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"text must be the JSON of labkit doctor, with measured.allreduce.points, got {error!r}"
        ) from None
    return Sweep(points)
