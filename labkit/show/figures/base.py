"""What an interactive figure is on the Python side: its parameters, a picture of them, and that picture in words.

A figure called NAME is a frozen dataclass in labkit/show/figures/NAME.py that inherits `Interactive`, and its front end
NAME.js. The fields are what the reader can move, by the same names; ``data`` is what labkit has computed for it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class Interactive:
    """Parameters of a figure. A subclass checks them in ``__post_init__`` (ValueError)."""

    name: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """Further state for the front end that the reader doesn't move, as JSON can say it; none unless overridden."""
        return {}

    def state(self) -> dict[str, Any]:
        """All that the front end gets."""
        return {**dataclasses.asdict(self), **self.data()}

    def draw(self) -> Any:
        """The still picture: a matplotlib Figure."""
        raise NotImplementedError

    def alt(self) -> str:
        """The still picture in one or two sentences."""
        raise NotImplementedError


def whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse what is not a whole number from ``low`` to ``high``."""
    upto = f" from {low} to {high}" if high is not None else f" >= {low}"
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < low
        or (high is not None and value > high)
    ):
        raise ValueError(f"{name} must be a whole number{upto}, got {value!r}")


def real(name: str, value: object, low: float, high: float = math.inf) -> None:
    """Refuse what is not a finite number from ``low`` to ``high``."""
    upto = f" from {low:g} to {high:g}" if high < math.inf else f" >= {low:g}"
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        raise ValueError(f"{name} must be a finite number{upto}, got {value!r}")


def one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse what is not among the allowed words."""
    words = list(allowed)
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got {value!r}")
