"""What a closed form is made of: every alpha-beta time is a sum of serial messages and serial bytes.

An alpha-beta time (Hockney 1994) of an algorithm is linear in the link:

    time(K, n, link) = messages * alpha + nbytes / beta + seconds,

with ``messages`` and ``nbytes`` counted one after the other along the longest chain and ``seconds`` what this link has no
part in (another link, inside a host, say). So the numbers are read off the form itself, by asking it about a link that has
nothing but latency and one that has nothing but a bandwidth.

Symbols: K workers, n bytes of the vector, ``alpha`` and ``beta`` of the link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from labkit.network.link import Link


class _Priced(Protocol):
    """What has a name and a price, as the collectives have."""

    @property
    def name(self) -> str: ...

    def time(self, K: Any, nbytes: Any, link: Link) -> Any: ...


#: A closed form: seconds of ``(K, nbytes, link)``, by itself or as the ``time`` of something like ``ring``.
Form = _Priced | Callable[[int, float, Link], Any]


class Terms(NamedTuple):
    """What a form counts for one K and one size: ``messages * alpha + nbytes / beta + seconds``."""

    messages: float
    nbytes: float
    seconds: float


def terms(form: Form, K: int, nbytes: float) -> Terms:
    """The serial messages, the serial bytes and the other seconds of ``form`` for K workers and ``nbytes`` bytes.

    ValueError for a form that is no sum of the three (the smaller of two times, say, is none).
    """
    seconds = evaluate(form, K, nbytes, Link(0.0, math.inf))
    messages = evaluate(form, K, nbytes, Link(1.0, math.inf)) - seconds
    serial = evaluate(form, K, nbytes, Link(0.0, 1.0)) - seconds
    # a link on which both cost the same, so that neither hides what the other does
    link = Link(1.0, (serial / messages if messages > 0 else 0.0) or 1.0)
    together = evaluate(form, K, nbytes, link)
    straight(messages + serial / link.beta + seconds, together, form, "alpha and 1/beta")
    return Terms(messages, serial, seconds)


def evaluate(form: Form, K: int, nbytes: float, link: Link) -> float:
    """Seconds of ``form`` as a float. ValueError where that is no finite number >= 0."""
    price: Any = getattr(form, "time", form)
    seconds = float(price(K, nbytes, link))
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(
            f"form must give finite seconds >= 0, got {seconds!r} from {name(form)} for K = {K}, {nbytes:g} bytes"
        )
    return seconds


def name(form: Form) -> str:
    """What to call a form in a sentence."""
    owner = getattr(form, "__self__", form)
    return getattr(owner, "name", None) or getattr(form, "__name__", None) or repr(form)


def straight(sum_s: float, seconds: float, form: Form, what: str) -> None:
    """ValueError if ``form`` takes other ``seconds`` than its parts add up to."""
    if not math.isclose(sum_s, seconds, rel_tol=1e-9, abs_tol=1e-300):
        raise ValueError(
            f"form must be linear in {what}, as alpha-beta times are, but {name(form)} gives {seconds:g} s "
            f"where its parts add up to {sum_s:g} s"
        )
