"""What every interactive figure owes its readers: the same on a page as in a notebook, by mouse, finger, keyboard or ear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit.show import figures, palette

ROOT = Path(__file__).resolve().parents[2]
every_figure = pytest.mark.parametrize("name", figures.names())
pytestmark = pytest.mark.browser
CONTROLS = ".lk :is(input, button, summary)"


def open_all(page: Any) -> None:
    page.evaluate("document.querySelectorAll('.lk details').forEach((d) => (d.open = true))")


@every_figure
def test_both_sides_begin_at_the_same_settings(figure_page: Any, name: str) -> None:
    with figure_page(name) as page:
        defaults = page.evaluate("lab.default.defaults")
    ours = figures.parameters_of(name)
    assert set(defaults) == set(ours.state())
    assert {k: v for k, v in defaults.items() if k not in ours.data()} == pytest.approx(
        {k: v for k, v in ours.state().items() if k not in ours.data()}
    )


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
            before = page.evaluate("Object.keys(lab.default.defaults).map(lab.model.get)")
            slider.focus()
            at_end = slider.evaluate("e => e.value === e.max")
            page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
            after = page.evaluate("Object.keys(lab.default.defaults).map(lab.model.get)")
            assert before != after, slider.evaluate("e => e.parentElement.textContent")
            assert slider.get_attribute("aria-valuetext")
            assert slider.evaluate("e => getComputedStyle(e).outlineStyle !== 'none'")


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
    with figure_page(name) as page:
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
        page.wait_for_function("lab.said.length > 0")
        assert page.evaluate("lab.said") == [page.evaluate(words)]
        assert len(first) > 40 and first != page.evaluate(words)


@every_figure
def test_a_drag_is_answered_within_50_ms(figure_page: Any, name: str) -> None:
    """The least of forty answers: a busy machine makes some late, none early."""
    with figure_page(name) as page:
        took = page.evaluate(
            """async () => {
              const svg = document.querySelector('.lk-svg'), slider = document.querySelector('.lk input[type=range]');
              let least = Infinity;
              for (let i = 0; i < 40; i++) {
                const before = performance.now();
                const drawn = new Promise((done) => new MutationObserver((_, me) => (me.disconnect(), done()))
                  .observe(svg, { childList: true }));
                slider.value = i % 2 ? slider.min : slider.max;
                slider.dispatchEvent(new Event('input'));
                await drawn;
                least = Math.min(least, performance.now() - before);
              }
              return least;
            }"""
        )
        assert took < 50


@every_figure
def test_reduced_motion_is_kept_still_and_nothing_plays_by_itself(figure_page: Any, name: str) -> None:
    with figure_page(name, options={"reduced_motion": "reduce"}) as page:
        if page.locator(".lk-player").count() == 0:
            return
        state = "JSON.stringify(Object.keys(lab.default.defaults).map(lab.model.get))"
        before = page.evaluate(state)
        page.evaluate(
            "() => { lab.draws = 0; new MutationObserver(() => lab.draws++)"
            ".observe(document.querySelector('.lk-svg'), { childList: true }); }"
        )
        page.wait_for_timeout(100)
        assert page.evaluate(state) == before and page.evaluate("lab.draws") == 0
        page.get_by_role("button", name="Step").click()
        page.wait_for_function("lab.draws > 0")
        page.wait_for_timeout(100)
        assert page.evaluate("lab.draws") == 1


@every_figure
def test_axe_finds_nothing_serious(figure_page: Any, name: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with figure_page(name, width=390) as page:
        open_all(page)
        found = axe.run(page, context=".lk").response["violations"]
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        found += axe.run(page, context=".lk").response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


def ground(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.querySelector('.lk')).backgroundColor"))


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def test_it_is_dark_where_its_page_is_and_light_on_paper(figure_page: Any) -> None:
    light, dark = rgb(palette.LIGHT["paper"]), rgb(palette.DARK["paper"])
    with figure_page("ring", options={"color_scheme": "dark"}) as page:
        assert ground(page) == dark
        for where, attribute, value, expected in (
            ("documentElement", "data-theme", "light", light),
            ("documentElement", "data-theme", "dark", dark),
            ("body", "data-jp-theme-light", "true", light),
            ("body", "data-jp-theme-light", "false", dark),
        ):
            page.evaluate(f"document.{where}.setAttribute('{attribute}', '{value}')")
            assert ground(page) == expected, (attribute, value)
            page.evaluate(f"document.{where}.removeAttribute('{attribute}')")
        page.emulate_media(media="print")
        assert ground(page) == light
        assert page.locator(".lk-svg").is_visible() and not page.locator(".lk-buttons").is_visible()


def test_leaving_takes_everything_away(figure_page: Any) -> None:
    with figure_page("ring") as page:
        page.get_by_role("button", name="Play").click()
        page.evaluate("lab.leave()")
        before = page.evaluate("lab.model.get('round')")
        assert page.locator(".lk").count() == 0
        page.wait_for_timeout(1300)
        assert page.evaluate("lab.model.get('round')") == before


@pytest.fixture(scope="module")
def shown() -> figures.Figure:
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
    browser: Any, tmp_path: Path, shown: Any
) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda m: errors.append(m.text))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(book_page(tmp_path, shown.html, scripts=True))
    page.wait_for_selector(".labkit-figure[data-live] >> nth=1")
    assert page.locator(".labkit-figure img").count() == 0 and page.locator(".lk-svg").count() == 2
    page.get_by_role("button", name="Back").first.click()
    assert page.get_by_role("slider", name="round").first.get_attribute("aria-valuetext").startswith("2 of 8")
    assert page.get_by_role("slider", name="round").last.get_attribute("aria-valuetext").startswith("3 of 8")
    assert not errors
    page.close()


def test_without_its_script_a_figure_stays_the_picture_it_was(
    browser: Any, tmp_path: Path, shown: Any
) -> None:
    page = browser.new_page()
    page.goto(book_page(tmp_path, shown.html, scripts=False))
    page.wait_for_timeout(300)
    assert page.locator(".labkit-figure img").count() == 2 and page.locator(".lk").count() == 0
    assert page.locator(".labkit-figure img").first.evaluate("e => e.naturalWidth > 300")
    page.close()


def test_a_figure_is_a_page_of_its_own_that_asks_nobody(browser: Any, shown: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.set_content(shown.page())
    page.get_by_role("button", name="Step").click()
    assert page.get_by_role("slider", name="round").get_attribute("aria-valuetext").startswith("4 of 8")
    assert not [url for url in asked if not url.startswith("data:")]
    page.close()


READ = {
    "seconds(0.14)": "140 ms", "seconds(0.1575)": "157.5 ms", "seconds(0)": "0 s", "seconds(2.5e-5)": "25 µs",
    "seconds(90)": "90 s", "seconds(0.99999)": "1 s", "bytes(1.5e6)": "1.5 MB", "bytes(999.999)": "1 kB",
    "bytes(40)": "40 B", "rate(1.25e9)": "1.25 GB/s", "percent(0.63636)": "63.6 %", "count(2e8)": "200 million",
    "count(250000)": "250,000",
    "digits(1.23456e7)": "1.235·10⁷", "digits(-0.5)": "−0.5", "digits(Infinity)": "∞",
    "decades(1, 100).join()": "1,2,5,10,20,50,100", "ticks(0, 240, 5).join()": "0,50,100,150,200",
}  # fmt: skip


def test_numbers_read_as_people_write_them(figure_page: Any) -> None:
    with figure_page("ring") as page:
        for call, words in READ.items():
            assert page.evaluate(f"lab.{call}") == words
