"""The built book, served on a loopback port, and a browser that may go nowhere else."""

import contextlib
import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pdf
import pytest

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--no-first-run"]
QUIET += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # it may go nowhere else


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book."""
    if not (HTML / "index.html").exists():
        reason = f"there is no built book in {HTML}: run `make book` first"
        if os.environ.get("LABKIT_BOOK_MUST_EXIST"):
            pytest.fail(reason)
        pytest.skip(reason)
    return HTML


@pytest.fixture(scope="session")
def site(html: Path) -> Iterator[str]:
    """The address of the built book, ending in a slash."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = pdf.find_browser()
    if path is None:
        known = ", ".join(pdf.BROWSERS)
        pytest.skip(f"no browser: none of {known} is on the path, nor is LABKIT_CHROMIUM set")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # as long as Playwright waits for everything else
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield chromium
        chromium.close()


# The state in which a page may be looked at: figures alive and as wide as their place, boxes that scroll marked for the
# keyboard and formulas given room (page.js), nothing fading, pictures loaded.
SETTLED = """() => {
  const every = (selector, good) => [...document.querySelectorAll(selector)].every(good);
  const scrolls = (e) => e.scrollWidth > e.clientWidth + 1;
  const room = (e) => e.parentElement.closest('p, li, dd, td, th, h1, h2, h3, h4, div').clientWidth;
  return every('.labkit-figure[data-figure]', (e) => e.dataset.live !== undefined)
    && every('.lk-svg', (e) => !e.clientWidth || Math.abs(e.clientWidth - e.getAttribute('width')) < 1.5)
    && every('.bd-article :is(div.math, span.math.labkit-wide, .cell_output .text_html, .cell_output:has(> img), pre)',
             (e) => !scrolls(e) || e.tabIndex === 0 || !e.checkVisibility())
    && every('.bd-article span.math:not(.labkit-wide)',
             (e) => !room(e) || !(e.firstElementChild?.getBoundingClientRect().width > room(e)))
    && document.getAnimations().every((a) => a.playState !== 'running')
    && [...document.images].every((e) => e.complete || e.loading === 'lazy');
}"""


class Visit:
    """A window of the browser, with all that its page asked for and said."""

    def __init__(self, page: Any, site: str) -> None:
        self.page, self.site, self.scheme = page, site, ""
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.site, "data:", "blob:")):
            self.foreign.append(request.url)

    def open(self, name: str) -> None:
        """Load `name` and let it settle: mathematics, fonts, pictures, interactive figures."""
        self.page.goto(self.site + name, wait_until="load")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        self.page.evaluate("() => document.fonts.ready.then(() => null)")
        self.settle()

    def leave(self) -> None:
        """Forget the page, what it has stored, and would when it is left."""
        self.page.evaluate("() => { localStorage.clear(); Storage.prototype.setItem = () => {}; }")
        self.page.goto("about:blank")
        self.foreign.clear()
        self.complaints.clear()

    def settle(self) -> None:
        """Wait until nothing moves, fades, or is still to come."""
        self.page.wait_for_function(SETTLED)

    def look(self, width: int, scheme: str) -> None:
        """Make the window so wide and the system's colours light or dark; a theme left on auto follows them."""
        if self.page.viewport_size["width"] != width:
            self.page.set_viewport_size({"width": width, "height": 844})
        if self.scheme != scheme:  # said again, it would lay out the whole page again
            self.page.emulate_media(color_scheme=scheme)
            self.scheme = scheme
        seen = "([w, scheme]) => innerWidth === w && document.documentElement.dataset.theme === scheme"
        self.page.wait_for_function(seen, arg=[width, scheme])
        self.settle()

    def nbytes(self) -> int:
        """Bytes of everything loaded so far, uncompressed."""
        entries = "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
        return int(self.page.evaluate(f"{entries}.reduce((sum, e) => sum + e.decodedBodySize, 0)"))


@pytest.fixture(scope="session")
def press_tab() -> Any:
    """`press_tab(page)` moves the focus on by keyboard, and sees it move."""

    def press(page: Any) -> None:
        before = page.evaluate_handle("document.activeElement")
        page.keyboard.press("Tab")
        page.wait_for_function("before => document.activeElement !== before", arg=before)

    return press


@pytest.fixture(scope="session")
def visiting(browser: Any, site: str) -> Iterator[Any]:
    """`with visiting(name, width) as seen` opens a page of the book, in light; nothing is stored. `seen` is a `Visit`.

    In a window that has shown other pages, as a reader's has: to start a fresh one takes as long as most pages.
    """
    context = browser.new_context(reduced_motion="reduce")  # nothing is looked at half faded
    idle: list[Visit] = []

    @contextlib.contextmanager
    def go(name: str, width: int = 1280) -> Iterator[Visit]:
        seen = idle.pop() if idle else Visit(context.new_page(), site)
        seen.page.set_viewport_size({"width": width, "height": 844})
        seen.page.emulate_media(color_scheme="light")
        seen.scheme = "light"
        seen.open(name)
        yield seen
        seen.leave()
        idle.append(seen)

    yield go
    context.close()


@pytest.fixture
def window(browser: Any) -> Iterator[Any]:
    """`window(**options)` is a page in a window of its own, gone with the test."""
    contexts: list[Any] = []

    def opened(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        return contexts[-1].new_page()

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def empty_page(browser: Any) -> Iterator[Any]:
    """One window for all figures: a fresh one for each costs more than the test."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def figure_page(window: Any, empty_page: Any, make_figure: Any) -> Any:
    """`with figure_page("ring", width=390, K=4) as page` shows an interactive figure alone, on an empty page.

    Its module is imported as anywidget would: `lab.compute(state)` in the page; `lab.model` holds the state. `options` are
    the browser's (color_scheme, reduced_motion, has_touch ...). With `stopped`, only `page.clock.run_for` moves its clock.
    A message on the console, or an error, is a failure.
    """
    from labkit_book.labs import figures

    @contextlib.contextmanager
    def show(name: str, width: int = 760, options: Any = None, stopped: bool = False, **given: Any) -> Any:
        options = options or {}
        seen = {"color_scheme": "light", "reduced_motion": "no-preference"}
        own = stopped or set(options) - set(seen)
        page = window(**options) if own else empty_page
        page.goto("about:blank")
        if stopped:
            page.clock.install(time=0)
            page.clock.pause_at(1000)
        page.set_viewport_size({"width": width, "height": 844})
        if not own:
            page.emulate_media(media="screen", **(seen | options))
        said: list[str] = []
        note_message = lambda message: said.append(message.text)  # noqa: E731
        note_error = lambda error: said.append(str(error))  # noqa: E731
        page.on("console", note_message)
        page.on("pageerror", note_error)
        helpers = "pageModel, seconds, bytes, rate, percent, count, digits, decades, ticks"
        module = f"{figures.module(name)}\nexport {{ {helpers} }};"
        try:
            page.evaluate(
                """async ([source, state]) => {
                  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
                  const figure = await import(url);
                  const model = figure.pageModel(state);
                  globalThis.lab = { ...figure, model };
                  globalThis.lab.leave = figure.default.render({ model, el: document.body });
                }""",
                [module, make_figure(name, **given).values],
            )
            yield page
        finally:
            page.remove_listener("console", note_message)
            page.remove_listener("pageerror", note_error)
        assert not said

    return show
