"""A figure with sliders, made from any function that draws one.

    explorer(draw, labels={"slowdown": "slowdown λ"}, slowdown=(1.0, 5.0, 0.1, 2.0), K=[2, 8, 32])

calls ``draw(slowdown=2.0, K=2)`` and again at every change. The picture is replaced in place as one image, so
it does not flicker. Where no kernel moves sliders (in a notebook that GitHub shows, say), the first picture stands alone.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from labkit import extras
from labkit.show.palette import style

VIEW = "application/vnd.jupyter.widget-view+json"


def explorer(draw: Callable[..., Any], *, labels: Mapping[str, str] | None = None, **sliders: Any) -> Any:
    """Explore ``draw(**values)``, a function that draws a matplotlib figure (and may return it or an Axes).

    sliders: for each argument of draw, (low, high, step, default), or a list of choices, first the default.
    labels: what to write beside a slider instead of its name. ValueError for anything else. Returns an ipywidgets box,
    sliders above the picture; a value that ``draw`` refuses with ValueError leaves it as it was, and is said under it.
    """
    ipywidgets = extras.need("ipywidgets")
    if unknown := [name for name in labels or {} if name not in sliders]:
        raise ValueError(f"labels must name sliders, {', '.join(sliders)}, got {unknown[0]!r}")
    wide = {"style": {"description_width": "10em"}, "layout": ipywidgets.Layout(width="min(100%, 32em)")}
    made: dict[str, Any] = {}
    for name, given in sliders.items():
        kind, options = _kind(name, given)
        label = (labels or {}).get(name, name)
        made[name] = getattr(ipywidgets, kind)(description=label, **options, **wide)
    first = _png(draw, {name: slider.value for name, slider in made.items()})
    image = ipywidgets.Image(value=first, format="png", layout=ipywidgets.Layout(max_width="100%"))
    said = ipywidgets.Label()

    def redraw(change: Any) -> None:
        try:
            image.value, said.value = _png(draw, {name: slider.value for name, slider in made.items()}), ""
        except ValueError as error:
            said.value = str(error)

    for slider in made.values():
        slider.observe(redraw, names="value")

    def bundle(box: Any, **_: Any) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
        words = f"{repr(box)[:110]}…"  # as ipywidgets has it: the rest of it says the same of each slider
        return {"text/plain": words, "image/png": base64.b64encode(first).decode(), VIEW: view}

    # ipywidgets 7 displays by `_ipython_display_`, and 8 by a bundle without the picture
    ours = {"_repr_mimebundle_": bundle, "_ipython_display_": None}
    return type("VBox", (ipywidgets.VBox,), ours)([*made.values(), image, said])


def _png(draw: Callable[..., Any], values: Mapping[str, Any]) -> bytes:
    """What ``draw(**values)`` draws; its figures are closed again."""
    plt = extras.need("matplotlib.pyplot")
    before, buffer = set(plt.get_fignums()), io.BytesIO()
    with style(), plt.ioff():
        try:
            drawn = draw(**values)
            figure = getattr(drawn, "figure", None) or plt.gcf()  # a Figure's .figure is itself
            figure.savefig(buffer, format="png", dpi=100)
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
    return buffer.getvalue()


def _kind(name: str, given: Any) -> tuple[str, dict[str, Any]]:
    """The widget for a slider, and its options."""
    if isinstance(given, tuple) and len(given) == 4 and all(isinstance(x, Real) for x in given):
        low, high, step, default = given
        if low <= default <= high and step > 0:
            kind = "IntSlider" if all(isinstance(x, Integral) for x in given) else "FloatSlider"
            return kind, {"min": low, "max": high, "step": step, "value": default}
    if isinstance(given, Sequence) and not isinstance(given, str | tuple) and len(given):
        return "SelectionSlider" if len(given) > 1 else "Dropdown", {
            "options": list(given),
            "value": given[0],
        }
    raise ValueError(
        f"{name} must be (low, high, step > 0, default in range) or a list of choices, got {given!r}"
    )
