"""What a closed form is made of: every alpha-beta time is a sum of serial messages and serial bytes.

An alpha-beta time (Hockney 1994) of an algorithm is a straight line twice over. In the link it is

    time(K, n, link) = messages * alpha + nbytes / beta + seconds,

with ``messages`` and ``nbytes`` counted one after the other along the longest chain and ``seconds`` what this link has no
part in (another link, inside a host, say). In n it is ``start_s + s_per_byte * n``. So the numbers are read off the form
itself, by asking it about a link that has nothing but latency and one that has nothing but a bandwidth.

Symbols: K workers, n bytes of the vector, ``alpha`` and ``beta`` of the link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from labkit.cost.link import Link

#: A closed form: seconds of ``(K, nbytes, link)``, as ``ring_time`` is.
Form = Callable[[int, float, Link], Any]

#: A vector so long that latency is lost in rounding; a power of two, so that dividing by it loses nothing.
LONG = 2.0**60


class Terms(NamedTuple):
    """What a form counts for one K and one size: ``messages * alpha + nbytes / beta + seconds``."""

    messages: float
    nbytes: float
    seconds: float


class Line(NamedTuple):
    """Seconds as a function of n: ``start_s + s_per_byte * n``."""

    start_s: float
    s_per_byte: float

    def at(self, nbytes: float) -> float:
        """Seconds for a vector of ``nbytes`` bytes."""
        return self.start_s + self.s_per_byte * nbytes


def terms(form: Form, K: int, nbytes: float) -> Terms:
    """The serial messages, the serial bytes and the other seconds of ``form`` for K workers and ``nbytes`` bytes.

    ValueError for a form that is no sum of the three (the smaller of two times, say, is none).
    """
    seconds = evaluate(form, K, nbytes, Link(0.0, math.inf))
    messages = evaluate(form, K, nbytes, Link(1.0, math.inf)) - seconds
    serial = evaluate(form, K, nbytes, Link(0.0, 1.0)) - seconds
    # a link on which both cost the same, so that neither hides what the other does
    link = Link(1.0, (serial / messages if messages > 0 else 0.0) or 1.0)
    _straight(
        messages + serial / link.beta + seconds, evaluate(form, K, nbytes, link), form, "alpha and 1/beta"
    )
    return Terms(messages, serial, seconds)


def line(form: Form, K: int, link: Link) -> Line:
    """The straight line in n that ``form`` is for K workers on ``link``. ValueError for a form that is none."""
    start = evaluate(form, K, 0.0, link)
    slope = (evaluate(form, K, LONG, link) - start) / LONG
    middle = start / slope if start > 0 and slope > 0 else 1.0
    if middle < LONG:  # else latency is all there is at any size
        _straight(start + slope * middle, evaluate(form, K, middle, link), form, "nbytes")
    return Line(start, slope)


def evaluate(form: Form, K: int, nbytes: float, link: Link) -> float:
    """Seconds of ``form`` as a float. ValueError where that is no finite number >= 0."""
    seconds = float(form(K, nbytes, link))
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(
            f"form must give finite seconds >= 0, got {seconds!r} from {name(form)} for K = {K}, {nbytes:g} bytes"
        )
    return seconds


def name(form: Form) -> str:
    """What to call a form in a sentence."""
    return getattr(form, "__name__", None) or repr(form)


def _straight(sum_s: float, seconds: float, form: Form, what: str) -> None:
    if not math.isclose(sum_s, seconds, rel_tol=1e-9, abs_tol=1e-300):
        raise ValueError(
            f"form must be linear in {what}, as alpha-beta times are, but {name(form)} gives {seconds:g} s "
            f"where its parts add up to {sum_s:g} s"
        )
