"""A Sphinx extension: pages light enough for a phone, which say what they are about; and the scripts of their figures.

The theme loads all of Font Awesome as a script (1.5 MB) to draw nine icons that its style sheet already
draws from a web font (0.16 MB); MathJax brings bundles, speech and notations which no page uses. An empty
script in place of the first keeps a page under 2.5 MB; without the others a published book is a quarter of
the size. `labkit-figures.js` fetches `_static/figures/NAME.js` for each figure on a page; they are made here from the
package, so that a notebook and the page run the same code.

Every line of code is an element that knows its own indentation, so that labkit.css can hang the rest of a long one below
and to the right, as code should wrap on a phone. The characters stay the same: what is copied is the program.
"""

import re
import shutil
from html import escape, unescape
from pathlib import Path
from typing import Any

import yaml

from labkit_book.labs.figures import names, script

#: The theme has every page load the index of the whole book (0.25 MB); only the page that searches reads it.
OF_SEARCH = re.compile(r'\s*<script src="[^"]*\b(?:searchtools|language_data|searchindex)\.js"></script>')
TWICE = re.compile(r"<title>(.+?) &#8212; \1</title>")  # the cover, whose name is the book's
RAW = (  # what a page with formulas says where nothing typesets them
    '</h1>\n<noscript><p class="labkit-quiet">Your browser runs no JavaScript: formulas stand as they are written, in TeX.'
    "</p></noscript>"
)
FIRST = re.compile(r"</h1>.*?<p>(.*?)</p>", re.S)  # of the text: what stands under a title has a class
TITLE = re.compile(r"<title>(.*?)(?: &#8212; .*)?</title>")
PICTURE = "_static/readme.png"  # predicted, simulated, measured
PRINTED = {"myst-ansi", "none", "text"}  # what a cell printed: columns stay columns
KEPT_OF_MATHJAX = ("startup.js", "core.js", "input", "output", "a11y")


def about(page: str, base: str, name: str) -> dict[str, str]:
    """What search engines and messengers look for in a page. base: the book's address, if it is known; name: the file's."""
    said = {}
    if found := FIRST.search(page):
        words = " ".join(unescape(re.sub(r"<[^>]+>|\\[()]", "", found[1])).split())
        said["description"] = words if len(words) <= 200 else words[:199].rpartition(" ")[0] + "…"
        said["og:description"] = said["description"]
    if base:
        found = TITLE.search(page)
        said |= {"og:type": "article", "og:title": unescape(found[1]) if found else "", "og:url": base + name}
        said |= {"og:image": base + PICTURE, "twitter:card": "summary_large_image"}
    return said


def lightened(page: str, base: str, name: str) -> str:
    """A page without what no reader needs, and with what it is about."""
    page = TWICE.sub(r"<title>\1</title>", OF_SEARCH.sub("", page))
    lines = (
        f'<meta {"property" if key.startswith("og:") else "name"}="{key}" content="{escape(said)}" />'
        for key, said in about(page, base, name).items()
    )
    page = page.replace("</title>", f"</title>{''.join(lines)}", 1)
    return page.replace("</h1>", RAW, 1) if 'class="math' in page else page


def finish(app: Any, error: Exception | None) -> None:
    """Once the pages are written."""
    if error is not None or app.builder.format != "html" or app.builder.name == "epub":
        return
    out = Path(app.outdir)
    static = out / "_static"
    (static / "scripts" / "fontawesome.js").write_text("/* Icons are drawn by the web font. */\n")
    for path in [*(static / "mathjax").iterdir(), *static.rglob("*.map")]:
        if path.parent.name == "mathjax" and path.name in KEPT_OF_MATHJAX:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (static / "figures").mkdir(exist_ok=True)
    for figure in names():
        (static / "figures" / f"{figure}.js").write_text(script(figure), encoding="utf-8")
    for path in set(out.rglob("*.html")) - {out / "search.html"}:
        name = path.relative_to(out).as_posix()
        page = lightened(path.read_text(encoding="utf-8"), app.config.html_baseurl, name)
        path.write_text(page, encoding="utf-8")


def in_lines(page: str) -> str:
    """Pygments' HTML of a block, each line in an element of class labkit-line with its indentation."""
    found = re.fullmatch(r"(.*?<pre>(?:<span></span>)?)(.*?)(\n?</pre>.*)", page, re.DOTALL)
    if not found:
        return page
    before, code, after = found.groups()
    return before + "\n".join(map(_line, code.split("\n"))) + after


def _line(line: str) -> str:
    text = re.sub(r"<[^>]*>", "", line)
    indent = len(text) - len(text.lstrip(" "))
    style = f' style="--indent:{indent}"' if indent else ""
    return f'<span class="labkit-line"{style}>{line}</span>'


def install(app: Any) -> None:
    """Let the HTML builder's highlighter hand out lines."""
    highlighter = getattr(app.builder, "highlighter", None)
    if highlighter is None or app.builder.format != "html":
        return
    plain = highlighter.highlight_block

    def highlight_block(source: str, lang: str, *args: Any, **options: Any) -> str:
        page = plain(source, lang, *args, **options)
        return page if lang in PRINTED or options.get("linenos") else in_lines(page)

    highlighter.highlight_block = highlight_block


def setup(app: Any) -> dict[str, bool]:
    cite = yaml.safe_load((Path(app.srcdir) / "CITATION.cff").read_text("utf-8"))
    app.config.myst_substitutions = {
        "title": cite["title"], "authors": cite["authors"][0]["name"],
        "version": cite["version"], "released": cite["date-released"],
    }  # fmt: skip
    app.config.version = cite["version"]  # of the EPUB
    # In parts, MathJax is 0.4 MB less than its bundle, which carries a menu.
    # (Set here because sphinx-mathjax-offline overrides _config.yml.)
    app.config.mathjax_path = "mathjax/startup.js"
    app.connect("builder-inited", install)
    app.connect("build-finished", finish, priority=900)  # after the extension that copies MathJax
    return {"parallel_read_safe": True, "parallel_write_safe": True}
