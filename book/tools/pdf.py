"""`make pdf`: the built book as one PDF with an outline and a table of contents, printed by a Chromium.

The articles of all pages, in the order of the table of contents, are put one after another into one document, their links
turned into links within it; then the browser, which has typeset the formulas, prints it. Folded answers are unfolded.
"""

from __future__ import annotations

import copy
import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import offered
import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REFERRING = ("href", "for", "aria-labelledby", "aria-describedby", "aria-controls")
NOT_PRINTED = "a.headerlink, button, .tippy-box, script, noscript, .prev-next-area, .prev-next-footer"
STYLE = """
@page { size: A4; margin: 18mm 16mm 20mm; }
html { font-size: 11px; scroll-padding: 0; }
body { background: #fff; }
main.pdf { max-width: none; padding: 0; }
main.pdf > section.page { break-before: page; }
main.pdf .title { padding-top: 60mm; text-align: center; }
main.pdf nav ol { list-style: none; padding-left: 1.2em; }
main.pdf nav > ol > li { margin-top: 0.8em; font-weight: bold; }
main.pdf nav ol ol { font-weight: normal; }
main.pdf pre { white-space: pre-wrap; overflow: visible; }
main.pdf img, main.pdf svg, main.pdf pre, main.pdf table, main.pdf .admonition-title { break-inside: avoid; }
main.pdf h1, main.pdf h2, main.pdf h3, main.pdf dt { break-after: avoid; }
main.pdf details > summary { display: none !important; }
main.pdf p, main.pdf li { max-width: none !important; }
"""
FOOT = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'
OPENED = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def parts(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    """(caption, pages) of the book, in order; the first has the cover alone."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [
        (part.get("caption", ""), list(files(part["chapters"]))) for part in toc.get("parts", ())
    ]


def files(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield entry["file"]
        yield from files(entry.get("sections", []))


def slug(page: str) -> str:
    return "page-" + page.replace("/", "-")


def article(html: Path, page: str, pages: set[str]) -> Tag:
    """What is to be read on a page, fit to stand in one document with the others."""
    soup = BeautifulSoup((html / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
    found = soup.select_one("article.bd-article")
    if found is None:
        raise ValueError(f"{html / page}.html has no article: build the book first")
    body = copy.copy(found)
    for tag in body.select(NOT_PRINTED):
        tag.decompose()
    for tag in body.find_all("details"):
        tag["open"] = ""
    here = slug(page)
    for tag in body.find_all(id=True):
        tag["id"] = f"{here}--{tag['id']}"
    for tag in body.find_all(True):
        for name in REFERRING:
            if name in tag.attrs:
                tag[name] = " ".join(
                    inside(ref, page, pages, name == "href") for ref in str(tag[name]).split()
                )
        if "src" in tag.attrs:
            tag["src"] = from_root(str(tag["src"]), page)
    return body


def inside(ref: str, page: str, pages: set[str], is_link: bool) -> str:
    """A reference on `page` as one within the document; what leads out of the book stays."""
    if not is_link:
        return f"{slug(page)}--{ref}"
    url = urlsplit(ref)
    if url.scheme or url.netloc:
        return ref
    target = from_root(unquote(url.path), page).removesuffix(".html") if url.path else page
    if target not in pages:
        return ref
    return f"#{slug(target)}" + (f"--{url.fragment}" if url.fragment else "")


def from_root(ref: str, page: str) -> str:
    """A path relative to `page` as one relative to the book's root; other addresses unchanged."""
    url = urlsplit(ref)
    if url.scheme or url.netloc or ref.startswith("data:"):
        return ref
    return os.path.normpath(os.path.join(os.path.dirname(page), ref))


def document(html: Path, root: Path = ROOT) -> str:
    """The whole book as one page of HTML, to be opened in the book's root folder."""
    listed = parts(root)
    every = {page for _, pages in listed for page in pages}
    first = BeautifulSoup((html / f"{listed[0][1][0]}.html").read_text(encoding="utf-8"), "html.parser")
    title = str(yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"])
    out = BeautifulSoup(
        "<!DOCTYPE html><html lang='en' data-theme='light'><head></head><body></body></html>", "html.parser"
    )
    assert out.head and out.body
    for tag in first.head.find_all(["meta", "link", "script"]) if first.head else ():
        source = str(tag.get("src") or tag.get("href") or "")
        mathjax = tag.name == "script" and ("mathjax" in source.lower() or "MathJax" in (tag.string or ""))
        if mathjax or tag.get("rel") == ["stylesheet"] or (tag.name == "meta" and tag.get("charset")):
            kept = copy.copy(tag)
            for name in ("src", "href"):
                if name in kept.attrs:
                    kept[name] = from_root(str(kept[name]), listed[0][1][0])
            out.head.append(kept)
    for name, text in (("title", title), ("style", STYLE)):
        tag = out.new_tag(name)
        tag.string = text
        out.head.append(tag)
    main = out.new_tag("main", attrs={"class": "pdf bd-content"})
    out.body.append(main)
    articles = {page: article(html, page, every) for _, pages in listed for page in pages}
    main.append(contents(title, listed, articles))
    for page, body in articles.items():
        section = out.new_tag("section", attrs={"class": "page bd-article-container", "id": slug(page)})
        section.append(body)
        main.append(section)
    return str(out)


def contents(title: str, listed: list[tuple[str, list[str]]], articles: dict[str, Tag]) -> BeautifulSoup:
    """The title page and the table of contents."""

    def line(page: str) -> str:
        heading = articles[page].find("h1")
        return f'<li><a href="#{slug(page)}">{heading.decode_contents() if heading else page}</a></li>'

    items = "".join(
        f"<li>{caption}<ol>{''.join(map(line, pages))}</ol></li>" if caption else "".join(map(line, pages))
        for caption, pages in listed
    )
    return BeautifulSoup(
        f'<div class="title"><p style="font-size:3em">{title}</p></div>'
        f'<section class="page"><p style="font-size:2em">Contents</p><nav><ol>{items}</ol></nav></section>',
        "html.parser",
    )


def print_pdf(html: Path, target: Path, root: Path = ROOT) -> None:
    """Write `target`. Raises RuntimeError where there is no browser."""
    browser = os.environ.get("LABKIT_CHROMIUM") or next(
        (b for name in BROWSERS if (b := shutil.which(name))), None
    )
    if browser is None:
        raise RuntimeError(
            f"make pdf needs a browser: none of {', '.join(BROWSERS)} is on the path and LABKIT_CHROMIUM is not set"
        )
    from playwright.sync_api import sync_playwright

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path != "/the-whole-book.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text)
            return None

    text = document(html, root).encode()
    handler = functools.partial(Quiet, directory=str(html))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = playwright.chromium.launch(executable_path=browser, args=list(OPENED))
        page = chromium.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{server.server_port}/the-whole-book.html")
        page.evaluate("() => window.MathJax?.startup?.promise.then(() => null)")
        page.evaluate("() => document.fonts.ready.then(() => null)")
        part = target.with_suffix(".part")
        page.pdf(
            path=part, prefer_css_page_size=True, print_background=True, outline=True, tagged=True,
            display_header_footer=True, header_template="<span></span>", footer_template=FOOT,
        )  # fmt: skip
        part.replace(target)
        chromium.close()
        server.shutdown()


def main() -> int:
    html, target = ROOT / "_build" / "html", ROOT / "_build" / "book.pdf"
    try:
        print_pdf(html, target)
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    offered.put(ROOT)
    print(f"The book is at {target} ({target.stat().st_size / 1e6:.1f} MB).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
