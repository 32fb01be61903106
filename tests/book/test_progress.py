"""The cover knows where its reader was, tells nobody, and forgets when asked to; every page says its version's page."""

from __future__ import annotations

from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser

LAB = "notebooks/10_9_lower_bounds.html"
KEEPS_NOTHING = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no'); } })"


def test_the_cover_leads_back_says_how_far_one_came_and_forgets(visiting: Any) -> None:
    with visiting("book/index.html") as seen:
        page = seen.page
        expect(page.locator(".labkit-progress")).to_have_count(0)
        seen.open(LAB)
        asked = page.evaluate("labkitPredict.questions[0].open(null); labkitPredict.questions.length")
        seen.open("book/index.html")
        expect(page.locator("p.labkit-progress a")).to_have_text("10.9 Lower bounds: how good can it get?")
        expect(page.locator("td .labkit-progress")).to_have_text([f"1 of {asked}"])
        page.locator("p.labkit-progress a").click()
        page.wait_for_url(f"**/{LAB}")
        seen.open("book/index.html")
        page.get_by_role("button", name="Forget").click()
        expect(page.locator(".labkit-progress")).to_have_count(0)
        seen.open("book/index.html")
        expect(page.locator(".labkit-progress")).to_have_count(0)
        assert not seen.foreign and not seen.complaints


def test_where_nothing_may_be_stored_or_somebody_else_has_stored_the_pages_are_as_they_were(
    visiting: Any,
) -> None:
    with visiting("book/index.html") as seen:
        for stored in ("{", "3", '{"last": 3}', '{"pages": {"x": 1}}'):
            seen.page.evaluate("stored => localStorage.setItem('labkit-progress', stored)", stored)
            seen.open("book/index.html")
            expect(seen.page.locator(".labkit-progress")).to_have_count(0)
        seen.page.add_init_script(KEEPS_NOTHING)
        seen.open("book/index.html")
        seen.open(LAB)
        assert not [said for said in seen.complaints if "progress" in said]


def test_every_page_leads_to_its_version_and_how_to_cite_it(visiting: Any) -> None:
    with visiting(LAB) as seen:
        seen.page.locator("footer a", has_text="how to cite").click()
        seen.page.wait_for_url("**/book/about.html")
        expect(seen.page.locator("article")).to_contain_text("Unreleased")
        expect(seen.page.locator("article blockquote")).to_contain_text("The labkit authors")
