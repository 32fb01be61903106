"""A Sphinx extension: what a page offers beyond itself, once `repository.url` in _config.yml says where the book is at home.

A way to say what is wrong with this page, and the picture and words that a messenger shows beside a link to it. Both need an
address; without one a page has neither rather than a broken one. A notebook's page offers labkit beside the notebook.
"""

from __future__ import annotations

import json
import re
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import own_wheel
from first_cell import address

PICTURE = "_static/social.png"
HOSTS = {
    "github.com": ("github.io", "issues/new?title={}"),
    "gitlab.com": ("gitlab.io", "-/issues/new?issue[title]={}"),
}


def home(repository: str) -> str:
    """Where the pages of a repository are published, with a slash at the end; "" for none."""
    found = re.fullmatch(r"https://([\w.]+)/([\w.-]+)/(.+)", repository)
    return f"https://{found[2].lower()}.{HOSTS[found[1]][0]}/{found[3]}/" if found else ""


def feedback(repository: str, page: str) -> str:
    """Where to say what is wrong with a page; "" where nobody knows."""
    host = repository.split("/")[2] if repository else ""
    return f"{repository}/{HOSTS[host][1].format(quote(page + ': '))}" if host else ""


def draw(numbers: Path, title: str, target: Path) -> None:
    """The cover's figure as a picture of 1200 x 630 pixels, for messengers. numbers: cover.json."""
    from matplotlib.figure import Figure  # only here: a book without an address draws nothing

    found = json.loads(numbers.read_text(encoding="utf-8"))
    figure = Figure(figsize=(12, 6.3), dpi=100, layout="constrained")
    ax = figure.subplots()
    for (name, series), (line, marker) in zip(found["ways"].items(), (("--", "s"), ("-", "o")), strict=True):
        ax.plot(found["megabytes"], series["predicted"], line, color="#444444")
        ax.plot(found["megabytes"], series["measured"], marker, markersize=12, label=name)
    ax.set(xscale="log", yscale="log", xlabel="vector (MB)", ylabel="all-reduce (ms)")
    ax.set_title(title, fontsize=26, wrap=True)
    ax.legend(title="measured, on lines computed before", fontsize=16, title_fontsize=14)
    figure.savefig(target)


def head(page: str, base: str, name: str) -> str:
    """The page with the lines for messengers; name: its file. Its description is there already (`lean_pages`)."""
    found = re.search(r"<title>(.*?)(?: &#8212; .*)?</title>", page)
    said = {
        "og:type": "article",
        "og:title": unescape(found[1]) if found else "",
        "og:url": base + name,
        "og:image": base + PICTURE,
    }
    lines = "".join(f'<meta property="{key}" content="{escape(value)}" />' for key, value in said.items())
    return page.replace(
        "</title>", f'</title>{lines}<meta name="twitter:card" content="summary_large_image" />', 1
    )


def finish(app: Any, error: Exception | None) -> None:
    base = app.config.html_baseurl
    if error is not None or app.builder.format != "html" or not base:
        return
    out = Path(app.outdir)
    numbers = Path(app.srcdir) / "book" / "_static" / "cover.json"
    if numbers.exists():
        draw(numbers, app.config.html_title or app.config.project, out / PICTURE)
    for path in out.rglob("*.html"):
        name = path.relative_to(out).as_posix()
        path.write_text(head(path.read_text(encoding="utf-8"), base, name), encoding="utf-8")


def offer(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    context["labkit_feedback"] = feedback(address(Path(app.srcdir)), pagename)
    downloads = [b for b in context.get("header_buttons", ()) if b.get("label") == "download-buttons"]
    if downloads and context.get("page_source_suffix") == ".ipynb":
        downloads[0]["buttons"].insert(
            1, wheel_button(context["pathto"](f"{own_wheel.PLACE}/{own_wheel.NAME}", 1))
        )


def wheel_button(url: str) -> dict[str, str]:
    """For a downloaded notebook, beside the button that downloads it: labkit, which `build.py` puts there."""
    return {
        "type": "link",
        "url": url,
        "text": "labkit (.whl)",
        "tooltip": "Download labkit, to lie beside the notebook where it is not installed",
        "icon": "fas fa-cube",
        "label": "download-labkit-button",
    }


def settle(app: Any, config: Any) -> None:
    config.html_baseurl = config.html_baseurl or home(address(Path(app.srcdir)))


def setup(app: Any) -> dict[str, bool]:
    app.connect("config-inited", settle)
    app.connect("html-page-context", offer, priority=502)  # after the theme's own buttons
    app.connect("build-finished", finish, priority=950)  # after the descriptions are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}
