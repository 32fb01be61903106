"""The book's own search, which asks nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    "word, page",
    [("lock-free", "10_4_asynchronous_sgd"), ("allreduce_inplace", "api/collectives")],
    ids=["a word of a lab", "a name of labkit"],
)
def test_a_word_typed_into_the_search_field_finds_its_page(visiting: Any, word: str, page: str) -> None:
    with visiting("book/how_to.html") as seen:
        seen.page.keyboard.press("Control+k")
        field = seen.page.locator("input[name=q]:visible").first
        field.fill(word)
        field.press("Enter")
        seen.page.wait_for_url("**/search.html?*")
        expect(seen.page.locator(f"#search-results a[href*='{page}']").first).to_be_visible()
        assert not seen.foreign and not seen.complaints


def test_what_the_book_does_not_say_is_not_found(visiting: Any) -> None:
    with visiting("search.html?q=zzyzx") as seen:
        expect(seen.page.get_by_text("did not match any documents").first).to_be_visible()
        expect(seen.page.locator("#search-results li a")).to_have_count(0)


def test_what_is_found_is_readable_by_night_and_stands_beside_the_magnifier(visiting: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with visiting("search.html?q=straggler", color_scheme="dark") as seen:
        expect(seen.page.locator("#search-results .highlighted").nth(5)).to_be_visible()
        found = Axe().run(seen.page, options={"runOnly": ["color-contrast"]})
        assert found.violations_count == 0, found.generate_report()
        field = seen.page.locator(".bd-search-container input[name=q]")
        left = float(field.evaluate("e => parseFloat(getComputedStyle(e).paddingLeft)"))
        icon = seen.page.locator(".bd-search-container .bd-search i").bounding_box()
        assert icon["x"] + icon["width"] <= field.bounding_box()["x"] + left


def test_a_book_opened_from_a_folder_is_searched_without_an_error(html: Path, browser: Any) -> None:
    heard: list[str] = []
    page = browser.new_page()
    page.on("console", lambda m: heard.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: heard.append(str(e)))
    page.goto((html / "search.html").as_uri() + "?q=straggler")
    expect(page.locator("#search-results li a").nth(5)).to_be_visible()
    expect(page.locator("#search-results")).to_contain_text("Search finished")
    assert not heard, heard[:3]
    page.close()


def test_where_nothing_of_a_search_stands_there_is_nothing_to_hide(visiting: Any) -> None:
    hide = ".highlight-link"
    with visiting("search.html?q=zzyzx") as seen:
        expect(seen.page.get_by_text("did not match any documents").first).to_be_visible()
        assert seen.page.evaluate("localStorage.getItem('sphinx_highlight_terms')") == "zzyzx"
        seen.page.goto(seen.page.url.split("search.html")[0] + "book/notation.html")
        seen.page.wait_for_function("!localStorage.getItem('sphinx_highlight_terms')")
        expect(seen.page.locator(hide)).to_have_count(0)
    with visiting("book/glossary.html?highlight=straggler") as seen:
        expect(seen.page.locator("span.highlighted").first).to_be_visible()
        seen.page.locator(f"{hide} a").first.evaluate("e => e.click()")
        expect(seen.page.locator("span.highlighted")).to_have_count(0)
        expect(seen.page.locator(hide)).to_have_count(0)
