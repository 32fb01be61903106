"""The book finds words and asks nobody else; old addresses lead on; the cover knows where its reader was, and forgets."""

from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
#: What is asked, and the lab that must be among the first three answers.
HOMES = {
    "straggler": "b_stragglers", "all+reduce": "10_5_all_reduce", "ZeRO": "a_sharded_training", "DiLoCo": "10_7_finale",
    "why+is+my+job+slow": "2_2_why", "deadlock": "10_3_synchronous_sgd",
}  # fmt: skip


@pytest.mark.parametrize("word, page", [
    ("lock-free", "10_4_without_a_lock"), ("allreduce_inplace", "api/collectives"),
], ids=["a word of a lab", "a name of labkit"])  # fmt: skip
def test_a_word_typed_into_the_search_field_finds_its_page(visiting: Any, word: str, page: str) -> None:
    with visiting("book/how_to.html") as seen:
        seen.page.keyboard.press("Control+k")
        field = seen.page.locator("input[name=q]:visible").first
        field.fill(word)
        field.press("Enter")
        seen.page.wait_for_url("**/search.html?*")
        expect(seen.page.locator(f"#search-results a[href*='{page}']").first).to_be_visible()
        assert not seen.foreign and not seen.complaints


def test_a_book_opened_from_a_folder_is_searched_without_an_error(html: Path, browser: Any) -> None:
    heard: list[str] = []
    page = browser.new_page()
    page.on("console", lambda m: heard.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: heard.append(str(e)))
    for asked, lab in HOMES.items():
        page.goto((html / "search.html").as_uri() + f"?q={asked}")
        expect(page.locator("#search-results")).to_contain_text("Search finished")
        first = [page.locator("#search-results li > a").nth(i).get_attribute("href") or "" for i in range(3)]
        assert any(f"notebooks/{lab}.html" in link for link in first), first
    assert not heard, heard[:3]
    page.close()


def test_an_old_address_leads_on(window: Any, site: str) -> None:
    page = window()
    page.goto(f"{site}notebooks/12_failures.html")
    page.wait_for_url("**/notebooks/b_failures.html")


def test_the_cover_leads_back_says_how_far_one_came_and_forgets(visiting: Any) -> None:
    with visiting("book/index.html") as seen:
        page = seen.page
        expect(page.locator(".labkit-progress")).to_have_count(0)
        seen.open("notebooks/10_9_lower_bounds.html")
        asked = page.evaluate("labkitPredict.questions[0].open(null); labkitPredict.questions.length")
        seen.open("book/index.html")
        expect(page.locator("p.labkit-progress a")).to_have_text("10.9 Lower bounds: how good can it get?")
        expect(page.locator("td .labkit-progress")).to_have_text([f"1 of {asked}"])
        page.locator("p.labkit-progress a").click()
        page.wait_for_url("**/notebooks/10_9_lower_bounds.html")
        seen.open("book/index.html")
        page.get_by_role("button", name="Forget").click()
        expect(page.locator(".labkit-progress")).to_have_count(0)
        seen.open("book/index.html")
        expect(page.locator(".labkit-progress")).to_have_count(0)
        assert not seen.foreign and not seen.complaints
