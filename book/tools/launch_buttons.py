"""A Sphinx extension: launch and download buttons that can't be broken.

Everything derives from the repository's one address (`repository`). Binder opens a notebook where there is one;
Colab where the repository is at GitHub and the notebook's own first cell knows where to get labkit (`first_cell`).
The download button needs no address: the book carries its notebooks, each beside its page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import first_cell
import nbformat
import repository
from sphinx.util import logging

BINDER, COLAB = "https://mybinder.org", "https://colab.research.google.com"
_log = logging.getLogger(__name__)


def theme_options(address: str, branch: str) -> dict[str, Any]:
    """What the theme needs to know to make its launch buttons; nothing if there is no address."""
    if not address:
        return {}
    hosts = {"notebook_interface": "jupyterlab", "binderhub_url": BINDER}
    if address.startswith("https://github.com/"):
        hosts["colab_url"] = COLAB
    return {"repository_url": address, "repository_branch": branch, "launch_buttons": hosts}


def configure(app: Any, config: Any) -> None:
    root = Path(app.confdir)
    for option in ("repository_url", "repository_branch", "launch_buttons"):
        config.html_theme_options.pop(option, None)
    config.html_theme_options.update(theme_options(repository.address(root), repository.branch(root)))


def notebook_of(app: Any, page: str) -> Path | None:
    """The notebook that is `page`; None for a page of prose, or one that no file is the source of."""
    if page not in app.env.found_docs:
        return None
    path = Path(app.env.doc2path(page))
    return path if path.suffix == ".ipynb" else None


def add_buttons(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Take Colab from a notebook that could not install labkit there; add the download."""
    path, buttons = notebook_of(app, page), context.get("header_buttons")
    if path is None or buttons is None:
        return
    if not first_cell.address_in(nbformat.read(path, as_version=4)):
        for group in [b for b in buttons if b.get("label") == "launch-buttons"]:
            group["buttons"] = [b for b in group["buttons"] if b["text"] != "Colab"]
            _log.info("no Colab button on %s: `make notebooks` tells its first cell the address", page)
    buttons.append(
        {
            "type": "link",
            "url": path.name,
            "tooltip": "Download this notebook",
            "icon": "fas fa-download",
            "label": "download-notebook-button",
        }
    )


def carry_notebooks(app: Any, error: Exception | None) -> None:
    """Put each notebook beside its page, with the address that is known today in its first cell."""
    if error is not None or app.builder.format != "html":
        return
    address = repository.address(Path(app.confdir))
    for page in sorted(app.env.found_docs):
        path = notebook_of(app, page)
        if path is None:
            continue
        nb = nbformat.read(path, as_version=4)
        if address and first_cell.address_in(nb) == "":
            first_cell.readdress_inplace(nb, address)
        target = (Path(app.outdir) / page).with_suffix(".ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, target)


def setup(app: Any) -> dict[str, bool]:
    app.connect("config-inited", configure, priority=900)  # after Jupyter Book and the theme have set theirs
    app.connect("html-page-context", add_buttons, priority=900)  # after the theme's own buttons
    app.connect("build-finished", carry_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
