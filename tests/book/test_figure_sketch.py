"""A drawn prediction: by mouse, finger or keyboard; the answer is there only when it is asked for, and it is labkit's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from labkit.timing import ShiftedExponential, expected_max
from labkit_book.labs import figures

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
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
