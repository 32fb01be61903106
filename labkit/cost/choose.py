"""Which algorithm for which size: the lower envelope of straight lines.

On a given link an alpha-beta time is a straight line in n (``labkit.cost.linear``): short vectors want few messages,
long ones few bytes, and where two lines cross the choice changes (Thakur, Rabenseifner and Gropp 2005, section 4, switch
algorithms so). Among several algorithms the best is the lowest line, so every one of them wins on one interval of sizes
or not at all.

Symbols: K workers, n bytes of the vector; ``forms``: name -> closed form such as ``ring_time``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from labkit.cost.linear import Form, Line, evaluate, line
from labkit.cost.link import Link

#: Slopes or starts closer than this, relatively, are the same number, computed twice.
SAME = 1e-12


class Interval(NamedTuple):
    """The sizes, in bytes, from ``low`` to ``high`` for which algorithm ``name`` costs least; ``high`` may be inf."""

    low: float
    high: float
    name: str


def times(K: int, nbytes: float, link: Link, forms: Mapping[str, Form]) -> dict[str, float]:
    """Seconds of every algorithm in ``forms``, in their order."""
    return {name: evaluate(form, K, nbytes, link) for name, form in _some(forms).items()}


def best(K: int, nbytes: float, link: Link, forms: Mapping[str, Form]) -> str:
    """The name in ``forms`` that costs least; in a tie (to 1e-12, relatively), the first of them.

    >>> forms = {"ring": ring_time, "tree": tree_time}
    >>> best(16, 1e3, Link(1e-4, 1.25e8), forms), best(16, 1e8, Link(1e-4, 1.25e8), forms)
    ('tree', 'ring')
    """
    seconds = times(K, nbytes, link, forms)
    least = min(seconds.values())
    return next(name for name, s in seconds.items() if math.isclose(s, least, rel_tol=SAME))


def crossover(form_a: Form, form_b: Form, K: int, link: Link) -> float | None:
    """The size in bytes, > 0, at which both cost the same; None if one of them costs less at every size, or never more.

    Exact, as both are straight lines in n: no search.

    >>> crossover(ring_time, naive_time, 8, Link(1e-4, 1e8)) is None
    True
    """
    return _crossing(line(form_a, K, link), line(form_b, K, link))


def crossovers(K: int, link: Link, forms: Mapping[str, Form]) -> list[Interval]:
    """Who costs least, from size 0 to infinity: intervals that follow on each other, each with its algorithm.

    Between algorithms that cost the same throughout an interval, the first in ``forms`` is named.
    """
    lines = {name: line(form, K, link) for name, form in _some(forms).items()}
    least = min(each.start_s for each in lines.values())
    now = _flattest({name: each for name, each in lines.items() if _same(each.start_s, least)})
    found: list[Interval] = []
    low = 0.0
    while True:
        # only a flatter line can come to lie below this one, and the first to cross it does
        ahead = {
            name: n
            for name, other in lines.items()
            if (n := _crossing(lines[now], other)) is not None and other.s_per_byte < lines[now].s_per_byte
        }
        high = max(low, min(ahead.values(), default=math.inf))
        found.append(Interval(low, high, now))
        if high == math.inf:
            return found
        there = {name: lines[name] for name, n in ahead.items() if n <= high * (1 + SAME)}
        now, low = _flattest(there), high


def _flattest(lines: Mapping[str, Line]) -> str:
    """The name of the line with the smallest slope; the first of those with the same."""
    least = min(each.s_per_byte for each in lines.values())
    return next(name for name, each in lines.items() if _same(each.s_per_byte, least))


def _crossing(a: Line, b: Line) -> float | None:
    if _same(a.start_s, b.start_s) or _same(a.s_per_byte, b.s_per_byte):
        return None
    nbytes = (b.start_s - a.start_s) / (a.s_per_byte - b.s_per_byte)
    return nbytes if 0 < nbytes < math.inf else None


def _same(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=SAME, abs_tol=0.0)


def _some(forms: Mapping[str, Form]) -> Mapping[str, Form]:
    if not isinstance(forms, Mapping) or not forms:
        raise ValueError(
            f"forms must map at least one name to a closed form such as ring_time, got {forms!r}"
        )
    return forms
