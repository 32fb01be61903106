"""What a figure shows, as plain data: so that a plot can be handed in, travel, and be read by a judge."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit_book.problems.exercise import Wrong


def drawn(figure: Any) -> dict[str, Any]:
    """The axes of a matplotlib ``Figure`` (or ``Axes``: of its figure), each a dict of labels, scales, and ``curves``:
    lines and scattered points, each with its x and y.
    """
    return {"axes": [_axes(ax) for ax in getattr(figure, "figure", figure).get_axes()]}


def _axes(ax: Any) -> dict[str, Any]:
    points = [c for c in ax.collections if type(c).__name__ == "PathCollection"]
    curves = [line.get_data(orig=False) for line in ax.get_lines()]
    curves += [np.asarray(c.get_offsets()).T for c in points]
    return {
        **{f"{axis}label": getattr(ax, f"get_{axis}label")() for axis in "xy"},
        **{f"{axis}scale": getattr(ax, f"get_{axis}scale")() for axis in "xy"},
        "curves": [{"x": np.asarray(x), "y": np.asarray(y)} for x, y in curves],
    }


def shown(answer: Any) -> dict[str, Any]:
    """The first axes of the figure that was answered, or Wrong."""
    for part in answer if isinstance(answer, (tuple, list)) else (answer,):
        axes = part.get("axes") if isinstance(part, dict) else None
        if axes and isinstance(axes[0], dict) and axes[0].get("curves") is not None:
            return axes[0]
    raise Wrong("return the figure, as in: fig, ax = plt.subplots(); ...; return fig")


def labelled(axes: dict[str, Any], axis: str, unit: str = "") -> None:
    """Wrong unless this axis ("x" or "y") has a label, in which the ``unit`` stands as a word, as in "time (ms)"."""
    label = str(axes.get(f"{axis}label", ""))
    if not label.strip():
        raise Wrong(f"the {axis} axis has no label: what would somebody read who sees only the figure?")
    if unit and not re.search(rf"(?<![\w/]){re.escape(unit)}(?![\w/])", label):
        raise Wrong(
            f"the {axis} axis says {label!r}, and the figure is to be in {unit}: let the label say so"
        )


def curve(axes: dict[str, Any], x: ArrayLike, y: ArrayLike, what: str, rtol: float = 1e-6) -> None:
    """Wrong unless some curve goes through exactly these points, in any order."""
    want = np.column_stack([np.asarray(x, float), np.asarray(y, float)])
    want = want[np.lexsort(want.T[::-1])]
    same_x = False
    for c in axes["curves"]:
        have = np.column_stack([np.asarray(c["x"], float), np.asarray(c["y"], float)])
        have = have[np.lexsort(have.T[::-1])]
        if have.shape == want.shape and np.allclose(have[:, 0], want[:, 0], rtol=rtol):
            same_x = True
            if np.allclose(have[:, 1], want[:, 1], rtol=rtol, atol=rtol * np.abs(want[:, 1]).max()):
                return
    if same_x:
        raise Wrong(f"a curve stands at the right places of the x axis, but its heights are not {what}")
    raise Wrong(f"no curve of {len(want)} points shows {what}: are x, y and their units as the task asks?")
