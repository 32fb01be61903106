"""A figure with sliders, made from any function that draws one.

    explorer(draw, labels={"slowdown": "slowdown λ"}, slowdown=(1.0, 5.0, 0.1, 2.0), K=[2, 8, 32])

calls ``draw(slowdown=2.0, K=2)``, and again at every change. Where no kernel moves sliders, the first picture stands alone.
"""

import base64
import io
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from labkit import extras
from labkit.show.palette import style

VIEW = "application/vnd.jupyter.widget-view+json"


def explorer(draw: Callable[..., Any], *, labels: Any = None, **sliders: Any) -> Any:
    """Explore ``draw(**values)``, a function that draws a matplotlib figure (and may return it or an Axes).

    sliders: for each argument of draw, (low, high, step, default), or a list of choices, first the default. labels: what to
    write beside a slider. Returns an ipywidgets box; what ``draw`` refuses with ValueError is said under the picture.
    """
    ipywidgets = extras.need("ipywidgets")
    labels = labels or {}
    layout = ipywidgets.Layout(width="min(100%, 32em)")
    wide = {"style": {"description_width": "10em"}, "layout": layout}
    made = {}
    for name, given in sliders.items():
        kind, options = _kind(name, given)
        widget = getattr(ipywidgets, kind)
        made[name] = widget(description=labels.get(name, name), **options, **wide)

    def picture() -> bytes:
        return _png(draw, {name: slider.value for name, slider in made.items()})

    first = picture()
    fits = ipywidgets.Layout(max_width="100%")
    image = ipywidgets.Image(value=first, format="png", layout=fits)
    said = ipywidgets.Label()

    def redraw(change: Any) -> None:
        try:
            image.value, said.value = picture(), ""
        except ValueError as error:
            said.value = str(error)

    for slider in made.values():
        slider.observe(redraw, names="value")
    return _box([*made.values(), image, said], first)


def _box(children: list[Any], first: bytes) -> Any:
    """A box of widgets that a notebook keeps with the ``first`` picture, for where no kernel runs."""
    png = base64.b64encode(first).decode()

    def bundle(box: Any, **_: Any) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
        # As ipywidgets has it: the rest of it says the same of each slider.
        return {"text/plain": f"{repr(box)[:110]}…", "image/png": png, VIEW: view}

    # ipywidgets 7 displays by `_ipython_display_`, and 8 by a bundle without the picture.
    ours = {"_repr_mimebundle_": bundle, "_ipython_display_": None}
    return type("VBox", (extras.need("ipywidgets").VBox,), ours)(children)


def _png(draw: Callable[..., Any], values: Mapping[str, Any]) -> bytes:
    """What ``draw(**values)`` draws; its figures are closed again."""
    plt = extras.need("matplotlib.pyplot")
    before, buffer = set(plt.get_fignums()), io.BytesIO()
    with style(), plt.ioff():
        try:
            drawn = draw(**values)
            figure = getattr(
                drawn, "figure", plt.gcf()
            )  # a Figure's .figure is itself
            figure.savefig(buffer, format="png", dpi=100)
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
    return buffer.getvalue()


def _kind(name: str, given: Any) -> tuple[str, dict[str, Any]]:
    """The widget for a slider, and its options."""
    if isinstance(given, tuple) and [isinstance(x, Real) for x in given] == 4 * [
        True
    ]:
        low, high, step, default = given
        if low <= default <= high and step > 0:
            whole = all(isinstance(x, Integral) for x in given)
            options = {"min": low, "max": high, "step": step, "value": default}
            return "IntSlider" if whole else "FloatSlider", options
    if isinstance(given, list | range) and given:
        kind = "SelectionSlider" if len(given) > 1 else "Dropdown"
        return kind, {"options": list(given), "value": given[0]}
    right = "(low, high, step > 0, default in range) or a list of choices"
    raise ValueError(f"{name} must be {right}, got {given!r}")
