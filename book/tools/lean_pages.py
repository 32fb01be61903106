"""A Sphinx extension: pages light enough for a phone, which say what they are about.

The theme loads all of Font Awesome as a script (1.5 MB) to draw nine icons that its style sheet already
draws from a web font (0.16 MB); MathJax brings bundles, speech and notations which no page uses. An empty
script in place of the first keeps a page under 2.5 MB; without the others a published book is a quarter of
the size.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml

#: The theme has every page load the index of the whole book (0.25 MB); only the page that searches reads it.
OF_SEARCH = re.compile(r'\s*<script src="[^"]*\b(?:searchtools|language_data|searchindex)\.js"></script>')
TWICE = re.compile(r"<title>(.+?) &#8212; \1</title>")  # the cover, whose name is the book's
RAW = (  # what a page with formulas says where nothing typesets them
    '</h1>\n<noscript><p class="labkit-quiet">Your browser runs no JavaScript: formulas stand as they are written, in TeX.'
    "</p></noscript>"
)
FIRST = re.compile(
    r"</h1>.*?<p>(.*?)</p>", re.S
)  # of the text, that is: what stands under a title has a class
KEPT_OF_MATHJAX = ("startup.js", "core.js", "input", "output", "a11y")


def described(page: str) -> str:
    """The page, with its first sentences (200 characters at most) where search engines and messengers look for them."""
    if not (found := FIRST.search(page)):
        return page
    said = " ".join(re.sub(r"<[^>]+>|\\[()]", "", found[1]).replace(chr(34), "&quot;").split())
    said = said if len(said) <= 200 else said[:199].rpartition(" ")[0] + "…"
    meta = "".join(f'<meta {kind}="{name}" content="{said}" />' for kind, name in
                   (("name", "description"), ("property", "og:description")))  # fmt: skip
    return page.replace("</title>", f"</title>{meta}", 1)


def lighten(app: Any, error: Exception | None) -> None:
    """Once the pages are written, take out what no reader needs."""
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    (static / "scripts" / "fontawesome.js").write_text("/* Icons are drawn by the web font. */\n")
    for path in (static / "mathjax").iterdir():
        if path.name not in KEPT_OF_MATHJAX:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in static.rglob("*.map"):
        path.unlink()
    for path in Path(app.outdir).rglob("*.html"):
        if path.name != "search.html":
            page = path.read_text(encoding="utf-8")
            page = described(TWICE.sub(r"<title>\1</title>", OF_SEARCH.sub("", page)))
            if 'class="math' in page:
                page = page.replace("</h1>", RAW, 1)
            path.write_text(page, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    cite = yaml.safe_load((Path(app.srcdir) / "CITATION.cff").read_text("utf-8"))
    app.config.myst_substitutions = {
        "title": cite["title"], "authors": cite["authors"][0]["name"],
        "version": cite["version"], "released": cite["date-released"],
    }  # fmt: skip
    # In parts, MathJax is 0.4 MB less than its bundle, which carries a menu.
    # (Set here because sphinx-mathjax-offline overrides _config.yml.)
    app.config.mathjax_path = "mathjax/startup.js"
    app.connect("build-finished", lighten, priority=900)  # after the extension that copies MathJax
    return {"parallel_read_safe": True, "parallel_write_safe": True}
