"""A Sphinx extension: what a page offers beyond itself, once `repository.url` in _config.yml says where the book is at home.

A way to say what is wrong with this page, launch buttons, and the book's own address for messengers (`lean_pages`); without
`repository.url` a page has none rather than a broken one. A notebook's page offers labkit beside the notebook.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from first_cell import PLACE, WHEEL, address

PAGES = {"github.com": "github.io", "gitlab.com": "gitlab.io"}


def home(repository: str) -> str:
    """Where the pages of a repository are published, with a slash at the end; "" for none."""
    found = re.fullmatch(r"https://([\w.]+)/([\w.-]+)/(.+)", repository)
    return f"https://{found[2].lower()}.{PAGES[found[1]]}/{found[3]}/" if found else ""


def offer(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    downloads = [b for b in context.get("header_buttons", ()) if b.get("label") == "download-buttons"]
    if downloads and context.get("page_source_suffix") == ".ipynb":  # labkit beside the notebook
        wheel = {"type": "link", "url": context["pathto"](f"{PLACE}/{WHEEL}", 1), "icon": "fas fa-cube"}
        wheel |= {"text": "labkit (.whl)", "label": "download-labkit-button"}
        wheel["tooltip"] = "Download labkit, to lie beside the notebook where it is not installed"
        downloads[0]["buttons"].insert(1, wheel)


def settle(app: Any, config: Any) -> None:
    """The theme's options of `_config.yml` have replaced Jupyter Book's, in which the launch buttons are: put these back."""
    repository = address(Path(app.srcdir))
    if repository:
        config.html_baseurl = config.html_baseurl or home(repository)
        written = yaml.safe_load((Path(app.srcdir) / "_config.yml").read_text(encoding="utf-8"))
        branch, launch = written["repository"].get("branch", "main"), written.get("launch_buttons", {})
        ours = {"repository_url": repository, "repository_branch": branch, "launch_buttons": launch}
        ours["use_issues_button"] = True  # to say what is wrong with a page
        config.html_theme_options = ours | config.html_theme_options


def setup(app: Any) -> dict[str, bool]:
    app.connect("config-inited", settle)
    app.connect("html-page-context", offer, priority=502)  # after the theme's own buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}
