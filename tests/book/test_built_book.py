"""Every page of the built book: complete offline, silent, light, readable on a phone and in the dark."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
FIRST_LOAD_BYTES = 2_500_000
PHONE_PX = 390


def pages(entry: Any) -> Iterator[str]:
    """Every `file` and `root` of a table of contents, in order."""
    if isinstance(entry, dict):
        yield from (f"{value}.html" for key, value in entry.items() if key in ("root", "file"))
        for value in entry.values():
            yield from pages(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from pages(value)


PAGES = list(pages(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))
every_page = pytest.mark.parametrize("name", PAGES)
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=PAGES)
def wide(request: Any, visiting: Any) -> Iterator[Any]:
    """A page in a wide window, opened once for all tests that look at it so."""
    with visiting(request.param, color_scheme="light") as seen:
        yield seen


@functools.cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def test_a_page_loads_alone_silently_and_light(wide: Any) -> None:
    assert not wide.foreign, "it asks another host"
    assert not wide.complaints, "the console is not empty"
    assert wide.nbytes() <= FIRST_LOAD_BYTES


def test_all_mathematics_is_typeset(wide: Any) -> None:
    page = wide.page
    missing = page.eval_on_selector_all(
        "article .math", "all => all.filter(e => !e.querySelector('mjx-container')).map(e => e.textContent)"
    )
    assert not missing
    errors = page.eval_on_selector_all("mjx-merror", "all => all.map(e => e.textContent)")
    assert not errors


@every_page
def test_nothing_is_wider_than_a_phone(visiting: Any, name: str) -> None:
    with visiting(name, PHONE_PX) as seen:
        nothing_protrudes(seen.page)


def nothing_protrudes(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE_PX
    # Nor is anything cut off: what protrudes stands in a box of its own that scrolls (or is not shown).
    protruding = page.evaluate(
        """width => {
          const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
          const boxed = e => {
            for (; e; e = e.parentElement) if (scrolls(e) && e.clientWidth <= width) return true;
            return false;
          };
          return [...document.querySelectorAll('article *')]
            .filter(e => e.getClientRects().length && !e.closest('mjx-assistive-mml'))
            .filter(e => e.getBoundingClientRect().right > width + 1 && !boxed(e.parentElement))
            .map(e => e.outerHTML.slice(0, 120));
        }""",
        PHONE_PX,
    )
    assert not protruding


@every_page
def test_every_image_says_what_it_shows(html: Path, name: str) -> None:
    article = parsed(html / name).find("article")
    assert article
    for image in article.find_all("img"):
        alt = str(image.get("alt") or "").strip()
        # Without one, Sphinx puts in the file's name.
        assert alt and not re.search(r"\.(png|svg|jpe?g|gif)$", alt), f"no alt text: {image}"


@every_page
def test_every_link_inside_the_book_leads_somewhere(html: Path, name: str) -> None:
    soup = parsed(html / name)
    for link in soup.find_all("a", href=True):
        href = urlsplit(str(link["href"]))
        if href.scheme or href.netloc:
            continue
        target = (html / name).parent / unquote(href.path) if href.path else html / name
        target = target / "index.html" if target.is_dir() else target
        assert target.is_file(), f"broken link: {link}"
        if href.fragment and target.suffix == ".html":
            there = parsed(target.resolve())
            assert there.find(id=unquote(href.fragment)), f"no such place: {link}"


@every_page
def test_no_page_names_a_script_or_style_of_another_host(html: Path, name: str) -> None:
    soup = parsed(html / name)
    named = [str(t.get("src") or t.get("href")) for t in soup.find_all(["script", "link", "img", "iframe"])]
    assert not [url for url in named if urlsplit(url).netloc]


def test_the_first_page_leads_to_the_book(visiting: Any) -> None:
    with visiting("index.html") as seen:
        seen.page.wait_for_url(f"**/{PAGES[0]}")
        assert seen.page.locator("article h1").first.is_visible()


def test_dark_mode_is_dark_and_readable(wide: Any) -> None:
    page = wide.page
    luminance = """e => { const c = getComputedStyle(e); const f = s => {
          const [r, g, b] = s.match(/[\\d.]+/g).map(Number); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          return [f(c.backgroundColor), f(c.color)]; }"""
    for _ in range(3):  # auto, light, dark
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
        page.locator("button.theme-switch-button:visible").first.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    background, ink = page.eval_on_selector("body", luminance)
    assert background < 60 < 180 < ink
    # A figure with a transparent ground keeps a light one behind its dark lines.
    grounds = page.eval_on_selector_all(
        "article .cell_output img", "all => all.map(e => getComputedStyle(e).backgroundColor)"
    )
    assert all(ground == "rgb(255, 255, 255)" for ground in grounds)


def test_hidden_code_opens_at_a_click(wide: Any) -> None:
    page = wide.page
    closed = page.locator("article details.hide:not([open])")
    if closed.count():
        box = closed.first.element_handle()
        box.query_selector("summary").click()
        assert box.evaluate("e => e.open && e.querySelector('.highlight, .output') !== null")
