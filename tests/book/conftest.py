"""The built book, served on a loopback port, and a browser that may go nowhere else."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_browser() -> str | None:
    """The browser to use: LABKIT_CHROMIUM, or the first of BROWSERS on the path."""
    named = os.environ.get("LABKIT_CHROMIUM")
    return named or next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def notebooks() -> ModuleType:
    """book/tools/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "book" / "tools" / "notebooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    path = find_browser()
    if path is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is on the path and LABKIT_CHROMIUM is not set"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield chromium
        chromium.close()


class Visit:
    """One page in a fresh browser (nothing cached), with all it asked for and all it said."""

    def __init__(self, page: Any, site: str) -> None:
        self.page, self.site = page, site
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        self._responses: list[Any] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("response", lambda response: self._responses.append(response))
        page.route("**/*", self._home_only)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _home_only(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self.site, "data:", "blob:")):
            route.continue_()
        else:
            self.foreign.append(url)
            route.abort()

    def open(self, name: str) -> None:
        """Load `name` and let it settle: fonts, mathematics, figures."""
        self.page.goto(self.site + name, wait_until="networkidle")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        self.page.evaluate("() => document.fonts.ready.then(() => null)")
        self.page.wait_for_load_state("networkidle")

    def nbytes(self) -> int:
        """Bytes of everything loaded so far, uncompressed."""
        return sum(len(r.body()) for r in self._responses if r.ok and r.status != 304)


@pytest.fixture(scope="session")
def visiting(browser: Any, site: str) -> Any:
    """`with visiting(name, width) as seen` opens a page of the book in a fresh window; `seen` is a `Visit`."""

    @contextlib.contextmanager
    def go(name: str, width: int = 1280, **options: Any) -> Iterator[Visit]:
        context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        seen = Visit(context.new_page(), site)
        seen.open(name)
        yield seen
        context.close()

    return go
