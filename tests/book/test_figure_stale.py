"""The staleness figure shows lab 10.6's path, roots and frontier, and its point is dragged or moved by keyboard."""

import json
import re
from typing import Any

import numpy as np
import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


def largest_eta(tau: Any) -> Any:
    return 2 * np.cos(np.pi * tau / (2 * tau + 1))  # Levin and May's form


def path(tau: int, x: float, U: int) -> Any:
    w = [1.0]
    for u in range(U):
        w.append(w[u] - x * w[max(u - tau, 0)])
    return np.array(w)


def roots(tau: int, x: float) -> Any:
    """Those of z^{tau+1} - z^tau + x, the largest first."""
    z = np.roots([1, x - 1] if tau == 0 else [1, -1, *[0] * (tau - 1), x])
    return z[np.argsort(-np.abs(z), kind="stable")]


def test_its_path_roots_and_frontier_are_those_of_lab_10_6(figure_page: Any) -> None:
    rng = np.random.default_rng(106)
    asked = [
        {"tau": int(rng.integers(0, 17)), "eta_L": float(10 ** rng.uniform(-1.7, 0.4)), "U": int(rng.integers(20, 200))}
        for _ in range(150)
    ]  # fmt: skip
    asked += [{"tau": tau, "eta_L": largest_eta(tau), "U": 60} for tau in range(17)]
    with figure_page("stale") as page:
        shown = json.loads(page.evaluate("all => JSON.stringify(all.map((s) => lab.compute(s)))", asked))
    for state, seen in zip(asked, shown, strict=True):
        tau, x = state["tau"], state["eta_L"]
        assert np.allclose(seen["path"], path(tau, x, state["U"]), rtol=1e-12, atol=0)
        assert seen["frontier"] == pytest.approx(largest_eta(tau), rel=1e-12)
        assert [at for at, _ in seen["lines"]] == pytest.approx(largest_eta(np.arange(17)), rel=1e-12)
        theirs = roots(tau, x)
        ours = np.array([complex(*z) for z in seen["roots"]])
        assert len(ours) == tau + 1
        assert np.abs(ours[:, None] - theirs).min(axis=0).max() < 1e-6  # each of theirs is one of ours
        assert np.abs(ours ** (tau + 1) - ours**tau + x).max() < 1e-11  # and ours are roots
        assert np.abs(ours[:, None] - ours)[~np.eye(len(ours), dtype=bool)].min(initial=1) > 1e-6
        assert seen["radius"] == pytest.approx(abs(theirs[0]), rel=1e-6)
        if seen["period"]:
            assert seen["period"] == pytest.approx(2 * np.pi / abs(np.angle(theirs[0])), rel=1e-6)
        else:
            assert x <= tau**tau / (tau + 1) ** (tau + 1) and abs(theirs[0].imag) < 1e-6


def test_the_point_is_dragged_and_moved_by_keyboard_and_its_fate_follows(figure_page: Any) -> None:
    with figure_page("stale", tau=4, eta_L=0.33) as page:
        picture, delay = page.locator(".lk-svg"), page.get_by_role("slider", name="delay")
        expect(picture).to_have_attribute("aria-label", re.compile("swings and settles"))
        box = page.locator(".lk-point").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 30, steps=4)
        page.mouse.up()
        page.wait_for_function("lab.model.get('eta_L') > 0.4")
        expect(picture).to_have_attribute("aria-label", re.compile("runs away"))
        tau, x = page.evaluate("[lab.model.get('tau'), lab.model.get('eta_L')]")
        assert tau == 4
        until_radius(page, abs(roots(tau, x)[0]))
        for left in (3, 2, 1, 0):
            delay.press("ArrowLeft")
            expect(delay).to_have_attribute("aria-valuetext", re.compile(rf"^{left}\b"))
        until_radius(page, abs(1 - x))


def until_radius(page: Any, x: float) -> None:
    near = "x => Math.abs(document.querySelector('[data-key=radius]').dataset.value - x) < 1e-6"
    page.wait_for_function(near, arg=x)
