"""The staleness figure shows labkit's path, roots and frontier, and its point is dragged on the map or moved by keyboard."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from labkit.learn import LeastSquares, constant_delay, replay
from labkit.learn.stability import largest_eta, roots, spectral_radius
from labkit.show.figures import parameters_of

pytestmark = pytest.mark.browser


def test_its_path_roots_and_frontier_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(106)
    asked = [
        {
            "tau": int(rng.integers(0, 17)),
            "eta_L": float(10 ** rng.uniform(-1.7, 0.4)),
            "U": int(rng.integers(20, 200)),
        }
        for _ in range(150)
    ]
    asked += [{"tau": tau, "eta_L": largest_eta(tau), "U": 60} for tau in range(17)]
    with figure_page("stale") as page:
        shown = json.loads(page.evaluate("all => JSON.stringify(all.map((s) => lab.compute(s)))", asked))
    bowl = LeastSquares([[1.0]], [0.0])
    for state, seen in zip(asked, shown, strict=True):
        tau, x = state["tau"], state["eta_L"]
        assert np.allclose(seen["path"], parameters_of("stale", **state).path(), rtol=1e-12, atol=0)
        assert seen["frontier"] == pytest.approx(largest_eta(tau), rel=1e-12)
        assert [at for at, _ in seen["lines"]] == pytest.approx(largest_eta(np.arange(17)), rel=1e-12)
        theirs = roots(tau, x)
        ours = np.array([complex(*z) for z in seen["roots"]])
        assert len(ours) == tau + 1
        assert np.abs(ours[:, None] - theirs).min(axis=0).max() < 1e-6  # each of theirs is one of ours
        assert np.abs(ours ** (tau + 1) - ours**tau + x).max() < 1e-11  # and ours are roots
        assert np.abs(ours[:, None] - ours)[~np.eye(len(ours), dtype=bool)].min(initial=1) > 1e-6
        assert seen["radius"] == pytest.approx(spectral_radius(tau, x), rel=1e-6)
        if seen["period"]:
            assert seen["period"] == pytest.approx(2 * np.pi / abs(np.angle(theirs[0])), rel=1e-6)
        else:
            assert x <= parameters_of("stale", **state).swings_above() and abs(theirs[0].imag) < 1e-6
        if x < 1:
            delayed = constant_delay(state["U"], tau)
            w = replay(bowl, [1.0], x / bowl.L, delayed, lambda rank, step: [0])[:, 0]
            assert np.allclose(seen["path"], w, rtol=1e-9, atol=1e-12)


def test_at_the_frontier_a_swing_takes_four_delays_and_two_updates(figure_page: Any) -> None:
    with figure_page("stale", tau=7, eta_L=largest_eta(7)) as page:
        assert page.locator("[data-key=period]").inner_text() == "30 updates"
        assert page.locator("[data-key=radius]").inner_text() == "1"
        assert "neither settles nor runs away" in page.locator(".lk-svg").get_attribute("aria-label")


def test_the_point_is_dragged_and_moved_by_keyboard_and_its_fate_follows(figure_page: Any) -> None:
    with figure_page("stale", tau=4, eta_L=0.33) as page:
        assert "swings and settles" in page.locator(".lk-svg").get_attribute("aria-label")
        box = page.locator(".lk-point").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 30, steps=4)
        page.mouse.up()
        page.wait_for_function("document.querySelector('.lk-svg').ariaLabel.includes('runs away')")
        tau, x = page.evaluate("[lab.model.get('tau'), lab.model.get('eta_L')]")
        assert tau == 4 and x > 0.4
        assert float(page.locator("[data-key=radius]").get_attribute("data-value")) == pytest.approx(
            spectral_radius(tau, x)
        )
        page.get_by_role("slider", name="delay").focus()
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
        page.wait_for_function("lab.model.get('tau') === 0")
        page.wait_for_function(
            "x => Math.abs(document.querySelector('[data-key=radius]').dataset.value - x) < 1e-9",
            arg=abs(1 - x),
        )


def test_a_finger_on_the_point_moves_it_and_not_the_page(figure_page: Any) -> None:
    with figure_page("stale", width=390, tau=4, eta_L=0.33, options={"has_touch": True}) as page:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('div'), { style: 'height: 3000px' }))"
        )
        box = page.locator(".lk-point").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        session = page.context.new_cdp_session(page)
        for kind, at in [
            ("touchStart", y),
            *(("touchMove", y - 10 * i) for i in range(1, 7)),
            ("touchEnd", None),
        ]:
            points = [] if at is None else [{"x": x, "y": at}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            page.wait_for_timeout(30)  # a frame or two: what is under the finger is drawn anew
        page.wait_for_function("lab.model.get('eta_L') > 0.6")
        assert page.evaluate("scrollY") == 0
