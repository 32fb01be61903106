"""Every page of the built book: complete offline, silent, light, no wider than a phone; one of each kind for everybody.

A page is opened once, by whichever test comes first, and looked at wide, then narrow.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FIRST_LOAD_BYTES = 2_500_000
WIDE_PX, PHONE_PX = 1280, 390
GRAVE = ("moderate", "serious", "critical")


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
#: One of each kind, on which the slow questions are asked.
OF_EACH_KIND = [
    "book/index", "book/api/learn", "notebooks/10_3_synchronous_sgd", "notebooks/exercises/10_3_exercises",
    *(pytest.param(f"book/{page}", marks=pytest.mark.weekly) for page in ("claims", "glossary", "map", "performance")),
    *(pytest.param(page, marks=pytest.mark.weekly) for page in ("book/reports", "notebooks/10_5_all_reduce")),
]  # fmt: skip
# Thousands of drawn letters and coloured words would cost axe minutes: a formula, which MathJax describes by itself, becomes
# one letter, and code after the first blocks plain text.
FEWER = """() => {
  document.querySelectorAll('mjx-container').forEach((e) => e.replaceChildren('x'));
  for (const e of [...document.querySelectorAll('.highlight pre')].slice(2)) {
    e.replaceChildren(e.textContent);
    e.style = 'white-space: pre-wrap; overflow-wrap: anywhere';
  }
}"""
every_page = pytest.mark.parametrize("name", PAGES)
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


# Of the API's pages, all made by the same few lines, one a day.
EACH = [pytest.param(p, marks=pytest.mark.weekly if "/api/" in p and "learn" not in p else ()) for p in PAGES]


@pytest.fixture(scope="module", params=EACH)
def visit(request: Any, visiting: Any) -> Iterator[Any]:
    """A page, opened once for all tests that look at it."""
    with visiting(request.param, WIDE_PX) as seen:
        yield seen


@pytest.fixture
def wide(visit: Any) -> Any:
    visit.look(WIDE_PX, "light")
    return visit


@pytest.fixture
def phone(visit: Any) -> Any:
    visit.look(PHONE_PX, "light")
    return visit


class Read(HTMLParser):
    """What a page's file names: places, links, the images of its article, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.images, self.articles, self.depth = list[dict[str, str | None]](), 0, 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a" and "href" in given:
            self.links.append(given["href"] or "")
        if tag in ("script", "link", "img", "iframe"):
            self.loads.append(given.get("src") or given.get("href") or "")
        if tag == "img" and self.depth:
            self.images.append(given)
        if tag == "article":
            self.articles, self.depth = self.articles + 1, self.depth + 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "article"


@functools.cache
def read(path: Path) -> Read:
    return Read(path.read_text(encoding="utf-8"))


def test_a_page_loads_alone_silently_and_light_with_all_formulas_and_pictures(wide: Any) -> None:
    assert not wide.foreign, "it asks another host"
    assert not wide.complaints, "the console is not empty"
    assert 0 < wide.nbytes() <= FIRST_LOAD_BYTES
    untypeset = "all => all.filter(e => !e.querySelector('mjx-container')).map(e => e.textContent)"
    assert not wide.page.eval_on_selector_all("article .math", untypeset)
    assert not wide.page.locator("mjx-merror").count()
    assert not wide.page.locator("article math:not(mjx-assistive-mml math)").count(), "not MathJax's"
    broken = "all => all.filter(e => e.complete && !e.naturalWidth).map(e => e.src)"
    assert not wide.page.eval_on_selector_all("article img", broken)


def test_before_a_guess_the_answer_is_covered(wide: Any) -> None:
    """And nothing above it, from the question on, has it in words; afterwards all is there for the other tests."""
    page = wide.page
    states = page.evaluate(
        """() => [...document.querySelectorAll('.labkit-predict')].map(asking => {
          const key = JSON.parse(asking.dataset.asked).key;
          const question = labkitPredict.questions.find(q => q.key === key);
          const reveal = document.querySelector(`.labkit-reveal[data-key="${key}"]`);
          return [key, question?.state, question?.covered.some(e => e.contains(reveal)),
                  getComputedStyle(reveal).visibility];
        })"""
    )
    assert all(state[1:] == ["covered", True, "hidden"] for state in states), states
    assert len({state[0] for state in states}) == len(states), "two questions are the same"
    page.evaluate("labkitPredict.showAll()")
    expect(page.locator(".labkit-covered")).to_have_count(0)


def test_nothing_is_wider_than_a_phone(phone: Any) -> None:
    page = phone.page
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
            .filter(e => e.getBoundingClientRect().right > width + 1)
            .filter(e => e.getClientRects().length && !e.closest('mjx-assistive-mml') && !boxed(e.parentElement))
            .map(e => e.outerHTML.slice(0, 120));
        }""",
        PHONE_PX,
    )
    assert not protruding
    # And what scrolls says so: by a shaded edge or in words, and to whom listens.
    unsaid = page.eval_on_selector_all(
        "article *",
        """all => {
          const says = (e, style) => /gradient/.test(style.backgroundImage) || /inset/.test(style.boxShadow)
            || /swipe/.test(getComputedStyle(e, '::after').content);
          return all.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && e.checkVisibility())
            .map(e => [e, getComputedStyle(e)]).filter(([e, style]) => ['auto', 'scroll'].includes(style.overflowX))
            .filter(([e, style]) => !e.ariaLabel?.includes('scrolls') || !says(e, style))
            .map(([e]) => e.outerHTML.slice(0, 120));
        }""",
    )
    assert not unsaid
    # Code wraps: only what a cell has printed, and columns need, may scroll.
    scrolling = page.eval_on_selector_all(
        "article pre:has(.labkit-line)",
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 120))",
    )
    assert not scrolling


@every_page
def test_every_image_says_what_it_shows(html: Path, name: str) -> None:
    assert read(html / name).articles
    for image in read(html / name).images:
        alt = (image.get("alt") or "").strip()
        # Without one, Sphinx puts in the file's name.
        assert alt and not re.search(r"\.(png|svg|jpe?g|gif)$", alt), f"no alt text: {image}"


@every_page
def test_every_link_inside_the_book_leads_somewhere(html: Path, name: str) -> None:
    for link in read(html / name).links:
        href = urlsplit(link)
        if href.scheme or href.netloc:
            continue
        target = (html / name).parent / unquote(href.path) if href.path else html / name
        target = target / "index.html" if target.is_dir() else target
        assert target.is_file(), f"broken link: {link}"
        if href.fragment and target.suffix == ".html":
            assert unquote(href.fragment) in read(target.resolve()).ids, f"no such place: {link}"


@every_page
def test_no_page_names_a_script_or_style_of_another_host(html: Path, name: str) -> None:
    assert not [url for url in read(html / name).loads if urlsplit(url).netloc]


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_a_page_of_each_kind_is_for_everybody_light_and_dark(
    visiting: Any, press_tab: Any, name: str
) -> None:
    """By keyboard, with headings in order; axe-core finds nothing moderate or worse."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with visiting(f"{name}.html", WIDE_PX) as seen:
        page = seen.page
        press_tab(page)
        expect(page.locator(":focus")).to_have_text("Skip to main content")
        page.keyboard.press("Enter")
        press_tab(page)
        expect(page.locator("#main-content :focus")).to_have_count(1)
        heads = page.eval_on_selector_all("article :is(h1, h2, h3, h4)", "all => all.map(e => +e.tagName[1])")
        assert heads.count(1) == 1 and all(b <= a + 1 for a, b in itertools.pairwise(heads)), heads
        page.evaluate("window.labkitPredict?.showAll(); document.activeElement.blur()")
        expect(page.locator(".tooltip")).to_have_count(0)  # one follows the focus, half a second later
        page.evaluate(FEWER)
        found = []
        for width, scheme in ((WIDE_PX, "light"), (PHONE_PX, "dark")):
            seen.look(width, scheme)
            found += axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert not [(f["id"], f["nodes"][0]["html"][:160]) for f in found if f["impact"] in GRAVE]
