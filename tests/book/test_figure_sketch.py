"""A drawn prediction: by mouse, finger or keyboard; the answer is there only when it is asked for, and it is labkit's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labkit.show import figures
from labkit.timing import ShiftedExponential, expected_max

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
STATIC = Path(__file__).resolve().parents[2] / "book" / "_static"
KS = (1, 2, 8, 32, 128)
MS = tuple(1e3 * float(expected_max(ShiftedExponential(0.08, 0.02), K)) for K in KS)
ASKED: dict[str, Any] = {
    "question": "Mean step", "x": KS, "truth": MS, "x_label": "workers K", "y_label": "step (ms)", "low": 0.0, "high": 300.0,
}  # fmt: skip


def place(page: Any, i: int, ms: float) -> tuple[float, float]:
    """Where on the page a value is, from the axes as they are drawn."""
    columns = (
        "[...document.querySelectorAll('.lk-svg text')].filter(t => t.textContent === '{}')"
        ".map(t => t.getBoundingClientRect())"
    )
    at = page.evaluate(columns.format(KS[i]) + "[0].toJSON()")
    rows = {v: page.evaluate(columns.format(v) + ".sort((a, b) => a.x - b.x)[0].toJSON()") for v in (0, 200)}
    y0, y200 = (row["y"] + row["height"] / 2 for row in (rows[0], rows[200]))
    return at["x"] + at["width"] / 2, y0 + (y200 - y0) * ms / 200


def test_the_answer_is_told_nowhere_until_it_is_asked_for(figure_page: Any) -> None:
    made = figures.figure("sketch", **ASKED)
    for text in (made.html, repr(made), *made._still):
        assert not any(f"{ms:.1f}" in text or f"{ms:.4g}" in text for ms in MS[1:])
    with figure_page("sketch", **ASKED) as page:
        seen = page.locator(".lk").inner_text() + page.locator(".lk-svg").get_attribute("aria-label")
        assert not any(f"{ms:.3g}" in seen for ms in MS[1:])
        page.get_by_role("button", name="Give up: show the answer").click()
        expect(page.locator("[data-key=error]")).to_have_text("no guess")
        truth = page.evaluate(
            "lab.compute(Object.fromEntries(['asked','drawn','column','shown'].map(k => [k, lab.model.get(k)]))).points"
        )
        assert [p["truth"] for p in truth] == pytest.approx(MS, rel=1e-5)


def test_a_stroke_of_the_mouse_is_a_guess_at_every_place_it_passes(figure_page: Any) -> None:
    with figure_page("sketch", **ASKED) as page:
        start, end = place(page, 1, 100), place(page, 4, 250)
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move(*end)  # at once: what lies between is drawn too
        page.mouse.up()
        page.wait_for_function("!lab.model.get('drawn').slice(1).includes(null)")
        drawn = page.evaluate("lab.model.get('drawn')")
        assert drawn[0] is None  # given
        assert drawn[1:] == pytest.approx([100, 150, 200, 250], abs=4)
        page.get_by_role("button", name="Show the answer", exact=True).click()
        expect(page.locator(".lk-svg")).to_have_attribute("aria-label", re.compile("off on average"))
        off = [abs(g - t) / t for g, t in zip(drawn[1:], MS[1:], strict=True)]
        assert float(page.locator("[data-key=error]").get_attribute("data-value")) == pytest.approx(
            sum(off) / 4, rel=1e-4
        )
        page.mouse.move(*place(page, 2, 50))
        page.mouse.down()
        page.mouse.up()
        assert page.evaluate("lab.model.get('drawn')") == drawn  # a guess that has seen the answer stands
        page.get_by_role("button", name="Start again").click()
        page.wait_for_function("lab.model.get('drawn').every(y => y === null) && !lab.model.get('shown')")


def test_the_keyboard_draws_too(figure_page: Any) -> None:
    with figure_page("sketch", **ASKED) as page:
        workers = page.get_by_role("slider", name="workers K")
        height = page.get_by_role("slider", name="your guess there")
        for K, after in zip(KS[1:], (*KS[2:], KS[-1]), strict=True):
            expect(workers).to_have_attribute("aria-valuetext", str(K))
            expect(height).to_have_attribute("aria-valuetext", "none yet")
            height.press("ArrowRight")
            expect(height).to_have_attribute("aria-valuetext", re.compile("^15[0-5]"))
            workers.press("ArrowRight")
            expect(workers).to_have_attribute("aria-valuetext", str(after))
        assert all(150 < y < 155 for y in page.evaluate("lab.model.get('drawn').slice(1)"))
        page.get_by_role("button", name="Show the answer", exact=True).press("Enter")
        expect(page.locator(".lk-svg")).to_have_attribute("aria-label", re.compile("off on average"))
        expect(
            page.get_by_role("button", name="Start again")
        ).to_be_focused()  # not lost with the button pressed
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Give up")).to_be_focused()


def test_strokes_and_keys_that_come_before_the_next_frame_are_kept(figure_page: Any) -> None:
    """The clock stands still, so nothing is drawn anew in between."""
    with figure_page("sketch", stopped=True, **ASKED) as page:
        page.get_by_role("slider", name="workers K").press("End")
        page.get_by_role("slider", name="your guess there").press("ArrowRight")
        assert page.evaluate("lab.model.get('drawn').map(Boolean)") == [False] * 4 + [True]
        page.mouse.move(*place(page, 1, 100))
        page.mouse.down()
        for i in (2, 3):
            page.mouse.move(*place(page, i, 50 * (i + 1)))
        page.mouse.up()
        page.wait_for_function("lab.model.get('drawn')[3] !== null")
        assert page.evaluate("lab.model.get('drawn')")[1:] == pytest.approx([100, 150, 200, 151.5], abs=4)


def test_a_finger_draws_and_does_not_scroll(figure_page: Any, touch: Any) -> None:
    with figure_page("sketch", width=390, options={"has_touch": True}, **ASKED) as page:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('div'), { style: 'height: 3000px' }))"
        )
        touch(page, [place(page, 2, 60 + 20 * i) for i in range(7)])
        page.wait_for_function("lab.model.get('drawn')[2] > 170")
        assert page.evaluate("scrollY") == 0


def test_on_a_page_what_follows_is_covered_until_the_answer_is_shown_and_the_drawing_is_kept(
    window: Any, tmp_path: Path
) -> None:
    static = tmp_path / "_static"
    (static / "figures").mkdir(parents=True)
    for name in ("labkit-figures.js", "predict.css"):
        (static / name).write_text((STATIC / name).read_text())
    (static / "figures" / "sketch.js").write_text(figures.script("sketch"))
    page_file = tmp_path / "lab.html"
    page_file.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="stylesheet" href="_static/predict.css">'
        '<script defer src="_static/labkit-figures.js?v=1"></script></head><body><section>'
        f'<div class="cell">{figures.figure("sketch", **ASKED).html}</div><p id="told">It is 188.7 ms.</p>'
        '<section><h3>For real</h3><p id="real">188 ms</p></section></section>'
        '<section><h2>Next</h2><p id="next">on</p></section></body></html>'
    )
    page = window()
    page.goto(page_file.as_uri())
    live, told = page.locator(".labkit-figure[data-live]"), page.locator("#told")
    expect(live).to_be_visible()
    expect(told).not_to_be_visible()
    expect(page.locator("#real")).not_to_be_visible()
    expect(page.locator("#next")).to_be_visible()
    height = page.get_by_role("slider", name="your guess there")
    height.press("ArrowRight")
    expect(height).to_have_attribute("aria-valuetext", re.compile("^15"))
    page.get_by_role("button", name="Give up: show the answer").click()
    expect(told).to_be_visible()
    page.reload()
    expect(live.locator("[data-key=worst]")).to_be_visible()
    expect(told).to_be_visible()
    page.get_by_role("button", name="Start again").click()
    expect(told).not_to_be_visible()
    page.goto(page_file.as_uri() + "#told")  # whoever is sent there may look
    page.reload()
    expect(live).to_be_visible()
    expect(told).to_be_visible()
