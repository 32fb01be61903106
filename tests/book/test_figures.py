"""What every interactive figure owes its readers: the same on a page as in a notebook, by mouse, finger, keyboard or ear."""

import re
from pathlib import Path
from typing import Any

import pytest

from labkit.show.figures.base import Figure
from labkit_book.labs import figures

ROOT = Path(__file__).resolve().parents[2]
every_figure = pytest.mark.parametrize("name", figures.names())
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
CONTROLS = ".lk :is(input, button, summary)"
STATE = "JSON.stringify(Object.keys(lab.default.defaults).map(lab.model.get))"


def open_all(page: Any) -> None:
    page.evaluate("document.querySelectorAll('.lk details').forEach((d) => (d.open = true))")


@every_figure
def test_every_control_has_a_name_a_size_for_fingers_and_a_place_in_the_tab_order(
    figure_page: Any, name: str
) -> None:
    with figure_page(name, width=390) as page:
        open_all(page)
        for control in page.locator(CONTROLS).all():
            kind = control.get_attribute("type")
            box = control.evaluate(
                "(e) => { const b = (e.type === 'checkbox' ? e.closest('label') : e).getBoundingClientRect();"
                " return [b.width, b.height, e.tabIndex]; }"
            )
            if box[0]:
                assert min(box[:2]) >= 44 and box[2] == 0, control.evaluate("e => e.outerHTML")
            if kind in ("range", "checkbox", "radio"):
                label = control.evaluate("e => e.labels[0]?.textContent.trim()")
                assert label, control.evaluate("e => e.outerHTML")


@every_figure
def test_each_slider_moves_by_keyboard_shows_its_focus_and_says_its_value(
    figure_page: Any, name: str
) -> None:
    with figure_page(name) as page:
        open_all(page)
        for slider in page.locator(".lk input[type=range]:visible").all():
            before = page.evaluate(STATE)
            slider.focus()
            at_end = slider.evaluate("e => e.value === e.max")
            page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
            page.wait_for_function(f"before => {STATE} !== before", arg=before)
            expect(slider).to_be_focused()
            expect(slider).to_have_attribute("aria-valuetext", re.compile("."))
            expect(slider).not_to_have_css("outline-style", "none")


@every_figure
def test_nothing_sticks_out_and_nothing_is_written_over_the_edge(figure_page: Any, name: str) -> None:
    with figure_page(name) as page:
        outside = """() => {
          const box = document.querySelector('.lk-svg').getBoundingClientRect();
          return [...document.querySelectorAll('.lk-svg text')].filter((t) => {
            const b = t.getBoundingClientRect();
            return b.left < box.left - 2 || b.right > box.right + 2 || b.top < box.top - 2 || b.bottom > box.bottom + 2;
          }).map((t) => t.textContent);
        }"""
        small = "[...document.querySelectorAll('.lk-svg text')].filter(t => parseFloat(getComputedStyle(t).fontSize) < 12)"
        drawn = "[document.querySelector('.lk-svg')].every((e) => Math.abs(e.clientWidth - e.getAttribute('width')) < 1.5)"
        for width in (1280, 390, 320):
            page.set_viewport_size({"width": width, "height": 844})
            page.wait_for_function(drawn)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(outside) == []
            assert page.evaluate(f"{small}.length") == 0


@every_figure
def test_words_follow_the_picture_and_are_spoken_once_after_the_last_move(
    figure_page: Any, name: str
) -> None:
    with figure_page(name, stopped=True) as page:
        words = "document.querySelector('.lk-svg').ariaLabel"
        page.evaluate(
            "() => { lab.said = []; const live = document.querySelector('[aria-live=polite]');"
            " new MutationObserver(() => lab.said.push(live.textContent)).observe(live, { childList: true }); }"
        )
        first = page.evaluate(words)
        slider = page.locator(".lk input[type=range]").first
        slider.focus()
        for key in ["End", "Home", "ArrowRight", "ArrowRight", "ArrowRight"]:
            page.keyboard.press(key)
            page.clock.run_for(500)
        assert page.evaluate("lab.said") == []
        page.clock.run_for(10_000)
        assert page.evaluate("lab.said") == [page.evaluate(words)]
        assert len(first) > 40 and first != page.evaluate(words)


@every_figure
def test_axe_finds_nothing_serious(figure_page: Any, name: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with figure_page(name, width=390) as page:
        open_all(page)
        found = axe.run(page, context=".lk").response["violations"]
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        found += axe.run(page, context=".lk").response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


@pytest.fixture(scope="module")
def shown() -> Figure:
    return figures.figure("ring", K=5, round=3)


def book_page(folder: Path, body: str, scripts: bool) -> str:
    """A page as the book makes it, in `folder`, to be opened as a file."""
    static = folder / "_static"
    (static / "figures").mkdir(parents=True)
    (static / "labkit-figures.js").write_text((ROOT / "book" / "_static" / "labkit-figures.js").read_text())
    if scripts:
        (static / "figures" / "ring.js").write_text(figures.script("ring"))
    page = folder / "lab.html"
    page.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<script defer src="_static/labkit-figures.js?v=1"></script></head><body>{body}{body}</body></html>'
    )
    return page.as_uri()


def test_a_page_of_the_book_mounts_its_figures_even_when_opened_as_a_file(
    window: Any, tmp_path: Path, shown: Any
) -> None:
    page = window()
    errors: list[str] = []
    page.on("console", lambda m: errors.append(m.text))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(book_page(tmp_path, shown.html, scripts=True))
    expect(page.locator(".labkit-figure[data-live]")).to_have_count(2)
    expect(page.locator(".labkit-figure img")).to_have_count(0)
    expect(page.locator(".lk-svg")).to_have_count(2)
    page.get_by_role("button", name="Back").first.click()
    rounds = page.get_by_role("slider", name="round")
    expect(rounds.first).to_have_attribute("aria-valuetext", re.compile("^2 of 8"))
    expect(rounds.last).to_have_attribute("aria-valuetext", re.compile("^3 of 8"))
    assert not errors
