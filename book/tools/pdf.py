"""`make pdf`: the whole book as one PDF with an outline, printed by a Chromium from Sphinx's single page.

book/_static/print.css unfolds what is folded, and leaves out what is no text.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import build

ROOT = Path(__file__).resolve().parents[2]
# The first is Debian's chromium without windows: it draws the same pages in three quarters of the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
STYLE = ".bd-article section:has(> h1) { break-before: page; }"
FOOT = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'


def find_browser() -> str | None:
    """LABKIT_CHROMIUM, or the first browser on the path that can print."""
    named = os.environ.get("LABKIT_CHROMIUM")
    return named or next((found for name in BROWSERS if (found := shutil.which(name))), None)


def print_page(html: Path, target: Path, browser: str) -> None:
    """Print a page, its formulas typeset, into `target`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(color_scheme="light")
        page.set_default_timeout(300_000)
        page.goto(html.as_uri())
        page.add_style_tag(content=STYLE)
        page.evaluate("() => window.MathJax?.startup?.promise.then(() => null)")
        page.evaluate("() => document.querySelectorAll('details').forEach((e) => (e.open = true))")
        page.pdf(
            path=target, format="A4", print_background=True, outline=True, tagged=True,
            display_header_footer=True, header_template="<span></span>", footer_template=FOOT,
        )  # fmt: skip
        chromium.close()


def main() -> int:
    browser = find_browser()
    if browser is None:
        print(f"make pdf needs a browser: none of {', '.join(BROWSERS)} is on the path", file=sys.stderr)
        return 1
    book = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", ROOT, "--builder", "singlehtml"]
    subprocess.run([*book, "--all"], stdin=subprocess.DEVNULL, check=True)
    target = ROOT / "_build" / "book.pdf"
    print_page(ROOT / "_build" / "singlehtml" / "book" / "index.html", target, browser)
    build.offer()
    print(f"The book is at {target} ({target.stat().st_size / 1e6:.1f} MB).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
