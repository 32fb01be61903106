"""Every page of the built book: complete offline, silent, light, readable on a phone and in the dark, for everybody.

A page is opened once, by whichever test comes first, and looked at wide and light, then narrow and dark.
"""

from __future__ import annotations

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
LOAD_S = 20.0  # from this disk, on a busy machine; an idle one takes less than one
WIDE_PX, PHONE_PX = 1280, 390
GRAVE = ("moderate", "serious", "critical")
# What a narrow, dark window can break; the other rules have seen the same elements in the wide one.
ANEW = ["color-contrast", "scrollable-region-focusable", "aria-hidden-focus", "link-in-text-block", "label"]


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
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=PAGES)
def visit(
    request: Any, visiting: Any, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A page, opened once for all tests that look at it: by one process, where there are several."""
    if worker_id != "master":
        opened = tmp_path_factory.getbasetemp().parent / "opened" / request.param
        assert not opened.exists(), (
            "another process has opened this page: its tests have been dealt out apart"
        )
        opened.mkdir(parents=True)
    with visiting(request.param, WIDE_PX, color_scheme="light") as seen:
        yield seen


@pytest.fixture
def wide(visit: Any) -> Any:
    visit.look(WIDE_PX, "light")
    return visit


@pytest.fixture
def phone(visit: Any) -> Any:
    visit.look(PHONE_PX, "dark")
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


def test_a_page_loads_alone_silently_and_light(wide: Any) -> None:
    assert not wide.foreign, "it asks another host"
    assert not wide.complaints, "the console is not empty"
    assert 0 < wide.nbytes() <= FIRST_LOAD_BYTES
    assert wide.load_s() < LOAD_S


def test_the_keyboard_reaches_the_text_first_and_the_page_has_an_order(wide: Any, press_tab: Any) -> None:
    page = wide.page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    press_tab(page)
    expect(page.locator(":focus")).to_have_text("Skip to main content")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main-content$"))
    press_tab(page)
    expect(page.locator("#main-content :focus")).to_have_count(1)
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.eval_on_selector_all("article :is(h1, h2, h3, h4)", "all => all.map(e => +e.tagName[1])")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels


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
    sketches = page.get_by_role("button", name="Give up: show the answer")
    for left in range(sketches.count(), 0, -1):
        expect(sketches).to_have_count(left)
        sketches.first.click()
    expect(page.locator(".labkit-covered")).to_have_count(0)


def test_all_mathematics_is_typeset_and_every_picture_drawn(wide: Any) -> None:
    page = wide.page
    missing = page.eval_on_selector_all(
        "article .math", "all => all.filter(e => !e.querySelector('mjx-container')).map(e => e.textContent)"
    )
    assert not missing
    errors = page.eval_on_selector_all("mjx-merror", "all => all.map(e => e.textContent)")
    assert not errors
    broken = page.eval_on_selector_all(
        "article img", "all => all.filter(e => e.complete && !e.naturalWidth).map(e => e.src)"
    )
    assert not broken


# Thousands of coloured words and drawn letters would cost axe most of its time: code becomes plain text meanwhile (its
# colours are looked at below, once), a formula one letter (MathJax describes it to screen readers by itself). Both keep
# their size: what scrolls must scroll, and be marked as scrolling, before, meanwhile and afterwards.
PLAIN = """() => {
  const all = '.highlight pre, article mjx-container, article code, article em.sig-param';
  window.taken = [...document.querySelectorAll(all)].map(e => {
    const inside = [...e.childNodes], wraps = e.querySelector('.labkit-line') !== null;
    return [e, inside, e.getAttribute('style'), wraps, e.scrollWidth, e.getBoundingClientRect().height];
  });
  for (const [e, , , wraps, width, height] of window.taken) {
    const formula = e.matches('mjx-container');
    e.replaceChildren(formula ? 'x' : e.textContent);
    if (wraps) e.style = 'white-space: pre-wrap; overflow-wrap: anywhere';
    if (formula && e.closest('div.math')) e.style = `min-width: ${width}px; height: ${height}px`;
  }
}"""
RESTORED = """() => {
  for (const [e, inside, style] of window.taken) {
    e.replaceChildren(...inside);
    if (style === null) e.removeAttribute('style');
    else e.setAttribute('style', style);
  }
}"""


# A contrast takes axe milliseconds to find: of words that stand in the same classes and colours, all the way up, it is
# asked of the first and the last that can be seen. Whatever differs in a colour, a size or an opacity is asked again.
KINDS = """() => {
  const seen = new Map([[null, 0]]), kinds = new Map(), alike = new Map();
  const kind = (e) => {
    if (seen.has(e)) return seen.get(e);
    const s = getComputedStyle(e);
    const key = [kind(e.parentElement), e.tagName, e.getAttribute('class'), s.color, s.backgroundColor, s.backgroundImage,
                 s.opacity, s.filter, s.fontSize, s.fontWeight, s.position, s.textShadow].join('|');
    if (!kinds.has(key)) kinds.set(key, kinds.size + 1);
    seen.set(e, kinds.get(key));
    return kinds.get(key);
  };
  document.querySelectorAll('[data-alike]').forEach((e) => e.removeAttribute('data-alike'));
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim())) continue;
    if (!e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    alike.set(kind(e), [...(alike.get(kind(e)) ?? []), e]);
  }
  for (const all of alike.values()) all.slice(1, -1).forEach((e) => e.setAttribute('data-alike', ''));
}"""
LOOKED = """([context, options]) => {
  axe.configure({ rules: [{ id: 'color-contrast', selector: ':not([data-alike])' }] });
  return axe.run(context ?? document, { resultTypes: ['violations'], ...options }).then((found) => found.violations);
}"""


def violations(page: Any, rules: list[str] | None = None, context: Any = None) -> list[dict[str, Any]]:
    """What axe-core says against the page as it stands, by these rules, or by all."""
    from axe_playwright_python.sync_playwright import Axe

    if page.evaluate("!window.axe"):
        page.evaluate(Axe().axe_script)
    page.evaluate(KINDS)
    options = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    found: list[dict[str, Any]] = page.evaluate(LOOKED, [context, options])
    return found


def faults(seen: Any, rules: list[str] | None = None) -> list[str]:
    """What axe-core finds moderate or worse in the page as it stands."""
    seen.page.evaluate("window.labkitPredict?.showAll()")
    seen.page.mouse.move(0, 0)
    seen.page.evaluate("document.activeElement.blur()")
    seen.page.evaluate(
        "document.querySelectorAll('.tooltip').forEach(e => e.remove())"
    )  # half faded, by the keyboard test
    seen.page.evaluate(PLAIN)
    seen.settle()  # what has just been uncovered or opened fades in
    found = violations(seen.page, rules)
    seen.page.evaluate(RESTORED)
    return [
        f"{fault['id']}: {node['html'][:160]} ({node['failureSummary'][:200]})"
        for fault in found
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]


def test_wide_and_light_axe_finds_nothing_grave(wide: Any) -> None:
    assert not faults(wide)


def test_hidden_code_opens_at_a_click(wide: Any) -> None:
    page = wide.page
    closed = page.locator("article details.hide:not([open]):visible")
    if closed.count():
        box = closed.first.element_handle()
        box.query_selector("summary").click()
        page.wait_for_function("e => e.open && e.querySelector('.highlight, .output') !== null", arg=box)


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
    # Code wraps: only what a cell has printed, and columns need, may scroll.
    scrolling = page.eval_on_selector_all(
        "article pre:has(.labkit-line)",
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 120))",
    )
    assert not scrolling


def test_letters_of_every_plot_are_ten_pixels_high_on_a_phone(phone: Any) -> None:
    shown = phone.page.eval_on_selector_all(
        "article .cell_output img", "all => all.map(e => [e.getBoundingClientRect().width, e.naturalWidth])"
    )
    for width, drawn in shown:  # at 100 dots per inch; the smallest letters that a lab sets have 9 points
        assert 9 * 100 / 72 * width / drawn >= 10, (width, drawn)


def test_narrow_and_dark_axe_finds_nothing_grave(phone: Any) -> None:
    assert not faults(phone, ANEW)


def test_dark_mode_is_dark_and_readable(phone: Any) -> None:
    luminance = """e => { const c = getComputedStyle(e); const f = s => {
          const [r, g, b] = s.match(/[\\d.]+/g).map(Number); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          return [f(c.backgroundColor), f(c.color)]; }"""
    background, ink = phone.page.eval_on_selector("body", luminance)
    assert background < 60 < 180 < ink
    # A figure with a transparent ground keeps a light one behind its dark lines.
    grounds = phone.page.eval_on_selector_all(
        "article .cell_output img", "all => all.map(e => getComputedStyle(e).backgroundColor)"
    )
    assert all(ground == "rgb(255, 255, 255)" for ground in grounds)


@every_page
def test_every_image_says_what_it_shows(html: Path, name: str) -> None:
    assert read(html / name).articles
    for image in read(html / name).images:
        alt = (image.get("alt") or "").strip()
        # Without one, Sphinx puts in the file's name.
        assert alt and not re.search(r"\.(png|svg|jpe?g|gif)$", alt), f"no alt text: {image}"


@every_page
def test_a_page_says_what_it_is_about(html: Path, name: str) -> None:
    head = (html / name).read_text(encoding="utf-8").split("</head>")[0]
    said = re.search(r'<meta name="description" content="([^"]*)" />', head)
    assert said and 20 < len(said[1]) <= 230 and "<" not in said[1]
    title = re.search(r"<title>(.*)</title>", head)
    assert title and len(set(parts := title[1].split(" &#8212; "))) == len(parts)


@every_page
def test_no_formula_holds_words(html: Path, name: str) -> None:
    """As it would where a line of the source begins with a formula's plus: Markdown takes that for a list."""
    formulas = re.findall(r'<(?:span|div) class="math[^>]*>(.*?)</', (html / name).read_text("utf-8"), re.S)
    bare = [
        re.sub(r"\\(?:text|mathrm|operatorname)\{[^}]*\}|\\[A-Za-z]+", " ", formula) for formula in formulas
    ]
    assert not [formula for formula in bare if re.search(r"[A-Za-z]{4,} [A-Za-z]{2,}", formula)]


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


def test_the_first_page_leads_to_the_book(window: Any, site: str) -> None:
    page = window()
    page.goto(site)
    page.wait_for_url(f"**/{PAGES[0]}")
    expect(page.locator("article h1").first).to_be_visible()


def test_code_can_be_read_and_copied(visiting: Any) -> None:
    """The colours of code on one page with much of it; a line that is wrapped is still one line when it is copied."""
    with visiting("notebooks/10_3_synchronous_sgd.html", PHONE_PX, color_scheme="light") as seen:
        page = seen.page
        page.evaluate("labkitPredict.showAll()")
        page.evaluate("[...document.querySelectorAll('.highlight')].slice(0, 5).forEach(e => e.id = 'look')")
        for scheme in ("light", "dark"):
            seen.look(PHONE_PX, scheme)
            assert not violations(page, ["color-contrast"], {"include": [["#look"]]})
            inks = "e => [e, e.closest('.highlight')].map(one => getComputedStyle(one).color)"
            bare, block = page.locator(".highlight-ipython3 .labkit-line").first.evaluate(inks)
            assert bare == block, "a name has no element of its own: its line must have the style's colour"
        wrapped = page.locator(".labkit-line").evaluate_all(
            "all => all.filter(e => e.getClientRects()[0].height > 30).map(e => e.textContent)"
        )
        assert wrapped and not any("\n" in line for line in wrapped)
        source = (ROOT / "notebooks" / "10_3_synchronous_sgd.md").read_text(encoding="utf-8")
        assert all(line in source for line in wrapped)


def test_the_theme_s_own_button_turns_the_page_dark(visiting: Any) -> None:
    with visiting(PAGES[0], color_scheme="light") as seen:
        root = seen.page.locator("html")
        expect(root).to_have_attribute("data-theme", "light")
        for _ in range(3):  # auto, light, dark
            if (mode := root.get_attribute("data-mode")) != "dark":
                seen.page.locator("button.theme-switch-button:visible").first.click()
                expect(root).not_to_have_attribute("data-mode", mode)
        expect(root).to_have_attribute("data-theme", "dark")


def test_on_paper_there_is_the_text_and_every_answer(visiting: Any) -> None:
    with visiting("notebooks/10_3_synchronous_sgd.html") as seen:
        page = seen.page
        page.emulate_media(media="print")
        for gone in (
            ".bd-sidebar-primary",
            ".bd-sidebar-secondary",
            ".bd-header-article",
            ".prev-next-footer",
        ):
            expect(page.locator(f"{gone}:visible")).to_have_count(0)
        answers = page.locator(".labkit-reveal").count()
        expect(page.locator(".labkit-reveal:visible")).to_have_count(answers)
        expect(page.locator(".labkit-guess form:visible")).to_have_count(0)
