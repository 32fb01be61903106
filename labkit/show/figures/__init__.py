"""Interactive figures that need no kernel: ``figure("ring", K=4)``.

In a notebook the figure is a live widget (anywidget); on a page of the book the same code runs without a kernel; and where
neither is there, a still picture with its description stands in its place. Numbers shown are computed in the browser, and
tests there hold them against labkit's.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from labkit.show.figures.base import Interactive
from labkit.show.figures.shown import Figure
from labkit.show.figures.sources import module, names, script

__all__ = ["Figure", "Interactive", "figure", "module", "names", "parameters_of", "script"]


def figure(name: str, **parameters: Any) -> Figure:
    """The interactive figure ``name``, starting at ``parameters`` (those not given have defaults).

    Returns a `Figure`, which a notebook shows; ``.values`` are its present settings, ``.png`` the still picture.
    ValueError, in one sentence, for a figure or a parameter that there is not, or a value that makes no sense.
    """
    return Figure(parameters_of(name, **parameters))


def parameters_of(name: str, **parameters: Any) -> Interactive:
    """The parameters of the figure ``name`` as its own frozen dataclass."""
    if name not in names():
        raise ValueError(f"name must be a figure, {', '.join(names())}, got {name!r}")
    kind = importlib.import_module(f"labkit.show.figures.{name}").FIGURE
    fields = [field.name for field in dataclasses.fields(kind)]
    unknown = [given for given in parameters if given not in fields]
    if unknown:
        raise ValueError(f"parameters of {name!r} must be among {', '.join(fields)}, got {unknown[0]!r}")
    plain = {
        key: value.item() if hasattr(value, "item") else value for key, value in parameters.items()
    }  # numpy's numbers
    made: Interactive = kind(**plain)
    return made
