"""Which algorithm for which size: the lower envelope of straight lines.

On a given link an alpha-beta time is a straight line in n: short vectors want few messages, long ones few bytes, and where
two lines cross the choice changes (Thakur, Rabenseifner and Gropp 2005, section 4, switch algorithms so). Among several
algorithms the best is the lowest line, so every one of them wins on one interval of sizes or not at all.

Symbols: K workers, n bytes of the vector; ``forms``: name -> a collective such as ``ring``, or any closed form
``(K, nbytes, link) -> seconds`` that is linear in ``nbytes``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from labkit.checks import number
from labkit.network.linear import Form, evaluate, straight
from labkit.network.link import Link

#: Slopes or starts closer than this, relatively, are the same number, computed twice.
SAME = 1e-12
#: A vector so long that latency is lost in rounding; a power of two, so that dividing by it loses nothing.
LONG = 2.0**60


class Interval(NamedTuple):
    """The sizes, in bytes, from ``low`` to ``high`` for which algorithm ``name`` costs least; ``high`` may be inf."""

    low: float
    high: float
    name: str


def best(K: int, nbytes: float, link: Link, forms: Mapping[str, Form]) -> str:
    """The name in ``forms`` that costs least; in a tie (to 1e-12, relatively), the first of them.

    >>> best(16, 1e3, Link(1e-4, 1.25e8), ALLREDUCES), best(16, 1e8, Link(1e-4, 1.25e8), ALLREDUCES)
    ('doubling', 'halving')
    """
    seconds = {name: evaluate(form, K, nbytes, link) for name, form in _some(forms).items()}
    least = min(seconds.values())
    return next(name for name, s in seconds.items() if math.isclose(s, least, rel_tol=SAME))


def tied(K: int, nbytes: float, link: Link, forms: Mapping[str, Form], within: float) -> list[str]:
    """The names in ``forms`` that cost at most 1 + ``within`` times the least, cheapest first: if several, clock them.

    A link does not say what adding up costs, or moving memory; so what it predicts closer than its own times scatter
    (``Fit.scatter``) it cannot tell apart. ValueError for a negative ``within``.

    >>> tied(2, 4e7, Link(1e-4, 1e9), {"doubling": doubling, "ring": ring, "naive": naive}, within=0.1)
    ['doubling', 'ring']
    """
    number("within", within, least=0)
    seconds = {name: evaluate(form, K, nbytes, link) for name, form in _some(forms).items()}
    most = min(seconds.values()) * (1 + within)
    return sorted((name for name, s in seconds.items() if s <= most), key=lambda name: seconds[name])


def crossovers(K: int, link: Link, forms: Mapping[str, Form]) -> list[Interval]:
    """Who costs least, from size 0 to infinity: intervals that follow on each other, each with its algorithm.

    Exact, as all are straight lines in n: no search. Between algorithms that cost the same throughout an interval, the first
    in ``forms`` is named.

    >>> [interval.name for interval in crossovers(8, Link(1e-4, 1e8), {"ring": ring, "tree": tree, "naive": naive})]
    ['tree', 'ring']
    """
    lines = {name: _line(form, K, link) for name, form in _some(forms).items()}
    least = min(each.start_s for each in lines.values())
    lowest = [name for name, each in lines.items() if _same(each.start_s, least)]
    found: list[Interval] = []
    low = 0.0
    while True:
        slope = min(lines[name].s_per_byte for name in lowest)
        now = next(name for name in lowest if _same(lines[name].s_per_byte, slope))
        # only a flatter line can come to lie below this one, and the first to cross it does
        ahead = {
            name: (each.start_s - lines[now].start_s) / (slope - each.s_per_byte)
            for name, each in lines.items()
            if each.s_per_byte < slope and not _same(each.s_per_byte, slope)
        }
        high = max(low, min(ahead.values(), default=math.inf))
        found.append(Interval(low, high, now))
        if high == math.inf:
            return found
        lowest, low = [name for name, n in ahead.items() if n <= high * (1 + SAME)], high


class _Line(NamedTuple):
    """Seconds as a function of n: ``start_s + s_per_byte * n``."""

    start_s: float
    s_per_byte: float


def _line(form: Form, K: int, link: Link) -> _Line:
    """The straight line in n that ``form`` is for K workers on ``link``. ValueError for a form that is none."""
    start = evaluate(form, K, 0.0, link)
    slope = (evaluate(form, K, LONG, link) - start) / LONG
    middle = start / slope if start > 0 and slope > 0 else 1.0
    if middle < LONG:  # else latency is all there is at any size
        straight(start + slope * middle, evaluate(form, K, middle, link), form, "nbytes")
    return _Line(start, slope)


def _same(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=SAME, abs_tol=0.0)


def _some(forms: Mapping[str, Form]) -> Mapping[str, Form]:
    if not isinstance(forms, Mapping) or not forms:
        raise ValueError(f"forms must map at least one name to a collective such as ring, got {forms!r}")
    return forms
