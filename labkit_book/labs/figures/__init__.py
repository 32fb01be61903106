"""The interactive figures of the labs: ``figure("ring", K=4)``.

A figure NAME is a frozen dataclass in NAME.py (its parameters, and what labkit has computed for it) and NAME.js beside it
(computes, draws, and puts in words). Numbers shown are computed in the browser, and tests there hold them against labkit's.
"""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from labkit.show.figures import base
from labkit.show.figures.base import Figure

HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The figures there are."""
    return tuple(sorted(path.stem for path in HERE.glob("*.js")))


def module(name: str) -> str:
    """A figure's ES module."""
    return base.module(HERE / f"{name}.js")


def script(name: str) -> str:
    """The same as a classic script, for a page."""
    return base.script(HERE / f"{name}.js")


def figure(name: str, **parameters: Any) -> Figure:
    """The interactive figure ``name``, starting at ``parameters`` (those not given have defaults).

    Returns a `Figure`, which a notebook shows; ``.values`` are its present settings, ``.numbers`` what it computes of them.
    ValueError, in one sentence, for a figure or a parameter that there is not, or a value that makes no sense.
    """
    if name not in names():
        raise ValueError(f"name must be a figure, {', '.join(names())}, got {name!r}")
    importlib.import_module(f"labkit_book.labs.figures.{name}")
    kind = next(each for each in Figure.__subclasses__() if each.name == name)
    fields = [field.name for field in dataclasses.fields(kind)]
    for given in parameters:
        if given not in fields:
            raise ValueError(f"parameters of {name!r} must be among {', '.join(fields)}, got {given!r}")
    # numpy's numbers are numbers
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in parameters.items()}
    return kind(**plain)
