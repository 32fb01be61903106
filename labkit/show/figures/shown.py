"""A figure as a notebook, a page or a script shows it: one bundle with the live widget and the page's own HTML.

JupyterLab and Colab prefer the widget; a page of the book finds ``<div class="labkit-figure">`` and brings it to life;
whoever can do neither shows the picture inside.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib
import json
import sys
from functools import cached_property
from typing import Any

from labkit.show.figures import stills
from labkit.show.figures.base import Interactive
from labkit.show.figures.sources import module, names, script

_STILL = "<p>A still picture: to move it, run this cell where anywidget is installed.</p>"
_NO_STILL = "A still picture of it needs quickjs-ng (pip install quickjs-ng)."


def figure(name: str, **parameters: Any) -> Figure:
    """The interactive figure ``name``, starting at ``parameters`` (those not given have defaults).

    Returns a `Figure`, which a notebook shows; ``.values`` are its present settings, ``.numbers`` what it computes of them.
    ValueError, in one sentence, for a figure or a parameter that there is not, or a value that makes no sense.
    """
    if name not in names():
        raise ValueError(f"name must be a figure, {', '.join(names())}, got {name!r}")
    importlib.import_module(f"labkit.show.figures.{name}")
    (kind,) = (each for each in Interactive.__subclasses__() if each.name == name)
    fields = [field.name for field in dataclasses.fields(kind)]
    unknown = [given for given in parameters if given not in fields]
    if unknown:
        raise ValueError(f"parameters of {name!r} must be among {', '.join(fields)}, got {unknown[0]!r}")
    # numpy's numbers are numbers
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in parameters.items()}
    return Figure(kind(**plain))


class Figure:
    """What `figure` returns. parameters: as they were given. live: whether a widget stands behind it."""

    def __init__(self, parameters: Interactive) -> None:
        self.parameters = parameters
        self.name = parameters.name
        self.widget: Any = _widget(parameters) if _kernel() else None
        self.live = self.widget is not None

    @property
    def values(self) -> dict[str, Any]:
        """The present settings: where the reader has moved them, if the figure is live."""
        start = self.parameters.state()
        return {key: getattr(self.widget, key) for key in start} if self.live else start

    @property
    def numbers(self) -> dict[str, Any]:
        """What the figure itself computes of its present settings. ImportError without quickjs-ng."""
        return stills.compute(self.name, self.values)

    @cached_property
    def html(self) -> str:
        """What a page needs: the state, and inside it the still picture with its description."""
        state = html.escape(
            json.dumps(self.parameters.state(), separators=(",", ":"), allow_nan=False), quote=True
        )
        svg, words = self._still
        inside = html.escape(words, quote=True)
        if svg:
            picture = base64.b64encode(svg.encode()).decode()
            inside = f'<img alt="{inside}" src="data:image/svg+xml;base64,{picture}">'
        return f'<div class="labkit-figure" data-figure="{self.name}" data-state="{state}">{inside}{_STILL}</div>'

    def page(self) -> str:
        """A whole HTML page with this figure alone, live, that needs nothing else: to show in class, or to send."""
        mount = (
            "const box = document.querySelector('.labkit-figure'), here = labkitFigures[box.dataset.figure];"
            "const state = JSON.parse(box.dataset.state); box.replaceChildren();"
            "here.render({ model: here.pageModel(state), el: box });"
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>labkit</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
            f"<body>{self.html}\n<script>{script(self.name)}</script>\n<script>{mount}</script></body></html>\n"
        )

    @cached_property
    def _still(self) -> tuple[str, str]:
        """The picture of the parameters and its words; without an engine to draw it, a sentence."""
        try:
            return stills.picture(self.name, self.parameters.state())
        except ImportError:
            return "", _NO_STILL

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self.html}
        if not self.live:
            return bundle
        shown: Any = self.widget._repr_mimebundle_() or ({}, {})
        view, about = shown if isinstance(shown, tuple) else (shown, {})
        return {**view, **bundle}, about  # Colab reads from the metadata where its widget manager is

    def __repr__(self) -> str:
        return f"Interactive figure {self.name!r}: {self._still[1]}"


def _widget(parameters: Interactive) -> Any:
    """An anywidget with one synchronised trait for each piece of state; None without anywidget."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None
    traits = {key: traitlets.Any(value).tag(sync=True) for key, value in parameters.state().items()}
    kind = type(
        f"Figure_{parameters.name}", (anywidget.AnyWidget,), {"_esm": module(parameters.name), **traits}
    )
    return kind()


def _kernel() -> bool:
    """Whether this runs inside a notebook kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None
