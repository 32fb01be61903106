"""A figure with sliders, made from any function that draws one.

    explorer(draw, labels={"slowdown": "slowdown λ"}, slowdown=(1.0, 5.0, 0.1, 2.0), K=[2, 8, 32])

calls ``draw(slowdown=2.0, K=2)`` and again at every change. The picture is replaced in place as one image, so
it does not flicker. Without ipywidgets or a notebook kernel the figure of the defaults stands there instead.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from labkit.show.palette import style

_STATIC = "This figure is still: its sliders need ipywidgets and a running notebook kernel."


class Explorer:
    """What `explorer` returns; a notebook shows it as sliders over a figure.

    values: the present value of each slider. png: the present figure. live: whether there are sliders.
    sliders: name to widget, empty unless live.
    """

    def __init__(
        self, draw: Callable[..., Any], labels: Mapping[str, str], controls: Mapping[str, Any]
    ) -> None:
        self._draw = draw
        self._choices = {name: _choice(name, control) for name, control in controls.items()}
        unknown = [name for name in labels if name not in controls]
        if unknown:
            raise ValueError(f"labels must name sliders, {', '.join(controls)}, got {unknown[0]!r}")
        self.values: dict[str, Any] = {name: default for name, (default, _, _) in self._choices.items()}
        self.png = self._render()
        self.sliders: dict[str, Any] = {}
        self.live = _kernel() and self._build(labels)

    def set(self, **values: Any) -> None:
        """Set some of the values and redraw, as moving the sliders does. A value that ``draw`` refuses with
        ValueError leaves the figure as it was and is said under it."""
        for name in values:
            if name not in self.values:
                raise ValueError(f"values must be among {', '.join(self.values)}, got {name!r}")
        self.values.update(values)
        complaint = ""
        try:
            self.png = self._render()
        except ValueError as error:
            complaint = str(error)
        if self.live:
            self._image.value = self.png
            self._said.value = complaint
        elif complaint:
            raise ValueError(complaint)

    def _render(self) -> bytes:
        import matplotlib.pyplot as plt

        before = set(plt.get_fignums())
        with style(), plt.ioff():
            try:
                drawn = self._draw(**self.values)
                figure = getattr(drawn, "figure", None) or plt.gcf()  # a Figure's .figure is itself
                buffer = io.BytesIO()
                figure.savefig(buffer, format="png", dpi=100)
            finally:
                for number in set(plt.get_fignums()) - before:
                    plt.close(number)
        return buffer.getvalue()

    def _build(self, labels: Mapping[str, str]) -> bool:
        try:
            import ipywidgets
        except ImportError:
            return False
        wide = {"style": {"description_width": "10em"}, "layout": ipywidgets.Layout(width="min(100%, 32em)")}
        for name, (default, kind, options) in self._choices.items():
            slider = getattr(ipywidgets, kind)(
                value=default, description=labels.get(name, name), **options, **wide
            )
            slider.observe(lambda change, name=name: self.set(**{name: change["new"]}), names="value")
            self.sliders[name] = slider
        self._image = ipywidgets.Image(
            value=self.png, format="png", layout=ipywidgets.Layout(max_width="100%")
        )
        self._said = ipywidgets.Label(value="")
        self.box = ipywidgets.VBox([*self.sliders.values(), self._image, self._said])
        return True

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Sliders where they work; the same figure as a plain picture for a page without a kernel."""
        import base64

        bundle: dict[str, Any] = {"text/plain": repr(self), "image/png": base64.b64encode(self.png).decode()}
        if self.live:
            shown = self.box._repr_mimebundle_() or {}
            view = shown[0] if isinstance(shown, tuple) else shown
            mime = "application/vnd.jupyter.widget-view+json"
            if mime in view:
                bundle[mime] = view[mime]
        return bundle

    def __repr__(self) -> str:
        values = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"Figure at {values}." if self.live else f"Figure at {values}. {_STATIC}"


def explorer(
    draw: Callable[..., Any], *, labels: Mapping[str, str] | None = None, **sliders: Any
) -> Explorer:
    """Explore ``draw(**values)``, a function that draws a matplotlib figure (and may return it or an Axes).

    sliders: for each argument of draw, (low, high, step, default), or a list of choices, first the default.
    labels: what to write beside a slider instead of its name. ValueError for anything else. Where there is
    nothing to slide with, one sentence says so and the figure of the defaults is shown.
    """
    made = Explorer(draw, labels or {}, sliders)
    if not made.live:
        print(_STATIC)
    return made


def _choice(name: str, control: Any) -> tuple[Any, str, dict[str, Any]]:
    """Default value, kind of widget and its options."""
    if isinstance(control, tuple) and len(control) == 4 and all(isinstance(c, Real) for c in control):
        low, high, step, default = control
        if not (low <= default <= high and step > 0):
            raise ValueError(
                f"{name} must be (low, high, step > 0, default) with a default in range, got {control}"
            )
        whole = all(isinstance(c, Integral) for c in control)
        return default, "IntSlider" if whole else "FloatSlider", {"min": low, "max": high, "step": step}
    if isinstance(control, Sequence) and not isinstance(control, str | tuple) and len(control):
        return control[0], "SelectionSlider" if len(control) > 1 else "Dropdown", {"options": list(control)}
    raise ValueError(f"{name} must be (low, high, step, default) or a list of choices, got {control!r}")


def _kernel() -> bool:
    """Whether this runs inside a notebook kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
