"""A Sphinx extension: the scripts of labkit's interactive figures, beside the loader that asks for them.

`labkit-figures.js` (in book/_static) fetches `_static/figures/NAME.js` for each figure on a page; they are made here from
the package, so that a notebook and the page run the same code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.show.figures.sources import names, script


def write_scripts(app: Any, error: Exception | None) -> None:
    """Once the pages are written, one script for each figure there is."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        (folder / f"{name}.js").write_text(script(name), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", write_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
