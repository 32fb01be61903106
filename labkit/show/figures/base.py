"""What an interactive figure is on the Python side: its parameters, checked, and what labkit has computed for it.

A figure called NAME is a frozen dataclass in labkit/show/figures/NAME.py that inherits `Interactive`, and its front end
NAME.js, which computes, draws and puts in words. The fields are what the reader can move, by the same names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar


def parameter(default: Any, check: Callable[..., object], **bounds: Any) -> Any:
    """A field of a figure, and the check of `labkit.checks` that holds its values within ``bounds``."""
    return dataclasses.field(default=default, metadata={"check": partial(check, **bounds)})


@dataclasses.dataclass(frozen=True)
class Interactive:
    """Parameters of a figure. ValueError for one out of its bounds."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if check := field.metadata.get("check"):
                check(field.name, getattr(self, field.name))

    def data(self) -> dict[str, Any]:
        """Further state for the front end that the reader doesn't move, as JSON can say it; none unless overridden."""
        return {}

    def state(self) -> dict[str, Any]:
        """All that the front end gets."""
        return {**dataclasses.asdict(self), **self.data()}
