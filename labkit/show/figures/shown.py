"""A figure as a notebook, a page or a script shows it: one bundle with the live widget and the page's own HTML.

JupyterLab and Colab prefer the widget; a page of the book finds ``<div class="labkit-figure">`` and brings it to life;
whoever can do neither shows the picture inside.
"""

from __future__ import annotations

import base64
import html
import io
import json
from functools import cached_property
from typing import Any

from labkit.show.explorer import _kernel
from labkit.show.figures.base import Interactive
from labkit.show.figures.sources import module, script
from labkit.show.palette import style

_STILL = "This figure is still: to move it in a notebook, install anywidget (pip install anywidget)."


class Figure:
    """What `figure` returns. parameters: as they were given. live: whether a widget stands behind it."""

    def __init__(self, parameters: Interactive) -> None:
        self.parameters = parameters
        self.widget: Any = _widget(parameters) if _kernel() else None
        self.live = self.widget is not None
        if _kernel() and not self.live:
            print(_STILL)

    @property
    def name(self) -> str:
        """Which figure it is."""
        return self.parameters.name

    @property
    def values(self) -> dict[str, Any]:
        """The present settings: where the reader has moved them, if the figure is live."""
        start = self.parameters.state()
        return {key: getattr(self.widget, key) for key in start} if self.live else start

    @cached_property
    def png(self) -> bytes:
        """The still picture of the parameters."""
        import matplotlib.pyplot as plt
        from PIL import Image

        drawn, small = io.BytesIO(), io.BytesIO()
        with style(), plt.ioff():
            picture = self.parameters.draw()
            try:
                picture.savefig(drawn, format="png", dpi=100)
            finally:
                plt.close(picture)
        few = Image.open(drawn).convert("RGB").quantize(128)  # notebooks store it: a quarter of the bytes
        few.save(small, format="png", optimize=True)
        return small.getvalue()

    @cached_property
    def html(self) -> str:
        """What a page needs: the state, and inside it the still picture with its description."""
        state = html.escape(
            json.dumps(self.parameters.state(), separators=(",", ":"), allow_nan=False), quote=True
        )
        picture = base64.b64encode(self.png).decode()
        alt = html.escape(self.parameters.alt(), quote=True)
        return (
            f'<div class="labkit-figure" data-figure="{self.name}" data-state="{state}">'
            f'<img alt="{alt}" src="data:image/png;base64,{picture}"></div>'
        )

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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self.html}
        if not self.live:
            return bundle
        shown: Any = self.widget._repr_mimebundle_() or ({}, {})
        view, about = shown if isinstance(shown, tuple) else (shown, {})
        return {**view, **bundle}, about  # Colab reads from the metadata where its widget manager is

    def __repr__(self) -> str:
        return f"Interactive figure {self.name!r}: {self.parameters.alt()}"


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
